/* Programs that begin before all their arrays are granted. */
#ifndef PLAIT_LATE_H
#define PLAIT_LATE_H
#include "early.h"

typedef enum { PL_STEP_RUN, PL_STEP_AWAIT, PL_STEP_END } pl_step;

/* With the lock, of an op with op->early->first: */
void pl_late_start(pl_op *op);                /* submitted: it waits only for what it needs before its instruction 0 */
/* What it does next: runs up to op->early->until; waits, and is made ready again; or ends. *error: of the run before,
 * or NULL, given; of the whole op at its end, or NULL, new. */
pl_step pl_late_next(pl_op *op, pl_error **error);
#endif
