/* Stacks of triangular matrices: Cholesky factors, products, solutions, copies of one triangle. */
#ifndef PLK_TRIANGULAR_H
#define PLK_TRIANGULAR_H
#include "kernel.h"
/* cffi reads from here on: */
/* n_batch matrices A, n x n; B is n x columns, or columns x n with `right`. */
typedef struct {
    int64_t n_batch, n, columns;
    int32_t transpose, right, lower;
    double alpha;
} plk_triangular;
/* n_batch matrices, rows x columns, of elements of `bytes`; kept: columns - row <= offset (lower) or >= offset. */
typedef struct {
    int64_t n_batch, rows, columns, offset;
    int32_t lower, bytes;
} plk_triangle;
/* cffi stops reading here */
#endif
