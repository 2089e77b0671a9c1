/* Batch normalisation, alone or with the sum and the activation that follow it, and its backward. */
#ifndef PLK_BATCH_NORM_H
#define PLK_BATCH_NORM_H
#include "generated/activations.h"
#include "kernel.h"
/* cffi reads from here on: */
/* x is (n, channels, space); space 1 serves layouts with the channels last. */
/* The activation that follows: act(x), a PLK_ACT_, with the bounds low and high. */
typedef struct {
    int64_t n, channels, space;
    int32_t fix_gamma, batch_stats;      /* batch_stats: 0 uses the moving statistics, 1 updates them */
    int32_t add, act, more;              /* an array is added, act applied; backward: a second dy is added to dy */
    float low, high;
    double eps, momentum;
} plk_batch_norm;
/* cffi stops reading here */
#endif
