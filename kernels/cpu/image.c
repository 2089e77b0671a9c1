/* Images into tensors: channels first, and each channel normalised. */
#include "image.h"
#include "parts.h"

/* A constant number of channels lets the compiler unroll the loop. */
static inline void spread_bytes(const uint8_t *x, float *y, int64_t n_pixels, int64_t n_channels)
{
    const float unit = (float)(1.0 / 255.0);
    for (int64_t c = 0; c < n_channels; c++)
        for (int64_t i = 0; i < n_pixels; i++)
            y[c * n_pixels + i] = (float)x[i * n_channels + c] * unit;
}

static void spread_images(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_image *p = call->params;
    int64_t size = p->n_pixels * p->n_channels;
    for (int64_t i = begin; i < end; i++) {
        const uint8_t *x = (const uint8_t *)call->bufs[0] + i * size;
        float *y = (float *)call->bufs[1] + i * size;
        if (p->n_channels == 3)
            spread_bytes(x, y, p->n_pixels, 3);
        else if (p->n_channels == 1)
            spread_bytes(x, y, p->n_pixels, 1);
        else
            spread_bytes(x, y, p->n_pixels, p->n_channels);
    }
}

/* bufs: x uint8 (n_images, n_pixels, n_channels), y float32 (n_images, n_channels, n_pixels) */
PLK_KERNEL(plk_to_tensor_run)
{
    const plk_image *p = params;
    plk_run_parts(p->n_images * p->n_pixels * p->n_channels, p->n_images, 1, spread_images,
                  &(plk_call){params, bufs, scalars});
    return PL_OK;
}

static void normalize_planes(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_image_normalize *p = call->params;
    for (int64_t k = begin; k < end; k++) {
        float mean = p->mean[k % p->n_channels], std = p->std[k % p->n_channels];
        const float *x = (const float *)call->bufs[0] + k * p->n_pixels;
        float *y = (float *)call->bufs[1] + k * p->n_pixels;
        for (int64_t i = 0; i < p->n_pixels; i++)
            y[i] = (x[i] - mean) / std;
    }
}

/* bufs: x, y float32 (n_images, n_channels, n_pixels) */
PLK_KERNEL(plk_image_normalize_run)
{
    const plk_image_normalize *p = params;
    int64_t n_planes = p->n_images * p->n_channels;
    plk_run_parts(n_planes * p->n_pixels, n_planes, 1, normalize_planes, &(plk_call){params, bufs, scalars});
    return PL_OK;
}
