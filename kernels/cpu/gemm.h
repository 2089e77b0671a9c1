/* Matrix products in float32: row-major, C = alpha op(A) op(B) + beta C. */
#ifndef PLK_GEMM_H
#define PLK_GEMM_H
#include "generated/activations.h"
#include "kernel.h"
/* cffi reads from here on: */
/* What follows a product on its way to memory, in this order: a vector of n added to every row, an activation (a
 * PLK_ACT_), an array like C added. */
/* n_batch products; a batch of one operand repeats where its step is 0. bias, residual: 1, there is one. keep: 1, what
 * the activation is applied to is an output too. slope: an activation of whose slope at `residual` the result is
 * multiplied, which is not added then (relu, gelu). sums: 1, the sums of A over its contracted axis (m of them) too. */
typedef struct {
    int64_t n_batch, m, n, k, a_step, b_step;    /* steps between batches, in elements */
    int32_t transpose_a, transpose_b, bias, act, residual, keep, sums, slope;
    float alpha;
} plk_gemm;
/* cffi stops reading here */

/* For the kernels: element (i, d) of A lies at a[i * a_row + d * a_depth], (d, j) of B at b[d * b_depth + j *
 * b_column], (i, j) of C at c[i * c_row + j]. */
typedef struct {
    int64_t m, n, k, a_row, a_depth, b_depth, b_column, c_row;
    float alpha, beta;
    int32_t act, n_threads, slope;
} plk_product;

/* The one entry. lda, ldb, ldc: distances between rows. */
int plk_sgemm(int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
              int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc, int n_threads);
int plk_gemm_threads(int64_t m, int64_t n, int64_t k);   /* how many threads a product deserves */
void *plk_gemm_room(size_t bytes);    /* memory for packed operands, of this thread, until its next product; or NULL */
#endif
