/* Images into tensors: to_tensor, normalize. */
#ifndef PLK_IMAGE_H
#define PLK_IMAGE_H
#include "kernel.h"
/* cffi reads from here on: */
enum { PLK_MAX_CHANNELS = 4 };
typedef struct { int64_t n_images, n_pixels, n_channels; } plk_image;         /* (n_images, n_pixels, n_channels) */
typedef struct {
    int64_t n_images, n_pixels, n_channels;
    float mean[PLK_MAX_CHANNELS], std[PLK_MAX_CHANNELS];
} plk_image_normalize;
/* cffi stops reading here */
#endif
