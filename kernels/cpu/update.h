/* Updates of optimizers: one pass over each weight, by a loop that is made from the reference (update_loops.py). */
#ifndef PLK_UPDATE_H
#define PLK_UPDATE_H
#include "kernel.h"
/* cffi reads from here on: */
enum { PLK_MAX_WEIGHTS = 64, PLK_MAX_NUMBERS = 16, PLK_MAX_STATES = 3 };
/* Where a number comes from, if not from the scalars: two arrays of rates after the groups, one number after these, or
 * the plan. */
enum { PLK_NUMBER_LRS = -1, PLK_NUMBER_WDS = -2, PLK_NUMBER_SCALE = -3, PLK_NUMBER_FIXED = -4 };
/* Inputs come in groups, one for each weight: weight, gradient, states, the 32-bit weight if the weight has 16. */
typedef struct {
    int32_t loop;                                /* plk_pointwise_find() */
    int32_t n_weights, n_states;
    int32_t dtype, gradient;                     /* dtypes of weights and gradients */
    /* there are 32-bit weights; 2: they are only read, outputs have 32 bits */
    int32_t wide;
    int32_t n_after;                             /* inputs after the groups */
    int32_t n_numbers, at[PLK_MAX_NUMBERS], step[PLK_MAX_NUMBERS];   /* of weight k: scalars[at + k step] */
    double fixed[PLK_MAX_NUMBERS];
    int64_t n[PLK_MAX_WEIGHTS];
} plk_update;
/* LAMB: the direction, then the step along it by the ratio of two norms, these between bounds that are not negative. */
typedef struct {
    plk_update direction;
    int32_t step;                                /* the loop of the step; its numbers: the direction's, then the rate */
    int32_t lr_at, lower_at, upper_at;           /* in the scalars */
} plk_lamb;
/* cffi stops reading here */
#endif
