/* The dependency algorithm: requests on vars are granted in the order of pushing, reads together, writes alone.
 *
 *   new --submit--> waiting --last request granted--> ready --lane--> running --> done
 *          |        ^  (a queue per var)          (in a lane's queue)    ^ |  | PL_PENDING
 *          |        +--a program reaches an array that is not granted----|-+  +--> in flight --poll--> running
 *          +--all granted at once, and cheap or synchronous--------------+   on the caller
 *
 * Invariants (under pl_lock):
 *   writing           => n_readers == 0
 *   head != NULL      => the head cannot be granted now
 *   op->n_missing     == number of its requests that are AWAITED; > 0 only while it is waiting
 *   var->n_users      == n_readers + writing + queued requests
 */
#include "engine.h"
#include "claims.h"
#include "deferred.h"
#include "flight.h"
#include "profiler.h"
#include "stream.h"
#include "thread_pool.h"
#include "wait.h"

#include <assert.h>
#include <stdlib.h>

enum { SMALL_BLOCK = 448 };     /* bytes of an op with few requests; kept for re-use */
enum { AHEAD_OPS = 16 };        /* a producer that is so far ahead helps */

struct pl_engine_state pl_engine;
_Thread_local pl_op *pl_running;

static _Thread_local int own_priority;
static _Thread_local int64_t full_start_ns, full_end_ns;   /* for the profiler: when this thread's push waited */

int pl_engine_set_priority(int priority)
{
    int before = own_priority;
    own_priority = priority;
    return before;
}

static int64_t next_seq = 1;
static int64_t max_queued = 4096;
/* Of new outputs: a training loop that runs ahead holds the batches that it made, and on a GPU, where outputs get their
 * memory when they are pushed, what each step needs. This is enough to keep the lanes busy. */
#define AHEAD_BYTES ((size_t)128 << 20)
static size_t max_pending_bytes;                 /* set at the first push */
static int patience_ms;                       /* see pl_engine_set_patience */
static pl_op *spare;                          /* freed small ops */

/* ---- requests --------------------------------------------------------------------------------------------- */

static void var_add_users(pl_var *v, int n)
{
    int now = atomic_load_explicit(&v->n_users, memory_order_relaxed) + n;
    atomic_store_explicit(&v->n_users, now, memory_order_relaxed);
}

static bool request_grantable(const pl_request *r)
{
    const pl_var *v = r->var;
    return !v->head && !v->writing && (r->mode == PL_READ || !v->n_readers);
}

static void request_grant(pl_request *r)
{
    pl_var *v = r->var;
    assert(!v->writing);
    if (r->mode == PL_READ) {
        v->n_readers++;
    } else {
        assert(v->n_readers == 0);
        v->writing = true;
    }
}

/* Grants r or queues it; true: granted. */
static bool request_append(pl_request *r)
{
    pl_var *v = r->var;
    v->object.refs++;
    var_add_users(v, 1);
    if (r->mode != PL_READ) {
        pl_var_count_write(v);
        v->last_writer = r->op->seq;
    }
    if (request_grantable(r)) {
        r->state = PL_GRANTED;
        request_grant(r);
        return true;
    }
    r->state = PL_AWAITED;
    atomic_fetch_add(&pl_engine.n_blocked, 1);
    r->next = NULL;
    if (v->head)
        v->tail->next = r;
    else
        v->head = r;
    v->tail = r;
    return false;
}

/* Ends a granted request and grants those that waited for it. */
static void request_finish(pl_request *r)
{
    pl_var *v = r->var;
    if (r->mode == PL_READ) {
        assert(v->n_readers > 0);
        v->n_readers--;
    } else {
        assert(v->writing);
        v->writing = false;
        atomic_store_explicit(&v->version, atomic_load_explicit(&v->version, memory_order_relaxed) + 1,
                              memory_order_release);
    }
    var_add_users(v, -1);
    while (v->head && !v->writing && (v->head->mode == PL_READ || !v->n_readers)) {
        pl_request *granted = v->head;
        v->head = granted->next;
        atomic_fetch_sub(&pl_engine.n_blocked, 1);
        request_grant(granted);
        bool awaited = granted->state == PL_AWAITED;
        granted->state = PL_GRANTED;
        if (awaited && --granted->op->n_missing == 0) {
            granted->op->cause = r->op->seq;
            pl_lane_put(granted->op);         /* STATE: waiting -> ready */
        }
    }
    if (v->n_sleepers)
        pl_wait_announce();
    pl_var_unref(v);
}

/* ---- ops -------------------------------------------------------------------------------------------------- */

