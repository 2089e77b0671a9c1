/* Pooling in float32 where channels lie last, or blocks of channels as images of their own: each output is a vector of
 * channels, taken from the vectors of its window. */
#include "simd.h"
#include "pool.h"

enum { LANES = 16 };

/* The part of a window that lies inside, along one axis, and how many elements an average counts there. */
static void clip_window(const plk_pool *p, int axis, int64_t o, int64_t *begin, int64_t *end, int64_t *counted)
{
    int64_t first = o * p->stride[axis] - p->pad[axis], last = first + p->kernel[axis];
    int64_t high = p->size[axis] + (p->count_pad ? p->pad[axis] : 0);
    *begin = first > 0 ? first : 0;
    *end = last < p->size[axis] ? last : p->size[axis];
    *counted = (last < high ? last : high) - (p->count_pad ? first : *begin);
}

/* y[l] for n <= LANES channels of one window; x: the first channel of the image */
static inline __attribute__((always_inline)) void take(const plk_pool *p, const float *x, float *y, int64_t n,
                                                       const int64_t *begin, const int64_t *end, float scale)
{
    float acc[LANES];
    int is_max = p->kind == PLK_POOL_MAX;
    for (int l = 0; l < n; l++)
        acc[l] = is_max ? -INFINITY : 0;
    for (int64_t d = begin[0]; d < end[0]; d++)
        for (int64_t h = begin[1]; h < end[1]; h++) {
            const float *row = x + (d * p->size[1] + h) * p->size[2] * p->inner;
            for (int64_t w = begin[2]; w < end[2]; w++) {
                const float *v = row + w * p->inner;
                for (int l = 0; l < n; l++) {
                    float best = v[l] > acc[l] || v[l] != v[l] ? v[l] : acc[l];
                    acc[l] = is_max ? best : acc[l] + v[l];
                }
            }
        }
    for (int l = 0; l < n; l++)
        y[l] = p->kind == PLK_POOL_AVG ? acc[l] / scale : acc[l];
}

/* bufs: x (planes, size, inner), y (planes, out, inner) */
PLK_KERNEL(plk_pool_last)
{
    const plk_pool *p = params;
    int64_t size = p->size[0] * p->size[1] * p->size[2], inner = p->inner, rows = p->out[0] * p->out[1];
    int64_t window = p->kernel[0] * p->kernel[1] * p->kernel[2];
    int n_threads = pl_threads(p->planes * rows * p->out[2] * inner * window / 8);
    (void)scalars;
#pragma omp parallel for num_threads(n_threads) if (n_threads > 1)
    for (int64_t r = 0; r < p->planes * rows; r++) {
        const float *x = (const float *)bufs[0] + r / rows * size * inner;
        float *y = (float *)bufs[1] + r * p->out[2] * inner;
        int64_t begin[3], end[3], counted[3];
        clip_window(p, 0, r % rows / p->out[1], &begin[0], &end[0], &counted[0]);
        clip_window(p, 1, r % p->out[1], &begin[1], &end[1], &counted[1]);
        for (int64_t o = 0; o < p->out[2]; o++, y += inner) {
            clip_window(p, 2, o, &begin[2], &end[2], &counted[2]);
            int64_t n = counted[0] * counted[1] * counted[2];
            float scale = (float)(n > 0 ? n : 1);
            int64_t c = 0;
            for (; c + LANES <= inner; c += LANES)
                take(p, x + c, y + c, LANES, begin, end, scale);
            if (c + 8 == inner)
                take(p, x + c, y + c, 8, begin, end, scale);
            else if (c < inner)
                take(p, x + c, y + c, inner - c, begin, end, scale);
        }
    }
    return PL_OK;
}
