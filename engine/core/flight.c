/* Operations in flight: their list, naps between polls, deadlines, aborts. Their lanes poll them (lane.c), by
 * pl_op_poll (engine.c). */
#include "flight.h"
#include "profiler.h"
#include "wait.h"

#include <stdio.h>

enum { NAP_MIN_NS = 20000, NAP_MAX_NS = 1000000, NAP_SHARE = 8, GAPS = 4, GAP_SHARE = 4 };
enum { LAST_S = 5 };            /* deadline at exit of ops that have none */

static _Atomic int64_t last_ns = INT64_MAX;   /* when that deadline ends */
static pl_object *pinned;                       /* vars whose memory must never be used again; under pl_lock */
static _Thread_local bool progressed;
static _Thread_local int64_t alive_ns;

int pl_flight_prepare(pl_op *op, int lane, int device)
{
    if (pl_lane_is_gpu(lane))
        return pl_fail(PL_EINVAL, "engine: only operations of the lanes cpu, io and comm can be polled");
    op->flight->lane = pl_lane_find(lane, device);
    if (!op->flight->lane)
        return PL_FAILED;
    op->flight->n_aborts = pl_lane_flights(op->flight->lane)->n_aborts;
    return PL_OK;
}

/* ---- the list --------------------------------------------------------------------------------------------- */

void pl_flight_put(pl_op *op)
{
    pl_flights *f = pl_lane_flights(op->lane);
    bool starts = op->flight->start_ns == 0;
    pl_op **at = f->head && !starts ? &f->tail->next : &f->head;
    while (starts && *at && (*at)->priority >= op->priority)
        at = &(*at)->next;
    op->next = *at;
    *at = op;
    if (!op->next)
        f->tail = op;
    f->n_listed++;
    pl_engine.n_flying++;
    if (!starts)
        return;
    op->flight->start_ns = f->progress_ns = pl_profiler_now();          /* STATE: running -> in flight */
    if (f->n++ == 0)
        f->gap_ns = 0;
    if (f->n_listed == 1 || f->poll_ns > f->progress_ns + NAP_MIN_NS)
        f->poll_ns = f->progress_ns + NAP_MIN_NS;
}

void pl_flights_poll(pl_flights *f)
{
    progressed = false;
    for (int left = f->n_listed; left > 0 && f->head; left--) {
        pl_op *op = f->head;
        f->head = op->next;
        f->n_listed--;
        pl_engine.n_flying--;
        if (pl_op_poll(op)) {                 /* STATE: in flight -> done */
            f->n--;
            progressed = true;
        }
    }
    int64_t now = pl_profiler_now();
    f->progressed = progressed;
    if (progressed) {
        f->gap_ns += (now - f->progress_ns - f->gap_ns) / GAPS;
        f->progress_ns = now;
    }
    int64_t nap_ns = (now - f->progress_ns) / NAP_SHARE;
    if (nap_ns < f->gap_ns / GAP_SHARE)
        nap_ns = f->gap_ns / GAP_SHARE;
    f->poll_ns = now + (nap_ns < NAP_MIN_NS ? NAP_MIN_NS : nap_ns > NAP_MAX_NS ? NAP_MAX_NS : nap_ns);
}

void pl_flights_hurry(pl_flights *f)
{
    f->poll_ns = f->progress_ns = pl_profiler_now();
    f->gap_ns = 0;
}

int64_t pl_flights_nap_ns(const pl_flights *f)
{
    if (f->n_listed || !f->n)
        return f->n ? f->poll_ns : INT64_MAX;
    return pl_profiler_now() + NAP_MAX_NS;    /* another thread polls them at the moment */
}

void pl_flight_progressed(void) { progressed = true; }

void pl_flight_alive(int64_t at_ns) { alive_ns = at_ns; }

int pl_flight_run(pl_op *op)
{
    int64_t outer_ns = alive_ns;              /* of a function that waits inside, and polls this one */
    alive_ns = op->flight->alive_ns;
    int status = op->run(op);
    op->flight->alive_ns = alive_ns;
    alive_ns = outer_ns;
    return status;
}

/* ---- deadlines and aborts --------------------------------------------------------------------------------- */

void pl_flight_last_call(void) { last_ns = pl_profiler_now() + (int64_t)LAST_S * 1000000000; }

int64_t pl_flight_end_ns(const pl_op *op)
{
    double deadline_ns = op->flight->deadline_s * 1e9;
    if (deadline_ns <= 0)
        return last_ns;
    const pl_flight *f = op->flight;
    int64_t since_ns = f->alive_ns > f->start_ns ? f->alive_ns : f->start_ns;
    return deadline_ns < 1e18 ? since_ns + (int64_t)deadline_ns : INT64_MAX;
}

pl_error *pl_flight_aborted(const pl_op *op)
{
    pl_flights *f = pl_lane_flights(op->flight->lane);
    if (f->n_aborts == op->flight->n_aborts)
        return NULL;
    pl_error_ref(f->abort_error);
    return f->abort_error;
}

int pl_flight_abort(int lane, int device)
{
    int status = pl_error_status();
    pl_error *error = pl_error_new(status == PL_OK ? PL_FAILED : status, NULL, -1), *before = NULL;
    pl_enter();
    pl_lane *home = pl_lane_find(lane, device);
    if (home) {
        pl_flights *f = pl_lane_flights(home);
        before = f->abort_error;
        f->abort_error = error;
        f->n_aborts++;
        pl_lane_hurry_all();
    } else {
        before = error;
    }
    if (before)
        pl_error_unref(before);
    pl_leave();
    return home ? PL_OK : PL_FAILED;
}

static bool is_pinned(const pl_object *object)
{
    const pl_object *at = pinned;
    while (at && at != object)
        at = at->next_dead;
    return at != NULL;
}

/* Pins the memory of the op's arrays: something outside the engine may still use it. */
static void memory_pin(pl_op *op)
{
    pl_enter();
    for (int i = 0; i < op->n_requests; i++) {
        pl_var *v = op->requests[i].var;
        if (!v)
            continue;
        v->read_only |= op->requests[i].mode != PL_READ;
        if (is_pinned(&v->object))
            continue;
        v->object.refs++;
        v->object.next_dead = pinned;
        pinned = &v->object;
    }
    pl_leave();
}

static void format_deadline(const pl_op *op, char *text, size_t max)
{
    const char *name = op->name ? op->name : "operation";
    double waited_s = (double)(pl_profiler_now() - op->flight->start_ns) * 1e-9;
    if (op->flight->deadline_s > 0)
        snprintf(text, max, "%s: not done %.3g s after it started, and its deadline is %.3g s", name, waited_s,
                 op->flight->deadline_s);
    else
        snprintf(text, max, "%s: not done %.3g s after it started, when the process ended"
                 "\n  fix: wait for it before the end, or give it a deadline", name, waited_s);
}

pl_error *pl_flight_give_up(pl_op *op, pl_error *error)
{
    char text[256];
    if (pl_failed)
        pl_fail_forget();
    int status = op->flight->cancel ? op->flight->cancel(op) : PL_OK;
    if (!error) {
        if (!pl_failed) {
            format_deadline(op, text, sizeof text);
            pl_fail(PL_ETIMEOUT, text);
        }
        error = pl_error_new(pl_error_status(), op->name, op->location);
    }
    if (status == PL_PENDING)
        memory_pin(op);
    pl_enter();
    pl_error_share(error, op->name, op->location);
    pl_leave();
    return error;
}
