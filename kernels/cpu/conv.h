/* Convolutions and their gradients on row-major arrays. */
#ifndef PLK_CONV_H
#define PLK_CONV_H
#include "kernel.h"
#include "loop.h"
/* cffi reads from here on: */
enum { PLK_CONV_FORWARD = 0, PLK_CONV_DATA, PLK_CONV_WEIGHT };
/* x (n, channels, size), y (n, filters, out), w (filters, channels / groups, kernel); channels_last: x and y have their
 * channels last, w_last: w does. Missing dimensions come first and have size 1. kind: of that convolution; the forward
 * one may add a bias and an addend (which may be y), then applies `act`. */
typedef struct {
    int32_t kind, channels_last, w_last, bias, add;
    plk_act act;
    int64_t n, channels, filters, groups, size[3], kernel[3], out[3], stride[3], dilate[3], pad[3];
} plk_conv;
/* cffi stops reading here */

/* bufs of a forward convolution: x, w, bias if any, addend if any, y; of gradients: dy, w, dx | dy, x, dw */
typedef struct { const float *x, *w, *bias, *addend; float *y; } plk_conv_bufs;

static inline plk_conv_bufs plk_conv_bufs_of(const plk_conv *p, void *const *bufs)
{
    int after = 2 + p->bias;
    return (plk_conv_bufs){bufs[0], bufs[1], p->bias ? bufs[2] : NULL, p->add ? bufs[after] : NULL,
                           bufs[after + p->add]};
}
static inline int64_t plk_volume(const int64_t *sizes) { return sizes[0] * sizes[1] * sizes[2]; }
#endif
