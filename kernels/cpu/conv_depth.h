/* Depthwise convolutions on blocks of channels: each channel has its own window. */
#ifndef PLK_CONV_DEPTH_H
#define PLK_CONV_DEPTH_H
#include "kernel.h"
#include "loop.h"
/* cffi reads from here on: */
/* x (n, channels / lanes, height, width, lanes), w (channels / lanes, kernel, lanes), y (n, channels / lanes,
 * out_height, out_width, lanes); channels is a multiple of lanes, which is 4, 8 or 16; filters is channels. */
typedef struct {
    int32_t lanes, add;                          /* an addend comes after the bias */
    plk_act act;
    int64_t n, channels, filters, height, width, out_height, out_width, kernel[2], stride[2], dilate[2], pad[2];
} plk_conv_depth;
/* cffi stops reading here */
#endif
