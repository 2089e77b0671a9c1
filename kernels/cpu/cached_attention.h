/* Attention of new tokens over a cache of keys and values, into which they are written first. */
#ifndef PLK_CACHED_ATTENTION_H
#define PLK_CACHED_ATTENTION_H
#include "kernel.h"
/* cffi reads from here on: */
/* Queries are (batch, n_new, heads, dim), new keys and values (batch, n_new, kept_heads, dim or dim_v), caches
 * (batch, kept_heads, length, dim or dim_v). heads / kept_heads queries share a key. n_positions: 1 or batch, of
 * position_dtype. */
typedef struct {
    int64_t batch, n_new, heads, kept_heads, length, dim, dim_v, n_positions;
    int32_t position_dtype;
    float scale;
} plk_cached_attention;
/* cffi stops reading here */
#endif
