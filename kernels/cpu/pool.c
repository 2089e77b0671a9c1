/* Pooling in float32, LANES planes at a time, transposed so that lanes are channels: then any window takes the same few
 * vector operations. An element of dx collects the gradients of all windows that cover it. */
#include "pool.h"
#include "cache.h"
#include "engine/core/scratch.h"
#include "lanes.h"
#include "parts.h"
#include "simd.h"

#include <math.h>
#include <stdlib.h>

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t outputs(const plk_pool *p) { return p->out[0] * p->out[1] * p->out[2]; }
static int64_t elements(const plk_pool *p) { return p->size[0] * p->size[1] * p->size[2]; }

/* Along one axis: the elements that a window covers, and the divisor of an average. */
typedef struct { int32_t begin, end, n; } reach;

/* One for each output of each axis. Returns NULL if out of memory; the caller frees it. */
static reach *reaches_of(const plk_pool *p)
{
    reach *all = malloc((size_t)(p->out[0] + p->out[1] + p->out[2] + 1) * sizeof *all), *to = all;
    for (int axis = 0; all && axis < 3; axis++)
        for (int64_t o = 0; o < p->out[axis]; o++, to++) {
            int64_t begin = o * p->stride[axis] - p->pad[axis], end = begin + p->kernel[axis];
            int64_t low = most(begin, 0), high = most(least(end, p->size[axis]), low);
            int64_t n = p->count_pad ? least(end, p->size[axis] + p->pad[axis]) - begin : high - low;
            *to = (reach){(int32_t)low, (int32_t)high, (int32_t)most(n, 0)};
        }
    return all;
}

/* A band of rows (of axis 1) that fits the cache: outputs [out, out_end), and the elements from `low` to `high` that
 * their windows cover. Volumes are one band. */
typedef struct { int64_t out, out_end, low, high; } band;

static int64_t band_rows(const plk_pool *p)
{
    int64_t rows = plk_cache_own() / 8 / (p->size[2] * LANES * 4) + 1;
    return p->size[0] > 1 || p->out[0] > 1 || p->kernel[0] > 1 ? p->size[1]
                                                               : least(most(rows, 2 * p->kernel[1]), p->size[1]);
}

/* The band of the outputs whose windows cover any of the rows [begin, end). */
static band reaching(const plk_pool *p, int64_t begin, int64_t end)
{
    int64_t s = p->stride[1], first = begin + p->pad[1] - p->kernel[1] + 1;
    band b = {first > 0 ? (first + s - 1) / s : 0, least((end - 1 + p->pad[1]) / s + 1, p->out[1]), begin, end};
    if (begin == 0 && end == p->size[1]) {        /* windows that cover nothing, too */
        b.out = 0;
        b.out_end = p->out[1];
    }
    if (b.out < b.out_end) {
        b.low = most(least(begin, b.out * s - p->pad[1]), 0);
        b.high = least(most(end, (b.out_end - 1) * s - p->pad[1] + p->kernel[1]), p->size[1]);
    }
    return b;
}

static band below(const plk_pool *p, int64_t out, int64_t out_end)
{
    int64_t low = out * p->stride[1] - p->pad[1], high = (out_end - 1) * p->stride[1] - p->pad[1] + p->kernel[1];
    band b = {out, out_end, least(most(low, 0), p->size[1]), most(least(high, p->size[1]), 0)};
    if (b.high < b.low || (out == 0 && out_end == p->out[1])) {
        b.low = 0;
        b.high = p->size[1];
    }
    return b;
}

static int64_t floats(const plk_pool *p, int64_t rows) { return p->size[0] * rows * p->size[2]; }

/* Runs the statement for each output of a band; i counts them; *d, *h and *w are its window. */
#define EACH_OUTPUT(p, all, b, statement) \
    for (int64_t o = 0, i = 0; o < (p)->out[0] * ((b)->out_end - (b)->out); o++) { \
        const reach *d = (all) + o / ((b)->out_end - (b)->out), *w = (all) + (p)->out[0] + (p)->out[1]; \
        const reach *h = (all) + (p)->out[0] + (b)->out + o % ((b)->out_end - (b)->out), *w_end = w + (p)->out[2]; \
        for (; w < w_end; w++, i++) \
            statement \
    }

/* Runs the statement for each element of the window, in order; at: its index in the band. */
#define EACH(p, b, statement) \
    for (int64_t x0 = d->begin; x0 < d->end; x0++) \
        for (int64_t x1 = h->begin; x1 < h->end; x1++) { \
            int64_t row = (x0 * ((b)->high - (b)->low) + x1 - (b)->low) * (p)->size[2]; \
            for (int64_t at = row + w->begin; at < row + w->end; at++) \
                statement; \
        }

