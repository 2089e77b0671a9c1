/* Gathers and scatters of rows: gather_nd, scatter_nd and their gradients, the gradient of take. */
#ifndef PLK_SCATTER_H
#define PLK_SCATTER_H
#include "kernel.h"
/* cffi reads from here on: */
enum { PLK_GATHER = 0, PLK_SET, PLK_SET_IN, PLK_ADD };   /* PLK_SET_IN: into a given table; the others make one */
/* A table (n_rows, inner) whose rows have an index of `depth` numbers, each below its shape. */
typedef struct {
    int64_t n_places, depth, shape[PLK_MAX_DIMS], n_rows, inner;
    int32_t what, size, dtype, index_dtype;          /* size: bytes of an element */
} plk_points;
/* cffi stops reading here */
#endif
