/* Selection by indices: take, pick, their gradients, one_hot, SequenceMask. Indices come in any integer or float
 * dtype. */
#ifndef PLK_INDEX_H
#define PLK_INDEX_H
#include "kernel.h"
/* cffi reads from here on: */
/* take: a (outer, n, inner), n_indices indices -> (outer, n_indices, inner).
 * pick: a (outer, n, inner), outer * inner indices -> (outer, inner). */
typedef struct {
    int64_t outer, n, n_indices, inner;
    int32_t size, index_dtype, wrap;       /* size: bytes of an element; wrap: 1 modulo n, 0 clipped */
} plk_take;
typedef struct { int64_t n_indices, depth; int32_t size, index_dtype, dtype; double on, off; } plk_one_hot;
/* x (outer, steps, batch, inner) or, with batch first, (outer, batch, steps, inner); outer is 1 */
typedef struct {
    int64_t steps, batch, inner;
    int32_t size, length_dtype, dtype, batch_first;
    double value;
} plk_sequence_mask;
typedef struct { int64_t n; int32_t dtype; } plk_places;
typedef struct { int64_t n_indices, size; int32_t dtype; } plk_positions;   /* size: of the axis */
/* cffi stops reading here */
int64_t plk_take_place(const plk_take *p, const void *indices, int64_t i);   /* index i, inside [0, n) */
int64_t plk_index_at(const void *indices, int dtype, int64_t i);             /* index i as given */
#endif