static inline float share(const plk_pool *p, const reach *d, const reach *h, const reach *w)
{
    int64_t n = (int64_t)d->n * h->n * w->n;
    return p->kind == PLK_POOL_AVG ? 1 / (float)(n > 0 ? n : 1) : 1;
}

PLK_INLINE vec choose(lanes_mask m, vec a, vec b)
{
    return (vec)(((lanes_mask)a & m) | ((lanes_mask)b & ~m));
}

static void forward(const plk_pool *p, const reach *all, const band *b, const vec *x, vec *y)
{
    EACH_OUTPUT(p, all, b, {
        if (p->kind == PLK_POOL_MAX) {
            vec best = vec_all(-INFINITY);
            EACH(p, b, best = choose((x[at] > best) | (x[at] != x[at]), x[at], best))
            y[i] = best;
        } else {
            vec sum = {0};
            EACH(p, b, sum += x[at])
            y[i] = sum * share(p, d, h, w);
        }
    })
}

/* x: NULL if the gradient does not depend on it. A maximum passes its gradient to the first element that is equal. */
static void backward(const plk_pool *p, const reach *all, const band *b, const vec *dy, const vec *x, vec *dx)
{
    memset(dx, 0, (size_t)floats(p, b->high - b->low) * sizeof *dx);
    EACH_OUTPUT(p, all, b, {
        if (x) {
            vec best = vec_all(-INFINITY);
            lanes_mask where = (lanes_mask){0} - 1;
            EACH(p, b, {
                lanes_mask better = (where < 0) | (x[at] > best) | ((x[at] != x[at]) & (best == best));
                best = choose(better, x[at], best);
                where = (better & (int32_t)at) | (~better & where);
            })
            EACH(p, b, dx[at] += (vec)((lanes_mask)dy[i] & (where == (int32_t)at)))
        } else {
            vec part = dy[i] * share(p, d, h, w);
            EACH(p, b, dx[at] += part)
        }
    })
}

/* A whole plane as one window, channels first. */
static float plane_reduce(const plk_pool *p, const float *x)
{
    int64_t n = elements(p), i = 0;
    int is_max = p->kind == PLK_POOL_MAX;
    vec acc[2] = {vec_all(is_max ? -INFINITY : 0), vec_all(is_max ? -INFINITY : 0)};
    float y = is_max ? -INFINITY : 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES)
        for (int k = 0; k < 2; k++) {
            vec v = vec_load(x + i + k * LANES);
            if (is_max)
                acc[k] = choose((v > acc[k]) | (v != v), v, acc[k]);
            else
                acc[k] += v;
        }
    for (int64_t k = 0; k < 2 * LANES + n - i; k++) {
        float v = k < 2 * LANES ? acc[k / LANES][k % LANES] : x[i + k - 2 * LANES];
        y = is_max ? (v > y || v != v ? v : y) : y + v;
    }
    return p->kind == PLK_POOL_AVG ? y / (float)n : y;
}

/* n (at most LANES) channels from the `first` on, as (pixel, lane): `count` pixels from `at` on of planes of
 * n_pixels. */
static void gather(const plk_pool *p, const float *x, int64_t n_pixels, int64_t at, int64_t count, int64_t first,
                   int64_t n, vec *to)
{
    if (p->inner == 1) {
        to_lanes(x + first * n_pixels + at, n_pixels, n, count, (float *)to, LANES);
        return;
    }
    x += (first / p->inner * n_pixels + at) * p->inner + first % p->inner;
    for (int64_t i = 0; i < count; i++) {
        to[i] = (vec){0};
        memcpy(to + i, x + i * p->inner, (size_t)n * sizeof *x);
    }
}

static void scatter(const plk_pool *p, const vec *from, int64_t n_pixels, int64_t at, int64_t count, int64_t first,
                    int64_t n, float *x)
{
    if (p->inner == 1) {
        from_lanes((const float *)from, LANES, count, (vec){0}, x + first * n_pixels + at, n_pixels, n);
        return;
    }
    x += (first / p->inner * n_pixels + at) * p->inner + first % p->inner;
    for (int64_t i = 0; i < count; i++)
        memcpy(x + i * p->inner, from + i, (size_t)n * sizeof *x);
}

/* Units: with channels first LANES planes, with channels last LANES channels of a plane. */
static int64_t units_of(const plk_pool *p)
{
    return p->inner == 1 ? (p->planes + LANES - 1) / LANES : p->planes * ((p->inner + LANES - 1) / LANES);
}

