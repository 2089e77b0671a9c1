/* Attention and its gradient, in blocks that stay in the cache; the matrix of scores is never stored.
 *
 * Forward goes through the keys once with a running maximum and sum for each query (Milakov and Gimelshein 2018), and
 * keeps the maximum and log(sum e^(score - maximum)) of each; backward recomputes the scores from that (Dao et al.
 * 2022, arXiv:2205.14135). Queries are read in place; keys and values are packed once for each batch and head. Dropout
 * of probabilities keeps one bit of each. Keys that are masked for all queries of a block are skipped.
 */
#include "attention.h"
#include "gemm.h"
#include "parts.h"
#include "philox.h"
#include "simd.h"
#include "tile.h"
#include "vecmath.h"

enum { LANES = 16, BLOCK_Q = 8 * ROWS, BLOCK_K = ROWS == 14 ? 224 : 192, TASKS_PER_THREAD = 4 };
_Static_assert(BLOCK_K % (int)ROWS == 0 && BLOCK_K % (int)COLUMNS == 0 && BLOCK_K <= (int)DEPTH,
               "blocks are whole panels");

typedef struct {
    const plk_attention *p;
    void *const *bufs;
    const double *scalars;
    int64_t n_tasks, q_tasks, next;    /* q_tasks: the number of tasks for the queries of one head */
} work;

static float *heads(const plk_heads *x, float *base, int64_t b, int64_t h)
{
    return base + x->at + b * x->batch + h * x->head;
}

static float row_top(const float *x, int64_t n)
{
    float m[LANES], top = -INFINITY;
    int64_t i = 0;
    for (int l = 0; l < LANES; l++)
        m[l] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        PLK_LANES for (int l = 0; l < LANES; l++)
            m[l] = x[i + l] > m[l] ? x[i + l] : m[l];
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int l = 0; l < LANES; l++)
        top = m[l] > top ? m[l] : top;
    return top;
}

/* x <- e^(x - shift); returns the sum */
static float row_exp(float *x, int64_t n, float shift)
{
    float s[LANES] = {0}, total = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        PLK_LANES for (int l = 0; l < LANES; l++) {
            float e = plk_exp_f32(x[i + l] - shift);
            x[i + l] = e;
            s[l] += e;
        }
    for (; i < n; i++) {
        x[i] = plk_exp_f32(x[i] - shift);
        total += x[i];
    }
    for (int l = 0; l < LANES; l++)
        total += s[l];
    return total;
}

/* The queries of one block; all blocks are equal. */
static int64_t block_rows(int64_t n_q) { return up(up(n_q, ROWS), up(n_q, BLOCK_Q)) * ROWS; }

/* How many of the keys [k0, k0 + n) are not masked for a query. */
static int64_t valid_keys(const plk_attention *p, const void *mask, int64_t at, int64_t k0, int64_t n)
{
    if (p->mask_kind < PLK_MASK_LENGTH32)
        return n;
    int64_t v = (p->mask_kind == PLK_MASK_LENGTH32 ? ((const int32_t *)mask)[at] : ((const int64_t *)mask)[at]) - k0;
    return v < 0 ? 0 : v < n ? v : n;
}

/* Rows for the tile: whole panels in place, the rest packed. */
typedef struct { const float *from, *packed; int64_t row, n_here; } panel_rows;

static panel_rows rows_of(const float *from, int64_t row, int64_t rows, int64_t depth, float *packed)
{
    /* unless all lines are in one cache set */
    panel_rows x = {from, packed, row, row % 1024 == 0 ? 0 : rows / (int64_t)ROWS * ROWS};
    pack_a(packed + x.n_here * DEPTH, from + x.n_here * row, row, 1, rows - x.n_here, depth);
    return x;
}

/* s (rows x n, BLOCK_K apart) = alpha x times panels of columns */
static void times_panels(const panel_rows *x, int64_t rows, const float *panels, int64_t n, int64_t depth, float alpha,
                         float *s)
{
    for (int64_t j = 0; j < n; j += COLUMNS)
        for (int64_t i = 0; i < rows; i += ROWS)
            if (i < x->n_here)
                tile_rows_apart(depth, x->from + i * x->row, x->row, panels + j * depth, COLUMNS, alpha, 0, no_bias,
                                s + i * BLOCK_K + j, BLOCK_K);
            else
                tile_rows(depth, x->packed + i * DEPTH, panels + j * depth, COLUMNS, alpha, 0, no_bias,
                          s + i * BLOCK_K + j, BLOCK_K);
}

