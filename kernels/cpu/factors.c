/* The kernels of factors.h. Rows are contiguous, so elimination and reflections work on rows. */
#include "factors.h"
#include <math.h>
#include "engine/core/scratch.h"
#include "parts.h"
#include "simd.h"

static void load(double *to, const void *from, int64_t at, int64_t n, int wide)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = wide ? ((const double *)from)[at + i] : (double)((const float *)from)[at + i];
}

static void store(void *to, int64_t at, const double *from, int64_t n, int wide)
{
    for (int64_t i = 0; i < n; i++)
        if (wide)
            ((double *)to)[at + i] = from[i];
        else
            ((float *)to)[at + i] = (float)from[i];
}

static void add(double *restrict y, double factor, const double *restrict x, int64_t n)
{
    PLK_LANES for (int64_t i = 0; i < n; i++)
        y[i] += factor * x[i];
}

static double product(const double *x, const double *y, int64_t n)
{
    enum { LANES = 8 };
    double part[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            part[l] += x[i + l] * y[i + l];
    for (int l = 0; l < LANES; l++)
        sum += part[l];
    for (; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static void swap(double *restrict x, double *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double t = x[i];
        x[i] = y[i], y[i] = t;
    }
}

/* Gauss with the largest pivots, on a (n x n) and b (n x m), whose rows move along. Returns the sign of the
 * permutation; 0: singular, and a is left half done. */
static double eliminate(double *a, int64_t n, double *b, int64_t m)
{
    double sign = 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t best = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[best * n + k]))
                best = i;
        if (a[best * n + k] == 0)
            return 0;
        if (best != k) {
            swap(a + k * n + k, a + best * n + k, n - k);
            swap(b + k * m, b + best * m, m);
            sign = -sign;
        }
        for (int64_t i = k + 1; i < n; i++) {
            double factor = -a[i * n + k] / a[k * n + k];
            if (factor != 0) {
                add(a + i * n + k + 1, factor, a + k * n + k + 1, n - k - 1);
                add(b + i * m, factor, b + k * m, m);
            }
        }
    }
    return sign;
}

/* b <- the solution of an upper triangle. */
static void substitute(const double *a, int64_t n, double *b, int64_t m)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t k = i + 1; k < n; k++)
            add(b + i * m, -a[i * n + k], b + k * m, m);
        for (int64_t j = 0; j < m; j++)
            b[i * m + j] /= a[i * n + i];
    }
}

enum { NO_MEMORY = 1, SINGULAR = 2 };
typedef struct { const plk_factors *p; void *const *bufs; int failed; } batch;

static double *scratch_of(batch *all, int64_t doubles)
{
    double *found = pl_scratch((size_t)(doubles + 1) * sizeof *found);
    if (!found)
        __atomic_fetch_or(&all->failed, NO_MEMORY, __ATOMIC_RELAXED);
    return found;
}

static int run(const plk_factors *p, void *const *bufs, plk_part part, int64_t work)
{
    batch all = {.p = p, .bufs = bufs};
    plk_run_parts(work, p->n_batch, 1, part, &all);
    return all.failed & NO_MEMORY ? pl_fail(PL_ENOMEM, "out of memory for a factorization")
           : all.failed           ? pl_fail(PL_EINVAL, p->error)
                                  : PL_OK;
}

static void determinants(void *arg, int64_t begin, int64_t end)
{
    batch *all = arg;
    const plk_factors *p = all->p;
    int64_t n = p->rows;
    double *a = scratch_of(all, n * n), one = 1;
    int logs = p->others != 0;
    for (int64_t m = begin; a && m < end; m++) {
        load(a, all->bufs[0], m * n * n, n * n, p->wide);
        double sign = eliminate(a, n, &one, 0), value = logs ? 0 : sign;
        for (int64_t i = 0; i < n && sign != 0; i++) {
            double pivot = a[i * n + i];
            value = logs ? value + log(fabs(pivot)) : value * pivot;
            sign = pivot < 0 ? -sign : pivot == pivot ? sign : pivot;
        }
        value = logs && sign == 0 ? -INFINITY : value;
        if (logs)
            store(all->bufs[1], m, &sign, 1, p->wide);
        store(all->bufs[1 + logs], m, &value, 1, p->wide);
    }
}

/* bufs: A, determinants; others: A, signs, logarithms */
PLK_KERNEL(plk_determinant_run)
{
    const plk_factors *p = params;
    (void)scalars;
    return run(p, bufs, determinants, p->n_batch * p->rows * p->rows * p->rows / 3);
}

/* others: 0: the inverse */
static void solutions(void *arg, int64_t begin, int64_t end)
{
    batch *all = arg;
    const plk_factors *p = all->p;
    int64_t n = p->rows, m = p->others ? p->others : n;
    double *a = scratch_of(all, n * n + n * m), *b = a + n * n;
    for (int64_t k = begin; a && k < end; k++) {
        load(a, all->bufs[0], k * n * n, n * n, p->wide);
        if (p->others)
            load(b, all->bufs[1], k * n * m, n * m, p->wide);
        else
            for (int64_t i = 0; i < n * n; i++)
                b[i] = i % (n + 1) == 0;
        if (eliminate(a, n, b, m) != 0)
            substitute(a, n, b, m);
        else if (p->zero)
            memset(b, 0, sizeof *b * (size_t)(n * m));
        else
            __atomic_fetch_or(&all->failed, SINGULAR, __ATOMIC_RELAXED);
        store(all->bufs[p->others ? 2 : 1], k * n * m, b, n * m, p->wide);
    }
}

