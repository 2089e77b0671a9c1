/* Arrays that depend only on attributes: ranges and diagonals of ones. */
#ifndef PLK_RANGE_H
#define PLK_RANGE_H
#include "kernel.h"
/* cffi reads from here on: */
/* Element i is start + step * (i / repeat); the output is bufs[out_at]. */
typedef struct { int64_t n, repeat; int32_t dtype, whole, out_at; double start, step; } plk_range;
/* rows x columns, ones where column - row is `diagonal` */
typedef struct { int64_t rows, columns, diagonal; int32_t dtype; } plk_eye;
/* cffi stops reading here */
#endif