/* s (rows x n keys, BLOCK_K apart) = scale q k^T + mask for packed k */
static void scores(const plk_attention *p, const panel_rows *q, const float *packed_k, int64_t rows, int64_t n,
                   const float *mask, int64_t mask_at, int64_t k0, float *s)
{
    times_panels(q, rows, packed_k, n, p->dim, p->scale, s);
    if (p->mask_kind != PLK_MASK_ADD && p->mask_kind != PLK_MASK_WHERE)
        return;
    for (int64_t i = 0; i < rows; i++) {
        const float *m = mask + mask_at + i * p->mask.row + k0 * p->mask_column;
        if (p->mask_kind == PLK_MASK_WHERE)
            for (int64_t j = 0; j < n; j++)
                s[i * BLOCK_K + j] = m[j * p->mask_column] != 0 ? s[i * BLOCK_K + j] : p->mask_value;
        else if (p->mask_column == 1)
            for (int64_t j = 0; j < n; j++)
                s[i * BLOCK_K + j] += m[j];
        else
            for (int64_t j = 0; j < n; j++)
                s[i * BLOCK_K + j] += m[j * p->mask_column];
    }
}

/* Masked keys have no gradient. */
static void left_out(const plk_attention *p, const float *mask, int64_t n, float *ds)
{
    for (int64_t j = 0; j < n; j++)
        ds[j] = mask[j * p->mask_column] == 0 ? 0 : ds[j];
}

/* The largest |x| of a matrix, by comparing bits: infinite or NaN if an element is. */
static float largest(const float *x, int64_t row_step, int64_t rows, int64_t columns)
{
    int32_t top[LANES] = {0}, all = 0;
    for (int64_t r = 0; r < rows; r++) {
        const float *at = x + r * row_step;
        int64_t i = 0;
        for (; i + LANES <= columns; i += LANES)
            PLK_LANES for (int l = 0; l < LANES; l++) {
                int32_t b = plk_bits(at[i + l]) & 0x7fffffff;
                top[l] = b > top[l] ? b : top[l];
            }
        for (; i < columns; i++) {
            int32_t b = plk_bits(at[i]) & 0x7fffffff;
            all = b > all ? b : all;
        }
    }
    for (int l = 0; l < LANES; l++)
        all = top[l] > all ? top[l] : all;
    return plk_float(all);
}

enum { NO_PART = 110 };                          /* e^-NO_PART is 0 in float32 */

/* Are the keys [k0, k0 + n) masked for all of `rows` queries, each of which has keys that are not? A mask of at most
 * `threshold` gives a probability of 0. */
static int left_no_part(const plk_attention *p, const float *mask, int64_t rows, int64_t k0, int64_t n,
                        double threshold)
{
    for (int64_t i = rows - 1; i >= 0; i--)
        for (int64_t j = k0; j < k0 + n; j++) {
            float m = mask[i * p->mask.row + j];
            if (p->mask_kind == PLK_MASK_ADD ? !(m <= threshold) : m != 0)
                return 0;
        }
    return 1;
}

/* How many of the first keys a block of queries needs: the probabilities of all later keys are exactly 0, and their
 * values are finite. bound: of |scale q k|; not finite if an operand is not. */
