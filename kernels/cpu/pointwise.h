/* The driver of pointwise operators: broadcasting, threads, 16-bit floats; the loops are generated. */
#ifndef PLK_POINTWISE_H
#define PLK_POINTWISE_H
#include "kernel.h"
/* cffi reads from here on: */
typedef struct {
    int32_t op, dtype, n_in, ndim;               /* op: plk_pointwise_find(); ndim: of the collapsed shape */
    int64_t n, work;                             /* elements of the output; elementary steps, for pl_threads */
    int64_t shape[PLK_MAX_DIMS];
    int64_t strides[PLK_MAX_INPUTS][PLK_MAX_DIMS];   /* in elements; the innermost is 0 or 1 */
    int64_t in_n[PLK_MAX_INPUTS];
    int32_t n_constants;
    double constants[4];                         /* the scalars, where attributes give them and not the call */
} plk_pointwise;
int plk_pointwise_find(const char *name);        /* -1: not generated */
/* cffi stops reading here */

/* A generated loop over n elements; bufs are contiguous: inputs, then the output (which may be one of the inputs). */
typedef void (*plk_loop)(int64_t n, void *const *bufs, const double *scalars);
plk_loop plk_pointwise_loop(int op, int dtype);  /* generated; NULL: not for this dtype */
#endif
