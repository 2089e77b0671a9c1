/* Programs that begin before all their arrays are granted. */
#ifndef PLAIT_DEFERRED_H
#define PLAIT_DEFERRED_H
#include "claims.h"

typedef enum { PL_NEXT_RUN, PL_NEXT_AWAIT, PL_NEXT_END } pl_next;

/* With the lock, of an op with op->claims->first: */
void pl_deferred_start(pl_op *op);            /* submitted: it waits only for what it needs before its instruction 0 */
/* What it does next: runs up to op->claims->until; waits, and is made ready again; or ends. *error: of the run before,
 * or NULL, given; of the whole op at its end, or NULL, new. */
pl_next pl_deferred_next(pl_op *op, pl_error **error);
#endif
