/* Normalisations of rows in float32; means and variances are taken in two passes and summed in double. */
#include "norm.h"
#include "engine/core/scratch.h"
#include "half_rows.h"
#include "parts.h"
#include "simd.h"

#include <math.h>

enum { LANES = 16 };

static double row_sum(const float *x, int64_t n)
{
    double acc[LANES] = {0}, total = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        PLK_LANES for (int l = 0; l < LANES; l++)
            acc[l] += (double)x[i + l];
    for (; i < n; i++)
        total += (double)x[i];
    for (int l = 0; l < LANES; l++)
        total += acc[l];
    return total;
}

static double row_square(const float *x, int64_t n, float mean)
{
    double acc[LANES] = {0}, total = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        PLK_LANES for (int l = 0; l < LANES; l++) {
            float d = x[i + l] - mean;
            acc[l] += (double)(d * d);
        }
    for (; i < n; i++)
        total += (double)((x[i] - mean) * (x[i] - mean));
    for (int l = 0; l < LANES; l++)
        total += acc[l];
    return total;
}

/* sums of g and g * (x - mean) */
static void row_products(const float *g, const float *x, int64_t n, float mean, double *sum, double *along)
{
    float a[LANES] = {0}, b[LANES] = {0};
    double s = 0, t = 0;
    for (int64_t i = 0, some; i < n; i += some) {
        some = n - i < 1024 ? n - i : 1024;
        int64_t k = i, end = i + some;
        for (int l = 0; l < LANES; l++)
            a[l] = b[l] = 0;
        for (; k + LANES <= end; k += LANES)
            PLK_LANES for (int l = 0; l < LANES; l++) {
                a[l] += g[k + l];
                b[l] += g[k + l] * (x[k + l] - mean);
            }
        for (; k < end; k++) {
            s += (double)g[k];
            t += (double)(g[k] * (x[k] - mean));
        }
        for (int l = 0; l < LANES; l++) {
            s += (double)a[l];
            t += (double)b[l];
        }
    }
    *sum += s;
    *along += t;
}

/* y = the normalised row r; the row's mean and deviation are stored. */
static void normalise(const plk_row_norm *p, int64_t r, const float *x, const float *gamma, const float *beta, float *y,
                      float *means, float *stds)
{
    float mean = (float)(row_sum(x, p->n) / (double)p->n);
    float std = (float)sqrt(row_square(x, p->n, mean) / (double)p->n + p->eps), scale = 1 / std;
    *means = mean;
    *stds = std;
    if (p->by_column) {
        for (int64_t i = 0; i < p->n; i++)
            y[i] = (x[i] - mean) * scale * gamma[i] + beta[i];
    } else {
        float f = scale * gamma[r % p->n_params], b = beta[r % p->n_params];
        for (int64_t i = 0; i < p->n; i++)
            y[i] = (x[i] - mean) * f + b;
    }
}

typedef struct { const plk_row_norm *p; void *const *bufs; int status; } forward;

static void half_part(forward *call, int64_t begin, int64_t end)
{
    const plk_row_norm *p = call->p;
    void *const *bufs = call->bufs;
    int64_t n = p->by_column ? p->n : p->n_params;
    float *x = pl_scratch((size_t)(2 * p->n + 2 * n) * sizeof *x), *y = x + p->n, *gamma = y + p->n, *beta = gamma + n;
    if (!x) {
        __atomic_store_n(&call->status, PL_ENOMEM, __ATOMIC_RELAXED);
        return;
    }
    plk_read_row(p->dtype, gamma, bufs[1], n);
    plk_read_row(p->dtype, beta, bufs[2], n);
    for (int64_t r = begin; r < end; r++) {
        float mean, std;
        plk_read_row(p->dtype, x, (const plk_half_word *)bufs[0] + r * p->n, p->n);
        normalise(p, r, x, gamma, beta, y, &mean, &std);
        plk_store_row(p->dtype, (plk_half_word *)bufs[3] + r * p->n, y, p->n);
        plk_store_row(p->dtype, (plk_half_word *)bufs[4] + r, &mean, 1);
        plk_store_row(p->dtype, (plk_half_word *)bufs[5] + r, &std, 1);
    }
}

