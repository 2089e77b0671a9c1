/* Convolutions on row-major images, as matrix products that read one operand from the images. */
#ifndef PLK_CONV_NCHW_H
#define PLK_CONV_NCHW_H
#include "kernel.h"
/* cffi reads from here on: */
/* x (n, channels, size), y (n, filters, out), w (filters, channels, kernel); row-major, two dimensions, dense groups.
 * kind: PLK_CONV_FORWARD, _DATA or _WEIGHT of that convolution. */
typedef struct {
    int64_t n, channels, filters, size[2], kernel[2], out[2], stride[2], dilate[2], pad[2];
    int32_t kind, bias;
} plk_conv_nchw;
/* cffi stops reading here */
#endif
