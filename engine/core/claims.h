/* The claims of a program on its arrays, each for the instructions that use it: a request may be granted after its
 * op has begun (deferred.c), and end before it (claims.c). */
#ifndef PLAIT_CLAIMS_H
#define PLAIT_CLAIMS_H
#include "engine.h"

struct pl_claims {
    const int32_t *order, *last;    /* n arrays in the order of their last use; by array: that instruction */
    const int32_t *request_of;  /* by array */
    int n, n_ended;             /* n_ended: of `order`; under pl_lock */
    bool awaited;               /* others may block on it while it runs: it is in the list */
    atomic_int n_done;          /* instructions that are done: all before, none after */
    uint64_t *number_of;        /* on a GPU, by array: the number of its use; 0: take a new one.  NULL on the host */
    int32_t *marks;             /* on a GPU: the n_marks instructions after which the stream records an event */
    int n_marks;
    const int32_t *first;       /* by array: the instruction before which it must be granted; NULL: 0 for all */
    int n_arrays, n_instr;
    int until;                  /* the program may run up to this instruction */
    bool deferred;              /* it was pushed before all its requests were granted */
    bool begun, suspended;      /* it is in the list; it began before all its requests were granted */
    pl_error *error;            /* or NULL; it has failed, and ends when all its requests are granted */
    pl_op *next;                /* in the list of running ones */
};

void pl_claims_report(pl_op *op, int n_done); /* by the thread that runs it, without the lock */
/* With the lock: */
void pl_claims_begin(pl_op *op);              /* it is about to run: into the list, if others may block on it */
void pl_claims_end(pl_op *op);                /* ends its requests that are done */
void pl_claims_end_all(void);                 /* those of all running ops */
void pl_claims_close(pl_op *op, bool failed); /* it is done; the caller ends the requests that are left */
#endif
