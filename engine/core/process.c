/* The process: naive mode, stopping, closing, and forking with no worker and no operation left behind. */
#include "internal.h"

#include <stdlib.h>
#include <time.h>

enum { FORK_PATIENCE_MS = 5000 };

pthread_cond_t pl_done;
static bool naive, closed;

static void conditions_init(void)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&pl_done, &attr);
    pthread_condattr_destroy(&attr);
}

void pl_engine_set_naive(int value)
{
    pl_enter();
    pl_engine.synchronous += (value != 0) - naive;
    naive = value != 0;
    pl_leave();
}

void pl_engine_stop(void)
{
    int status = PL_OK;
    if (pl_running)
        return;                               /* it would wait for itself */
    pl_enter();
    status = pl_wait_queue(1000);
    while (status == PL_AGAIN)
        status = pl_wait_queue(1000);
    pl_leave();
    pl_lane_stop_all();
}

int pl_engine_close(int timeout_ms)
{
    pl_enter();
    pl_engine.synchronous += !closed;
    closed = true;
    int status = pl_running ? PL_OK : pl_wait_queue(timeout_ms);
    pl_leave();
    if (status != PL_AGAIN)
        pl_lane_stop_all();
    return status;
}

#ifdef __GLIBC__
static void exit_failed(int status, void *arg)
{
    (void)arg;
    if (status == 0)
        exit(1);                              /* in a handler: glibc goes on with those that are left */
}

void pl_engine_fail_at_exit(void) { on_exit(exit_failed, NULL); }
#else
static void exit_failed(void) { _Exit(1); }   /* the status cannot be seen here */

void pl_engine_fail_at_exit(void) { atexit(exit_failed); }
#endif

/* From here to pl_engine_fork_end every op runs on its caller, so that no worker comes to life. */
void pl_engine_fork_begin(void)
{
    pl_enter();
    pl_engine.synchronous++;
    pl_leave();
    pl_engine_stop();
}

void pl_engine_fork_end(void)
{
    pl_enter();
    pl_engine.synchronous--;
    pl_leave();
}

/* Nothing is queued here if pl_engine_fork_begin was called before. If not, the forking thread may hold something that
 * the ops need (Python's lock): then patience ends, and the child can only say that they are lost. */
static void fork_prepare(void)
{
    pl_enter();
    pl_engine.synchronous++;
    int status = pl_running ? PL_AGAIN : pl_wait_queue(FORK_PATIENCE_MS);
    pl_leave();
    if (status == PL_OK)
        pl_lane_stop_all();
    pthread_mutex_lock(&pl_lock);
}

static void fork_parent(void)
{
    pl_engine.synchronous--;
    pl_leave();
}

static void fork_child(void)
{
    pl_engine.synchronous--;
    pl_engine.lost = pl_engine.lost || pl_engine.n_pending > 0;
    pl_engine.n_idle_waiters = pl_engine.n_producers = 0;
    pl_engine.n_active = pl_engine.n_asleep = pl_engine.n_ready = pl_engine.n_queued = pl_engine.n_pending = 0;
    pl_engine.held_bytes = 0;
    pl_engine.early = NULL;
    atomic_store(&pl_engine.n_held_up, 0);
    conditions_init();
    pl_error_forget_all();
    pl_gpu_forget();
    pl_lane_forget_all();
    pthread_mutex_unlock(&pl_lock);
}

__attribute__((constructor)) static void process_init(void)
{
    conditions_init();
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}
