/* Images resampled: repeated, resized, read at given positions, convolved at learnt ones; float32, (N, C, H, W). */
#ifndef PLK_RESAMPLE_H
#define PLK_RESAMPLE_H
#include "kernel.h"
/* cffi reads from here on: */
typedef struct { int64_t n_planes, height, width, scale; } plk_upsample;        /* of the small image */
/* align: corners' centres meet; like: 1, there is a second input, which is not read */
typedef struct { int64_t n_planes, in[2], out[2]; int32_t align, like; } plk_resample;
typedef struct { int64_t n, channels, height, width, out[2]; } plk_sampler;
/* groups: of channels that share positions; conv_groups, filters, bias: of the convolution */
typedef struct {
    int64_t n, channels, groups, height, width, kernel[2], stride[2], dilate[2], pad[2], out[2], conv_groups, filters;
    int32_t modulated, bias;
} plk_deformable;
/* cffi stops reading here */
#endif
