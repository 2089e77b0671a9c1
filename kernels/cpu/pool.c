/* Pooling in float32. Forward runs along a row of outputs for each element of the window, so that the loop over the
 * row has no conditions in it; a maximum's gradient looks for the first maximum of each window again, likewise. */
#include "simd.h"
#include "pool.h"

enum { TILE = 256 };

/* Outputs [first, last) of one axis for which element k of the window lies inside. */
static void inside(const plk_pool *p, int axis, int64_t k, int64_t *first, int64_t *last)
{
    int64_t s = p->stride[axis], low = p->pad[axis] - k, high = p->size[axis] - 1 + p->pad[axis] - k;
    *first = low > 0 ? (low + s - 1) / s : 0;
    *last = high < 0 ? 0 : high / s + 1;
    *last = *last < p->out[axis] ? *last : p->out[axis];
}

/* How many elements the average of output o counts along an axis. */
static int64_t counted(const plk_pool *p, int axis, int64_t o)
{
    int64_t begin = o * p->stride[axis] - p->pad[axis], end = begin + p->kernel[axis];
    int64_t low = p->count_pad ? begin : 0, high = p->size[axis] + (p->count_pad ? p->pad[axis] : 0);
    begin = begin > low ? begin : low;
    end = end < high ? end : high;
    return end > begin ? end - begin : 0;
}

static inline __attribute__((always_inline)) void take_row(int is_max, float *y, const float *x, int64_t n, int64_t stride)
{
    if (is_max)
        for (int64_t i = 0; i < n; i++) {
            float v = x[i * stride];
            y[i] = v > y[i] || v != v ? v : y[i];
        }
    else
        for (int64_t i = 0; i < n; i++)
            y[i] += x[i * stride];
}

static void pool_row(const plk_pool *p, const float *x, float *y, int64_t od, int64_t oh)
{
    int64_t width = p->out[2], stride = p->stride[2];
    float start = p->kind == PLK_POOL_MAX ? -INFINITY : 0;
    for (int64_t i = 0; i < width; i++)
        y[i] = start;
    for (int64_t kd = 0; kd < p->kernel[0]; kd++)
        for (int64_t kh = 0; kh < p->kernel[1]; kh++) {
            int64_t d = od * p->stride[0] + kd - p->pad[0], h = oh * p->stride[1] + kh - p->pad[1];
            if (d < 0 || d >= p->size[0] || h < 0 || h >= p->size[1])
                continue;
            const float *row = x + (d * p->size[1] + h) * p->size[2];
            for (int64_t kw = 0; kw < p->kernel[2]; kw++) {
                int64_t first, last;
                inside(p, 2, kw, &first, &last);
                const float *from = row + first * stride + kw - p->pad[2];
                if (stride == 1)
                    take_row(p->kind == PLK_POOL_MAX, y + first, from, last - first, 1);
                else if (stride == 2)
                    take_row(p->kind == PLK_POOL_MAX, y + first, from, last - first, 2);
                else
                    take_row(p->kind == PLK_POOL_MAX, y + first, from, last - first, stride);
            }
        }
    if (p->kind == PLK_POOL_AVG) {
        int64_t others = counted(p, 0, od) * counted(p, 1, oh);
        for (int64_t i = 0; i < width; i++) {
            int64_t n = others * counted(p, 2, i);
            y[i] /= (float)(n > 0 ? n : 1);
        }
    }
}

/* A whole plane as one window. */
static float pool_plane(const plk_pool *p, const float *x)
{
    int64_t n = p->size[0] * p->size[1] * p->size[2], i = 0;
    float acc[16], y = p->kind == PLK_POOL_MAX ? -INFINITY : 0;
    for (int l = 0; l < 16; l++)
        acc[l] = y;
    for (; i + 16 <= n; i += 16)
        take_row(p->kind == PLK_POOL_MAX, acc, x + i, 16, 1);
    for (; i < n; i++)
        take_row(p->kind == PLK_POOL_MAX, &y, x + i, 1, 1);
    for (int l = 0; l < 16; l++)
        take_row(p->kind == PLK_POOL_MAX, &y, acc + l, 1, 1);
    return p->kind == PLK_POOL_AVG ? y / (float)n : y;
}

/* bufs: x, y */
PLK_KERNEL(plk_pool_run)
{
    const plk_pool *p = params;
    int64_t size = p->size[0] * p->size[1] * p->size[2], out = p->out[0] * p->out[1] * p->out[2];
    int64_t window = p->kernel[0] * p->kernel[1] * p->kernel[2];
    int n_threads = pl_threads(p->planes * out * window / 2);
    (void)scalars;
#pragma omp parallel for num_threads(n_threads) if (n_threads > 1)
    for (int64_t c = 0; c < p->planes; c++) {
        const float *x = (const float *)bufs[0] + c * size;
        float *y = (float *)bufs[1] + c * out;
        if (out == 1 && window == size && !(p->pad[0] | p->pad[1] | p->pad[2])) {
            *y = pool_plane(p, x);
            continue;
        }
        for (int64_t od = 0; od < p->out[0]; od++)
            for (int64_t oh = 0; oh < p->out[1]; oh++)
                pool_row(p, x, y + (od * p->out[1] + oh) * p->out[2], od, oh);
    }
    return PL_OK;
}

