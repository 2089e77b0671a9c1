/* Batch normalisation, alone or with the sum and the activation that follow it, and its backward. */
#ifndef PLK_BATCH_NORM_H
#define PLK_BATCH_NORM_H
#include "generated/activations.h"
#include "kernel.h"
/* cffi reads from here on: */
/* x is (n, channels, space); space 1 serves layouts with the channels last. */
/* What follows: act(x), a PLK_ACT_ with the two numbers low and high. */
typedef struct {
    int64_t n, channels, space;
    int32_t fix_gamma, batch_stats;      /* batch_stats: 1 computes them and moves the moving ones, 0 uses those */
    int32_t add, act, more;              /* an array is added, act applied; backward: a second dy is added to dy */
    float low, high;
    double eps, momentum;
} plk_batch_norm;
/* cffi stops reading here */
#endif
