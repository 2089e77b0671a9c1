/* Convolutions with a 3 x 3 kernel and stride 1 by Winograd's minimal filtering, on blocks of channels. */
#ifndef PLK_WINOGRAD_H
#define PLK_WINOGRAD_H
#include "kernel.h"
/* cffi reads from here on: */
/* x (n, channels / lanes, height, width, lanes), y likewise with `filters` and out_*; weights as plk_winograd_weights
 * makes them. channels and filters are multiples of lanes, which is 8 or 16. */
typedef struct {
    int32_t tile, lanes;                         /* outputs of one tile along an axis: 2 or 4 */
    int64_t n, channels, filters, height, width, out_height, out_width, pad[2];
    int32_t add, act, n_scalars;                 /* an addend comes after the bias; act: 1 + the number of a loop, or 0 */
    double scalars[4];
} plk_winograd;
/* w (filters, channels, 3, 3) -> (points, filters / panel, channels, panel); panel: 2 * lanes, the last one zero-padded */
typedef struct {
    int32_t tile;
    int64_t panel, channels, filters;
} plk_winograd_filter;
/* cffi stops reading here */
#endif
