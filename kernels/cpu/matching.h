/* Rows and columns paired, the best score first. */
#ifndef PLK_MATCHING_H
#define PLK_MATCHING_H
#include "kernel.h"
/* cffi reads from here on: */
/* n_batch matrices of scores (float32, or float64: `wide`). Scores beyond the threshold count; no pair follows once
 * more than topk are made, if that is positive. */
typedef struct { int64_t n_batch, rows, columns, topk; double threshold; int32_t ascend, wide; } plk_matching;
/* cffi stops reading here */
#endif