int pl_op_begin(pl_op **made, int max_requests, size_t payload_bytes)
{
    size_t requests_bytes = (size_t)max_requests * sizeof(pl_request);
    size_t bytes = sizeof(pl_op) + requests_bytes + payload_bytes;
    pl_op *op = NULL;
    if (pl_profiler_on())
        pl_profiler_begin();
    pl_enter();
    if (!max_pending_bytes) {
        max_pending_bytes = pl_machine_bytes() / 4;
        if (max_pending_bytes > AHEAD_BYTES)
            max_pending_bytes = AHEAD_BYTES;
    }
    if (!pl_running && (pl_engine.n_queued >= max_queued || pl_engine.pending_bytes >= max_pending_bytes)) {
        int64_t start_ns = pl_profiler_clock();
        int status = pl_wait_capacity(max_queued / 2, max_pending_bytes / 2, patience_ms);
        full_end_ns = pl_profiler_clock();
        full_start_ns = full_end_ns ? full_start_ns ? full_start_ns : start_ns : 0;
        if (status == PL_AGAIN) {
            pl_leave();
            return PL_AGAIN;
        }
    }
    if (bytes <= SMALL_BLOCK) {
        bytes = SMALL_BLOCK;
        op = spare;
        if (op)
            spare = op->next;
    }
    if (!op && !(op = malloc(bytes))) {
        pl_leave();
        return pl_fail(PL_ENOMEM, "engine: out of memory for an operation");
    }
    op->dispose = NULL;                       /* field by field: a memset costs a tenth of an inline op */
    op->lane = NULL;
    op->stream = NULL;
    op->arena = NULL;
    op->on_blocks = op->forbidden = op->late = op->brief = false;
    op->claims = NULL;
    op->flight = NULL;
    op->shared = NULL;
    op->name = op->label = NULL;
    op->finished = NULL;
    op->seq = next_seq++;
    op->block_bytes = bytes;
    op->pending_bytes = 0;
    op->n_requests = 0;
    op->cause = 0;
    op->priority = own_priority;
    op->location = -1;
    op->payload = (char *)op->requests + requests_bytes;
    *made = op;
    return PL_OK;
}

static void op_free(pl_op *op)
{
    if (op->shared)
        pl_object_unref(op->shared);
#ifndef PL_PLAIN_MALLOC                       /* sanitizers must see every free */
    if (op->block_bytes == SMALL_BLOCK) {
        op->next = spare;
        spare = op;
        return;
    }
#endif
    free(op);
}

void pl_op_abandon(pl_op *op)
{
    op_free(op);
    pl_leave();
}

pl_error *pl_op_inherited(const pl_op *op)
{
    for (int i = 0; i < op->n_requests; i++)
        if (op->requests[i].mode != PL_WRITE && op->requests[i].var->error)
            return op->requests[i].var->error;
    return pl_op_lost(op);
}

static void request_outcome(pl_request *r, pl_error *error)
{
    pl_error *old = r->var->error;
    if (r->mode == PL_READ || old == error)
        return;
    if (error)
        pl_error_ref(error);
    r->var->error = error;                    /* STATE: valid -> poisoned, or poisoned -> overwritten */
    if (old)
        pl_error_unref(old);
}

void pl_request_end(pl_request *r)
{
    request_outcome(r, NULL);
    request_finish(r);
    r->var = NULL;
}

static void op_complete(pl_op *op, pl_error *error)
{
    if (op->claims)
        pl_claims_close(op, error != NULL);
    for (int i = 0; i < op->n_requests; i++)
        if (op->requests[i].var)
            request_outcome(&op->requests[i], error);
    for (int i = 0; i < op->n_requests; i++)
        if (op->requests[i].var)
            request_finish(&op->requests[i]);
    pl_engine.n_pending--;
    if (op->lane) {
        pl_engine.n_queued--;
        pl_engine.pending_bytes -= op->pending_bytes;
    }
    if (op->finished)
        *op->finished = true;
    if (op->finished || (pl_engine.n_idle_waiters && !pl_engine.n_queued) ||
        (pl_engine.n_producers && pl_engine.n_queued <= max_queued / 2 &&
         pl_engine.pending_bytes <= max_pending_bytes / 2))
        pl_wait_announce();
    op_free(op);                              /* STATE: running -> done */
}

/* With the lock, which it releases: this thread is inside the op. */
static void op_enter(pl_op *op)
{
    op->outer = pl_running;
    op->depth = op->outer ? op->outer->depth + 1 : 1;
    pl_engine.n_active += op->depth == 1;
    pl_leave();
    pl_running = op;
}

static void op_exit(pl_op *op)
{
    pl_running = op->outer;
    pl_enter();
    pl_engine.n_active -= op->depth == 1;
}

static pl_error *op_failed(const pl_op *op, int status)
{
    if (status == PL_PENDING)
        status = pl_fail(PL_FAILED, "engine: only an operation that is polled may be pending (pl_push_polled)");
    pl_error *lost = pl_op_lost(op), *error = lost ? lost : pl_error_new(status, op->name, op->location);
    pl_enter();
    if (lost)
        pl_error_ref(lost);
    else
        pl_error_remember(error);
    pl_leave();
    return error;
}

