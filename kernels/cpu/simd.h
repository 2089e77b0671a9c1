/* Included by kernel files whose loops are compiled for each instruction set; see kernel.h. */
#ifndef PLK_SIMD_H
#define PLK_SIMD_H
#include "inline.h"
#include "kernel.h"
/* Before a loop over a constant number of partial results: makes GCC vectorise it instead of unrolling it. */
#define PLK_LANES _Pragma("GCC unroll 1")
#endif
