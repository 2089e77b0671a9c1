/* Resizes images of bytes, in OpenCV's fixed point: each output row is a weighted sum of source rows that were first
 * resized along their width; these rows are kept as long as output rows need them. */
#include "resize.h"
#include "simd.h"

#include <math.h>
#include <stdlib.h>

enum { WEIGHT_BITS = 11, MAX_TAPS = 8 };

/* The inputs and weights of every output along one axis; a fixed number (area: variable, in floats). */
typedef struct {
    int n_taps;
    int32_t *at;         /* n_out * n_taps */
    int16_t *weights;    /* n_out * n_taps */
    float *shares;       /* area only: n_out * n_taps */
} axis_taps;

static int at_border(int64_t i, int64_t n)
{
    return (int)(i < 0 ? 0 : i >= n ? n - 1 : i);
}

static void cubic_weights(double f, float *w)
{
    const double a = -0.75, g = 1 - f;
    w[0] = (float)(((a * (f + 1) - 5 * a) * (f + 1) + 8 * a) * (f + 1) - 4 * a);
    w[1] = (float)(((a + 2) * f - (a + 3)) * f * f + 1);
    w[2] = (float)(((a + 2) * g - (a + 3)) * g * g + 1);
    w[3] = (float)(1.0 - (double)w[0] - (double)w[1] - (double)w[2]);
}

static void lanczos_weights(float f, float *w)
{
    float sum = 0;
    for (int i = 0; i < 8; i++) {
        double t = (double)f - (i - 3), u = t * M_PI;
        w[i] = t == 0 ? 1.f : (float)(sin(u) / u * (sin(u / 4) / (u / 4)));
        sum += w[i];
    }
    for (int i = 0; i < 8; i++)
        w[i] /= sum;
}

static void fill_taps(axis_taps *t, int64_t n_in, int64_t n_out, int rule)
{
    double scale = (double)n_in / (double)n_out;
    for (int64_t i = 0; i < n_out; i++) {
        float w[MAX_TAPS] = {0};
        double centre = ((double)i + 0.5) * scale - 0.5;
        int64_t low = (int64_t)floorf((float)centre), first = low;
        float f = (float)centre - (float)low;
        if (rule == PLK_NEAREST) {
            first = (int64_t)floor((double)i * scale);
            w[0] = 1;
        } else if (rule == PLK_CUBIC) {
            first = low - 1;
            cubic_weights((double)f, w);
        } else if (rule == PLK_LANCZOS) {
            first = low - 3;
            lanczos_weights(f, w);
        } else {
            if (rule == PLK_ENLARGING) {
                first = low = (int64_t)floor((double)i * scale);
                f = (float)((double)(i + 1) - (double)(low + 1) / scale);
                f = f <= 0 ? 0.f : f - floorf(f);
            }
            if (low < 0 || low >= n_in - 1)
                f = 0;
            w[0] = 1.f - f;
            w[1] = f;
        }
        for (int k = 0; k < t->n_taps; k++) {
            t->at[i * t->n_taps + k] = at_border(first + k, n_in);
            t->weights[i * t->n_taps + k] = (int16_t)lrintf(w[k] * (1 << WEIGHT_BITS));
        }
    }
}

/* The fractions of the inputs that an output covers; tiny ones are left out. */
static void fill_shares(axis_taps *t, int64_t n_in, int64_t n_out)
{
    double scale = (double)n_in / (double)n_out;
    for (int64_t i = 0; i < n_out; i++) {
        double start = (double)i * scale, end = start + scale;
        double width = scale < (double)n_in - start ? scale : (double)n_in - start;
        int64_t first = (int64_t)floor(start);
        for (int k = 0; k < t->n_taps; k++) {
            double left = (double)(first + k), right = left + 1;
            double covered = (right < end ? right : end) - (left > start ? left : start);
            if (covered <= 1e-3 || first + k >= n_in)
                covered = 0;
            t->at[i * t->n_taps + k] = at_border(first + k, n_in);
            t->shares[i * t->n_taps + k] = (float)(covered / width);
        }
    }
}

/* ---- along the width ---- */

