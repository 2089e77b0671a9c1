/* Pooling in float32 with channels last, or with blocks of channels as separate images: each output is a vector of
 * channels, computed from the vectors of its window. */
#include "parts.h"
#include "pool.h"
#include "simd.h"

#include <math.h>

#if defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t marks __attribute__((vector_size(4 * LANES)));

/* The part of a window that is inside the array, along one axis, and its factor of the divisor of an average. */
static void clip_window(const plk_pool *p, int axis, int64_t o, int64_t *begin, int64_t *end, int64_t *counted)
{
    int64_t first = o * p->stride[axis] - p->pad[axis], last = first + p->kernel[axis];
    int64_t high = p->size[axis] + (p->count_pad ? p->pad[axis] : 0);
    *begin = first > 0 ? first : 0;
    *end = last < p->size[axis] ? last : p->size[axis];
    *counted = (last < high ? last : high) - (p->count_pad ? first : *begin);
}

/* y[l] for n <= LANES channels of one window; x: the first channel of the image. is_max, n: constants of the caller
 * where speed matters. */
static inline __attribute__((always_inline)) void take(const plk_pool *p, const float *x, float *y, int64_t n,
                                                       const int64_t *begin, const int64_t *end, float scale,
                                                       int is_max)
{
    lanes acc = (lanes){0} - (is_max ? INFINITY : 0);
    for (int64_t d = begin[0]; d < end[0]; d++)
        for (int64_t h = begin[1]; h < end[1]; h++) {
            const float *v = x + ((d * p->size[1] + h) * p->size[2] + begin[2]) * p->inner;
            for (int64_t w = begin[2]; w < end[2]; w++, v += p->inner) {
                lanes now = {0};
                if (n == LANES)
                    now = *(const lanes *)v;
                else
                    memcpy(&now, v, (size_t)n * sizeof *v);
                marks better = (marks)(now > acc) | (marks)(now != now);
                acc = is_max ? (lanes)(((marks)now & better) | ((marks)acc & ~better)) : acc + now;
            }
        }
    if (p->kind == PLK_POOL_AVG)
        acc /= scale;
    memcpy(y, &acc, (size_t)n * sizeof *y);
}

/* One row of outputs. */
static inline __attribute__((always_inline)) void take_row(const plk_pool *p, const float *x, float *y, int64_t *begin,
                                                           int64_t *end, int64_t *counted, int is_max)
{
    int64_t inner = p->inner, whole = inner / LANES * LANES;
    for (int64_t o = 0; o < p->out[2]; o++, y += inner) {
        clip_window(p, 2, o, &begin[2], &end[2], &counted[2]);
        int64_t n = counted[0] * counted[1] * counted[2];
        float scale = (float)(n > 0 ? n : 1);
        for (int64_t c = 0; c < whole; c += LANES)
            take(p, x + c, y + c, LANES, begin, end, scale, is_max);
        if (whole < inner)
            take(p, x + whole, y + whole, inner - whole, begin, end, scale, is_max);
    }
}

typedef struct { const plk_pool *p; void *const *bufs; } job;

static void row_piece(void *arg, int64_t r)
{
    const job *j = arg;
    const plk_pool *p = j->p;
    int64_t size = p->size[0] * p->size[1] * p->size[2], inner = p->inner, rows = p->out[0] * p->out[1];
    const float *x = (const float *)j->bufs[0] + r / rows * size * inner;
    float *y = (float *)j->bufs[1] + r * p->out[2] * inner;
    int64_t begin[3], end[3], counted[3];
    clip_window(p, 0, r % rows / p->out[1], &begin[0], &end[0], &counted[0]);
    clip_window(p, 1, r % p->out[1], &begin[1], &end[1], &counted[1]);
    if (p->kind == PLK_POOL_MAX)
        take_row(p, x, y, begin, end, counted, 1);
    else
        take_row(p, x, y, begin, end, counted, 0);
}

/* bufs: x (planes, size, inner), y (planes, out, inner) */
PLK_KERNEL(plk_pool_last)
{
    const plk_pool *p = params;
    int64_t rows = p->planes * p->out[0] * p->out[1], window = p->kernel[0] * p->kernel[1] * p->kernel[2];
    (void)scalars;
    pl_thread_pool_run(pl_threads(rows * p->out[2] * p->inner * window / 8), rows, row_piece, &(job){p, bufs});
    return PL_OK;
}
