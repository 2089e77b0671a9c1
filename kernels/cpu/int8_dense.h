/* Products of float32 rows with weights of 8 bits. */
#ifndef PLK_INT8_DENSE_H
#define PLK_INT8_DENSE_H
#include "kernel.h"
/* cffi reads from here on: */
typedef struct { int64_t m, n, k; int32_t bias; } plk_int8_dense;   /* (m, k) . (n, k)^T; bias: 1, there is one */
/* cffi stops reading here */
#endif
