/* Largest bytes of windows: each place of the window is taken into a whole row of results, so that the inner loops run
 * over channels, or, with channels first, over results. */
#include "parts.h"
#include "pool.h"
#include "simd.h"

#include <string.h>

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* y[o * inner + c] = the larger of it and x[(o * step) * inner + c]. */
#define TAKE(name, type) \
    static void name(type *restrict y, const type *restrict x, int64_t n, int64_t step, int64_t inner) \
    { \
        if (inner == 1 || step == 1) { \
            for (int64_t i = 0, count = n * inner; i < count; i++) \
                y[i] = x[i * step] > y[i] ? x[i * step] : y[i]; \
            return; \
        } \
        for (int64_t o = 0; o < n; o++, y += inner, x += step * inner) \
            for (int64_t c = 0; c < inner; c++) \
                y[c] = x[c] > y[c] ? x[c] : y[c]; \
    }

TAKE(take_signed, int8_t)
TAKE(take_unsigned, uint8_t)

typedef struct { const plk_pool *p; const uint8_t *x; uint8_t *y; int is_signed; } job;

/* The results [*begin, *end) along the last axis whose windows have place k inside the array. */
static void reached(const plk_pool *p, int64_t k, int64_t *begin, int64_t *end)
{
    int64_t s = p->stride[2], before = p->pad[2] - k;    /* element of result o: o * s - before */
    *begin = before > 0 ? (before + s - 1) / s : 0;
    *end = least(p->out[2], p->size[2] + before > 0 ? (p->size[2] + before - 1) / s + 1 : 0);
}

static void rows(void *arg, int64_t first, int64_t last)
{
    const job *j = arg;
    const plk_pool *p = j->p;
    int64_t row_bytes = p->out[2] * p->inner;
    for (int64_t r = first; r < last; r++) {
        int64_t plane = r / (p->out[0] * p->out[1]), d = r / p->out[1] % p->out[0], h = r % p->out[1];
        uint8_t *y = j->y + r * row_bytes;
        memset(y, j->is_signed ? 0x80 : 0, (size_t)row_bytes);
        int64_t d0 = d * p->stride[0] - p->pad[0], h0 = h * p->stride[1] - p->pad[1];
        for (int64_t a = most(d0, 0); a < least(d0 + p->kernel[0], p->size[0]); a++)
            for (int64_t b = most(h0, 0); b < least(h0 + p->kernel[1], p->size[1]); b++)
                for (int64_t k = 0; k < p->kernel[2]; k++) {
                    int64_t begin, end, line = ((plane * p->size[0] + a) * p->size[1] + b) * p->size[2];
                    reached(p, k, &begin, &end);
                    if (begin >= end)
                        continue;
                    const uint8_t *x = j->x + (line + begin * p->stride[2] - p->pad[2] + k) * p->inner;
                    uint8_t *to = y + begin * p->inner;
                    if (j->is_signed)
                        take_signed((int8_t *)to, (const int8_t *)x, end - begin, p->stride[2], p->inner);
                    else
                        take_unsigned(to, x, end - begin, p->stride[2], p->inner);
                }
    }
}

static int run(const plk_pool *p, void *const *bufs, int is_signed)
{
    job j = {p, bufs[0], bufs[1], is_signed};
    int64_t n = p->planes * p->out[0] * p->out[1];
    int64_t work = n * p->out[2] * p->inner * p->kernel[0] * p->kernel[1] * p->kernel[2];
    plk_run_parts(work / 16, n, 1, rows, &j);
    return PL_OK;
}

/* bufs: x, y */
PLK_KERNEL(plk_pool_int8)
{
    (void)scalars;
    return run(params, bufs, 1);
}

/* bufs: x, y */
PLK_KERNEL(plk_pool_uint8)
{
    (void)scalars;
    return run(params, bufs, 0);
}
