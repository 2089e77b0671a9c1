/* Waiting for arrays, for the queue and for everything. */
#ifndef PLAIT_WAIT_H
#define PLAIT_WAIT_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
/* cffi reads from here on: */
/* A timeout_ms below 0: only looks, which is no wait for the profiler.
 * Waits until all ops are done. PL_AGAIN after timeout_ms; PL_FAILED with the oldest error not yet reported: call again
 * for the next one, until PL_OK.  Inside an op it fails at once. */
int pl_wait_all(int timeout_ms);
int pl_wait_read(uintptr_t array, int timeout_ms);        /* earlier writes are done; PL_OK, PL_AGAIN, PL_FAILED */
int pl_wait_write(uintptr_t array, int timeout_ms);       /* earlier reads are done too */
/* cffi stops reading here */

/* With the lock: */
void pl_wait_announce(void);                  /* wakes sleeping waiters: what they wait for may have happened */
void pl_wait_finished(const bool *finished);
/* Waits until no more ops and bytes than that are queued. PL_AGAIN after timeout_ms; 0: waits on. */
int pl_wait_capacity(int64_t max_queued, size_t max_pending_bytes, int timeout_ms);
int pl_wait_queue(int patience_ms);           /* until nothing is queued; PL_AGAIN: no op finished for so long */
void pl_wait_init(void);                      /* also in a forked child */
void pl_wait_condition_init(pthread_cond_t *condition);   /* whose times are pl_profiler_now's */
struct timespec pl_wait_time(int64_t ns);
#endif
