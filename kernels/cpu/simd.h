/* Included by kernel files whose loops are compiled for each instruction set; see kernel.h. */
#ifndef PLK_SIMD_H
#define PLK_SIMD_H
#include "kernel.h"
#include "vecmath.h"
#include "generated/kernels.h"
#endif
