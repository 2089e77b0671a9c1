/* Images into tensors: the channels of each image apart, and each channel normalised. */
#include "image.h"

/* A parameter of fixed value lets the compiler unroll the usual numbers of channels. */
static inline void spread_bytes(const uint8_t *x, float *y, int64_t n_pixels, int64_t n_channels)
{
    const float unit = (float)(1.0 / 255.0);
    for (int64_t c = 0; c < n_channels; c++)
        for (int64_t i = 0; i < n_pixels; i++)
            y[c * n_pixels + i] = (float)x[i * n_channels + c] * unit;
}

/* bufs: x uint8 (n_images, n_pixels, n_channels), y float32 (n_images, n_channels, n_pixels) */
PLK_KERNEL(plk_to_tensor_run)
{
    const plk_image *p = params;
    int64_t size = p->n_pixels * p->n_channels;
    int n_threads = p->n_images > 1 ? pl_threads(p->n_images * size) : 1;
    (void)scalars;
#pragma omp parallel for num_threads(n_threads) if (n_threads > 1)
    for (int64_t i = 0; i < p->n_images; i++) {
        const uint8_t *x = (const uint8_t *)bufs[0] + i * size;
        float *y = (float *)bufs[1] + i * size;
        if (p->n_channels == 3)
            spread_bytes(x, y, p->n_pixels, 3);
        else if (p->n_channels == 1)
            spread_bytes(x, y, p->n_pixels, 1);
        else
            spread_bytes(x, y, p->n_pixels, p->n_channels);
    }
    return PL_OK;
}

/* bufs: x, y float32 (n_images, n_channels, n_pixels) */
PLK_KERNEL(plk_image_normalize_run)
{
    const plk_image_normalize *p = params;
    int64_t n_planes = p->n_images * p->n_channels;
    int n_threads = pl_threads(n_planes * p->n_pixels);
    (void)scalars;
#pragma omp parallel for num_threads(n_threads) if (n_threads > 1)
    for (int64_t k = 0; k < n_planes; k++) {
        float mean = p->mean[k % p->n_channels], std = p->std[k % p->n_channels];
        const float *x = (const float *)bufs[0] + k * p->n_pixels;
        float *y = (float *)bufs[1] + k * p->n_pixels;
        for (int64_t i = 0; i < p->n_pixels; i++)
            y[i] = (x[i] - mean) / std;
    }
    return PL_OK;
}
