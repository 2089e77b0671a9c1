/* The process: naive mode, stopping the workers, its end, and fork. */
#ifndef PLAIT_PROCESS_H
#define PLAIT_PROCESS_H
/* cffi reads from here on: */
void pl_engine_set_naive(int naive);          /* 1: every op runs on its caller, in order */
void pl_engine_stop(void);                    /* waits for all ops and joins the workers; they restart on demand */
/* At the end of the process: from now on every op runs on its caller; waits for the others. PL_AGAIN after timeout_ms:
 * call again. */
int pl_engine_close(int timeout_ms);
void pl_engine_fail_at_exit(void);            /* a process that would end with status 0 ends with 1 */
void pl_engine_fork_begin(void);              /* before fork(), for callers that hold locks which ops need (the GIL) */
void pl_engine_fork_end(void);                /* after it, in parent and child */
/* cffi stops reading here */
#endif
