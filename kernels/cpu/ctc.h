/* CTC loss and its gradient: -log P(label | softmax(x)) of each example. Source: Graves et al. 2006. */
#ifndef PLK_CTC_H
#define PLK_CTC_H
#include "kernel.h"
/* cffi reads from here on: */
/* x (steps, batch, classes), labels (batch, length), then lengths of data and of labels (batch,), if
 * any */
typedef struct {
    int64_t steps, batch, classes, length;
    int32_t label_dtype, steps_dtype, count_dtype;      /* of the lengths; -1: there are none */
    int32_t blank_is_last;                              /* 0: it is class 0; labels are padded with -1, else with 0 */
} plk_ctc;
/* cffi stops reading here */
#endif
