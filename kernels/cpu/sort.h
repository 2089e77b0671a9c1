/* Sorting along an axis: sort, argsort, topk. */
#ifndef PLK_SORT_H
#define PLK_SORT_H
#include "kernel.h"
/* cffi reads from here on: */
enum { PLK_SORT_VALUES = 1, PLK_SORT_INDICES = 2, PLK_SORT_MASK = 4, PLK_MAX_RANKS = 4 };
/* x (outer, n, inner) -> the first k of each line (outer, k, inner), or a mask of x's shape; give: which results,
 * PLK_SORT_*, values before indices. */
typedef struct {
    int64_t outer, n, inner, k;
    int32_t dtype, index_dtype, ascend, give;
    int32_t n_ranks;                                 /* not 0: what has these ranks is given instead */
    int64_t ranks[PLK_MAX_RANKS];                    /* ascending */
} plk_sort;
/* cffi stops reading here */
#endif
