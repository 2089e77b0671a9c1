/* Products of rows with a weight of which most elements are zeros. */
#ifndef PLK_SPARSE_DENSE_H
#define PLK_SPARSE_DENSE_H
#include "kernel.h"
/* cffi reads from here on: */
/* x (m, k) times w (n, k)^T. The rows of w are cut into groups of `height`, 1 or 16; a group lists the columns in which
 * it is not all zeros, and `height` values for each. entries: of all groups. bias: 1, there is one. */
typedef struct { int64_t m, n, k, entries; int32_t height, bias; } plk_sparse_dense;
/* cffi stops reading here */
#endif
