/* Normalisations: LayerNorm, GroupNorm and InstanceNorm over rows, BatchNorm over channels, and their shared backward. */
#ifndef PLK_NORM_H
#define PLK_NORM_H
#include "kernel.h"
/* cffi reads from here on: */
/* Rows: x is (n_rows, n); gamma has n entries (by column), or n_params entries, row r using gamma[r % n_params]. */
typedef struct { int64_t n_rows, n, n_params; int32_t by_column; double eps; } plk_row_norm;
/* Channels: x is (n, channels, space); space 1 serves layouts with the channels last. */
typedef struct {
    int64_t n, channels, space;
    int32_t fix_gamma, batch_stats;      /* batch_stats: 1 computes them and moves the moving ones, 0 uses those */
    double eps, momentum;
} plk_batch_norm;
/* cffi stops reading here */
#endif
