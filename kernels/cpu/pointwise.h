/* The driver of pointwise operators: broadcasting, threads, 16-bit floats, reductions; the loops are generated. */
#ifndef PLK_POINTWISE_H
#define PLK_POINTWISE_H
#include "kernel.h"
#include "loop.h"
#include "reduce.h"
/* cffi reads from here on: */
enum { PLK_MAX_ARRAYS = 16, PLK_MAX_RESULTS = 8 };   /* inputs and outputs of one loop */
typedef struct {
    uintptr_t loop;                              /* of a fused group: a plk_loop compiled at run time; else 0 */
    int32_t op, dtype;                           /* plk_pointwise_find(), and the dtype that it computes in */
    int32_t n_in, n_out, ndim;                   /* ndim: of the collapsed shape */
    int32_t in_dtype[PLK_MAX_ARRAYS], out_dtype[PLK_MAX_RESULTS];
    int32_t in_as[PLK_MAX_ARRAYS], out_as[PLK_MAX_RESULTS];   /* in the loop: others are converted, block by block */
    int64_t n, work;                             /* elements computed; elementary steps, for pl_threads */
    int64_t shape[PLK_MAX_DIMS];
    int64_t strides[PLK_MAX_ARRAYS][PLK_MAX_DIMS];   /* in elements; the innermost is 0 or 1 */
    int64_t in_n[PLK_MAX_ARRAYS];
    int32_t n_constants;
    double constants[4];                         /* the scalars, if they are attributes and not dynamic */
} plk_pointwise;
/* Some outputs are reduced, all over the same dimensions of map.shape; its innermost dimension is reduced or kept. */
typedef struct {
    plk_pointwise map;
    int32_t kind[PLK_MAX_RESULTS];               /* PLK_SUM ..., or -1: that output is stored whole */
    int32_t root[PLK_MAX_RESULTS];               /* 1: takes the square root at the end */
    double scale[PLK_MAX_RESULTS];               /* multiplies the result (mean) */
    int32_t inner_reduced, n_kept, n_reduced;    /* the dimensions without the innermost */
    int64_t n_results;                           /* elements of each reduced output */
    int64_t run;                                 /* rows: reduced elements that are contiguous */
    int64_t kept_shape[PLK_MAX_DIMS], kept_strides[PLK_MAX_DIMS];
    int64_t reduced_shape[PLK_MAX_DIMS], reduced_strides[PLK_MAX_DIMS];
} plk_map_reduce;
int plk_pointwise_find(const char *name);        /* -1: not generated */
plk_loop plk_pointwise_loop(int op, int dtype);  /* generated; NULL: not for this dtype */
/* cffi stops reading here */
#endif
