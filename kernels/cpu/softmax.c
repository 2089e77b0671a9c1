/* The softmax family in float32. A row stays in the L1 cache for its maximum, exponentials and sum; other axes than the
 * last are computed in tiles of columns. */
#include "softmax.h"
#include "engine/core/scratch.h"
#include "half_rows.h"
#include "index.h"
#include "parts.h"
#include "simd.h"
#include "vecmath.h"

enum { LANES = 16, COLUMNS = 64 };

static float row_max(const float *x, int64_t n, float scale)
{
    float m[LANES], top = -INFINITY;
    int64_t i = 0;
    for (int l = 0; l < LANES; l++)
        m[l] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        PLK_LANES for (int l = 0; l < LANES; l++) {
            float v = x[i + l] * scale;
            m[l] = v > m[l] || v != v ? v : m[l];
        }
    for (; i < n; i++) {
        float v = x[i] * scale;
        top = v > top || v != v ? v : top;
    }
    for (int l = 0; l < LANES; l++)
        top = m[l] > top || m[l] != m[l] ? m[l] : top;
    return top;
}

/* y = e^(x scale - top), returns the sum */
static double row_exps(const float *x, float *y, int64_t n, float scale, float top)
{
    double acc[LANES] = {0}, total = 0;
    int64_t i = 0;
    for (; i < n; i++)
        y[i] = plk_exp_f32(x[i] * scale - top);
    for (i = 0; i + LANES <= n; i += LANES)
        PLK_LANES for (int l = 0; l < LANES; l++)
            acc[l] += (double)y[i + l];
    for (; i < n; i++)
        total += (double)y[i];
    for (int l = 0; l < LANES; l++)
        total += acc[l];
    return total;
}

/* 1 / total, or 0 where a length is 0: the zeros stay zeros */
static double inverse(const plk_softmax *p, double total) { return p->length_bytes && total == 0 ? 1 : 1 / total; }

static void row_forward(const plk_softmax *p, const float *x, float *y, int64_t valid)
{
    float scale = (float)p->scale, top = row_max(x, valid, scale);
    if (p->log) {
        float shift = top + logf((float)row_exps(x, y, valid, scale, top));    /* the record forbids y to be x */
        for (int64_t i = 0; i < valid; i++)
            y[i] = x[i] * scale - shift;
    } else {
        float f = (float)inverse(p, row_exps(x, y, valid, scale, isinf(top) ? 0 : top));
        for (int64_t i = 0; i < valid; i++)
            y[i] *= f;
    }
    for (int64_t i = valid; i < p->n; i++)
        y[i] = 0;
}

static void row_backward(const plk_softmax *p, const float *dy, const float *y, float *dx)
{
    double total = 0;
    int64_t i = 0;
    float acc[LANES] = {0};
    for (; i + LANES <= p->n; i += LANES)
        PLK_LANES for (int l = 0; l < LANES; l++)
            acc[l] += p->log ? dy[i + l] : dy[i + l] * y[i + l];
    for (int l = 0; l < LANES; l++)
        total += (double)acc[l];
    for (; i < p->n; i++)
        total += (double)(p->log ? dy[i] : dy[i] * y[i]);
    float s = (float)total;
    if (p->log)
        for (i = 0; i < p->n; i++)
            dx[i] = dy[i] - plk_exp_f32(y[i]) * s;
    else
        for (i = 0; i < p->n; i++)
            dx[i] = y[i] * (dy[i] - s);
}

static int64_t length_at(const plk_softmax *p, const void *lengths, int64_t at)
{
    int64_t v = !p->length_bytes ? p->n : p->length_bytes == 4 ? ((const int32_t *)lengths)[at]
                                                               : ((const int64_t *)lengths)[at];
    return v < 0 ? 0 : v < p->n ? v : p->n;
}

/* Up to COLUMNS columns of one outer index; valid: the length of each column; NULL: all of n. */
static inline __attribute__((always_inline)) void columns(const plk_softmax *p, const float *x, float *y, int width,
                                                          const int64_t *valid)
{
    float top[COLUMNS], sum[COLUMNS], scale = (float)p->scale;
    for (int j = 0; j < width; j++) {
        top[j] = -INFINITY;
        sum[j] = 0;
    }
    for (int64_t k = 0; k < p->n; k++)
        for (int j = 0; j < width; j++) {
            float v = x[k * p->inner + j] * scale;
            top[j] = (!valid || k < valid[j]) & ((v > top[j]) | (v != v)) ? v : top[j];
        }
    for (int j = 0; j < width && !p->log; j++)
        top[j] = top[j] == INFINITY || top[j] == -INFINITY ? 0 : top[j];
    for (int64_t k = 0; k < p->n; k++)
        for (int j = 0; j < width; j++) {
            float e = plk_exp_f32(x[k * p->inner + j] * scale - top[j]);
            e = !valid || k < valid[j] ? e : 0;
            sum[j] += e;
            if (!p->log)
                y[k * p->inner + j] = e;
        }
    for (int j = 0; j < width; j++)
        sum[j] = p->log ? top[j] + logf(sum[j]) : (float)inverse(p, (double)sum[j]);
    for (int64_t k = 0; k < p->n; k++)
        for (int j = 0; j < width; j++)
            y[k * p->inner + j] = p->log ? x[k * p->inner + j] * scale - sum[j] : y[k * p->inner + j] * sum[j];
}

