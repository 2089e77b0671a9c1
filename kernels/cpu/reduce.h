/* Reductions over any axes, and positions of extremes. */
#ifndef PLK_REDUCE_H
#define PLK_REDUCE_H
#include "kernel.h"
/* cffi reads from here on: */
enum { PLK_SUM = 0, PLK_NANSUM, PLK_SUM_SQUARE, PLK_SUM_ABS, PLK_PROD, PLK_NANPROD, PLK_MAX, PLK_MIN,
       PLK_REDUCE_COUNT, PLK_ANY = PLK_REDUCE_COUNT, PLK_ALL };
/* After collapsing, the innermost dimension (`inner` elements) is reduced or kept; `kept` and `reduced` are the others.
 * Strides are the input's, in elements. */
typedef struct {
    int32_t kind, dtype, out_dtype, inner_reduced, root;   /* root: 1 takes the square root at the end */
    int32_t n_kept, n_reduced;
    int64_t inner, n_out, n_in;
    int64_t kept_shape[PLK_MAX_DIMS], kept_strides[PLK_MAX_DIMS];
    int64_t reduced_shape[PLK_MAX_DIMS], reduced_strides[PLK_MAX_DIMS];
    double scale;                                /* multiplies the result (mean) */
} plk_reduce;
typedef struct { int64_t outer, n, inner; int32_t dtype, out_dtype, smallest; } plk_argmax;
/* cffi stops reading here */
#endif