static inline void across_two(const uint8_t *x, int16_t *y, const axis_taps *t, int64_t n_out, int64_t n_channels)
{
    for (int64_t i = 0; i < n_out; i++) {
        const uint8_t *a = x + t->at[2 * i] * n_channels, *b = x + t->at[2 * i + 1] * n_channels;
        int u = t->weights[2 * i], v = t->weights[2 * i + 1];
        for (int64_t c = 0; c < n_channels; c++)
            y[i * n_channels + c] = (int16_t)((a[c] * u + b[c] * v) >> 4);
    }
}

static inline void across_taps(const uint8_t *x, int32_t *y, const axis_taps *t, int64_t n_out, int64_t n_channels)
{
    for (int64_t i = 0; i < n_out; i++)
        for (int64_t c = 0; c < n_channels; c++) {
            int sum = 0;
            for (int k = 0; k < t->n_taps; k++)
                sum += x[t->at[i * t->n_taps + k] * n_channels + c] * t->weights[i * t->n_taps + k];
            y[i * n_channels + c] = sum;
        }
}

static inline void across_shares(const uint8_t *x, float *y, const axis_taps *t, int64_t n_out, int64_t n_channels)
{
    for (int64_t i = 0; i < n_out; i++)
        for (int64_t c = 0; c < n_channels; c++) {
            float sum = 0;
            for (int k = 0; k < t->n_taps; k++)
                sum += (float)x[t->at[i * t->n_taps + k] * n_channels + c] * t->shares[i * t->n_taps + k];
            y[i * n_channels + c] = sum;
        }
}

/* ---- whole images ---- */

/* The rows, resized along the width, that the next output row needs: row r is in slot r % n_taps. */
typedef struct { char *memory; int64_t held[MAX_TAPS]; size_t bytes; } row_ring;

static void *ring_row(row_ring *ring, const uint8_t *x, const plk_resize *p, const axis_taps *columns, int64_t row)
{
    int slot = (int)(row % columns->n_taps);
    void *y = ring->memory + slot * ring->bytes;
    if (ring->held[slot] != row) {
        const uint8_t *from = x + row * p->row_bytes;
        if (columns->n_taps == 2) {
            if (p->n_channels == 3)
                across_two(from, y, columns, p->out_width, 3);
            else
                across_two(from, y, columns, p->out_width, p->n_channels);
        } else if (p->n_channels == 3)
            across_taps(from, y, columns, p->out_width, 3);
        else
            across_taps(from, y, columns, p->out_width, p->n_channels);
        ring->held[slot] = row;
    }
    return y;
}

static void resize_by_taps(const uint8_t *x, uint8_t *y, const plk_resize *p, const axis_taps *rows,
                           const axis_taps *columns, row_ring *ring)
{
    int64_t n = p->out_width * p->n_channels;
    int n_taps = rows->n_taps;
    for (int k = 0; k < MAX_TAPS; k++)
        ring->held[k] = -1;
    for (int64_t i = 0; i < p->out_height; i++, y += n) {
        const int16_t *w = rows->weights + i * n_taps;
        if (n_taps == 2) {
            const int16_t *a = ring_row(ring, x, p, columns, rows->at[2 * i]);
            const int16_t *b = ring_row(ring, x, p, columns, rows->at[2 * i + 1]);
            int16_t u = w[0], v = w[1];
            for (int64_t j = 0; j < n; j++)
                y[j] = (uint8_t)((((a[j] * u) >> 16) + ((b[j] * v) >> 16) + 2) >> 2);
        } else {
            const int32_t *r[MAX_TAPS];
            for (int k = 0; k < n_taps; k++)
                r[k] = ring_row(ring, x, p, columns, rows->at[i * n_taps + k]);
            for (int64_t j = 0; j < n; j++) {
                int sum = 1 << (2 * WEIGHT_BITS - 1);
                for (int k = 0; k < n_taps; k++)
                    sum += r[k][j] * w[k];
                sum >>= 2 * WEIGHT_BITS;
                y[j] = (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
            }
        }
    }
}

static void resize_by_shares(const uint8_t *x, uint8_t *y, const plk_resize *p, const axis_taps *rows,
                             const axis_taps *columns, float *row, float *sum)
{
    int64_t n = p->out_width * p->n_channels;
    for (int64_t i = 0; i < p->out_height; i++, y += n) {
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int k = 0; k < rows->n_taps; k++) {
            float share = rows->shares[i * rows->n_taps + k];
            if (share == 0)
                continue;
            const uint8_t *from = x + rows->at[i * rows->n_taps + k] * p->row_bytes;
            if (p->n_channels == 3)
                across_shares(from, row, columns, p->out_width, 3);
            else
                across_shares(from, row, columns, p->out_width, p->n_channels);
            for (int64_t j = 0; j < n; j++)
                sum[j] += share * row[j];
        }
        for (int64_t j = 0; j < n; j++)
            y[j] = (uint8_t)(int)rintf(sum[j] > 255.f ? 255.f : sum[j]);
    }
}

