/* The kernels of dot, batch_dot, linalg_gemm2 and FullyConnected. */
#include "gemm.h"
#include "conv_narrow.h"
#include "dtype.h"
#include "narrow_way.h"
#include "parts.h"

/* A step of pl_threads is worth about as many multiplications, and elements that are read from memory. */
enum { MULTIPLIES_PER_STEP = 32, READS_PER_STEP = 4 };

int plk_gemm_threads(int64_t m, int64_t n, int64_t k)
{
    int64_t multiplies = m * n * k / MULTIPLIES_PER_STEP, reads = m ? n * k / READS_PER_STEP : 0;
    return pl_threads(multiplies > reads ? multiplies : reads);
}

int plk_narrow_per_unit(int a, int b) { return per_unit(narrow_way(a, b)); }

/* Does packing B cost more than summing vectors along the depth at the end? Measured, see speed.md. */
static int few_rows(const plk_matmul *p)
{
    if (p->m < 4)
        return p->k > 0;
    return p->a_depth == 1 && p->b_depth == 1 && p->m <= 5 + p->k / 20 && p->m * p->k <= 32768;
}

/* Do columns of B fit into a small buffer, and rows of A are too few for packing to pay? */
static int small(const plk_matmul *p)
{
    return p->n <= 64 && (p->n + 31) / 32 * 32 * p->k <= PLK_SMALL && p->m <= 64;
}

/* bufs: as of plk_matmul_run */
static int matmul(const plk_matmul *p, void *const *bufs)
{
    if (p->m == 0 || p->n == 0)
        return PL_OK;
    if (p->panel)
        return (p->m < 4 ? plk_matmul_thin : plk_matmul_run)(p, bufs, NULL);
    if (p->n == 1 && p->m > 1 && p->c_row == 1 && p->k > 0 && !bufs[2] && !bufs[6]) {    /* C^T is one row */
        plk_matmul t = *p;    /* with the same epilogue */
        t.m = 1, t.n = p->m;
        t.a_row = p->k, t.a_depth = p->b_depth, t.b_depth = p->a_depth, t.b_column = p->a_row, t.c_row = p->m;
        return plk_matmul_thin(&t, (void *[]){bufs[1], bufs[0], NULL, bufs[3], bufs[4], bufs[5], NULL}, NULL);
    }
    if (p->m >= 4 && small(p) && !bufs[6])
        return plk_matmul_small(p, bufs, NULL);
    return few_rows(p) ? plk_matmul_thin(p, bufs, NULL) : plk_matmul_run(p, bufs, NULL);
}

int plk_sgemm(int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b,
              int64_t ldb, float beta, float *c, int64_t ldc, int n_threads)
{
    plk_matmul p = {m, n, k, ta ? 1 : lda, ta ? lda : 1, tb ? 1 : ldb, tb ? ldb : 1, ldc, 0, alpha, beta, PLK_ACT_NONE,
                     n_threads, PLK_ACT_NONE};
    void *bufs[7] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, NULL, NULL, c, NULL, NULL};
    return matmul(&p, bufs);
}

/* Many matrix products of one shape. */
typedef struct { const plk_gemm *g; const plk_matmul *p; void *const *bufs, *const *rest; int status; } batch;

static void run_one(void *arg, int64_t i)
{
    batch *b = arg;
    const plk_gemm *g = b->g;
    void *const *rest = b->rest;
    void *ends[7] = {(float *)b->bufs[0] + i * g->a_step, (float *)b->bufs[1] + i * g->b_step, rest[0], rest[1],
                     (float *)rest[2] + i * g->m * g->n, rest[3], rest[4]};
    int status = matmul(b->p, ends);
    if (status)
        __atomic_store_n(&b->status, status, __ATOMIC_RELAXED);
}

/* Of float32; plk_gemm_narrow: of the other dtypes. bufs: a, b, bias if any, residual if any, c, input of the
 * activation if kept, sums of A if any */
PLK_KERNEL(plk_gemm_run)
{
    const plk_gemm *g = params;
    int n_threads = plk_gemm_threads(g->n_batch * g->m, g->n, g->k), many = g->n_batch != 1, at = 2;
    void *bias = g->bias ? bufs[at++] : NULL, *residual = g->residual ? bufs[at++] : NULL, *c = bufs[at++];
    void *pre = g->keep ? bufs[at++] : NULL, *sums = g->sums ? bufs[at++] : NULL;
    int64_t lda = g->transpose_a ? g->m : g->k, ldb = g->transpose_b ? g->k : g->n;
    plk_matmul p = {g->m, g->n, g->k, g->transpose_a ? 1 : lda, g->transpose_a ? lda : 1, g->transpose_b ? 1 : ldb,
                     g->transpose_b ? ldb : 1, g->n, g->panel, g->alpha, 0, g->act, many ? 1 : n_threads, g->slope};
    if (g->panel)
        p.b_depth = g->panel, p.b_column = 1;
    (void)scalars;
    if (!many)
        return matmul(&p, (void *[]){bufs[0], bufs[1], bias, residual, c, pre, sums});
    batch b = {g, &p, bufs, (void *[]){bias, residual, c, pre, sums}, PL_OK};
    pl_thread_pool_run(n_threads, g->n_batch, run_one, &b);
    return b.status ? pl_fail(b.status, "out of memory for a matrix product") : PL_OK;
}