static int64_t needed_keys(const plk_attention *p, const void *mask, int64_t at, int64_t rows, float bound)
{
    if (p->mask_kind == PLK_MASK_NONE || !(bound < 1e30f))
        return p->n_k;
    rows = p->mask.row ? rows : 1;
    if (p->mask_kind >= PLK_MASK_LENGTH32) {
        int64_t most = 0;
        for (int64_t i = 0; i < rows; i++) {
            int64_t v = valid_keys(p, mask, at + i * p->mask.row, 0, p->n_k);
            most = v > most ? v : most;
        }
        return most;
    }
    const float *m = (const float *)mask + at;
    if (p->mask_column != 1 || (p->mask_kind == PLK_MASK_WHERE && !(p->mask_value < -bound - NO_PART)))
        return p->n_k;
    float best = INFINITY;                       /* the least of the largest masks of each row */
    for (int64_t i = 0; i < rows; i++) {
        float top = p->mask_kind == PLK_MASK_ADD ? row_top(m + i * p->mask.row, p->n_k)
                                                 : largest(m + i * p->mask.row, 0, 1, p->n_k);
        best = top < best ? top : best;
    }
    if (p->mask_kind == PLK_MASK_WHERE ? best == 0 : isinf(best))    /* all keys of the row are masked: use all */
        return p->n_k;
    double threshold = best - 2.0 * bound - NO_PART - fabs(best) * 1e-6;    /* scores are rounded to float32 */
    int64_t n = p->n_k, some;
    for (; n > 0; n -= some) {
        some = n - (n - 1) / COLUMNS * COLUMNS;
        if (!left_no_part(p, m, rows, n - some, some, threshold))
            break;
    }
    return n;
}

/* A matrix whose elements are so small that products stay finite. */
static float bound_of(float a, float b, float factor)
{
    return a < 1e15f && b < 1e15f ? a * b * fabsf(factor) : NAN;
}

/* Panels of a matrix of `rows` rows for products over its columns (across = 1) or over its rows. */
static void pack_panels(float *to, const float *x, int64_t row_step, int64_t rows, int64_t columns, int across)
{
    int64_t n = across ? rows : columns, depth = across ? columns : rows;
    for (int64_t j = 0; j < n; j += COLUMNS, to += COLUMNS * depth)
        pack_b(to, x + (across ? j * row_step : j), across ? 1 : row_step, across ? row_step : 1, least(n - j, COLUMNS),
               depth);
}

/* ---- forward ----------------------------------------------------------------------------------------------- */

typedef struct {
    float *k, *v, *q, *s, *o, *top, *total;
    uint32_t *random;
    int64_t wide;
    float most_k, most_v;
} forward_scratch;

static size_t forward_layout(const plk_attention *p, forward_scratch *r, float *base)
{
    float *at = base;
    int64_t keys = up(p->n_k, BLOCK_K) * BLOCK_K;
    r->wide = up(p->dim_v, COLUMNS) * COLUMNS;
#define TAKE(field, n) r->field = at, at += up(n, 16) * 16
    TAKE(k, keys * p->dim);
    TAKE(v, keys * r->wide);
    TAKE(q, BLOCK_Q * DEPTH);
    TAKE(s, BLOCK_Q * BLOCK_K);
    TAKE(o, BLOCK_Q * r->wide);
    TAKE(top, BLOCK_Q);
    TAKE(total, BLOCK_Q);
    r->random = (uint32_t *)at;
    at += BLOCK_K + 2 * PHILOX_WORDS;
    return (size_t)(at - base) * sizeof(float);
}

/* Turns scores of a block into unnormalised probabilities; rescales o and total to the new maximum. */
static void soften(const plk_attention *p, const forward_scratch *r, const void *mask, int64_t mask_at, int64_t rows,
                   int64_t k0, int64_t n)
{
    for (int64_t i = 0; i < rows; i++) {
        float *s = r->s + i * BLOCK_K, *o = r->o + i * r->wide;
        int64_t valid = valid_keys(p, mask, mask_at + i * p->mask.row, k0, n);
        float top = row_top(s, valid), old = r->top[i];
        top = top > old ? top : old;
        float shift = isinf(top) ? 0 : top, fade = old == top ? 1 : plk_exp_f32(old - shift);
        r->top[i] = top;
        r->total[i] = r->total[i] * fade + row_exp(s, valid, shift);
        for (int64_t j = valid; j < n; j++)
            s[j] = 0;
        if (fade != 1)
            for (int64_t d = 0; d < r->wide; d++)
                o[d] *= fade;
    }
}

/* Draws which probabilities of a block are kept, and zeroes the others. bits: of the first query, which is number
 * `query` of all. */
static void drop(const plk_attention *p, const forward_scratch *r, const stream *numbers, int64_t query, int64_t rows,
                 int64_t k0, int64_t n, uint32_t *bits)
{
    for (int64_t i = 0; i < rows; i++) {
        uint32_t *own = bits + i * p->words + k0 / 32;
        float *s = r->s + i * BLOCK_K;
        keep_bits(numbers, (query + i) * p->n_k + k0, n, p->keep, r->random, own);
        for (int64_t j = 0; j < n; j += 32)
            for (int l = 0; l < 32; l++)
                s[j + l] = own[j / 32] >> l & 1 ? s[j + l] : 0;
    }
}

