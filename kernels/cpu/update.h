/* Updates of optimizers: one pass over each weight, by a loop that is made from the reference (update_loops.py). */
#ifndef PLK_UPDATE_H
#define PLK_UPDATE_H
#include "kernel.h"
/* cffi reads from here on: */
enum { PLK_MAX_WEIGHTS = 64, PLK_MAX_UPDATE_SCALARS = 16, PLK_MAX_STATES = 3 };
/* The source of a scalar that is not dynamic: two arrays of rates after the groups, one value after these, or the
 * plan. */
enum { PLK_SCALAR_LRS = -1, PLK_SCALAR_WDS = -2, PLK_SCALAR_SCALE = -3, PLK_SCALAR_FIXED = -4 };
/* Inputs come in groups, one for each weight: weight, gradient, states, the 32-bit weight if the weight has 16. */
typedef struct {
    int32_t loop;                                /* plk_pointwise_find() */
    int32_t n_weights, n_states;
    int32_t dtype, gradient;                     /* dtypes of weights and gradients */
    /* there are 32-bit weights; 2: they are only read, outputs have 32 bits */
    int32_t wide;
    int32_t n_after;                             /* inputs after the groups */
    int32_t n_scalars, at[PLK_MAX_UPDATE_SCALARS], step[PLK_MAX_UPDATE_SCALARS];   /* of weight k: at + k step */
    double fixed[PLK_MAX_UPDATE_SCALARS];
    int64_t n[PLK_MAX_WEIGHTS];
} plk_update;
/* LAMB: the direction, then the step along it, scaled by the ratio of two norms; negative bounds of norms are
 * ignored. */
typedef struct {
    plk_update direction;
    int32_t step;                                /* the loop of the step; its scalars: the direction's, then the rate */
    int32_t lr_at, lower_at, upper_at;           /* in the scalars */
} plk_lamb;
/* cffi stops reading here */
#endif
