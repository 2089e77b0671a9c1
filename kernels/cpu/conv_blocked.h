/* Direct convolutions on blocks of channels: register tiles with an epilogue. */
#ifndef PLK_CONV_BLOCKED_H
#define PLK_CONV_BLOCKED_H
#include "kernel.h"
#include "loop.h"
/* cffi reads from here on: */
enum { PLK_RELU = 1, PLK_CLIP };
/* y (n, filters / lanes, out, lanes), lanes 4, 8 or 16, filters a multiple of them. If channels are a multiple too and
 * x_lanes is `lanes`: x (n, channels / lanes, size, lanes), w (filters / lanes, channels / lanes, kernel, lanes of
 * channels, lanes of filters). If x_lanes is 1: x (n, channels, size), w (filters / lanes, channels, kernel, lanes). */
typedef struct {
    int32_t lanes, x_lanes, add;                 /* an addend comes after the bias */
    /* PLK_RELU, PLK_CLIP (to act's scalars): applied to tiles, instead of act's loop */
    int32_t rectify;
    plk_act act;
    int64_t n, channels, filters, size[2], kernel[2], out[2], stride[2], dilate[2], pad[2];
} plk_conv_blocked;
/* cffi stops reading here */
#endif
