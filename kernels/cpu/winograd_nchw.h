/* Convolutions with 3x3 windows and stride 1 on row-major images, by Winograd's transforms. */
#ifndef PLK_WINOGRAD_NCHW_H
#define PLK_WINOGRAD_NCHW_H
#include "kernel.h"
/* cffi reads from here on: */
/* x (n, channels, height, width), y (n, filters, out_height, out_width), w (filters, channels, 3, 3); row-major.
 * kind: PLK_CONV_FORWARD, _DATA or _WEIGHT of that convolution; pad: zeros above and left of x. */
typedef struct {
    int64_t n, channels, filters, height, width, out_height, out_width, pad_h, pad_w;
    int32_t kind, bias;
} plk_winograd_nchw;
/* cffi stops reading here */
#endif
