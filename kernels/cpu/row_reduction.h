/* Fused row reductions: a generated function that computes one row, with reductions over it, is called for every
 * row. */
#ifndef PLK_ROW_REDUCTION_H
#define PLK_ROW_REDUCTION_H
#include "pointwise.h"
/* cffi reads from here on: */
typedef struct {
    /* a plk_loop compiled at run time; its bufs are those of one row, then scratch */
    uintptr_t loop;
    int32_t n_in, n_out, n_scratch, ndim;        /* n_scratch: rows of temporaries; ndim: of the rows' index space */
    int64_t n_rows, n, work;                     /* n: elements of a row; work: elementary steps, for pl_threads */
    int64_t shape[PLK_MAX_DIMS];
    int64_t strides[PLK_MAX_ARRAYS][PLK_MAX_DIMS];   /* of a row's first element, in elements */
    int64_t in_n[PLK_MAX_ARRAYS];
    int32_t out_step[PLK_MAX_RESULTS];           /* elements of an output for each row: n or 1 */
} plk_row_reduction;
/* cffi stops reading here */
#endif
