/* Products with few rows, which the memory of B bounds: B is read once where it lies, not packed. */
#include "simd.h"
#include "act.h"

enum { LANES = 16, DOTS = 4, WIDE = 64 };

/* out[c] = x . (column c of B) for DOTS columns that lie along their depth */
static void dots(const float *x, const float *b, int64_t b_column, int64_t k, float *out)
{
    float acc[DOTS][LANES] = {{0}};
    int64_t d = 0;
    for (; d + LANES <= k; d += LANES)
        for (int c = 0; c < DOTS; c++)
            PLK_LANES for (int l = 0; l < LANES; l++)
                acc[c][l] += x[d + l] * b[c * b_column + d + l];
    for (int c = 0; c < DOTS; c++) {
        float total = 0;
        for (int64_t r = d; r < k; r++)
            total += x[r] * b[c * b_column + r];
        for (int l = 0; l < LANES; l++)
            total += acc[c][l];
        out[c] = total;
    }
}

/* out[j] = x . (column j of B) for WIDE columns side by side */
static void rows(const float *x, int64_t x_step, const float *b, int64_t b_depth, int64_t k, float *out)
{
    float acc[WIDE] = {0};
    for (int64_t d = 0; d < k; d++)
        for (int j = 0; j < WIDE; j++)
            acc[j] += x[d * x_step] * b[d * b_depth + j];
    memcpy(out, acc, sizeof acc);
}

/* out = columns [j, j + n) of one row of the product */
static void strip(const plk_product *p, const float *x, const float *b, int64_t j, int64_t n, float *out)
{
    int64_t i = 0;
    b += j * p->b_column;
    if (p->b_depth == 1 && p->a_depth == 1)
        for (; i + DOTS <= n; i += DOTS)
            dots(x, b + i * p->b_column, p->b_column, p->k, out + i);
    else if (p->b_column == 1)
        for (; i + WIDE <= n; i += WIDE)
            rows(x, p->a_depth, b + i, p->b_depth, p->k, out + i);
    for (; i < n; i++) {
        float total = 0;
        for (int64_t d = 0; d < p->k; d++)
            total += x[d * p->a_depth] * b[d * p->b_depth + i * p->b_column];
        out[i] = total;
    }
}

/* As plk_product_run, for few rows. */
PLK_KERNEL(plk_product_thin)
{
    const plk_product *p = params;
    const float *a = bufs[0], *b = bufs[1], *bias = bufs[2], *residual = bufs[3];
    float *c = bufs[4], *pre = bufs[5], *sums = bufs[6];
    (void)scalars;
#pragma omp parallel for num_threads(p->n_threads) if (p->n_threads > 1)
    for (int64_t j = 0; j < p->n; j += WIDE) {
        int64_t n = p->n - j < WIDE ? p->n - j : WIDE;
        for (int64_t i = 0; i < p->m; i++) {
            float v[WIDE] = {0}, *to = c + i * p->c_row + j;
            strip(p, a + i * p->a_row, b, j, n, v);
            for (int64_t q = 0; q < n; q++)
                v[q] = p->alpha * v[q] + (p->beta != 0 ? p->beta * to[q] : 0) + (bias ? bias[j + q] : 0);
            if (pre)
                memcpy(pre + i * p->c_row + j, v, (size_t)n * sizeof *v);
            plk_activate(p->act, v, WIDE);
            for (int64_t q = 0; q < n; q++)
                to[q] = v[q] + (residual ? residual[i * p->c_row + j + q] : 0);
        }
    }
    for (int64_t i = 0; i < p->m && sums; i++) {
        sums[i] = 0;
        for (int64_t d = 0; d < p->k; d++)
            sums[i] += a[i * p->a_row + d * p->a_depth];
    }
    return PL_OK;
}
