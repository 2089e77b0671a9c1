/* Pooling by maximum, average or sum and its gradients; channels first, 1 to 3 dimensions. */
#ifndef PLK_POOL_H
#define PLK_POOL_H
#include "kernel.h"
/* cffi reads from here on: */
enum { PLK_POOL_MAX = 0, PLK_POOL_AVG, PLK_POOL_SUM };
/* Three dimensions, missing ones come first and have size 1; planes: batch times channels, or the batch if `inner`
 * channels are last. */
typedef struct {
    int64_t planes, inner, size[3], kernel[3], stride[3], pad[3], out[3];
    /* count_pad: an average divides by the window's size inside the padded array */
    int32_t kind, count_pad;
} plk_pool;
/* cffi stops reading here */
#endif