/* The number of a unit's first channel, counted through all planes, and how many it has. */
static int64_t unit_at(const plk_pool *p, int64_t unit, int64_t *n)
{
    int64_t per = (p->inner + LANES - 1) / LANES, c = unit % per * LANES;
    *n = p->inner == 1 ? least(LANES, p->planes - unit * LANES) : least(LANES, p->inner - c);
    return p->inner == 1 ? unit * LANES : unit / per * p->inner + c;
}

static int no_memory(void) { return pl_fail(PL_ENOMEM, "out of memory for a pooling"); }

typedef struct {
    const plk_pool *p;
    const float *x, *dy;
    float *y;
    reach *all;
    int64_t step, scratch_floats;
    int status;
} job;

static void whole_piece(void *arg, int64_t c)
{
    const job *j = arg;
    j->y[c] = plane_reduce(j->p, j->x + c * elements(j->p));
}

static void forward_piece(void *arg, int64_t unit)
{
    job *j = arg;
    const plk_pool *p = j->p;
    int64_t n, first = unit_at(p, unit, &n);
    vec *scratch = pl_scratch((size_t)j->scratch_floats * sizeof *scratch);
    for (int64_t out = 0; scratch && out < p->out[1]; out += j->step) {
        band b = below(p, out, least(out + j->step, p->out[1]));
        int64_t count = floats(p, b.high - b.low), n_out = p->out[0] * (b.out_end - out) * p->out[2];
        gather(p, j->x, elements(p), b.low * p->size[2], count, first, n, scratch);
        forward(p, j->all, &b, scratch, scratch + count);
        scatter(p, scratch + count, outputs(p), out * p->out[2], n_out, first, n, j->y);
    }
    if (!scratch)
        __atomic_store_n(&j->status, PL_ENOMEM, __ATOMIC_RELAXED);
}

/* bufs: x, y */
PLK_KERNEL(plk_pool_run)
{
    const plk_pool *p = params;
    int n_threads = pl_threads(p->planes * p->inner * elements(p) / 2);
    int whole = p->inner == 1 && outputs(p) == 1 && p->kernel[0] * p->kernel[1] * p->kernel[2] == elements(p) &&
                !(p->pad[0] | p->pad[1] | p->pad[2]);
    job j = {.p = p, .x = bufs[0], .y = bufs[1]};
    (void)scalars;
    if (whole) {
        pl_thread_pool_run(n_threads, p->planes, whole_piece, &j);
        return PL_OK;
    }
    j.step = band_rows(p) < p->size[1] ? most(band_rows(p) / p->stride[1], 1) : p->out[1];
    j.all = reaches_of(p);
    j.scratch_floats = most(floats(p, p->size[1]), 1) + outputs(p);    /* of which a band uses a part */
    if (!j.all)
        return no_memory();
    pl_thread_pool_run(n_threads, units_of(p), forward_piece, &j);
    free(j.all);
    return j.status ? no_memory() : PL_OK;
}

static void backward_piece(void *arg, int64_t unit)
{
    job *j = arg;
    const plk_pool *p = j->p;
    int64_t n, first = unit_at(p, unit, &n), rows = j->step;
    vec *scratch = pl_scratch((size_t)j->scratch_floats * sizeof *scratch);
    for (int64_t h = 0; scratch && h < p->size[1]; h += rows) {
        int64_t end = least(h + rows, p->size[1]);
        band b = reaching(p, h, end);
        int64_t count = floats(p, b.high - b.low), n_out = most(p->out[0] * (b.out_end - b.out) * p->out[2], 0);
        vec *in = scratch, *to = in + count, *from = to + count;
        if (j->x)
            gather(p, j->x, elements(p), b.low * p->size[2], count, first, n, in);
        gather(p, j->dy, outputs(p), b.out * p->out[2], n_out, first, n, from);
        backward(p, j->all, &b, from, j->x ? in : NULL, to);
        scatter(p, to + floats(p, h - b.low), elements(p), h * p->size[2], floats(p, end - h), first, n, j->y);
    }
    if (!scratch)
        __atomic_store_n(&j->status, PL_ENOMEM, __ATOMIC_RELAXED);
}

/* bufs: dy, x for the maximum, dx */
PLK_KERNEL(plk_pool_backward)
{
    const plk_pool *p = params;
    int is_max = p->kind == PLK_POOL_MAX;
    int n_threads = pl_threads(p->planes * p->inner * elements(p));
    job j = {.p = p, .x = is_max ? bufs[1] : NULL, .dy = bufs[0], .y = bufs[is_max ? 2 : 1], .all = reaches_of(p),
             .step = band_rows(p), .scratch_floats = 2 * elements(p) + outputs(p)};
    (void)scalars;
    if (!j.all)
        return no_memory();
    pl_thread_pool_run(n_threads, units_of(p), backward_piece, &j);
    free(j.all);
    return j.status ? no_memory() : PL_OK;
}
