/* Attention of new tokens over a cache: each sees the tokens before it and itself.
 *
 * Scores and sums are matrix products on the cache as it lies in memory; a block of queries has all keys in common that
 * its first one sees. What later queries of the block see beside them is added row by row, so that no query reads a
 * value behind its own position, which may be infinite or NaN.
 */
#include "cached_attention.h"
#include "engine/core/scratch.h"
#include "gemm.h"
#include "index.h"
#include "parts.h"
#include "simd.h"
#include "vecmath.h"

#include <stdio.h>

enum { LANES = 16, BLOCK = 16 };

typedef struct {
    const plk_cached_attention *p;
    void *const *bufs;
    int64_t group, n_blocks;     /* queries that share a key; blocks of new tokens */
    int status;
} work;

static int64_t position_of(const plk_cached_attention *p, const void *positions, int64_t b)
{
    return plk_index_at(positions, p->position_dtype, p->n_positions == 1 ? 0 : b);
}

/* x <- softmax of its first n elements */
static void row_softmax(float *x, int64_t n)
{
    float top[LANES], sums[LANES] = {0}, most = x[0], total = 0;
    int64_t i = 0;
    for (int l = 0; l < LANES; l++)
        top[l] = most;
    for (; i + LANES <= n; i += LANES)
        PLK_LANES for (int l = 0; l < LANES; l++)
            top[l] = x[i + l] > top[l] ? x[i + l] : top[l];
    for (; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int l = 0; l < LANES; l++)
        most = top[l] > most ? top[l] : most;
    for (i = 0; i + LANES <= n; i += LANES)
        PLK_LANES for (int l = 0; l < LANES; l++) {
            x[i + l] = plk_exp_f32(x[i + l] - most);
            sums[l] += x[i + l];
        }
    for (; i < n; i++) {
        x[i] = plk_exp_f32(x[i] - most);
        total += x[i];
    }
    for (int l = 0; l < LANES; l++)
        total += sums[l];
    for (i = 0; i < n; i++)
        x[i] /= total;
}

/* One block of new tokens, for the queries of one key head. */
static void attend(void *arg, int64_t task)
{
    work *w = arg;
    const plk_cached_attention *p = w->p;
    int64_t first = task % w->n_blocks * BLOCK, at = task / w->n_blocks, b = at / p->kept_heads, g = at % p->kept_heads;
    int64_t n = p->n_new - first < BLOCK ? p->n_new - first : BLOCK;
    int64_t common = position_of(p, w->bufs[5], b) + first + 1, all = common + n - 1;
    const float *k = (const float *)w->bufs[3] + at * p->length * p->dim;
    const float *v = (const float *)w->bufs[4] + at * p->length * p->dim_v;
    float *s = pl_scratch((size_t)(n * all) * sizeof *s);
    if (!s) {
        __atomic_store_n(&w->status, PL_ENOMEM, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t h = g * w->group; h < (g + 1) * w->group; h++) {
        int64_t row = p->heads * p->dim, y_row = p->heads * p->dim_v;
        const float *q = (const float *)w->bufs[0] + (b * p->n_new + first) * row + h * p->dim;
        float *y = (float *)w->bufs[6] + (b * p->n_new + first) * y_row + h * p->dim_v;
        int status = plk_sgemm(0, 1, n, all, p->dim, p->scale, q, row, k, p->dim, 0, s, all, 1);
        for (int64_t i = 0; i < n; i++)
            row_softmax(s + i * all, common + i);
        if (!status)
            status = plk_sgemm(0, 0, n, p->dim_v, common, 1, s, all, v, p->dim_v, 0, y, y_row, 1);
        for (int64_t i = 1; i < n; i++)
            for (int64_t j = common; j < common + i; j++)
                for (int64_t d = 0; d < p->dim_v; d++)
                    y[i * y_row + d] += s[i * all + j] * v[j * p->dim_v + d];
        if (status)
            __atomic_store_n(&w->status, status, __ATOMIC_RELAXED);
    }
}

/* (batch, n_new, heads, dim) -> its places in (batch, heads, length, dim) */
static void keep(const plk_cached_attention *p, const float *from, int64_t dim, const void *positions, float *to)
{
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0, at = position_of(p, positions, b); i < p->n_new; i++)
            for (int64_t h = 0; h < p->kept_heads; h++, from += dim)
                memcpy(to + ((b * p->kept_heads + h) * p->length + at + i) * dim, from, (size_t)dim * sizeof *from);
}

/* bufs: queries, keys, values, key cache, value cache, positions, result */
PLK_KERNEL(plk_cached_attention_run)
{
    const plk_cached_attention *p = params;
    int64_t seen = 0;
    (void)scalars;
    for (int64_t b = 0; b < p->n_positions; b++) {
        int64_t at = position_of(p, bufs[5], b);
        if (at < 0 || at > p->length - p->n_new) {
            char message[200];
            snprintf(message, sizeof message,
                     "cached_attention: position must be in [0, length - new tokens] = [0, %lld], got %lld\n"
                     "  fix: caches of shape (batch, heads, length, dim) with a greater length",
                     (long long)(p->length - p->n_new), (long long)at);
            return pl_fail(PL_EINDEX, message);
        }
        seen = at + p->n_new > seen ? at + p->n_new : seen;
    }
    keep(p, bufs[1], p->dim, bufs[5], bufs[3]);
    keep(p, bufs[2], p->dim_v, bufs[5], bufs[4]);
    work w = {p, bufs, p->heads / p->kept_heads, (p->n_new + BLOCK - 1) / BLOCK, PL_OK};
    int64_t all = p->batch * seen * (p->dim + p->dim_v), multiplies = all * p->heads * p->n_new / 16;
    int64_t reads = all * p->kept_heads / 2;    /* from memory, at the pace of pl_threads' steps */
    int n_threads = pl_threads(multiplies > reads ? multiplies : reads);
    pl_thread_pool_run(n_threads, p->batch * p->kept_heads * w.n_blocks, attend, &w);
    return w.status ? pl_fail(w.status, "out of memory for attention") : PL_OK;
}
