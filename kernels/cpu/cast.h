/* Conversion between any two dtypes. */
#ifndef PLK_CAST_H
#define PLK_CAST_H
#include "kernel.h"
/* cffi reads from here on: */
typedef struct { int64_t n; int32_t from, to; } plk_cast;
/* cffi stops reading here */

int plk_cast_run(const void *params, void *const *bufs, const double *scalars);
#endif