static void forward_block(const work *w, const forward_scratch *r, int64_t b, int64_t h, int64_t i0, int64_t rows)
{
    const plk_attention *p = w->p;
    void *const *bufs = w->bufs;
    int64_t query = (b * p->heads + h) * p->n_q + i0;
    const void *mask = bufs[p->n_sources];
    int64_t mask_at = p->mask.at + b * p->mask.batch + h * p->mask.head + i0 * p->mask.row;
    int outs = p->n_sources + (p->mask_kind != PLK_MASK_NONE);
    float *y = heads(&p->y, bufs[outs], b, h) + i0 * p->y.row;
    float *sums = (float *)bufs[outs + 1] + 2 * query;
    uint32_t *bits = p->words ? (uint32_t *)bufs[outs + 2] + query * p->words : NULL;
    stream numbers = {{0}, {0}};
    if (bits) {
        numbers = stream_of(w->scalars);
        memset(bits, 0, (size_t)(rows * p->words) * sizeof *bits);
    }
    const float *from = heads(&p->q, bufs[p->q.source], b, h) + i0 * p->q.row;
    panel_rows q = rows_of(from, p->q.row, rows, p->dim, r->q);
    int64_t needed = p->n_k;
    if (p->mask_kind != PLK_MASK_NONE && r->most_v < 1e30f)
        needed = needed_keys(p, mask, mask_at, rows,
                             bound_of(largest(from, p->q.row, rows, p->dim), r->most_k, p->scale * (float)p->dim));
    memset(r->o, 0, (size_t)(BLOCK_Q * r->wide) * sizeof *r->o);
    for (int64_t i = 0; i < rows; i++) {
        r->top[i] = -INFINITY;
        r->total[i] = 0;
    }
    for (int64_t k0 = 0; k0 < needed; k0 += BLOCK_K) {
        int64_t n = least(needed - k0, BLOCK_K), packed = least(p->n_k - k0, BLOCK_K);
        scores(p, &q, r->k + k0 * p->dim, rows, n, mask, mask_at, k0, r->s);
        soften(p, r, mask, mask_at, rows, k0, n);
        if (bits)
            drop(p, r, &numbers, query, rows, k0, n, bits);
        for (int64_t j = 0; j < p->dim_v; j += COLUMNS)
            for (int64_t i = 0; i < rows; i += ROWS)
                tile_rows_apart(n, r->s + i * BLOCK_K, BLOCK_K, r->v + k0 * r->wide + j * packed, COLUMNS, 1, 1,
                                no_bias, r->o + i * r->wide + j, r->wide);
    }
    for (int64_t i = 0; i < rows; i++) {
        int none = p->mask_kind >= PLK_MASK_LENGTH32 && r->total[i] == 0;    /* zeros, as softmax with lengths */
        float f = none ? 0 : (bits ? p->kept_scale : 1) / r->total[i];
        for (int64_t d = 0; d < p->dim_v; d++)
            y[i * p->y.row + d] = none ? 0 : r->o[i * r->wide + d] * f;
        sums[2 * i] = none ? 0 : r->top[i];
        sums[2 * i + 1] = none ? 0 : logf(r->total[i]);
    }
}

static int forward_tasks(work *w)
{
    const plk_attention *p = w->p;
    forward_scratch r;
    float *base = plk_gemm_scratch(forward_layout(p, &r, NULL));
    if (!base)
        return pl_fail(PL_ENOMEM, "out of memory for attention");
    forward_layout(p, &r, base);
    int64_t t, packed = -1, rows = block_rows(p->n_q), per = w->q_tasks > 1 ? rows : p->n_q;
    while ((t = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED)) < w->n_tasks) {
        int64_t head = t / w->q_tasks, b = head / p->heads, h = head % p->heads, begin = t % w->q_tasks * per;
        if (head != packed) {
            const float *k = heads(&p->k, w->bufs[p->k.source], b, h), *v = heads(&p->v, w->bufs[p->v.source], b, h);
            pack_panels(r.k, k, p->k.row, p->n_k, p->dim, 1);
            for (int64_t k0 = 0; k0 < p->n_k; k0 += BLOCK_K)
                pack_panels(r.v + k0 * r.wide, v + k0 * p->v.row, p->v.row, least(p->n_k - k0, BLOCK_K), p->dim_v, 0);
            r.most_k = r.most_v = 0;
            if (p->mask_kind != PLK_MASK_NONE) {
                r.most_k = largest(k, p->k.row, p->n_k, p->dim);
                r.most_v = largest(v, p->v.row, p->n_k, p->dim_v);
            }
            packed = head;
        }
        for (int64_t i = begin; i < least(p->n_q, begin + per); i += rows)
            forward_block(w, &r, b, h, i, least(p->n_q - i, rows));
    }
    return PL_OK;
}