/* Without the lock, which it takes.  error: given, or NULL. */
static void op_end(pl_op *op, pl_error *error)
{
    if (op->dispose)
        op->dispose(op);
    op_exit(op);
    op_complete(op, error);
    if (error)
        pl_error_unref(error);
}

/* Without the lock, which it takes: its function returned for the first time, and is to be polled. */
static void op_fly(pl_op *op, int64_t start_ns)
{
    pl_request *order = op->flight->order;
    op->flight->event_ns = start_ns;
    op->flight->polled_ns = start_ns ? pl_profiler_now() - start_ns : 0;
    op_exit(op);
    bool was_inline = !op->lane;
    if (was_inline) {                         /* in naive mode whoever waits polls it */
        op->lane = pl_engine.synchronous > 0 ? &pl_lane_caller : op->flight->lane;
        pl_engine.n_queued++;
        pl_engine.pending_bytes += op->pending_bytes;
    }
    pl_flight_put(op);                        /* STATE: running -> in flight */
    if (was_inline)
        pl_lane_hurry_all();
    if (order && order->n_claims == 1)        /* claimed once more it is an array of the op */
        pl_request_end(order);                /* STATE: granted -> ended: the next op of this order may start */
}

pl_event pl_op_event(const pl_op *op, int kind, int64_t start_ns)
{
    pl_event event = {.name = op->name, .label = op->label, .start_ns = start_ns, .seq = op->seq, .cause = op->cause,
                      .location = op->location, .kind = kind};
    if (op->push_ns) {                        /* else the profiler was off */
        event.push_ns = op->push_ns;
        event.pushed_by = op->pushed_by;
        event.layer = op->layer;
    }
    return event;
}

/* Calls the op's function. Returns its error, new, or NULL; *flies: it is in flight now, and the lock taken. */
static inline pl_error *op_call(pl_op *op, bool *flies)
{
    /* what runs where it was pushed starts then */
    int64_t start_ns = !pl_profiler_on() ? 0 : op->lane || !op->push_ns ? pl_profiler_now() : op->push_ns;
    pl_event event;                           /* with the name from now: a program that fails changes it */
    if (start_ns) {
        event = pl_op_event(op, PL_EVENT_OP, start_ns);
        pl_profiler_start(&event);
    }
    if (pl_failed)
        pl_fail_forget();
    int status = op->stream || op->on_blocks ? pl_op_run_on_gpu(op) : op->run(op);
    if ((*flies = status == PL_PENDING && op->flight))
        op_fly(op, start_ns);
    else if (start_ns)
        pl_profiler_end(&event, status != PL_OK);
    return status == PL_OK || *flies ? NULL : op_failed(op, status);
}

/* A program that may have to wait in the middle. */
static void deferred_execute(pl_op *op)
{
    pl_error *error = NULL;
    bool flies;
    for (pl_next next; (next = pl_deferred_next(op, &error)) != PL_NEXT_AWAIT; op_exit(op)) {
        pl_claims_begin(op);
        op_enter(op);
        if (next == PL_NEXT_RUN)
            error = op_call(op, &flies);
        if (next == PL_NEXT_END || op->claims->until == op->claims->n_instr) {
            op_end(op, error);
            return;
        }
    }                                         /* STATE: ready or running -> waiting */
}

void pl_op_execute(pl_op *op)
{
    bool flies = false;
    if (op->claims && op->claims->first) {
        deferred_execute(op);
        return;
    }
    pl_error *error = pl_op_inherited(op);
    if (error)
        pl_error_ref(error);
    if (op->claims)
        pl_claims_begin(op);
    op_enter(op);
    if (!error)
        error = op_call(op, &flies);
    if (!flies)
        op_end(op, error);
}

bool pl_op_poll(pl_op *op)
{
    pl_flight *f = op->flight;
    pl_error *error = pl_flight_aborted(op);
    bool over = error != NULL;
    op_enter(op);
    if (!over) {
        int64_t start_ns = pl_profiler_now();
        if (pl_failed)
            pl_fail_forget();
        int status = pl_flight_run(op);
        int64_t now = pl_profiler_now();
        f->polled_ns += now - start_ns;
        over = status == PL_PENDING && now >= pl_flight_end_ns(op);
        if (status == PL_PENDING && !over) {
            op_exit(op);
            pl_flight_put(op);
            return false;
        }
        if (!over && status != PL_OK)
            error = op_failed(op, status);
    }
    if (over)
        error = pl_flight_give_up(op, error);
    if (f->event_ns) {
        pl_event event = pl_op_event(op, PL_EVENT_FLIGHT, f->event_ns);
        event.polled_ns = f->polled_ns;
        pl_profiler_end(&event, error != NULL);
    }
    op_end(op, error);                        /* STATE: in flight -> done */
    return true;
}