/* One row of outputs of a maximum: finds the element of each window that holds it, then adds dy there, element by
 * element of the window. Both loops run along the row without branches. */
static void max_row_backward(const plk_pool *p, const float *dy, const float *x, float *dx, int64_t od, int64_t oh)
{
    float best[TILE];
    int32_t where[TILE];
    for (int64_t begin = 0, n; begin < p->out[2]; begin += n) {
        n = p->out[2] - begin < TILE ? p->out[2] - begin : TILE;
        for (int64_t i = 0; i < n; i++) {
            best[i] = -INFINITY;
            where[i] = -1;
        }
        for (int pass = 0; pass < 2; pass++) {
            int32_t tap = 0;
            for (int64_t kd = 0; kd < p->kernel[0]; kd++)
                for (int64_t kh = 0; kh < p->kernel[1]; kh++)
                    for (int64_t kw = 0; kw < p->kernel[2]; kw++, tap++) {
                        int64_t d = od * p->stride[0] + kd - p->pad[0], h = oh * p->stride[1] + kh - p->pad[1], first, last;
                        inside(p, 2, kw, &first, &last);
                        first = first > begin ? first : begin;
                        last = last < begin + n ? last : begin + n;
                        if (d < 0 || d >= p->size[0] || h < 0 || h >= p->size[1])
                            continue;
                        int64_t s = p->stride[2], at = (d * p->size[1] + h) * p->size[2] + first * s + kw - p->pad[2];
                        float *b = best + (first - begin);
                        int32_t *w = where + (first - begin);
                        if (pass == 0)
                            for (int64_t i = 0; i < last - first; i++) {
                                float v = x[at + i * s];
                                int better = (w[i] < 0) | (v > b[i]) | ((v != v) & (b[i] == b[i]));
                                b[i] = better ? v : b[i];
                                w[i] = better ? tap : w[i];
                            }
                        else
                            for (int64_t i = 0; i < last - first; i++)
                                dx[at + i * s] += w[i] == tap ? dy[first + i] : 0;
                    }
        }
    }
}

/* An average or a sum: each element of the window takes its share. */
static void sum_row_backward(const plk_pool *p, const float *dy, float *dx, int64_t od, int64_t oh)
{
    float share[TILE];
    int64_t others = counted(p, 0, od) * counted(p, 1, oh);
    for (int64_t begin = 0, n; begin < p->out[2]; begin += n) {
        n = p->out[2] - begin < TILE ? p->out[2] - begin : TILE;
        for (int64_t i = 0; i < n; i++) {
            int64_t count = p->kind == PLK_POOL_AVG ? others * counted(p, 2, begin + i) : 1;
            share[i] = dy[begin + i] / (float)(count > 0 ? count : 1);
        }
        for (int64_t kd = 0; kd < p->kernel[0]; kd++)
            for (int64_t kh = 0; kh < p->kernel[1]; kh++)
                for (int64_t kw = 0; kw < p->kernel[2]; kw++) {
                    int64_t d = od * p->stride[0] + kd - p->pad[0], h = oh * p->stride[1] + kh - p->pad[1], first, last;
                    inside(p, 2, kw, &first, &last);
                    first = first > begin ? first : begin;
                    last = last < begin + n ? last : begin + n;
                    if (d < 0 || d >= p->size[0] || h < 0 || h >= p->size[1])
                        continue;
                    int64_t s = p->stride[2], at = (d * p->size[1] + h) * p->size[2] + first * s + kw - p->pad[2];
                    for (int64_t i = 0; i < last - first; i++)
                        dx[at + i * s] += share[first - begin + i];
                }
    }
}

static void plane_backward(const plk_pool *p, const float *dy, const float *x, float *dx)
{
    for (int64_t od = 0; od < p->out[0]; od++)
        for (int64_t oh = 0; oh < p->out[1]; oh++, dy += p->out[2]) {
            if (p->kind == PLK_POOL_MAX)
                max_row_backward(p, dy, x, dx, od, oh);
            else
                sum_row_backward(p, dy, dx, od, oh);
        }
}

/* bufs: dy, x for the maximum, dx */
PLK_KERNEL(plk_pool_backward)
{
    const plk_pool *p = params;
    int64_t size = p->size[0] * p->size[1] * p->size[2], out = p->out[0] * p->out[1] * p->out[2];
    int is_max = p->kind == PLK_POOL_MAX;
    int n_threads = pl_threads(p->planes * out * p->kernel[0] * p->kernel[1] * p->kernel[2]);
    (void)scalars;
#pragma omp parallel for num_threads(n_threads) if (n_threads > 1)
    for (int64_t c = 0; c < p->planes; c++) {
        float *dx = (float *)bufs[is_max ? 2 : 1] + c * size;
        memset(dx, 0, (size_t)size * sizeof *dx);
        plane_backward(p, (const float *)bufs[0] + c * out, is_max ? (const float *)bufs[1] + c * size : NULL, dx);
    }
    return PL_OK;
}
