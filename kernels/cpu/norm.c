/* Normalisations in float32; means and variances are taken in two passes and summed in double. */
#include <stdlib.h>
#include "simd.h"
#include "norm.h"

enum { LANES = 16, COLUMNS = 64 };

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

/* bufs: x, gamma, beta, y, mean, std (of each row) */
PLK_KERNEL(plk_row_norm_run)
{
    const plk_row_norm *p = params;
    const float *x = bufs[0], *gamma = bufs[1], *beta = bufs[2];
    float *y = bufs[3], *means = bufs[4], *stds = bufs[5];
    int n_threads = pl_threads(p->n_rows * p->n * 2);
    (void)scalars;
#pragma omp parallel for num_threads(n_threads) if (n_threads > 1)
    for (int64_t r = 0; r < p->n_rows; r++) {
        const float *from = x + r * p->n;
        float *to = y + r * p->n, mean = (float)(row_sum(from, p->n) / (double)p->n);
        float std = (float)sqrt(row_square(from, p->n, mean) / (double)p->n + p->eps), scale = 1 / std;
        means[r] = mean;
        stds[r] = std;
        if (p->by_column) {
            for (int64_t i = 0; i < p->n; i++)
                to[i] = (from[i] - mean) * scale * gamma[i] + beta[i];
        } else {
            float f = scale * gamma[r % p->n_params], b = beta[r % p->n_params];
            for (int64_t i = 0; i < p->n; i++)
                to[i] = (from[i] - mean) * f + b;
        }
    }
    return PL_OK;
}

