/* The threshold of a histogram. */
#ifndef PLK_CALIBRATE_H
#define PLK_CALIBRATE_H
#include "kernel.h"
/* cffi reads from here on: */
typedef struct { int64_t bins, levels; } plk_entropy;    /* both odd, levels <= bins */
/* cffi stops reading here */
#endif
