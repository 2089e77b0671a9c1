/* One image of bytes into a batch: cropped, mirrored, normalised, channels first; and images rotated. */
#ifndef PLK_AUGMENT_H
#define PLK_AUGMENT_H
#include "kernel.h"
/* cffi reads from here on: */
/* y[c][i][j] = (x[i][mirror ? width - 1 - j : j][c] - mean[c]) * factor[c] + shift[c], saturated if y is an integer. */
typedef struct {
    int64_t height, width, row_bytes;             /* of the crop; from one row of x to the next */
    int32_t n_channels, out_dtype, mirror, last;  /* n_channels: 1, 3, 4; last: y is [i][j][c] */
    float mean[4], factor[4], shift[4];
    uintptr_t mean_image;                         /* float32 (n_channels, height, width) in place of mean, or 0 */
} plk_place;
/* y(i, j) = x at (m[0] j + m[1] i + m[2], m[3] j + m[4] i + m[5]) (column, row), in 1/32 of a pixel. */
typedef struct {
    int64_t height, width, n_channels, row_bytes, out_height, out_width;
    double m[6];
    int32_t linear;                               /* 0: nearest */
    int32_t fill;                                 /* outside of x */
} plk_warp;
typedef struct { int64_t n, n_pixels, pixel_bytes; int32_t random; } plk_flip;
/* cffi stops reading here */
#endif
