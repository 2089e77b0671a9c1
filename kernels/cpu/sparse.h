/* Products of csr matrices with dense ones, and rows put into an array. Indices are int64. */
#ifndef PLK_SPARSE_H
#define PLK_SPARSE_H
#include "kernel.h"
/* cffi reads from here on: */
/* csr (n_rows, n_columns) with n_elements; the dense matrices have `inner` columns */
/* size: bytes of a float: 4 or 8 */
typedef struct { int64_t n_rows, n_columns, n_elements, inner; int32_t size; } plk_csr;
typedef struct { int64_t n_rows, n_indices, row_bytes; } plk_assign_rows;
/* cffi stops reading here */
#endif
