/* Cumulative sums along an axis. */
#ifndef PLK_SCAN_H
#define PLK_SCAN_H
#include "kernel.h"
/* cffi reads from here on: */
/* x (outer, n, inner) */
typedef struct { int64_t outer, n, inner; int32_t dtype; } plk_scan;
/* cffi stops reading here */
#endif