static void halve(const uint8_t *x, uint8_t *y, const plk_resize *p)
{
    int64_t c = p->n_channels;
    for (int64_t i = 0; i < p->out_height; i++) {
        const uint8_t *a = x + 2 * i * p->row_bytes, *b = a + p->row_bytes;
        for (int64_t j = 0; j < p->out_width; j++)
            for (int64_t k = 0; k < c; k++)
                *y++ = (uint8_t)((a[2 * j * c + k] + a[(2 * j + 1) * c + k] + b[2 * j * c + k] +
                                  b[(2 * j + 1) * c + k] + 2) >> 2);
    }
}

static void pick_nearest(const uint8_t *x, uint8_t *y, const plk_resize *p, const axis_taps *rows,
                         const axis_taps *columns)
{
    for (int64_t i = 0; i < p->out_height; i++)
        for (int64_t j = 0; j < p->out_width; j++, y += p->n_channels)
            memcpy(y, x + rows->at[i] * p->row_bytes + columns->at[j] * p->n_channels, (size_t)p->n_channels);
}

static int taps_of(int rule, int64_t n_in, int64_t n_out)
{
    switch (rule) {
    case PLK_NEAREST: return 1;
    case PLK_CUBIC: return 4;
    case PLK_LANCZOS: return 8;
    case PLK_AREA: return (int)ceil((double)n_in / (double)n_out) + 1;
    default: return 2;
    }
}

static size_t aligned(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static int resize_all(const plk_resize *p, const uint8_t *x, uint8_t *y)
{
    int64_t n = p->out_width * p->n_channels, extents[2][2] = {{p->height, p->out_height}, {p->width, p->out_width}};
    axis_taps axes[2];
    size_t bytes = 0, at = 0;
    for (int i = 0; i < 2; i++) {
        axes[i].n_taps = taps_of(p->rule, extents[i][0], extents[i][1]);
        bytes += 2 * aligned((size_t)(axes[i].n_taps * extents[i][1]) * sizeof(float));
    }
    size_t row_bytes = aligned((size_t)n * sizeof(float)), weights_bytes = bytes;
    bytes += row_bytes * MAX_TAPS;
    char *memory = malloc(bytes);
    if (!memory)
        return pl_fail(PL_ENOMEM, "resize: out of memory");
    for (int i = 0; i < 2; i++) {
        size_t one = aligned((size_t)(axes[i].n_taps * extents[i][1]) * sizeof(float));
        axes[i].at = (int32_t *)(memory + at);
        axes[i].weights = (int16_t *)(memory + at + one);
        axes[i].shares = (float *)(memory + at + one);
        at += 2 * one;
        if (p->rule == PLK_AREA)
            fill_shares(&axes[i], extents[i][0], extents[i][1]);
        else
            fill_taps(&axes[i], extents[i][0], extents[i][1], p->rule);
    }
    char *rows = memory + weights_bytes;
    for (int64_t i = 0; i < p->n_images; i++, x += p->height * p->row_bytes, y += p->out_height * n) {
        if (p->rule == PLK_NEAREST)
            pick_nearest(x, y, p, &axes[0], &axes[1]);
        else if (p->rule == PLK_AREA && p->height == 2 * p->out_height && p->width == 2 * p->out_width)
            halve(x, y, p);
        else if (p->rule == PLK_AREA)
            resize_by_shares(x, y, p, &axes[0], &axes[1], (float *)rows, (float *)(rows + row_bytes));
        else
            resize_by_taps(x, y, p, &axes[0], &axes[1], &(row_ring){rows, {0}, row_bytes});
    }
    free(memory);
    return PL_OK;
}

/* bufs: x uint8 (n_images, height, width, n_channels), y uint8 (n_images, out_height, out_width, n_channels) */
PLK_KERNEL(plk_resize_run)
{
    (void)scalars;
    return resize_all(params, bufs[0], bufs[1]);
}