/* bufs: dy, x, gamma, mean, rstd, dx, dgamma, dbeta */
PLK_KERNEL(plk_row_norm_backward)
{
    const plk_row_norm *p = params;
    const float *dy = bufs[0], *x = bufs[1], *gamma = bufs[2], *means = bufs[3], *rstds = bufs[4];
    float *dx = bufs[5], *dgamma = bufs[6], *dbeta = bufs[7];
    int n_threads = pl_threads(p->n_rows * p->n * 2);
    int64_t n_params = p->by_column ? p->n : p->n_params;
    double *sums = calloc((size_t)(2 * n_params * n_threads + 1), sizeof *sums);
    float *scaled = malloc((size_t)(p->n * n_threads + 1) * sizeof *scaled);
    (void)scalars;
    if (!sums || !scaled) {
        free(sums);
        free(scaled);
        return pl_fail(PL_ENOMEM, "out of memory for the sums of a normalisation's gradient");
    }
#pragma omp parallel for num_threads(n_threads) if (n_threads > 1)
    for (int t = 0; t < n_threads; t++) {
        double *sum_gamma = sums + 2 * n_params * t, *sum_beta = sum_gamma + n_params;
        float *g = scaled + p->n * t;
        int64_t begin, end;
        plk_share(p->n_rows, 1, t, n_threads, &begin, &end);
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
    for (int64_t i = 0; i < n_params; i++) {
        double a = 0, b = 0;
        for (int t = 0; t < n_threads; t++) {
            a += sums[2 * n_params * t + i];
            b += sums[2 * n_params * t + n_params + i];
        }
        dgamma[i] = (float)a;
        dbeta[i] = (float)b;
    }
    free(sums);
    free(scaled);
    return PL_OK;
}

/* ---- BatchNorm ------------------------------------------------------------------------------------------------ */

/* Sums over n and space of `f` of up to COLUMNS channels, channels last: f is x, (x - mean)^2, or (g, g (x - mean)). */
static void column_sums(const plk_batch_norm *p, const float *x, const float *g, const float *mean, int64_t first,
                        int width, double *sum, double *along)
{
    for (int j = 0; j < width; j++)
        sum[j] = along[j] = 0;
    for (int64_t r = 0; r < p->n; r++) {
        const float *v = x + r * p->channels + first, *d = g ? g + r * p->channels + first : NULL;
        if (d)
            for (int j = 0; j < width; j++) {
                sum[j] += (double)d[j];
                along[j] += (double)(d[j] * (v[j] - mean[j]));
            }
        else if (mean)
            for (int j = 0; j < width; j++)
                sum[j] += (double)((v[j] - mean[j]) * (v[j] - mean[j]));
        else
            for (int j = 0; j < width; j++)
                sum[j] += (double)v[j];
    }
}

static void finish_stats(const plk_batch_norm *p, int64_t c, double mean, double var, void *const *bufs)
{
    float *moving_mean = bufs[3], *moving_var = bufs[4];
    ((float *)bufs[6])[c] = (float)mean;
    ((float *)bufs[7])[c] = (float)(1 / sqrt(var + p->eps));
    moving_mean[c] = (float)((double)moving_mean[c] * p->momentum + mean * (1 - p->momentum));
    moving_var[c] = (float)((double)moving_var[c] * p->momentum + var * (1 - p->momentum));
}

/* mean and rstd of channels [first, first + width) into the outputs */
static void batch_stats(const plk_batch_norm *p, void *const *bufs, int64_t first, int width)
{
    const float *x = bufs[0];
    double count = (double)p->n * (double)p->space, sum[COLUMNS], unused[COLUMNS];
    float mean[COLUMNS];
    if (!p->batch_stats) {
        for (int64_t c = first; c < first + width; c++) {
            ((float *)bufs[6])[c] = ((const float *)bufs[3])[c];
            ((float *)bufs[7])[c] = (float)(1 / sqrt((double)((const float *)bufs[4])[c] + p->eps));
        }
    } else if (p->space == 1) {
        column_sums(p, x, NULL, NULL, first, width, sum, unused);
        for (int j = 0; j < width; j++)
            mean[j] = (float)(sum[j] / count);
        column_sums(p, x, NULL, mean, first, width, sum, unused);
        for (int j = 0; j < width; j++)
            finish_stats(p, first + j, (double)mean[j], sum[j] / count, bufs);
    } else {
        double total = 0, square = 0;
        for (int64_t b = 0; b < p->n; b++)
            total += row_sum(x + (b * p->channels + first) * p->space, p->space);
        for (int64_t b = 0; b < p->n; b++)
            square += row_square(x + (b * p->channels + first) * p->space, p->space, (float)(total / count));
        finish_stats(p, first, total / count, square / count, bufs);
    }
}

/* bufs: x, gamma, beta, moving_mean, moving_var, y, mean, rstd */
PLK_KERNEL(plk_batch_norm_run)
{
    const plk_batch_norm *p = params;
    const float *x = bufs[0], *gamma = bufs[1], *beta = bufs[2], *means = bufs[6], *rstds = bufs[7];
    float *y = bufs[5];
    int n_threads = pl_threads(p->n * p->channels * p->space * 2);
    int unit = p->space == 1 ? COLUMNS : 1;
    (void)scalars;
#pragma omp parallel for num_threads(n_threads) if (n_threads > 1)
    for (int64_t c = 0; c < p->channels; c += unit) {
        int width = (int)(p->channels - c < unit ? p->channels - c : unit);
        batch_stats(p, bufs, c, width);
        if (p->space == 1) {
            float scale[COLUMNS], shift[COLUMNS];
            for (int j = 0; j < width; j++) {
                scale[j] = rstds[c + j] * (p->fix_gamma ? 1 : gamma[c + j]);
                shift[j] = beta[c + j];
            }
            for (int64_t r = 0; r < p->n; r++)
                for (int j = 0; j < width; j++)
                    y[r * p->channels + c + j] = (x[r * p->channels + c + j] - means[c + j]) * scale[j] + shift[j];
            continue;
        }
        float scale = rstds[c] * (p->fix_gamma ? 1 : gamma[c]), mean = means[c], shift = beta[c];
        for (int64_t b = 0; b < p->n; b++) {
            const float *from = x + (b * p->channels + c) * p->space;
            float *to = y + (b * p->channels + c) * p->space;
            for (int64_t i = 0; i < p->space; i++)
                to[i] = (from[i] - mean) * scale + shift;
        }
    }
    return PL_OK;
}

/* bufs: dy, x, gamma, mean, rstd, dx, dgamma, dbeta */
PLK_KERNEL(plk_batch_norm_backward)
{
    const plk_batch_norm *p = params;
    const float *dy = bufs[0], *x = bufs[1], *gamma = bufs[2], *means = bufs[3], *rstds = bufs[4];
    float *dx = bufs[5], *dgamma = bufs[6], *dbeta = bufs[7];
    int n_threads = pl_threads(p->n * p->channels * p->space * 2);
    int unit = p->space == 1 ? COLUMNS : 1;
    double count = (double)p->n * (double)p->space;
    (void)scalars;
#pragma omp parallel for num_threads(n_threads) if (n_threads > 1)
    for (int64_t c = 0; c < p->channels; c += unit) {
        int width = (int)(p->channels - c < unit ? p->channels - c : unit);
        double sum[COLUMNS], along[COLUMNS];
        float f[COLUMNS], m[COLUMNS], a[COLUMNS];
        if (p->space == 1) {
            column_sums(p, x, dy, means + c, c, width, sum, along);
        } else {
            sum[0] = along[0] = 0;
            for (int64_t b = 0; b < p->n; b++) {
                int64_t at = (b * p->channels + c) * p->space;
                row_products(dy + at, x + at, p->space, means[c], sum, along);
            }
        }
        for (int j = 0; j < width; j++) {
            double rstd = (double)rstds[c + j];
            dgamma[c + j] = (float)(along[j] * rstd);
            dbeta[c + j] = (float)sum[j];
            f[j] = gamma[c + j] * rstds[c + j];
            m[j] = (float)(sum[j] / count);
            a[j] = (float)(along[j] * rstd * rstd / count);
        }
        if (p->space == 1)
            for (int64_t r = 0; r < p->n; r++) {
                int64_t at = r * p->channels + c;
                for (int j = 0; j < width; j++)
                    dx[at + j] = f[j] * (dy[at + j] - m[j] - (x[at + j] - means[c + j]) * a[j]);
            }
        else
            for (int64_t b = 0; b < p->n; b++) {
                int64_t at = (b * p->channels + c) * p->space;
                float mean = means[c], f0 = f[0], m0 = m[0], a0 = a[0];
                for (int64_t i = at; i < at + p->space; i++)
                    dx[i] = f0 * (dy[i] - m0 - (x[i] - mean) * a0);
            }
    }
    return PL_OK;
}