/* bufs: A, its inverse; others: A, B, X with A X = B */
PLK_KERNEL(plk_solve_run)
{
    const plk_factors *p = params;
    (void)scalars;
    return run(p, bufs, solutions, p->n_batch * p->rows * p->rows * (p->rows + p->others));
}

static void cholesky_inverses(void *arg, int64_t begin, int64_t end)
{
    batch *all = arg;
    const plk_factors *p = all->p;
    int64_t n = p->rows;
    double *a = scratch_of(all, 3 * n * n), *b = a + n * n, *y = b + n * n;
    for (int64_t k = begin; a && k < end; k++) {
        load(a, all->bufs[0], k * n * n, n * n, p->wide);
        memset(y, 0, sizeof *y * (size_t)(n * n));
        for (int64_t i = 0; i < n; i++) {
            double *row = b + i * n;
            memset(row, 0, sizeof *row * (size_t)n);
            row[i] = 1;
            for (int64_t c = 0; c < i; c++)
                add(row, -a[i * n + c], b + c * n, c + 1);
            if (a[i * (n + 1)] == 0)
                __atomic_fetch_or(&all->failed, SINGULAR, __ATOMIC_RELAXED);
            for (int64_t j = 0; j <= i; j++)
                row[j] /= a[i * (n + 1)];
            for (int64_t c = 0; c <= i; c++)
                add(y + c * n, row[c], row, i + 1);
        }
        store(all->bufs[1], k * n * n, y, n * n, p->wide);
    }
}

/* bufs: L, the inverse of L L^T */
PLK_KERNEL(plk_potri_run)
{
    const plk_factors *p = params;
    (void)scalars;
    return run(p, bufs, cholesky_inverses, p->n_batch * p->rows * p->rows * p->rows);
}

/* Householder's reflections, from the right, that make a (rows x columns, not more rows) lower triangular, as LAPACK
 * chooses their signs. The vector of row i stands in a from its diagonal on, that of the triangle in l. */
static void reflect(double *a, double *tau, double *l, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++) {
        double *v = a + i * columns + i;
        int64_t n = columns - i;
        double rest = sqrt(product(v + 1, v + 1, n - 1)), first = v[0];
        double length = rest == 0 ? first : -copysign(hypot(first, rest), first);
        tau[i] = rest == 0 ? 0 : (length - first) / length;
        for (int64_t j = 1; j < n && rest != 0; j++)
            v[j] /= first - length;
        v[0] = 1;
        for (int64_t r = i + 1; r < rows; r++) {
            double *row = a + r * columns + i;
            add(row, -tau[i] * product(row, v, n), v, n);
        }
        for (int64_t r = 0; r < rows; r++)
            l[r * rows + i] = r < i ? 0 : r == i ? length : a[r * columns + i];
    }
}

/* q <- row `number` of the orthogonal matrix. */
static void orthonormal(const double *a, const double *tau, int64_t rows, int64_t columns, int64_t number, double *q)
{
    for (int64_t j = 0; j < columns; j++)
        q[j] = j == number;
    for (int64_t i = rows - 1; i >= 0; i--) {
        const double *v = a + i * columns + i;
        add(q + i, -tau[i] * product(q + i, v, columns - i), v, columns - i);
    }
}

static void lq_factors(void *arg, int64_t begin, int64_t end)
{
    batch *all = arg;
    const plk_factors *p = all->p;
    int64_t m = p->rows, n = p->columns;
    double *a = scratch_of(all, m * n + m + m * m + n), *tau = a + m * n, *l = tau + m, *q = l + m * m;
    for (int64_t k = begin; a && k < end; k++) {
        load(a, all->bufs[0], k * m * n, m * n, p->wide);
        reflect(a, tau, l, m, n);
        store(all->bufs[2], k * m * m, l, m * m, p->wide);
        for (int64_t i = 0; i < m; i++) {
            orthonormal(a, tau, m, n, i, q);
            store(all->bufs[1], (k * m + i) * n, q, n, p->wide);
        }
    }
}

/* bufs: A, Q (rows x columns), L (rows x rows) with A = L Q */
PLK_KERNEL(plk_gelqf_run)
{
    const plk_factors *p = params;
    (void)scalars;
    return run(p, bufs, lq_factors, p->n_batch * p->rows * p->rows * p->columns * 3);
}

static void complements(void *arg, int64_t begin, int64_t end)
{
    batch *all = arg;
    const plk_factors *p = all->p;
    int64_t n = p->rows, m = p->columns;         /* of Q */
    double *a = scratch_of(all, m * n + m + m * m + n), *tau = a + m * n, *l = tau + m, *q = l + m * m;
    for (int64_t k = begin; a && k < end; k++) {
        for (int64_t i = 0; i < n * m; i++)
            load(a + i % m * n + i / m, all->bufs[0], k * n * m + i, 1, p->wide);
        reflect(a, tau, l, m, n);
        for (int64_t j = m; j < n; j++) {
            orthonormal(a, tau, m, n, j, q);
            for (int64_t i = 0; i < n; i++)
                store(all->bufs[1], (k * n + i) * (n - m) + j - m, q + i, 1, p->wide);
        }
    }
}

/* bufs: Q, orthonormal columns that complete it to a square matrix */
PLK_KERNEL(plk_complement_run)
{
    const plk_factors *p = params;
    (void)scalars;
    return run(p, bufs, complements, p->n_batch * p->rows * p->rows * p->columns * 3);
}
