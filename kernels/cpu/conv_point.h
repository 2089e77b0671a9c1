/* Convolutions with a kernel of one element on blocks of channels: a matrix product with an epilogue. */
#ifndef PLK_CONV_POINT_H
#define PLK_CONV_POINT_H
#include "kernel.h"
/* cffi reads from here on: */
/* x (n, channels / lanes, height, width, lanes), w (filters / lanes, channels, lanes), y (n, filters / lanes, out_height,
 * out_width, lanes); channels and filters are multiples of lanes, which is 8 or 16. No padding. */
typedef struct {
    int32_t lanes, add, act, n_scalars;          /* an addend comes after the bias; act: 1 + the number of a loop, or 0 */
    int64_t n, channels, filters, height, width, out_height, out_width, stride[2];
    double scalars[4];
} plk_conv_point;
/* cffi stops reading here */
#endif
