/* Random numbers: Philox 4x32-10 by counter, so that element i of a call is the same on every thread and device. */
#ifndef PLK_RANDOM_H
#define PLK_RANDOM_H
#include "kernel.h"
/* cffi reads from here on: */
/* uniform [a, b); normal: mean a, deviation b; exponential: rate a; whole numbers: [low, high). out_at: 1: bufs[0] is
 * an array that is not read */
typedef struct { int64_t n; int32_t dtype; double a, b; int64_t low, high; int32_t out_at; } plk_random;
/* The mask has n_mask elements; x (n) repeats it by the strides of the collapsed shape (0: shared along that axis). */
typedef struct {
    int64_t n, n_mask, shape[PLK_MAX_DIMS], strides[PLK_MAX_DIMS];
    int32_t ndim, active;
    double p;
} plk_dropout;
/* cffi stops reading here */

int plk_random_uniform(const void *params, void *const *bufs, const double *scalars);
#endif
