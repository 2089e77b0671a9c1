/* Selection by indices: take, pick, their gradients, one_hot, SequenceMask. Indices come in any integer or float
 * dtype. */
#ifndef PLK_INDEX_H
#define PLK_INDEX_H
#include "kernel.h"
/* cffi reads from here on: */
/* RAISE: those outside fail; INDEX: as Python's, negative ones count from the end, others fail */
enum { PLK_TAKE_CLIP, PLK_TAKE_WRAP, PLK_TAKE_INDEX, PLK_TAKE_RAISE };
/* take: a (outer, n, inner), n_indices indices -> (outer, n_indices, inner).
 * pick: a (outer, n, inner), outer * inner indices -> (outer, inner). */
typedef struct {
    int64_t outer, n, n_indices, inner;
    int32_t size, index_dtype, mode;       /* size: bytes of an element; indices outside: PLK_TAKE_CLIP ... */
} plk_take;
typedef struct { int64_t n_indices, depth; int32_t size, index_dtype, dtype; double on, off; } plk_one_hot;
/* x (outer, steps, batch, inner) or, with batch first, (outer, batch, steps, inner); outer is 1 */
typedef struct {
    int64_t steps, batch, inner;
    int32_t size, length_dtype, dtype, batch_first;
    double value;
} plk_sequence_mask;
/* x as (rows, columns); shape: the ndim axes, of which the last is columns; count: of elements that are not 0 */
typedef struct { int64_t rows, columns, count, shape[PLK_MAX_DIMS]; int32_t ndim, dtype; } plk_places;
/* cffi stops reading here */
int64_t plk_take_place(const plk_take *p, const void *indices, int64_t i);   /* index i, inside [0, n) */
int64_t plk_index_at(const void *indices, int dtype, int64_t i);             /* index i as given */
#endif
