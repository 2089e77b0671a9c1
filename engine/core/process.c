/* The process: naive mode, stopping the workers, its end, and fork. Before a fork all ops are finished and all workers
 * joined. */
#include "process.h"
#include "engine.h"
#include "flight.h"
#include "gpu.h"
#include "heartbeat.h"
#include "wait.h"

#include <stdlib.h>

enum { FORK_TIMEOUT_MS = 5000, ENDLESS_MS = 1000 };

static bool naive, closed;
static bool left_flying;        /* between fork_begin and fork_end: ops without a deadline stay in flight */

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
        return;                               /* an op cannot wait for itself */
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
    if (!closed)
        pl_flight_last_call();
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
        exit(1);                              /* inside a handler glibc runs the remaining handlers */
}

void pl_engine_fail_at_exit(void) { on_exit(exit_failed, NULL); }
#else
static void exit_failed(void) { _Exit(1); }   /* the status is unknown here */

void pl_engine_fail_at_exit(void) { atexit(exit_failed); }
#endif

/* Until pl_engine_fork_end every op runs on its caller, so that no worker starts. Ops in flight that have no deadline
 * may never end: after a time without progress the process forks, and they go on in the parent. */
void pl_engine_fork_begin(void)
{
    pl_enter();
    pl_engine.synchronous++;
    while (!pl_running && !left_flying && pl_wait_queue(ENDLESS_MS) == PL_AGAIN)
        left_flying = pl_lane_endless_only();
    pl_leave();
    if (!pl_running)
        pl_lane_stop_all();
}

void pl_engine_fork_end(void)
{
    pl_enter();
    pl_engine.synchronous--;
    left_flying = false;
    pl_leave();
    pl_lane_resume_all();
}

/* Nothing is queued here if pl_engine_fork_begin was called before. If not, the forking thread may hold a lock that the
 * ops need (the GIL): then this wait times out, and the child reports that the ops are lost. */
static void fork_prepare(void)
{
    pl_enter();
    pl_engine.synchronous++;
    int status = pl_running || left_flying ? PL_AGAIN : pl_wait_queue(FORK_TIMEOUT_MS);
    pl_leave();
    if (status == PL_OK)
        pl_lane_stop_all();
    pthread_mutex_lock(&pl_lock);
    pl_heartbeat_fork_prepare();
}

static void fork_parent(void)
{
    pl_heartbeat_fork_parent();
    pl_engine.synchronous--;
    pl_leave();
}

static void fork_child(void)
{
    pl_heartbeat_fork_child();
    pl_profiler_forked();
    pl_engine.synchronous--;
    pl_engine.lost = pl_engine.lost || pl_engine.n_pending > 0;
    pl_engine.n_idle_waiters = pl_engine.n_producers = 0;
    pl_engine.n_active = pl_engine.n_asleep = pl_engine.n_ready = pl_engine.n_queued = pl_engine.n_pending = 0;
    pl_engine.n_flying = 0;
    pl_engine.pending_bytes = 0;
    pl_engine.releasing = NULL;
    atomic_store(&pl_engine.n_blocked, 0);
    pl_wait_init();
    pl_error_forget_all();
    pl_gpu_forget();
    pl_lane_forget_all();
    pthread_mutex_unlock(&pl_lock);
}

__attribute__((constructor)) static void process_init(void)
{
    pl_wait_init();
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}
