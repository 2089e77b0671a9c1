/* Attention in float32: y = softmax(scale q k^T + mask) v for each batch and head, and its gradient. */
#ifndef PLK_ATTENTION_H
#define PLK_ATTENTION_H
#include "kernel.h"
/* cffi reads from here on: */
enum { PLK_MASK_NONE = 0, PLK_MASK_ADD, PLK_MASK_WHERE, PLK_MASK_LENGTH32, PLK_MASK_LENGTH64 };
/* The location of an operand: its source, first element, steps between batches, heads and rows. The elements of a row
 * are contiguous. */
typedef struct { int64_t source, at, batch, head, row; } plk_heads;
/* mask, mask_column: the location of the mask, and the step between keys. PLK_MASK_ADD is added to the scaled product;
 * PLK_MASK_WHERE sets mask_value where the mask is 0; a length is the number of keys of a row that are not masked.
 * fill: 1: q, k and v do not cover source i. */
typedef struct {
    int64_t batch, heads, n_q, n_k, dim, dim_v;
    plk_heads q, k, v, y, mask;
    int64_t mask_column;
    int32_t n_sources, mask_kind, fill[3];
    int64_t source_n[3];
    float scale, mask_value;
    float keep, kept_scale;                      /* of dropout: the probability to keep, and the factor of kept ones */
    int64_t words;                               /* of 32 bits for each query: which keys are kept; 0: no dropout */
} plk_attention;
/* cffi stops reading here */
#endif
