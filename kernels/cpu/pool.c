/* Pooling in float32. Forward runs along a row of outputs for each element of the window, so that the loop over the
 * row has no conditions in it; a maximum's gradient looks for the first maximum of each window again. */
#include "simd.h"
#include "pool.h"

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

static int64_t low_end(int64_t start) { return start > 0 ? start : 0; }
static int64_t high_end(int64_t start, int64_t kernel, int64_t size) { return start + kernel < size ? start + kernel : size; }

static void plane_backward(const plk_pool *p, const float *dy, const float *x, float *dx)
{
    for (int64_t od = 0; od < p->out[0]; od++)
        for (int64_t oh = 0; oh < p->out[1]; oh++)
            for (int64_t ow = 0; ow < p->out[2]; ow++, dy++) {
                int64_t d0 = od * p->stride[0] - p->pad[0], h0 = oh * p->stride[1] - p->pad[1];
                int64_t w0 = ow * p->stride[2] - p->pad[2], at = -1;
                int64_t d1 = high_end(d0, p->kernel[0], p->size[0]), h1 = high_end(h0, p->kernel[1], p->size[1]);
                int64_t w1 = high_end(w0, p->kernel[2], p->size[2]);
                float best = -INFINITY, share = *dy;
                if (p->kind == PLK_POOL_AVG) {
                    int64_t n = counted(p, 0, od) * counted(p, 1, oh) * counted(p, 2, ow);
                    share /= (float)(n > 0 ? n : 1);
                }
                for (int64_t d = low_end(d0); d < d1; d++)
                    for (int64_t h = low_end(h0); h < h1; h++) {
                        int64_t row = (d * p->size[1] + h) * p->size[2];
                        for (int64_t w = low_end(w0); w < w1; w++) {
                            if (p->kind != PLK_POOL_MAX) {
                                dx[row + w] += share;
                                continue;
                            }
                            float v = x[row + w];
                            if (at < 0 || v > best || (v != v && best == best)) {
                                best = v;
                                at = row + w;
                            }
                        }
                    }
                if (at >= 0)
                    dx[at] += share;
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
