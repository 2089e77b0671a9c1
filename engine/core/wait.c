/* Waiting: a thread spins for a moment, runs ready ops of its own lane if it is a worker, then sleeps on `done`. */
#include "wait.h"
#include "claims.h"
#include "engine.h"
#include "flight.h"
#include "gpu.h"
#include "profiler.h"
#include "stream.h"
#include "thread_pool.h"

#include <errno.h>

enum { MAX_DEPTH = 64 };

static pthread_cond_t done;                   /* signalled by pl_wait_announce alone */
static uint64_t announced;

void pl_wait_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attr);
    pthread_condattr_destroy(&attr);
}

void pl_wait_init(void) { pl_wait_condition_init(&done); }

struct timespec pl_wait_time(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

static int64_t deadline_after(int ms) { return pl_profiler_now() + (int64_t)ms * 1000000; }

/* Sleepers count as active from here on, not only when they get the lock: see the test in block. */
void pl_wait_announce(void)
{
    announced++;
    pl_engine.n_active += pl_engine.n_asleep;
    pl_engine.n_asleep = 0;
    pthread_cond_broadcast(&done);
}

/* One step of every wait, with the lock: runs an op or sleeps; the caller then checks its condition again.
 * PL_AGAIN when the time is over; PL_FAILED when the wait cannot end. */
static int block(int64_t end_ns)
{
    pl_lane *own = pl_lane_own();
    bool deep = pl_running && pl_running->depth >= MAX_DEPTH;
    const pl_flights *polls = own && !deep ? pl_lane_flights(own) : NULL;
    if (pl_flush() || (own && !deep && pl_lane_work(own)))
        return PL_OK;
    int inside = pl_running != NULL;
    /* no thread is left to end this wait */
    if (pl_engine.n_active == inside && pl_engine.n_ready == 0 && pl_engine.n_flying == 0)
        return pl_fail(PL_FAILED, pl_engine.lost
                       ? "engine: the process was forked while operations were running; their results are lost"
                       : "wait: an operation waits for an array that is not ready before the operation itself ends");
    if (deep && pl_engine.n_active == inside && pl_engine.n_flying == (own ? pl_lane_flights(own)->n_listed : 0))
        return pl_fail(PL_FAILED, "wait: too many nested waits of operations of one lane");
    uint64_t epoch = announced;
    pl_engine.n_active -= inside;
    pl_engine.n_asleep += inside;
    pl_lane_wake_deferred();
    if (own)
        pl_lane_block(own, 1);
    else
        pl_thread_pool_producer_sleeps();
    int64_t nap_ns = polls ? pl_flights_nap_ns(polls) : INT64_MAX;
    struct timespec end = pl_wait_time(nap_ns < end_ns ? nap_ns : end_ns);
    int error = pthread_cond_timedwait(&done, &pl_lock, &end);
    if (own)
        pl_lane_block(own, -1);
    if (epoch == announced) {
        pl_engine.n_active += inside;
        pl_engine.n_asleep -= inside;
    }
    return error == ETIMEDOUT && end_ns <= nap_ns ? PL_AGAIN : PL_OK;
}

typedef struct { const pl_var *var; uint64_t version; bool for_write; const pl_request *claim; } var_wait;

static bool var_done(const void *arg)
{
    const var_wait *w = arg;
    if (w->claim)
        return w->claim->state == PL_GRANTED;
    if (w->for_write)
        return atomic_load_explicit(&w->var->n_users, memory_order_relaxed) == 0;
    return atomic_load_explicit(&w->var->version, memory_order_relaxed) >= w->version;
}

/* The claim of the op that this thread runs, or NULL. Such a var is ready when it is granted, and its later users wait
 * for this op. */
static const pl_request *own_claim(const pl_var *var)
{
    for (int i = 0; pl_running && i < pl_running->n_requests; i++)
        if (pl_running->requests[i].var == var)
            return &pl_running->requests[i];
    return NULL;
}

/* Ops on a GPU are done when their work is enqueued: waits for that work. A kernel that failed poisons the var. With
 * the lock. */
static int wait_streams(pl_var *var, bool for_write, int timeout_ms)
{
    pl_leave();
    int status = pl_block_wait(var->block, for_write, timeout_ms);
    bool failed = status != PL_OK && status != PL_AGAIN;
    pl_error *lost = atomic_load(&pl_gpu_lost), *error = failed && !lost ? pl_error_new(status, NULL, -1) : lost;
    pl_enter();
    if (!failed)
        return status;
    if (lost)
        pl_error_ref(lost);
    if (var->error)
        pl_error_unref(error);
    else
        var->error = error;
    return PL_OK;
}

/* A thread outside of ops runs those that it waits for itself, where their worker sleeps: to wake it, and to be woken
 * in the end, takes longer than many of them. */
static void stand_in(bool (*over)(const void *arg), const void *arg, int64_t last)
{
    pl_lane_wake_deferred();
    if (!pl_running && !pl_lane_own())
        pl_lane_stand_in(over, arg, last);
}

static int wait_for_others(pl_var *var, const var_wait *w, int timeout_ms)
{
    int status = PL_OK;
    atomic_fetch_add(&pl_engine.n_blocked, 1);
    pl_claims_end_all();
    pl_lane_wake_deferred();
    if (timeout_ms > 0)
        pl_lane_hurry_all();
    if (timeout_ms > 0 && !pl_lane_own()) {
        pl_leave();
        pl_thread_pool_spin(var_done, w);
        pl_enter();
    }
    int64_t end_ns = deadline_after(timeout_ms);
    var->n_sleepers++;
    while (!var_done(w) && status == PL_OK)
        status = block(end_ns);
    var->n_sleepers--;
    atomic_fetch_sub(&pl_engine.n_blocked, 1);
    return var_done(w) ? PL_OK : status;
}

static int wait_var(pl_var *var, bool for_write, int timeout_ms)
{
    int status = PL_OK;
    if (pl_profiler_on())
        pl_profiler_begin();
    pl_enter();
    const pl_request *claim = own_claim(var);
    var_wait w = {var, var->writes_pushed, for_write, claim};
    if (claim && claim->state == PL_GRANTED) {
        pl_leave();
        if (var->block && pl_block_wait(var->block, for_write, INT32_MAX) != PL_OK)
            return PL_FAILED;
        return for_write && claim->mode == PL_READ
            ? pl_fail(PL_EINVAL, "wait: the operation declared to read this array, not to write it") : PL_OK;
    }
    var->object.refs++;
    if (timeout_ms < 0) {
        status = var_done(&w) ? PL_OK : PL_AGAIN;
    } else if (!var_done(&w)) {
        int64_t writer = for_write ? 0 : var->last_writer;
        if (timeout_ms > 0)
            stand_in(var_done, &w, for_write ? INT64_MAX : writer);
        int64_t start_ns = pl_profiler_clock();
        if (!var_done(&w)) {
            status = wait_for_others(var, &w, timeout_ms);
            if (start_ns)
                pl_profiler_waited(start_ns, writer);
        }
    }
    if (status == PL_OK && !var->error && var->block)
        status = wait_streams(var, for_write, timeout_ms);
    if (status == PL_OK && var->error)
        status = pl_error_report(var->error);
    pl_var_unref(var);
    pl_leave();
    return status;
}

void pl_wait_finished(const bool *finished)
{
    int status = PL_OK;
    while (!*finished && status != PL_FAILED)
        status = block(deadline_after(1000));
}

typedef struct { int64_t max_queued; size_t max_pending_bytes; } capacity;

static bool has_capacity(const void *arg)
{
    const capacity *c = arg;
    return atomic_load_explicit(&pl_engine.n_queued, memory_order_relaxed) <= c->max_queued &&
           atomic_load_explicit(&pl_engine.pending_bytes, memory_order_relaxed) <= c->max_pending_bytes;
}

int pl_wait_capacity(int64_t max_queued, size_t max_pending_bytes, int timeout_ms)
{
    int status = PL_OK;
    if (!pl_lane_own()) {
        pl_lane_wake_deferred();
        pl_leave();
        pl_thread_pool_help(has_capacity, &(capacity){max_queued, max_pending_bytes});
        pl_enter();
    }
    pl_engine.n_producers++;
    pl_lane_hurry_all();
    int64_t end_ns = deadline_after(timeout_ms ? timeout_ms : 1000);
    while ((pl_engine.n_queued > max_queued || pl_engine.pending_bytes > max_pending_bytes) && status != PL_FAILED) {
        status = block(end_ns);
        if (status == PL_AGAIN && timeout_ms)
            break;
        if (status == PL_AGAIN)
            end_ns = deadline_after(1000);
    }
    pl_engine.n_producers--;
    return status == PL_AGAIN && timeout_ms ? PL_AGAIN : PL_OK;
}

int pl_wait_queue(int patience_ms)
{
    int status = PL_OK;
    pl_engine.n_idle_waiters++;
    int64_t left = pl_engine.n_queued, end_ns = deadline_after(patience_ms);
    pl_lane_hurry_all();
    while (pl_engine.n_queued > 0 && status == PL_OK) {
        status = block(end_ns);
        if (pl_engine.n_queued == left)
            continue;
        left = pl_engine.n_queued;
        end_ns = deadline_after(patience_ms);
        if (status == PL_AGAIN)
            status = PL_OK;
    }
    pl_engine.n_idle_waiters--;
    return pl_engine.n_queued > 0 ? status : PL_OK;
}

static bool none_queued(const void *arg)
{
    (void)arg;
    return atomic_load_explicit(&pl_engine.n_queued, memory_order_relaxed) == 0;
}

int pl_wait_all(int timeout_ms)
{
    int status = PL_OK;
    if (pl_running)
        return pl_fail(PL_EINVAL, "waitall: an operation cannot wait for all operations, itself included");
    int64_t end_ns = deadline_after(timeout_ms);
    if (pl_profiler_on())
        pl_profiler_begin();
    pl_enter();
    if (timeout_ms > 0 && pl_engine.n_queued > 0)
        stand_in(none_queued, NULL, INT64_MAX);
    int64_t start_ns = pl_profiler_clock();
    bool blocked = pl_engine.n_queued > 0 || pl_gpu_count();
    pl_lane_wake_deferred();
    if (timeout_ms > 0)
        pl_lane_hurry_all();
    if (timeout_ms > 0 && pl_engine.n_queued > 0 && !pl_lane_own()) {
        pl_leave();
        pl_thread_pool_spin(none_queued, NULL);
        pl_enter();
    }
    pl_engine.n_idle_waiters++;
    while (pl_engine.n_queued > 0 && status == PL_OK)
        status = timeout_ms < 0 ? PL_AGAIN : block(end_ns);
    pl_engine.n_idle_waiters--;
    if (pl_engine.n_queued == 0)
        status = PL_OK;
    if (status == PL_OK && pl_gpu_count()) {
        pl_leave();
        status = pl_streams_wait(timeout_ms);
        pl_enter();
    }
    if (start_ns && blocked && timeout_ms >= 0)
        pl_profiler_waited(start_ns, 0);
    pl_error *unreported = pl_error_oldest_unreported();
    if (status == PL_FAILED && atomic_load(&pl_gpu_lost))     /* it was reported, or is unreported */
        status = PL_OK;
    if (status == PL_OK && unreported)
        status = pl_error_report(unreported);
    pl_leave();
    return status;
}

int pl_wait_read(uintptr_t array, int timeout_ms)
{
    return wait_var(((pl_array *)array)->var, false, timeout_ms);
}

int pl_wait_write(uintptr_t array, int timeout_ms)
{
    return wait_var(((pl_array *)array)->var, true, timeout_ms);
}
