/* The log-likelihood of marked self-exciting processes. */
#ifndef PLK_HAWKES_H
#define PLK_HAWKES_H
#include "kernel.h"
/* cffi reads from here on: */
/* n processes with n_marks marks and n_events events each; float32, or float64 (`wide`), marks int32. */
typedef struct { int64_t n, n_marks, n_events; int32_t wide; } plk_hawkes;
/* cffi stops reading here */
#endif
