/* Updates of optimizers: one pass over each weight. */
#ifndef PLK_UPDATE_H
#define PLK_UPDATE_H
#include "kernel.h"
/* cffi reads from here on: */
enum { PLK_MAX_WEIGHTS = 64 };
/* Inputs come in groups, one for each weight: weight, gradient, momentum if any, 32-bit weight if the weight has 16. */
typedef struct {
    int32_t n_weights, has_momentum, dtype;      /* dtype: of weight and gradient; float16 and bfloat16 have a copy */
    int32_t preloaded, single;                   /* rates in two arrays after the groups; or single, in sgd_update's order */
    int64_t n[PLK_MAX_WEIGHTS];
} plk_sgd;
/* Groups: weight, gradient, mean, variance.  single: scalars in adam_update's order. */
typedef struct { int32_t n_weights, single; int64_t n[PLK_MAX_WEIGHTS]; } plk_adam;
/* cffi stops reading here */
#endif
