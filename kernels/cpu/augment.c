/* Copies images of bytes into batches, for the record iterators. */
#include "augment.h"
#include "bytes.h"
#include "dtype.h"
#include "simd.h"

#include <math.h>

/* Red, green and blue at once: their bytes are loaded together. */
static inline void place_colours(const plk_place *p, const uint8_t *restrict x, float *restrict y, int mirror)
{
    int64_t w = p->width, plane = p->height * w;
    float m0 = p->mean[0], m1 = p->mean[1], m2 = p->mean[2], f0 = p->factor[0], f1 = p->factor[1], f2 = p->factor[2];
    float s0 = p->shift[0], s1 = p->shift[1], s2 = p->shift[2];
    for (int64_t i = 0; i < p->height; i++, x += p->row_bytes) {
        float *restrict r = y + i * w, *restrict g = r + plane, *restrict b = g + plane;
        for (int64_t j = 0; j < w; j++) {
            int64_t to = mirror ? w - 1 - j : j;
            r[to] = ((float)x[3 * j] - m0) * f0 + s0;
            g[to] = ((float)x[3 * j + 1] - m1) * f1 + s1;
            b[to] = ((float)x[3 * j + 2] - m2) * f2 + s2;
        }
    }
}

static inline void place_grey(const plk_place *p, const uint8_t *restrict x, float *restrict y, int mirror)
{
    int64_t w = p->width;
    for (int64_t i = 0; i < p->height; i++, x += p->row_bytes, y += w)
        for (int64_t j = 0; j < w; j++)
            y[mirror ? w - 1 - j : j] = ((float)x[j] - p->mean[0]) * p->factor[0] + p->shift[0];
}

static inline void place_bytes(const plk_place *p, const uint8_t *x, uint8_t *y, int n_channels)
{
    int64_t w = p->width, plane = p->height * w;
    for (int64_t i = 0; i < p->height; i++, x += p->row_bytes)
        for (int c = 0; c < n_channels; c++)
            for (int64_t j = 0; j < w; j++)
                y[c * plane + i * w + (p->mirror ? w - 1 - j : j)] = x[j * n_channels + c];
}

/* The general case, which is rare. */
static void place_any(const plk_place *p, const uint8_t *x, void *y)
{
    int64_t w = p->width, plane = p->height * w, n = p->n_channels;
    const float *mean_image = (const float *)p->mean_image;
    for (int64_t i = 0; i < p->height; i++)
        for (int64_t j = 0; j < w; j++)
            for (int64_t c = 0; c < n; c++) {
                int64_t from = p->mirror ? w - 1 - j : j, pixel = i * w + j;
                float mean = mean_image ? mean_image[c * plane + i * w + from] : p->mean[c];
                float v = ((float)x[i * p->row_bytes + from * n + c] - mean) * p->factor[c] + p->shift[c];
                int64_t to = p->last ? pixel * n + c : c * plane + pixel;
                if (p->out_dtype == PLK_F32)
                    ((float *)y)[to] = v;
                else if (p->out_dtype == PLK_U8)
                    ((uint8_t *)y)[to] = (uint8_t)(int)rintf(v < 0 ? 0 : v > 255 ? 255 : v);
                else
                    ((int8_t *)y)[to] = (int8_t)(int)rintf(v < -128 ? -128 : v > 127 ? 127 : v);
            }
}

static int is_plain(const plk_place *p)
{
    for (int c = 0; c < p->n_channels; c++)
        if (p->mean[c] != 0 || p->factor[c] != 1 || p->shift[c] != 0)
            return 0;
    return 1;
}

/* bufs: x, the first byte of the part of a uint8 image (rows, columns, n_channels); y (n_channels, height, width) */
PLK_KERNEL(plk_place_run)
{
    const plk_place *p = params;
    (void)scalars;
    if (p->mean_image || p->last || (p->out_dtype == PLK_F32 && p->n_channels != 3 && p->n_channels != 1))
        place_any(p, bufs[0], bufs[1]);
    else if (p->out_dtype == PLK_F32 && p->n_channels == 3) {
        if (p->mirror)
            place_colours(p, bufs[0], bufs[1], 1);
        else
            place_colours(p, bufs[0], bufs[1], 0);
    } else if (p->out_dtype == PLK_F32)
        place_grey(p, bufs[0], bufs[1], p->mirror);
    else if (p->out_dtype == PLK_U8 && is_plain(p))
        place_bytes(p, bufs[0], bufs[1], p->n_channels);
    else
        place_any(p, bufs[0], bufs[1]);
    return PL_OK;
}