/* In synchronous mode: runs queued ops, and polls those in flight, until this one is finished. Inside another op it may
 * depend on that one; then the thread that runs the outer op runs it afterwards. */
static void run_on_caller(const bool *finished)
{
    while (pl_lane_work(&pl_lane_caller)) {}
    if (finished)
        pl_wait_finished(finished);
}

static _Thread_local bool runs_inline;

int pl_engine_set_inline(int on)
{
    bool before = runs_inline;
    runs_inline = on != 0;
    return before;
}

static bool few_queued(const void *arg)
{
    (void)arg;
    return atomic_load_explicit(&pl_engine.n_queued, memory_order_relaxed) <= AHEAD_OPS / 2;
}

/* It would write memory that no op may write. */
static int op_refuse(const pl_op *op)
{
    for (int i = 0; i < op->n_requests; i++)
        if (op->requests[i].var->read_only && op->requests[i].var->error)
            return pl_fail(PL_EINVAL, "an operation that was given up may still write this array"
                                      "\n  fix: use a new array; its memory is not used again");
    return pl_fail(PL_EINVAL, "this array is read-only, because its memory was read-only where it came from"
                              "\n  fix: x = x.copy(), or nd.array(values) instead of nd.from_numpy(values)");
}

int pl_op_submit(pl_op *op, int lane, int device, bool may_inline)
{
    if (op->forbidden)
        return op_refuse(op);
    if (op->flight && pl_flight_prepare(op, lane, device) != PL_OK)
        return PL_FAILED;
    bool synchronous = pl_engine.synchronous > 0, finished = false;
    bool inline_now = may_inline || synchronous || (runs_inline && !pl_lane_is_gpu(lane));
    if (pl_lane_is_gpu(lane) && pl_stream_find(lane, device, &op->stream) != PL_OK)
        return PL_FAILED;
    for (int i = 0; i < op->n_requests && inline_now; i++)
        inline_now = request_grantable(&op->requests[i]);
    if (inline_now && op->flight && !synchronous && !pl_lane_get(lane, device))
        return PL_FAILED;                     /* what starts here would go on there */
    if (!inline_now) {
        op->lane = synchronous ? &pl_lane_caller : pl_lane_get(lane, device);
        if (!op->lane)
            return PL_FAILED;
        pl_engine.n_queued++;
        pl_engine.pending_bytes += op->pending_bytes;
    }
    if (synchronous && !pl_running && (op->flight || !inline_now))
        op->finished = &finished;
    if (op->claims)
        op->claims->awaited = !inline_now && !synchronous;
    bool produced = !inline_now && !synchronous && lane == PL_LANE_CPU && !pl_running && !pl_lane_own();
    if (produced)
        pl_thread_pool_producer_pushed();
    pl_engine.n_pending++;
    if ((op->push_ns = pl_profiler_clock())) {
        op->layer = pl_profiler_layer;
        op->pushed_by = pl_profiler_begin();
        if (full_start_ns)
            pl_profiler_queue_was_full(op->name, full_start_ns, full_end_ns, op->location);
    }
    full_start_ns = 0;
    int n_missing = 0;
    for (int i = 0; i < op->n_requests; i++)
        n_missing += !request_append(&op->requests[i]);
    op->n_missing = n_missing;
    bool *sleep_on = op->finished;            /* a queued op may be done and gone as soon as the lock is left */
    if (n_missing && op->claims && op->claims->first && !synchronous)
        pl_deferred_start(op);
    if (op->n_missing == 0) {
        if (inline_now)
            pl_op_execute(op);                /* STATE: new -> running, on the caller */
        else
            pl_lane_put(op);                  /* STATE: new -> ready */
    }
    if (n_missing)
        pl_claims_end_all();
    if (synchronous)
        run_on_caller(sleep_on);
    pl_leave();
    if (produced && atomic_load_explicit(&pl_engine.n_queued, memory_order_relaxed) >= AHEAD_OPS)
        pl_thread_pool_help(few_queued, NULL);
    return PL_OK;
}

/* ---- limits ----------------------------------------------------------------------------------------------- */

void pl_engine_set_limits(int64_t n_ops, size_t pending_bytes)
{
    pl_enter();
    if (n_ops > 0)
        max_queued = n_ops;
    if (pending_bytes > 0)
        max_pending_bytes = pending_bytes;
    pl_leave();
}

void pl_engine_set_patience(int timeout_ms)
{
    pl_enter();
    patience_ms = timeout_ms;
    pl_leave();
}

int64_t pl_engine_pending(void)
{
    pl_enter();
    int64_t n = pl_engine.n_pending;
    pl_leave();
    return n;
}
