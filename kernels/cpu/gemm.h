/* Matrix products: row-major, C = alpha op(A) op(B) + beta C. */
#ifndef PLK_GEMM_H
#define PLK_GEMM_H
#include "generated/activations.h"
#include "kernel.h"
/* cffi reads from here on: */
enum { PLK_SMALL = 4096 };    /* elements of B for plk_matmul_small, with columns filled up to a multiple of 32 */
/* The epilogue of a matrix product, in this order: add a vector of n to every row, apply an activation (a PLK_ACT_),
 * add an array like C. */
/* n_batch products; an operand whose step is 0 is the same for all. bias, residual: 1, there is one. keep: 1, the input
 * of the activation is an output too. slope: an activation (relu, gelu) whose derivative at `residual` multiplies the
 * result; the residual is not added then. sums: 1, the m sums of A over its contracted axis are an output too. panel:
 * if not 0, B lies in panels (k, panel) of that many columns, the last one filled up with anything; fast if they are a
 * multiple of two vectors. dtype: of all arrays. 16-bit floats are summed in float32, 8-bit integers in int32; results
 * beyond these become the limits of the dtype. */
typedef struct {
    int64_t n_batch, m, n, k, a_step, b_step;    /* steps between batches, in elements */
    int32_t transpose_a, transpose_b, bias, act, residual, keep, sums, slope, panel, dtype;
    float alpha;
} plk_gemm;
/* cffi stops reading here */

/* For the kernels: element (i, d) of A is a[i * a_row + d * a_depth], (d, j) of B is b[d * b_depth + j * b_column],
 * (i, j) of C is c[i * c_row + j]. panel: if not 0, (d, j) of B is b[(j / panel * k + d) * panel + j % panel]. */
typedef struct {
    int64_t m, n, k, a_row, a_depth, b_depth, b_column, c_row, panel;
    float alpha, beta;
    int32_t act, n_threads, slope;
} plk_matmul;

/* Where column j of B begins; steps of its depth are b_depth apart. */
static inline const float *plk_column(const plk_matmul *p, const float *b, int64_t j)
{
    return p->panel ? b + j / p->panel * p->panel * p->k + j % p->panel : b + j * p->b_column;
}

/* C = alpha op(A) op(B) + beta C. lda, ldb, ldc: distances between rows. */
int plk_sgemm(int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
              int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc, int n_threads);
int plk_gemm_threads(int64_t m, int64_t n, int64_t k);   /* how many threads a matrix product deserves */
void *plk_gemm_scratch(size_t bytes);    /* memory for packed operands, of this thread, until its next call; or NULL */

int plk_matmul_run(const void *params, void *const *bufs, const double *scalars);
int plk_matmul_small(const void *params, void *const *bufs, const double *scalars);
int plk_gemm_narrow(const void *params, void *const *bufs, const double *scalars);    /* dtypes but float32 */
int plk_matmul_thin(const void *params, void *const *bufs, const double *scalars);
#endif
