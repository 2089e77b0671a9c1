/* The correlation of two vectors. */
#ifndef PLK_CORRELATE_H
#define PLK_CORRELATE_H
#include "kernel.h"
/* cffi reads from here on: */
/* n of the data, between `pad` zeros on either side; k of the weights */
typedef struct { int64_t n, k, pad; int32_t dtype; } plk_correlate;
/* cffi stops reading here */
#endif