typedef struct { work w; int (*tasks)(work *); int status; } thread_tasks;

static void run_tasks(void *arg, int64_t thread)
{
    thread_tasks *all = arg;
    int status = all->tasks(&all->w);
    (void)thread;
    if (status)
        __atomic_store_n(&all->status, status, __ATOMIC_RELAXED);
}

static int run(const plk_attention *p, void *const *bufs, const double *scalars, int products, int split,
               int (*tasks)(work *))
{
    int64_t multiplies = p->batch * p->heads * p->n_q * p->n_k * (p->dim + p->dim_v) * products / 2;
    int n_threads = pl_threads(multiplies / 32);
    thread_tasks all = {{p, bufs, scalars, 0, 1, 0}, tasks, PL_OK};
    work *w = &all.w;
    if (split && p->batch * p->heads < TASKS_PER_THREAD * n_threads)
        w->q_tasks = up(p->n_q, block_rows(p->n_q));
    w->n_tasks = p->batch * p->heads * w->q_tasks;
    pl_thread_pool_run(n_threads, n_threads, run_tasks, &all);
    return all.status ? pl_fail(all.status, "out of memory for attention") : PL_OK;
}

/* bufs: sources, mask if any, y, the sums (largest score, log of the sum of e^(score - largest)) of each query, with
 * dropout the bits of kept probabilities. scalars: with dropout seed, call */
PLK_KERNEL(plk_attention_run)
{
    return run(params, bufs, scalars, 2, 1, forward_tasks);
}

/* ---- backward ---------------------------------------------------------------------------------------------- */

typedef struct {
    float *k, *v, *k_rows, *dk, *dv, *q, *dy, *q_rows, *dy_rows, *s, *ds, *dq, *delta, *factor;
    int64_t wide, wide_v;
    float most_k, most_v;
} backward_scratch;

static size_t backward_layout(const plk_attention *p, backward_scratch *r, float *base)
{
    float *at = base;
    int64_t keys = up(p->n_k, BLOCK_K) * BLOCK_K;
    r->wide = up(p->dim, COLUMNS) * COLUMNS;
    r->wide_v = up(p->dim_v, COLUMNS) * COLUMNS;
    TAKE(k, keys * p->dim);
    TAKE(v, keys * p->dim_v);
    TAKE(k_rows, keys * r->wide);
    TAKE(dk, keys * r->wide);
    TAKE(dv, keys * r->wide_v);
    TAKE(q, BLOCK_Q * DEPTH);
    TAKE(dy, BLOCK_Q * DEPTH);
    TAKE(q_rows, BLOCK_Q * r->wide);
    TAKE(dy_rows, BLOCK_Q * r->wide_v);
    TAKE(s, BLOCK_Q * BLOCK_K);
    TAKE(ds, BLOCK_Q * BLOCK_K);
    TAKE(dq, BLOCK_Q * r->wide);
    TAKE(delta, BLOCK_Q);
    TAKE(factor, BLOCK_K);
    return (size_t)(at - base) * sizeof(float);
}

/* to (n x columns, `wide` apart) += x^T times panels, for x of `rows` rows, BLOCK_K apart */
static void add_transposed(const float *x, int64_t rows, int64_t n, const float *panels, int64_t columns,
                           int64_t wide, float *to)
{
    for (int64_t j = 0; j < columns; j += COLUMNS)
        for (int64_t i = 0; i < n; i += ROWS)
            tile_steps_apart(rows, x + i, BLOCK_K, panels + j * rows, COLUMNS, 1, 1, no_bias, to + i * wide + j, wide);
}

