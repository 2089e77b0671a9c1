/* Chooses who multiplies matrices, and the kernels of dot, batch_dot, linalg_gemm2 and FullyConnected on top of it. */
#include <dlfcn.h>
#include <omp.h>
#include "gemm.h"
#include "onednn.h"
#include "generated/kernels.h"

enum { MULTIPLIES_PER_STEP = 32 };     /* a step of pl_threads is worth about as many multiplications */

typedef void (*cblas_sgemm_fn)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                               const float *b, int ldb, float beta, float *c, int ldc);
static cblas_sgemm_fn cblas_sgemm;
static void (*set_blas_threads)(int);
static int prefer_plain;

int plk_blas_load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return 0;
    *(void **)&cblas_sgemm = dlsym(library, "scipy_cblas_sgemm");
    *(void **)&set_blas_threads = dlsym(library, "scipy_openblas_set_num_threads");
    if (set_blas_threads)
        set_blas_threads(1);            /* its own threads would compete with ours */
    return cblas_sgemm != NULL;
}

void plk_gemm_prefer(int plain) { prefer_plain = plain; }

int plk_gemm_threads(int64_t m, int64_t n, int64_t k)
{
    return omp_in_parallel() ? 1 : pl_threads(m * n * k / MULTIPLIES_PER_STEP);
}

static int plain(int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b,
                 int64_t ldb, float beta, float *c, int64_t ldc)
{
    plk_gemm_plain p = {m, n, k, ta ? 1 : lda, ta ? lda : 1, tb ? 1 : ldb, tb ? ldb : 1, ldc, alpha, beta};
    void *bufs[3] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, c};
    return plk_gemm_plain_run(&p, bufs, NULL);
}

static int by_rows(int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                   const float *b, int64_t ldb, float beta, float *c, int64_t ldc, int n_threads)
{
    int status = PL_OK;
#pragma omp parallel for num_threads(n_threads) if (n_threads > 1)
    for (int t = 0; t < n_threads; t++) {
        int64_t begin, end;
        plk_share(m, 8, t, n_threads, &begin, &end);
        const float *rows = a + (ta ? begin : begin * lda);
        if (begin == end)
            continue;
        if (cblas_sgemm && !prefer_plain) {
            cblas_sgemm(101, ta ? 112 : 111, tb ? 112 : 111, (int)(end - begin), (int)n, (int)k, alpha, rows, (int)lda, b,
                        (int)ldb, beta, c + begin * ldc, (int)ldc);
        } else {
            int s = plain(ta, tb, end - begin, n, k, alpha, rows, lda, b, ldb, beta, c + begin * ldc, ldc);
            if (s)
                status = s;
        }
    }
    return status;
}

int plk_sgemm(int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b,
              int64_t ldb, float beta, float *c, int64_t ldc, int n_threads)
{
    if (m == 0 || n == 0)
        return PL_OK;
    if (k == 0) {
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                c[i * ldc + j] = beta == 0 ? 0 : c[i * ldc + j] * beta;
        return PL_OK;
    }
    if (!prefer_plain && plk_dnn_sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, n_threads) == PL_OK)
        return PL_OK;
    return by_rows(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, n_threads);
}

/* bufs: a, b, bias if any, c */
PLK_KERNEL(plk_gemm_run)
{
    const plk_gemm *p = params;
    const float *a = bufs[0], *b = bufs[1], *bias = p->bias ? bufs[2] : NULL;
    float *c = bufs[p->bias ? 3 : 2];
    int64_t lda = p->transpose_a ? p->m : p->k, ldb = p->transpose_b ? p->k : p->n;
    int n_threads = plk_gemm_threads(p->n_batch * p->m, p->n, p->k), status = PL_OK;
    (void)scalars;
    if (bias)
        for (int64_t i = 0; i < p->m; i++)
            memcpy(c + i * p->n, bias, (size_t)p->n * sizeof *c);
    float beta = bias ? 1 : 0;
    if (p->n_batch == 1)
        return plk_sgemm(p->transpose_a, p->transpose_b, p->m, p->n, p->k, p->alpha, a, lda, b, ldb, beta, c, p->n,
                         n_threads);
#pragma omp parallel for num_threads(n_threads) if (n_threads > 1)
    for (int64_t i = 0; i < p->n_batch; i++) {
        int s = plk_sgemm(p->transpose_a, p->transpose_b, p->m, p->n, p->k, p->alpha, a + i * p->a_step, lda,
                          b + i * p->b_step, ldb, beta, c + i * p->m * p->n, p->n, 1);
        if (s)
            status = s;
    }
    return status;
}
