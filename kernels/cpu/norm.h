/* Normalisations of rows: LayerNorm, GroupNorm and InstanceNorm, and their shared backward. */
#ifndef PLK_NORM_H
#define PLK_NORM_H
#include "kernel.h"
/* cffi reads from here on: */
/* Rows: x is (n_rows, n); gamma has n entries (by column), or n_params entries, row r using gamma[r % n_params].
 * dtype: of all arrays of a forward call, 16-bit floats too. */
typedef struct { int64_t n_rows, n, n_params; int32_t by_column, dtype; double eps; } plk_row_norm;
/* cffi stops reading here */
#endif