/* The factors of dropout for the probabilities of a query, from the bits of the kept ones. */
static void factors(const uint32_t *bits, int64_t n, float scale, float *to)
{
    for (int64_t j = 0; j < n; j += 32)
        for (int l = 0; l < 32; l++)
            to[j + l] = bits[j / 32] >> l & 1 ? scale : 0;
}

/* p = e^(s - top - log of the sum); ds <- p (ds factor - delta) scale; s <- p factor */
PLK_INLINE void score_gradients(float *s, float *ds, const float *factor, int64_t n, const float *sums, float delta,
                                float scale, const int dropped)
{
    const float top = sums[0], log_sum = sums[1];
    _Pragma("GCC ivdep") for (int64_t j = 0; j < n; j++) {
        float e = plk_exp_f32(s[j] - top - log_sum), f = dropped ? factor[j] : 1;
        s[j] = e * f;
        ds[j] = e * (ds[j] * f - delta) * scale;
    }
}

static void backward_block(const plk_attention *p, void *const *bufs, const backward_scratch *r, int64_t b, int64_t h,
                           int64_t i0, int64_t rows, float *dq)
{
    int64_t query = (b * p->heads + h) * p->n_q + i0;
    void *const *sources = bufs + 3 + (p->words != 0);
    const uint32_t *bits = p->words ? (const uint32_t *)bufs[3] + query * p->words : NULL;
    const void *mask = sources[p->n_sources];
    int64_t mask_at = p->mask.at + b * p->mask.batch + h * p->mask.head + i0 * p->mask.row;
    const float *dy = heads(&p->y, bufs[0], b, h) + i0 * p->y.row, *y = heads(&p->y, bufs[1], b, h) + i0 * p->y.row;
    const float *sums = (float *)bufs[2] + 2 * query;
    const float *q = heads(&p->q, sources[p->q.source], b, h) + i0 * p->q.row;
    panel_rows own_q = rows_of(q, p->q.row, rows, p->dim, r->q), own_dy = rows_of(dy, p->y.row, rows, p->dim_v, r->dy);
    int64_t needed = p->n_k;
    if (p->mask_kind != PLK_MASK_NONE && largest(dy, p->y.row, rows, p->dim_v) < 1e15f && r->most_v < 1e15f)
        needed = needed_keys(p, mask, mask_at, rows,
                             bound_of(largest(q, p->q.row, rows, p->dim), r->most_k, p->scale * (float)p->dim));
    pack_panels(r->q_rows, q, p->q.row, rows, p->dim, 0);
    pack_panels(r->dy_rows, dy, p->y.row, rows, p->dim_v, 0);
    memset(r->dq, 0, (size_t)(BLOCK_Q * r->wide) * sizeof *r->dq);
    for (int64_t i = 0; i < rows; i++) {
        r->delta[i] = 0;
        for (int64_t d = 0; d < p->dim_v; d++)
            r->delta[i] += dy[i * p->y.row + d] * y[i * p->y.row + d];
    }
    for (int64_t j = 0; j < BLOCK_K; j++)
        r->factor[j] = 1;
    for (int64_t k0 = 0; k0 < needed; k0 += BLOCK_K) {
        int64_t n = least(needed - k0, BLOCK_K), packed = least(p->n_k - k0, BLOCK_K);
        scores(p, &own_q, r->k + k0 * p->dim, rows, n, mask, mask_at, k0, r->s);
        times_panels(&own_dy, rows, r->v + k0 * p->dim_v, n, p->dim_v, 1, r->ds);
        for (int64_t i = 0; i < rows; i++) {
            float *s = r->s + i * BLOCK_K, *ds = r->ds + i * BLOCK_K;
            int64_t valid = valid_keys(p, mask, mask_at + i * p->mask.row, k0, n);
            if (bits) {
                factors(bits + i * p->words + k0 / 32, n, p->kept_scale, r->factor);
                score_gradients(s, ds, r->factor, valid, sums + 2 * i, r->delta[i], p->scale, 1);
            } else {
                score_gradients(s, ds, r->factor, valid, sums + 2 * i, r->delta[i], p->scale, 0);
            }
            for (int64_t j = valid; j < up(n, ROWS) * ROWS; j++)    /* tiles are whole */
                s[j] = ds[j] = 0;
            if (p->mask_kind == PLK_MASK_WHERE)
                left_out(p, (const float *)mask + mask_at + i * p->mask.row + k0 * p->mask_column, n, ds);
        }
        add_transposed(r->s, rows, n, r->dy_rows, p->dim_v, r->wide_v, r->dv + k0 * r->wide_v);
        add_transposed(r->ds, rows, n, r->q_rows, p->dim, r->wide, r->dk + k0 * r->wide);
        for (int64_t j = 0; j < p->dim; j += COLUMNS)
            for (int64_t i = 0; i < rows; i += ROWS)
                tile_rows_apart(n, r->ds + i * BLOCK_K, BLOCK_K, r->k_rows + k0 * r->wide + j * packed, COLUMNS, 1, 1,
                          no_bias, r->dq + i * r->wide + j, r->wide);
    }
    for (int64_t i = 0; i < rows; i++)
        memcpy(dq + (i0 + i) * p->q.row, r->dq + i * r->wide, (size_t)p->dim * sizeof *dq);
}