static void forward_part(void *arg, int64_t begin, int64_t end)
{
    forward *call = arg;
    const plk_row_norm *p = call->p;
    void *const *bufs = call->bufs;
    if (p->dtype != PLK_F32) {
        half_part(call, begin, end);
        return;
    }
    for (int64_t r = begin; r < end; r++)
        normalise(p, r, (const float *)bufs[0] + r * p->n, bufs[1], bufs[2], (float *)bufs[3] + r * p->n,
                  (float *)bufs[4] + r, (float *)bufs[5] + r);
}

/* bufs: x, gamma, beta, y, mean, std (of each row) */
PLK_KERNEL(plk_row_norm_run)
{
    const plk_row_norm *p = params;
    forward call = {p, bufs, PL_OK};
    (void)scalars;
    plk_run_parts(p->n_rows * p->n * 2, p->n_rows, 1, forward_part, &call);
    return call.status ? pl_fail(call.status, "out of memory for a normalisation") : PL_OK;
}

typedef struct { const plk_row_norm *p; void *const *bufs; int n_pieces; double *sums; } job;

/* Each piece has its own sums, and scratch for a row. */
static void backward_piece(void *arg, int64_t piece)
{
    const job *j = arg;
    const plk_row_norm *p = j->p;
    void *const *bufs = j->bufs;
    const float *dy = bufs[0], *x = bufs[1], *gamma = bufs[2], *means = bufs[3], *rstds = bufs[4];
    float *dx = bufs[5];
    int64_t n_params = p->by_column ? p->n : p->n_params, begin, end;
    double *sum_gamma = j->sums + 2 * n_params * piece, *sum_beta = sum_gamma + n_params;
    float *g = (float *)(j->sums + 2 * n_params * j->n_pieces) + p->n * piece;
    plk_share(p->n_rows, 1, (int)piece, j->n_pieces, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        const float *from = dy + r * p->n, *in = x + r * p->n;
        float *to = dx + r * p->n, mean = means[r], rstd = rstds[r];
        double sum = 0, along = 0;
        if (p->by_column) {
            for (int64_t i = 0; i < p->n; i++) {
                float d = from[i];
                g[i] = d * gamma[i];
                sum_gamma[i] += (double)(d * (in[i] - mean) * rstd);
                sum_beta[i] += (double)d;
            }
            row_products(g, in, p->n, mean, &sum, &along);
        } else {
            row_products(from, in, p->n, mean, &sum, &along);
            sum_gamma[r % n_params] += along * (double)rstd;
            sum_beta[r % n_params] += sum;
            float f = gamma[r % n_params];
            sum *= (double)f;
            along *= (double)f;
            for (int64_t i = 0; i < p->n; i++)
                g[i] = from[i] * f;
        }
        float m = (float)(sum / (double)p->n), a = (float)(along * (double)rstd / (double)p->n) * rstd;
        for (int64_t i = 0; i < p->n; i++)
            to[i] = rstd * (g[i] - m - (in[i] - mean) * a);
    }
}

/* bufs: dy, x, gamma, mean, rstd, dx, dgamma, dbeta */
PLK_KERNEL(plk_row_norm_backward)
{
    const plk_row_norm *p = params;
    float *dgamma = bufs[6], *dbeta = bufs[7];
    int n_threads = pl_threads(p->n_rows * p->n * 2);
    int64_t n_params = p->by_column ? p->n : p->n_params;
    int64_t n_sums = 2 * n_params * n_threads;
    double *sums = pl_scratch((size_t)n_sums * sizeof *sums + (size_t)(p->n * n_threads + 1) * sizeof(float));
    (void)scalars;
    if (!sums)
        return pl_fail(PL_ENOMEM, "out of memory for the sums of a normalisation's gradient");
    memset(sums, 0, (size_t)n_sums * sizeof *sums);
    job j = {p, bufs, n_threads, sums};
    pl_thread_pool_run(n_threads, n_threads, backward_piece, &j);
    for (int64_t i = 0; i < n_params; i++) {
        double a = 0, b = 0;
        for (int t = 0; t < n_threads; t++) {
            a += sums[2 * n_params * t + i];
            b += sums[2 * n_params * t + n_params + i];
        }
        dgamma[i] = (float)a;
        dbeta[i] = (float)b;
    }
    return PL_OK;
}
