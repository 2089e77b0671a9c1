/* Convolutions with a 3 x 3 kernel and stride 1 by Winograd's minimal filtering, on blocks of channels. */
#ifndef PLK_WINOGRAD_BLOCKED_H
#define PLK_WINOGRAD_BLOCKED_H
#include "kernel.h"
#include "loop.h"
/* cffi reads from here on: */
/* x (n, channels / lanes, height, width, lanes), y likewise with `filters` and out_*;
 * w (filters / lanes, channels / lanes, 3, 3, lanes of channels, lanes of filters); lanes: 8 or 16. */
typedef struct {
    int32_t lanes, add;                          /* an addend comes after the bias */
    plk_act act;
    int64_t n, channels, filters, height, width, out_height, out_width, pad[2];
} plk_winograd_blocked;
/* cffi stops reading here */
#endif
