/* Resizing of images of bytes, with OpenCV's results (kernels/ops/resize.py has the rules). */
#ifndef PLK_RESIZE_H
#define PLK_RESIZE_H
#include "kernel.h"
/* cffi reads from here on: */
typedef struct {
    int64_t n_images, height, width, n_channels, row_bytes;     /* row_bytes: from one row of x to the next */
    int64_t out_height, out_width;
    int32_t rule;                                               /* key of RULES in kernels/ops/resize.py */
} plk_resize;
/* cffi stops reading here */
enum { PLK_NEAREST, PLK_LINEAR, PLK_CUBIC, PLK_AREA, PLK_LANCZOS, PLK_ENLARGING };
#endif