enum { PLACE_BITS = 10, STEP_BITS = 5, STEPS = 1 << STEP_BITS };

static inline int pixel_at(const plk_warp *p, const uint8_t *x, int64_t i, int64_t j, int64_t c)
{
    if (i < 0 || i >= p->height || j < 0 || j >= p->width)
        return p->fill;
    return x[i * p->row_bytes + j * p->n_channels + c];
}

/* bufs: x uint8 (height, width, n_channels), y uint8 (out_height, out_width, n_channels).  OpenCV's fixed point. */
PLK_KERNEL(plk_warp_run)
{
    const plk_warp *p = params;
    const uint8_t *x = bufs[0];
    uint8_t *y = bufs[1];
    const double *m = p->m, one = 1 << PLACE_BITS;
    int shift = p->linear ? PLACE_BITS - STEP_BITS : PLACE_BITS,
        half = p->linear ? 1 << (shift - 1) : 1 << (PLACE_BITS - 1);
    (void)scalars;
    for (int64_t i = 0; i < p->out_height; i++) {
        int64_t x0 = (int64_t)rint((m[1] * (double)i + m[2]) * one) + half;
        int64_t y0 = (int64_t)rint((m[4] * (double)i + m[5]) * one) + half;
        for (int64_t j = 0; j < p->out_width; j++) {
            int64_t column = (x0 + (int64_t)rint(m[0] * (double)j * one)) >> shift;
            int64_t row = (y0 + (int64_t)rint(m[3] * (double)j * one)) >> shift;
            if (!p->linear) {
                for (int64_t c = 0; c < p->n_channels; c++)
                    *y++ = (uint8_t)pixel_at(p, x, row, column, c);
                continue;
            }
            int u = (int)(column & (STEPS - 1)), v = (int)(row & (STEPS - 1));
            column >>= STEP_BITS, row >>= STEP_BITS;
            for (int64_t c = 0; c < p->n_channels; c++) {
                int upper = pixel_at(p, x, row, column, c) * (STEPS - u) + pixel_at(p, x, row, column + 1, c) * u;
                int lower = pixel_at(p, x, row + 1, column, c) * (STEPS - u) +
                    pixel_at(p, x, row + 1, column + 1, c) * u;
                *y++ = (uint8_t)((upper * (STEPS - v) + lower * v + STEPS * STEPS / 2) >> (2 * STEP_BITS));
            }
        }
    }
    return PL_OK;
}

static uint64_t mixed(uint64_t z)                /* splitmix64; Steele et al. 2014 */
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* bufs: x, y (n, n_pixels, pixel_bytes) with the pixels reversed; if random, in half of all calls */
PLK_KERNEL(plk_flip_run)
{
    const plk_flip *p = params;
    const uint8_t *x = bufs[0];
    uint8_t *y = bufs[1];
    int64_t row = p->n_pixels * p->pixel_bytes;
    if (p->random && mixed(mixed((uint64_t)(int64_t)scalars[0]) + (uint64_t)(int64_t)scalars[1]) >> 63) {
        plk_copy_bytes(y, x, (size_t)(p->n * row));
        return PL_OK;
    }
    for (int64_t i = 0; i < p->n; i++, x += row, y += row) {
        if (p->pixel_bytes == 3)
            for (int64_t j = 0; j < p->n_pixels; j++)
                memcpy(y + (p->n_pixels - 1 - j) * 3, x + j * 3, 3);
        else
            for (int64_t j = 0; j < p->n_pixels; j++)
                memcpy(y + (p->n_pixels - 1 - j) * p->pixel_bytes, x + j * p->pixel_bytes, (size_t)p->pixel_bytes);
    }
    return PL_OK;
}
