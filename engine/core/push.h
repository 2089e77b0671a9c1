/* Functions as operations: each has the arrays that it reads and writes, and a lane. */
#ifndef PLAIT_PUSH_H
#define PLAIT_PUSH_H
#include "engine.h"
/* cffi reads from here on: */
/* Queues fn(arg) after all earlier writers of `reads` and all earlier users of `writes` (array handles; one that is in
 * both is read and written).  arg: given, freed by free_arg (may be NULL) after fn or instead of it.  lane: PL_LANE_*;
 * device: id.  priority: higher first among ready ops.  name: borrowed for ever (a literal or pl_name), may be NULL.
 * fn may push and wait itself: a waiting worker runs other ready ops of its lane; the arrays that the op claimed are
 * ready inside it; a wait that can never end fails.
 * Returns PL_OK, or an error with nothing queued and arg still the caller's. */
int pl_push(pl_fn fn, void *arg, pl_free_fn free_arg, const uintptr_t *reads, int n_reads,
            const uintptr_t *writes, int n_writes, int lane, int device, int priority, const char *name,
            int32_t location);
int pl_noop(void *arg);                       /* a pl_fn that does nothing */
/* As pl_push, for a function that may return PL_PENDING: it is then in flight, and called again until it returns
 * PL_OK or a failure.  lane: PL_LANE_CPU, PL_LANE_IO or PL_LANE_COMM.
 *
 * fn is never called while a call of it for the same op runs, even if it waits: pl_wait_* inside it starts and polls
 * other ops of its lane. All calls of fn, cancel and free_arg for an op are made one after the other, by the lane's
 * worker. Exceptions: a thread that runs its ops itself (pl_engine_set_inline) makes the first call; in naive mode,
 * during a fork and at exit threads that push or wait make them, possibly another one each time.
 *
 * deadline_s: 0: none.  An op that is still pending so many seconds after the first return of fn ends with
 * PL_ETIMEOUT.  It is looked at between polls: a function that does not return is not cut short.
 *
 * cancel: or NULL.  Called once, instead of the next poll, when the deadline or pl_flight_abort ends the op; never
 * while fn runs.  When it has returned PL_OK nothing may read or write the op's arrays any more: their memory is
 * released and used again.  Where that cannot be had (a transfer that its library cannot cancel) it returns PL_PENDING:
 * the engine then never uses the memory again, and ops that would write the arrays are refused.  It must not block.
 * It may call pl_fail to say more than the engine's text about a deadline (which rank did not answer). Without a cancel
 * the op must own nothing but what free_arg frees.
 *
 * order: 0, or a Var (array handle): ops with the same one *start* (their first call of fn) strictly in the order of
 * pushing, whatever their priorities and whichever is ready first, each when the one before it has returned from its
 * first call. It is claimed until then only, so that they are in flight together. Without it the ready ops of a lane
 * start by priority, then in the order of pushing; which are ready is a matter of time, and may differ between
 * processes. */
int pl_push_polled(pl_fn fn, pl_fn cancel, void *arg, pl_free_fn free_arg, const uintptr_t *reads, int n_reads,
                   const uintptr_t *writes, int n_writes, uintptr_t order, int lane, int device, int priority,
                   double deadline_s, const char *name, int32_t location);
/* cffi stops reading here */
#endif
