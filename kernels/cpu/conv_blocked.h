/* Convolutions on blocks of channels, with an epilogue: direct ones, Winograd's and depthwise ones. */
#ifndef PLK_CONV_BLOCKED_H
#define PLK_CONV_BLOCKED_H
#include "kernel.h"
#include "loop.h"
/* cffi reads from here on: */
enum { PLK_RELU = 1, PLK_CLIP };
/* x (n, channels / lanes rounded up, size, lanes), y (n, filters / lanes, out, lanes); lanes: 8 or 16. `filters` is a
 * multiple of lanes: where there are fewer, weights and bias are filled up with zeros. Lanes of x past the last channel
 * are not read. Missing dimensions have size 1.
 *   direct: w (filters / lanes, channels / groups / lanes rounded up, kernel, lanes of channels, lanes of filters);
 *     groups have whole blocks. If x_lanes is 1: x (n, channels, size), w (filters / lanes, channels, kernel, lanes).
 *   Winograd: the same w, kernel 3 x 3, stride 1, one group; channels are whole blocks.
 *   depthwise: w (filters / lanes, kernel, lanes); channels are filters. */
typedef struct {
    int32_t lanes, x_lanes, add;                 /* an addend comes after the bias */
    /* PLK_RELU, PLK_CLIP (to act's scalars): applied to tiles, instead of act's loop */
    int32_t rectify;
    plk_act act;
    int64_t n, channels, filters, groups, size[2], kernel[2], out[2], stride[2], dilate[2], pad[2];
} plk_conv_blocked;
/* cffi stops reading here */
#endif
