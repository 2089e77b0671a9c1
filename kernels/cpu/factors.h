/* Stacks of matrices, factored in double: determinants, inverses, systems of equations, orthonormal rows. */
#ifndef PLK_FACTORS_H
#define PLK_FACTORS_H
#include "kernel.h"
/* cffi reads from here on: */
/* n_batch matrices A, rows x columns (square but for plk_gelqf and plk_complement), of float32 or float64 (`wide`). B
 * has `others` columns. zero: the inverse of a singular matrix is 0. */
typedef struct {
    int64_t n_batch, rows, columns, others;
    int32_t wide, zero;
    char error[64];                              /* where a matrix is singular */
} plk_factors;
/* cffi stops reading here */
#endif
