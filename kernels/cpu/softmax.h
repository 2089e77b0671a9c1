/* softmax, log_softmax and their backward forms along one axis of (outer, n, inner). */
#ifndef PLK_SOFTMAX_H
#define PLK_SOFTMAX_H
#include "kernel.h"
/* cffi reads from here on: */
typedef struct {
    int64_t outer, n, inner;
    int32_t log, length_bytes;     /* log: 1 for log_softmax; length_bytes: 0 without lengths, else 4 or 8 */
    int32_t dtype;                 /* of all arrays of floats; 16 bits where inner is 1 */
    double scale;                  /* multiplies the logits: 1 / temperature, negative for softmin */
} plk_softmax;
/* cffi stops reading here */
#endif