static int backward_tasks(work *w)
{
    const plk_attention *p = w->p;
    void *const *sources = w->bufs + 3 + (p->words != 0),
                *const *grads = sources + p->n_sources + (p->mask_kind != PLK_MASK_NONE);
    backward_scratch r;
    float *base = plk_gemm_scratch(backward_layout(p, &r, NULL));
    if (!base)
        return pl_fail(PL_ENOMEM, "out of memory for the gradient of attention");
    backward_layout(p, &r, base);
    memset(r.s, 0, (size_t)(2 * BLOCK_Q * BLOCK_K) * sizeof *r.s);    /* tiles also read past the last key */
    int64_t t;
    while ((t = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED)) < w->n_tasks) {
        int64_t b = t / p->heads, h = t % p->heads, keys = up(p->n_k, BLOCK_K) * BLOCK_K;
        const float *k = heads(&p->k, sources[p->k.source], b, h), *v = heads(&p->v, sources[p->v.source], b, h);
        float *dk = heads(&p->k, grads[p->k.source], b, h), *dv = heads(&p->v, grads[p->v.source], b, h);
        pack_panels(r.k, k, p->k.row, p->n_k, p->dim, 1);
        pack_panels(r.v, v, p->v.row, p->n_k, p->dim_v, 1);
        for (int64_t k0 = 0; k0 < p->n_k; k0 += BLOCK_K)
            pack_panels(r.k_rows + k0 * r.wide, k + k0 * p->k.row, p->k.row, least(p->n_k - k0, BLOCK_K), p->dim, 0);
        r.most_k = r.most_v = 0;
        if (p->mask_kind != PLK_MASK_NONE) {
            r.most_k = largest(k, p->k.row, p->n_k, p->dim);
            r.most_v = largest(v, p->v.row, p->n_k, p->dim_v);
        }
        memset(r.dk, 0, (size_t)(keys * r.wide) * sizeof(float));
        memset(r.dv, 0, (size_t)(keys * r.wide_v) * sizeof(float));
        int64_t rows = block_rows(p->n_q);
        for (int64_t i = 0; i < p->n_q; i += rows)
            backward_block(p, w->bufs, &r, b, h, i, least(p->n_q - i, rows), heads(&p->q, grads[p->q.source], b, h));
        for (int64_t i = 0; i < p->n_k; i++) {
            memcpy(dk + i * p->k.row, r.dk + i * r.wide, (size_t)p->dim * sizeof *dk);
            memcpy(dv + i * p->v.row, r.dv + i * r.wide_v, (size_t)p->dim_v * sizeof *dv);
        }
    }
    return PL_OK;
}

/* bufs: dy, y, sums, with dropout the bits of kept probabilities, sources, mask if any, the gradient of each
 * source */
PLK_KERNEL(plk_attention_backward)
{
    const plk_attention *p = params;
    void *const *grads = bufs + 3 + (p->words != 0) + p->n_sources + (p->mask_kind != PLK_MASK_NONE);
    for (int i = 0; i < p->n_sources; i++)
        if (p->fill[i])
            memset(grads[i], 0, (size_t)p->source_n[i] * sizeof(float));
    return run(p, bufs, scalars, 5, 0, backward_tasks);
}
