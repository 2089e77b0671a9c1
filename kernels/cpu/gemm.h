/* Matrix products in float32: row-major, C = alpha op(A) op(B) + beta C. */
#ifndef PLK_GEMM_H
#define PLK_GEMM_H
#include "kernel.h"
/* cffi reads from here on: */
/* n_batch products; a batch of one operand repeats where its step is 0. bias: 1, a vector of n added to every row. */
typedef struct {
    int64_t n_batch, m, n, k, a_step, b_step;    /* steps between batches, in elements */
    int32_t transpose_a, transpose_b, bias;
    float alpha;
} plk_gemm;
/* For the plain kernel: element (i, p) of A lies at a[i * a_row + p * a_column], and so on. */
typedef struct { int64_t m, n, k, a_row, a_column, b_row, b_column, c_row; float alpha, beta; } plk_gemm_plain;
int plk_blas_load(const char *path);             /* OpenBLAS with the scipy_ prefix; 1: found */
void plk_gemm_prefer(int plain);                 /* 1: always the plain kernel (tests) */
/* cffi stops reading here */

/* The one entry: oneDNN, else OpenBLAS, else the plain kernel. lda, ldb, ldc: distances between rows. */
int plk_sgemm(int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
              const float *b, int64_t ldb, float beta, float *c, int64_t ldc, int n_threads);
int plk_gemm_threads(int64_t m, int64_t n, int64_t k);   /* how many threads a product deserves */
#endif
