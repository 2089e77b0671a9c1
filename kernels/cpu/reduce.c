/* Reductions of one array over any axes, and positions of extremes. */
#include "reduce.h"
#include "dtype.h"
#include "parts.h"
#include "reduce_methods.h"
#include "simd.h"

enum { TILE = 256, CHUNK = 32768, MAX_CHUNKS = 256, FEW_RUNS = 64 };

static void store(const plk_reduce *p, void *y, int64_t at, double v)
{
    v *= p->scale;
    if (p->root)
        v = sqrt(v);
    if (p->dtype == PLK_F32)
        ((float *)y)[at] = (float)v;
    else
        ((double *)y)[at] = v;
}

typedef struct { const method *m; const char *x; int64_t n, chunk; size_t size; double parts[MAX_CHUNKS]; } chunks;

static void chunk_piece(void *arg, int64_t c)
{
    chunks *s = arg;
    int64_t begin = c * s->chunk, some = s->n - begin < s->chunk ? s->n - begin : s->chunk;
    s->parts[c] = some > 0 ? s->m->run(s->x + (size_t)begin * s->size, some) : s->m->start;
}

/* One long run, in chunks whose number does not depend on the threads. */
static double run_chunks(const method *m, const char *x, int64_t n, size_t size, int n_threads)
{
    double total = m->start;
    int64_t n_chunks = (n + CHUNK - 1) / CHUNK;
    n_chunks = n_chunks > MAX_CHUNKS ? MAX_CHUNKS : n_chunks;
    int64_t chunk = (n + n_chunks - 1) / n_chunks;
    chunks s = {.m = m, .x = x, .n = n, .chunk = chunk, .size = size};
    pl_thread_pool_run(n_threads, n_chunks, chunk_piece, &s);
    for (int64_t c = 0; c < n_chunks; c++)
        total = m->merge(total, s.parts[c]);
    return total;
}

typedef struct {
    const plk_reduce *p;
    const method *m;
    void *const *bufs;
    int64_t n_reduced, tiles;
} job;

static void runs_part(void *arg, int64_t begin, int64_t end)
{
    const job *j = arg;
    const plk_reduce *p = j->p;
    const method *m = j->m;
    size_t size = plk_dtype_bytes(p->dtype);
    for (int64_t o = begin; o < end; o++) {
        int64_t base = offset_of(o, p->n_kept, p->kept_shape, p->kept_strides);
        double acc = m->start;
        for (int64_t r = 0; r < j->n_reduced; r++) {
            int64_t at = base + offset_of(r, p->n_reduced, p->reduced_shape, p->reduced_strides);
            acc = m->merge(acc, m->run((const char *)j->bufs[0] + at * (int64_t)size, p->inner));
        }
        store(p, j->bufs[1], o, acc);
    }
}

static void tiles_part(void *arg, int64_t begin, int64_t end)
{
    const job *j = arg;
    const plk_reduce *p = j->p;
    const method *m = j->m;
    size_t size = plk_dtype_bytes(p->dtype);
    int64_t tiles = j->tiles;
    for (int64_t u = begin; u < end; u++) {
        double acc[TILE];
        int64_t first = u % tiles * TILE, width = p->inner - first < TILE ? p->inner - first : TILE;
        int64_t base = offset_of(u / tiles, p->n_kept, p->kept_shape, p->kept_strides) + first;
        for (int64_t i = 0; i < width; i++)
            acc[i] = m->start;
        for (int64_t r = 0; r < j->n_reduced; r++) {
            int64_t at = base + offset_of(r, p->n_reduced, p->reduced_shape, p->reduced_strides);
            m->rows(acc, (const char *)j->bufs[0] + at * (int64_t)size, width);
        }
        for (int64_t i = 0; i < width; i++)
            store(p, j->bufs[1], u / tiles * p->inner + first + i, acc[i]);
    }
}

/* bufs: x, y */
PLK_KERNEL(plk_reduce_run)
{
    const plk_reduce *p = params;
    const method *m = (p->dtype == PLK_F32 ? methods_f32 : methods_f64) + p->kind;
    const char *x = bufs[0];
    void *y = bufs[1];
    size_t size = plk_dtype_bytes(p->dtype);
    int64_t n_reduced = 1, tiles = (p->inner + TILE - 1) / TILE;
    (void)scalars;
    for (int d = 0; d < p->n_reduced; d++)
        n_reduced *= p->reduced_shape[d];
    if (p->n_out == 0)
        return PL_OK;
    /* the order of additions depends only on shapes */
    if (p->inner_reduced && p->n_out < FEW_RUNS && p->inner > CHUNK && n_reduced == 1) {
        for (int64_t o = 0; o < p->n_out; o++) {
            const char *from = x + offset_of(o, p->n_kept, p->kept_shape, p->kept_strides) * (int64_t)size;
            store(p, y, o, run_chunks(m, from, p->inner, size, pl_threads(p->n_in / 2)));
        }
        return PL_OK;
    }
    int64_t units = p->inner_reduced ? p->n_out : p->n_out / p->inner * tiles;
    job j = {p, m, bufs, n_reduced, tiles};
    plk_run_parts(p->n_in / 2, units, 1, p->inner_reduced ? runs_part : tiles_part, &j);
    return PL_OK;
}

#define ARGMAX(T) \
    for (int64_t u = begin; u < end; u++) { \
        const T *x = (const T *)bufs[0] + u / p->inner * p->n * p->inner + u % p->inner; \
        T best = x[0]; \
        int64_t at = 0; \
        for (int64_t k = 1; k < p->n; k++) { \
            T v = x[k * p->inner]; \
            if ((p->smallest ? v < best : v > best) || (v != v && best == best)) { best = v; at = k; } \
        } \
        ((T *)bufs[1])[u] = (T)at; \
    }

static void argmax_part(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_argmax *p = call->params;
    void *const *bufs = call->bufs;
    if (p->dtype == PLK_F32)
        ARGMAX(float)
    else
        ARGMAX(double)
}

/* bufs: x (outer, n, inner), y (outer, inner) in x's dtype: the first extreme, or the first NaN */
PLK_KERNEL(plk_argmax_run)
{
    const plk_argmax *p = params;
    int64_t units = p->outer * p->inner;
    plk_run_parts(units * p->n, units, 1, argmax_part, &(plk_call){params, bufs, scalars});
    return PL_OK;
}
