/* CTC with logarithms of probabilities, in double. The states of an example are blank, label 1, blank, label 2, ...,
 * blank. */
#include "ctc.h"
#include "engine/core/scratch.h"
#include "index.h"
#include "parts.h"
#include "simd.h"
#include "vecmath.h"

enum { LANES = 16 };
static const double NEVER = -1e30;               /* log of probability 0; differences stay finite */

/* One example. */
typedef struct {
    const plk_ctc *p;
    const float *x;                              /* of step t: x[t * stride] on */
    int64_t stride, steps, n_states;             /* steps and states of this example */
    int64_t *state;                              /* the class of each */
    int8_t *skip;                                /* may a state follow the one two before? */
    double *norm;                                /* of each step: log of the sum of exponentials */
    double *emit, *alpha;                        /* (steps, states) */
} example;

static double log_sum_exp(const float *x, int64_t n)
{
    float top[LANES], most;
    double sum[LANES] = {0}, total = 0;
    int64_t i = 0;
    for (int l = 0; l < LANES; l++)
        top[l] = x[0];
    for (; i + LANES <= n; i += LANES)
        PLK_LANES for (int l = 0; l < LANES; l++)
            top[l] = x[i + l] > top[l] ? x[i + l] : top[l];
    most = top[0];
    for (int l = 0; l < LANES; l++)
        most = top[l] > most ? top[l] : most;
    for (; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (i = 0; i + LANES <= n; i += LANES)
        PLK_LANES for (int l = 0; l < LANES; l++)
            sum[l] += (double)plk_exp_f32(x[i + l] - most);
    for (; i < n; i++)
        total += (double)plk_exp_f32(x[i] - most);
    for (int l = 0; l < LANES; l++)
        total += sum[l];
    return (double)most + log(total);
}

/* log(e^a + e^b + e^c) */
static double log_sum(double a, double b, double c)
{
    double top = a > b ? a : b;
    top = c > top ? c : top;
    double sum = 0;
    const double terms[] = {a, b, c};
    for (int i = 0; i < 3; i++)
        sum += terms[i] == top ? 1 : terms[i] - top < -50 ? 0 : exp(terms[i] - top);
    return a + b + c == a + b + c ? top + log(sum) : NAN;
}

/* A length from the user, which may have any value; -1 if negative. */
static int64_t limited(int64_t n, int64_t most)
{
    return n < 0 ? -1 : n < most ? n : most;
}

/* bufs: x, labels, lengths.  scratch: of example_bytes() */
static void example_begin(example *e, const plk_ctc *p, void *const *bufs, int64_t n, void *scratch)
{
    int64_t most = 2 * p->length + 1, count = 0, blank = p->blank_is_last ? p->classes - 1 : 0;
    int64_t padding = p->blank_is_last ? -1 : 0, at = n * p->length;
    void *const *lengths = bufs + 2;
    double *numbers = scratch;
    *e = (example){
        .p = p, .x = (const float *)bufs[0] + n * p->classes, .stride = p->batch * p->classes, .steps = p->steps};
    e->norm = numbers;
    e->emit = numbers + p->steps;
    e->alpha = e->emit + p->steps * most;
    e->state = (int64_t *)(e->alpha + p->steps * most);
    e->skip = (int8_t *)(e->state + most);
    if (p->steps_dtype >= 0)
        e->steps = limited(plk_index_at(*lengths++, p->steps_dtype, n), p->steps);
    if (p->count_dtype >= 0)
        count = limited(plk_index_at(*lengths, p->count_dtype, n), p->length);
    else
        while (count < p->length && plk_index_at(bufs[1], p->label_dtype, at + count) != padding)
            count++;
    e->n_states = count < 0 ? 0 : 2 * count + 1;
    for (int64_t s = 0; s < e->n_states; s++) {
        int64_t class = s % 2 ? plk_index_at(bufs[1], p->label_dtype, at + s / 2) : blank;
        e->state[s] = class < 0 ? 0 : class < p->classes ? class : p->classes - 1;
        e->skip[s] = s >= 2 && e->state[s] != blank && e->state[s] != e->state[s - 2];
    }
    for (int64_t t = 0; t < e->steps; t++) {
        e->norm[t] = log_sum_exp(e->x + t * e->stride, p->classes);
        for (int64_t s = 0; s < e->n_states; s++)
            e->emit[t * e->n_states + s] = (double)e->x[t * e->stride + e->state[s]] - e->norm[t];
    }
}

static size_t example_bytes(const plk_ctc *p)
{
    size_t most = (size_t)(2 * p->length + 1), steps = (size_t)p->steps;
    return (steps * (2 * most + 1) + 2 * most) * sizeof(double) + most * (sizeof(int64_t) + 1) +
           (size_t)p->classes * sizeof(double);
}

static double of_state(const example *e, const double *row, int64_t s)
{
    return s >= 0 && s < e->n_states ? row[s] : NEVER;
}

/* Fills alpha; returns log P(label | x). */
static double forward(example *e)
{
    int64_t n = e->n_states, all = 2 * e->p->length + 1;
    for (int64_t t = 0; t < e->steps; t++) {
        const double *emit = e->emit + t * n, *before = e->alpha + (t - 1) * n;
        for (int64_t s = 0; s < n; s++) {
            double v = s < 2 ? emit[s] : NEVER;
            if (t)
                v = log_sum(before[s], of_state(e, before, s - 1), e->skip[s] ? before[s - 2] : NEVER) + emit[s];
            e->alpha[t * n + s] = v < NEVER ? NEVER : v;
        }
    }
    const double *last = e->alpha + (e->steps > 0 ? e->steps - 1 : 0) * n;
    double top = NEVER, sum = 0;
    for (int64_t s = n > 2 ? n - 2 : 0; s < n && e->steps > 0; s++)
        top = last[s] > top || last[s] != last[s] ? last[s] : top;
    for (int64_t s = 0; s < all; s++) {          /* if no path is possible, all states are equal */
        double v = e->steps > 0 && s < n && s >= n - 2 ? last[s] : NEVER;
        sum += exp(v - top);
    }
    return top + log(sum);
}

/* The examples of a call; out: loss or dx. */
typedef struct { const plk_ctc *p; void *const *bufs; float *out; int failed; } batch;

static batch batch_of(const plk_ctc *p, void *const *bufs)
{
    return (batch){p, bufs, bufs[2 + (p->steps_dtype >= 0) + (p->count_dtype >= 0)], 0};
}

/* Scratch for an example, or NULL. */
static void *scratch_for(batch *b)
{
    void *scratch = pl_scratch(example_bytes(b->p));
    if (!scratch)
        __atomic_store_n(&b->failed, 1, __ATOMIC_RELAXED);
    return scratch;
}

static void forward_piece(void *arg, int64_t i)
{
    batch *b = arg;
    example e;
    void *scratch = scratch_for(b);
    if (!scratch)
        return;
    example_begin(&e, b->p, b->bufs, i, scratch);
    b->out[i] = (float)-forward(&e);
}

/* bufs: x, labels, lengths, loss (batch,) */
PLK_KERNEL(plk_ctc_run)
{
    const plk_ctc *p = params;
    batch b = batch_of(p, bufs);
    (void)scalars;
    pl_thread_pool_run(pl_threads(p->steps * p->batch * (p->classes + 20 * p->length)), p->batch, forward_piece, &b);
    return b.failed ? pl_fail(PL_ENOMEM, "out of memory for CTC") : PL_OK;
}

static void gradient(example *e, float *dx, double *scratch)
{
    const plk_ctc *p = e->p;
    int64_t n = e->n_states;
    double total = forward(e), *b = scratch, *next = scratch + n, *posterior = scratch + 2 * n;
    for (int64_t t = p->steps - 1; t >= e->steps && t >= 0; t--)
        memset(dx + t * e->stride, 0, (size_t)p->classes * sizeof *dx);
    for (int64_t t = e->steps - 1; t >= 0; t--) {
        const double *emit = e->emit + t * n, *alpha = e->alpha + t * n;
        const float *x = e->x + t * e->stride;
        float *y = dx + t * e->stride, norm = (float)e->norm[t];
        memset(posterior, 0, (size_t)p->classes * sizeof *posterior);
        for (int64_t s = 0; s < n; s++) {
            double v = s >= n - 2 ? emit[s] : NEVER;
            if (t < e->steps - 1) {
                double far = s + 2 < n && e->skip[s + 2] ? next[s + 2] : NEVER;
                v = log_sum(next[s], of_state(e, next, s + 1), far) + emit[s];
                v = v < NEVER ? NEVER : v;
            }
            b[s] = v;
            double weight = alpha[s] + v - emit[s] - total;
            posterior[e->state[s]] += exp(weight > 0 ? 0 : weight);
        }
        for (int64_t c = 0; c < p->classes; c++)
            y[c] = (float)((double)plk_exp_f32(x[c] - norm) - posterior[c]);
        double *other = b;
        b = next;
        next = other;
    }
}

static void backward_piece(void *arg, int64_t i)
{
    batch *b = arg;
    const plk_ctc *p = b->p;
    example e;
    double *rows = scratch_for(b);
    if (!rows)
        return;
    double *own = rows + 2 * (2 * p->length + 1) + p->classes;            /* b, next, posterior; then the example's */
    example_begin(&e, p, b->bufs, i, own);
    gradient(&e, b->out + i * p->classes, rows);
}

/* bufs: x, labels, lengths, dx */
PLK_KERNEL(plk_ctc_backward)
{
    const plk_ctc *p = params;
    batch b = batch_of(p, bufs);
    (void)scalars;
    pl_thread_pool_run(pl_threads(p->steps * p->batch * (p->classes + 40 * p->length)), p->batch, backward_piece, &b);
    return b.failed ? pl_fail(PL_ENOMEM, "out of memory for CTC") : PL_OK;
}
