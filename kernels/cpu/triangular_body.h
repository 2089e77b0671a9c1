/* The kernels of triangular.h for one `real`. A solution goes down the rows. An upper triangle is read from its last
 * corner with negative steps, and on the right side B is transposed, so that one loop serves all cases. */
#ifndef PLK_TRIANGULAR_BODY_H
#define PLK_TRIANGULAR_BODY_H
#include <math.h>
#include "engine/core/scratch.h"
#include "parts.h"
#include "triangular.h"

typedef PLK_REAL real;

/* y -= sum over k < n of a[k * a_step] * x[k * x_step], vectors of m. */
static void subtract(real *restrict y, const real *restrict a, int64_t a_step, const real *restrict x, int64_t x_step,
                     int64_t n, int64_t m)
{
    int64_t k = 0;
    for (; k + 4 <= n; k += 4, a += 4 * a_step, x += 4 * x_step) {
        real a0 = a[0], a1 = a[a_step], a2 = a[2 * a_step], a3 = a[3 * a_step];
        const real *x1 = x + x_step, *x2 = x1 + x_step, *x3 = x2 + x_step;
        for (int64_t j = 0; j < m; j++)
            y[j] -= a0 * x[j] + a1 * x1[j] + a2 * x2[j] + a3 * x3[j];
    }
    for (; k < n; k++, a += a_step, x += x_step)
        for (int64_t j = 0; j < m; j++)
            y[j] -= *a * x[j];
}

/* l: n x n. u: scratch for L transposed, whose rows are contiguous. Returns 0 if a is not positive definite. */
static int cholesky(const real *a, real *l, real *u, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        real *row = u + i * n;
        for (int64_t j = i; j < n; j++)
            row[j] = a[j * n + i];
        subtract(row + i, u + i, n, u + i, n, i, n - i);
        if (row[i] <= 0)
            return 0;
        real root = (real)sqrt((double)row[i]);
        for (int64_t j = i; j < n; j++)
            row[j] /= root;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            l[i * n + j] = j <= i ? u[j * n + i] : 0;
    return 1;
}

/* The first element of a lower triangle and its steps; x_step: between rows of x. */
typedef struct { int64_t a, row, column, x, x_step; } walk;

static walk walk_of(const plk_triangular *p)
{
    int turned = p->transpose != p->right;
    walk w = {0, turned ? 1 : p->n, turned ? p->n : 1, 0, p->columns};
    return p->lower != turned
        ? w
        : (walk){(p->n - 1) * (p->n + 1), -w.row, -w.column, (p->n - 1) * p->columns, -p->columns};
}

static void solve(const walk *w, const real *a, real *x, int64_t n, int64_t m)
{
    a += w->a, x += w->x;
    for (int64_t i = 0; i < n; i++) {
        real *y = x + i * w->x_step, diagonal = a[i * (w->row + w->column)];
        subtract(y, a + i * w->row, w->column, x, w->x_step, i, m);
        for (int64_t j = 0; j < m; j++)
            y[j] /= diagonal;
    }
}

/* x <- -a . x, from the last row up, so that the rows above are not changed yet. */
static void multiply(const walk *w, const real *a, real *x, int64_t n, int64_t m)
{
    a += w->a, x += w->x;
    for (int64_t i = n - 1; i >= 0; i--) {
        real *y = x + i * w->x_step, diagonal = a[i * (w->row + w->column)];
        for (int64_t j = 0; j < m; j++)
            y[j] *= -diagonal;
        subtract(y, a + i * w->row, w->column, x, w->x_step, i, m);
    }
}

typedef void (*walk_fn)(const walk *, const real *, real *, int64_t, int64_t);

/* failed: 1: out of memory, 2: not positive definite */
typedef struct { const plk_triangular *p; void *const *bufs; walk_fn run; real factor; int failed; } batch;

static void factors_part(void *arg, int64_t begin, int64_t end)
{
    batch *all = arg;
    int64_t n = all->p->n;
    const real *a = all->bufs[0];
    real *l = all->bufs[1], *scratch = pl_scratch((size_t)(n * n) * sizeof *scratch);
    for (int64_t b = begin; b < end; b++) {
        int failed = !scratch ? 1 : cholesky(a + b * n * n, l + b * n * n, scratch, n) ? 0 : 2;
        __atomic_fetch_or(&all->failed, failed, __ATOMIC_RELAXED);
    }
}

/* bufs: A, L */
static int factors(const plk_triangular *p, void *const *bufs)
{
    batch all = {.p = p, .bufs = bufs};
    plk_run_parts(p->n_batch * p->n * p->n * p->n / 3, p->n_batch, 1, factors_part, &all);
    return all.failed & 1 ? pl_fail(PL_ENOMEM, "out of memory for linalg_potrf")
           : all.failed   ? pl_fail(PL_EINVAL, "linalg_potrf: A must be symmetric and positive definite")
                          : PL_OK;
}

static void apply_part(void *arg, int64_t begin, int64_t end)
{
    batch *all = arg;
    const plk_triangular *p = all->p;
    const real *a = all->bufs[0], *given = all->bufs[1], factor = all->factor;
    real *result = all->bufs[2];
    int64_t n = p->n, m = p->columns;
    walk w = walk_of(p);
    for (int64_t b = begin; b < end; b++) {
        const real *from = given + b * n * m;
        real *to = result + b * n * m, *x = p->right ? pl_scratch((size_t)(n * m) * sizeof(real)) : to;
        if (!x) {
            __atomic_fetch_or(&all->failed, 1, __ATOMIC_RELAXED);
            return;
        }
        if (p->right) {
            for (int64_t i = 0; i < m; i++)
                for (int64_t j = 0; j < n; j++)
                    x[j * m + i] = factor * from[i * n + j];
        } else {
            for (int64_t i = 0; i < n * m; i++)
                x[i] = factor * from[i];
        }
        all->run(&w, a + b * n * n, x, n, m);
        for (int64_t i = 0; p->right && i < m; i++)
            for (int64_t j = 0; j < n; j++)
                to[i * n + j] = x[j * m + i];
    }
}

/* bufs: A, B, result */
static int apply(const plk_triangular *p, void *const *bufs, walk_fn run, real factor)
{
    batch all = {p, bufs, run, factor, 0};
    plk_run_parts(p->n_batch * p->n * p->n * p->columns, p->n_batch, 1, apply_part, &all);
    return all.failed ? pl_fail(PL_ENOMEM, "out of memory for a triangular matrix") : PL_OK;
}
#endif