static void columns_forward(const plk_softmax *p, const float *x, float *y, int width, const int64_t *valid)
{
    if (valid)
        columns(p, x, y, width, valid);
    else if (width == COLUMNS)
        columns(p, x, y, COLUMNS, NULL);
    else
        columns(p, x, y, width, NULL);
}

static void columns_backward(const plk_softmax *p, const float *dy, const float *y, float *dx, int width)
{
    float sum[COLUMNS] = {0};
    for (int64_t k = 0; k < p->n; k++)
        for (int j = 0; j < width; j++)
            sum[j] += p->log ? dy[k * p->inner + j] : dy[k * p->inner + j] * y[k * p->inner + j];
    for (int64_t k = 0; k < p->n; k++)
        for (int j = 0; j < width; j++) {
            int64_t at = k * p->inner + j;
            dx[at] = p->log ? dy[at] - plk_exp_f32(y[at]) * sum[j] : y[at] * (dy[at] - sum[j]);
        }
}

typedef struct {
    const plk_softmax *p;
    const float *a, *b;
    float *out;
    const void *lengths;
    int backward, status;
    int64_t tiles;
} job;

/* Rows of 16-bit floats */
static void half_rows(job *j, int64_t begin, int64_t end)
{
    const plk_softmax *p = j->p;
    float *a = pl_scratch((size_t)(3 * p->n) * sizeof *a), *b = a + p->n, *y = b + p->n;
    if (!a) {
        __atomic_store_n(&j->status, PL_ENOMEM, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t r = begin; r < end; r++) {
        int64_t at = r * p->n;
        plk_read_row(p->dtype, a, (const plk_half_word *)(const void *)j->a + at, p->n);
        if (j->backward) {
            plk_read_row(p->dtype, b, (const plk_half_word *)(const void *)j->b + at, p->n);
            row_backward(p, a, b, y);
        } else {
            row_forward(p, a, y, length_at(p, j->lengths, r));
        }
        plk_store_row(p->dtype, (plk_half_word *)(void *)j->out + at, y, p->n);
    }
}

static void run_part(void *arg, int64_t begin, int64_t end)
{
    job *j = arg;
    const plk_softmax *p = j->p;
    const float *a = j->a, *b = j->b;
    float *out = j->out;
    if (p->dtype != PLK_F32) {
        half_rows(j, begin, end);
        return;
    }
    const void *lengths = j->lengths;
    int backward = j->backward;
    int64_t tiles = j->tiles;
    for (int64_t u = begin; u < end; u++) {
        if (p->inner == 1) {
            int64_t at = u * p->n;
            if (backward)
                row_backward(p, a + at, b + at, out + at);
            else
                row_forward(p, a + at, out + at, length_at(p, lengths, u));
            continue;
        }
        int64_t o = u / tiles, first = u % tiles * COLUMNS, at = o * p->n * p->inner + first, valid[COLUMNS];
        int width = (int)(p->inner - first < COLUMNS ? p->inner - first : COLUMNS);
        for (int q = 0; q < width && lengths; q++)
            valid[q] = length_at(p, lengths, o * p->inner + first + q);
        if (backward)
            columns_backward(p, a + at, b + at, out + at, width);
        else
            columns_forward(p, a + at, out + at, width, lengths ? valid : NULL);
    }
}

static int run(const plk_softmax *p, const float *a, const float *b, float *out, const void *lengths, int backward)
{
    int64_t tiles = (p->inner + COLUMNS - 1) / COLUMNS, units = p->outer * (p->inner == 1 ? 1 : tiles);
    job j = {p, a, b, out, lengths, backward, PL_OK, tiles};
    plk_run_parts(p->outer * p->n * p->inner * 4, units, 1, run_part, &j);
    return j.status ? pl_fail(j.status, "out of memory for a softmax") : PL_OK;
}

/* bufs: x, lengths if any, y */
PLK_KERNEL(plk_softmax_run)
{
    const plk_softmax *p = params;
    (void)scalars;
    return run(p, bufs[0], NULL, bufs[p->length_bytes ? 2 : 1], p->length_bytes ? bufs[1] : NULL, 0);
}

/* bufs: x, a label that only the gradient reads, y */
PLK_KERNEL(plk_softmax_output)
{
    (void)scalars;
    return run(params, bufs[0], NULL, bufs[2], NULL, 0);
}

/* bufs: dy, y, dx */
PLK_KERNEL(plk_softmax_backward)
{
    (void)scalars;
    return run(params, bufs[0], bufs[1], bufs[2], NULL, 1);
}

static void picked_part(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_take *p = call->params;
    void *const *bufs = call->bufs;
    const float *dy = bufs[0];
    for (int64_t r = begin; r < end; r++) {
        const float *y = (const float *)bufs[2] + r * p->n;
        float *dx = (float *)bufs[3] + r * p->n, d = dy[r];
        int64_t at = plk_take_place(p, bufs[1], r);
        float picked = d - plk_exp_f32(y[at]) * d;        /* before dx is written: it may be y */
        for (int64_t k = 0; k < p->n; k++)
            dx[k] = 0 - plk_exp_f32(y[k]) * d;
        dx[at] = picked;
    }
}

/* bufs: dy (rows), index, y (rows, n), dx; plk_take's outer is the rows */
PLK_KERNEL(plk_pick_log_softmax_backward)
{
    const plk_take *p = params;
    plk_run_parts(p->outer * p->n * 2, p->outer, 1, picked_part, &(plk_call){params, bufs, scalars});
    return PL_OK;
}
