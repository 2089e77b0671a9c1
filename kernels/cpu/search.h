/* Places in sorted vectors, counts of values. */
#ifndef PLK_SEARCH_H
#define PLK_SEARCH_H
#include "kernel.h"
/* cffi reads from here on: */
typedef struct { int64_t n, n_values; int32_t dtype, right; } plk_search;    /* n: of the sorted vector */
/* edges: n_bins + 1 of edge_dtype; from first to last where they are not given */
typedef struct { int64_t n, n_bins; int32_t dtype, edge_dtype, given; double first, last; } plk_histogram;
typedef struct { int64_t n, size; int32_t dtype; } plk_counts;
typedef struct { int64_t n; int32_t dtype; } plk_numbers;
typedef struct { int64_t n, n_tests; int32_t dtype, inverts; } plk_among;
typedef struct { int64_t n; int32_t dtype; } plk_sorted;
/* cffi stops reading here */
#endif
