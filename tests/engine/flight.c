/* Operations in flight: several in one lane, their order, deadlines, cancels, aborts; failed allocations. */
#include "driver.h"
#include "engine/core/flight.h"
#include "engine/core/profiler.h"

#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- rules ------------------------------------------------------------------------------------------------ */

/* A polled function that ends when its gate is open. */
typedef struct {
    atomic_bool *gate;
    atomic_int n_calls, n_cancels, n_freed, inside, started_as;
    int cancel_status;
    const char *cancel_text;
    uintptr_t waits_for;
} flight;

static atomic_int n_started;

static int flight_run(void *arg)
{
    flight *f = arg;
    CHECK(atomic_exchange(&f->inside, 1) == 0 && !atomic_load(&f->n_cancels));
    if (atomic_fetch_add(&f->n_calls, 1) == 0)
        atomic_store(&f->started_as, atomic_fetch_add(&n_started, 1));
    int status = atomic_load(f->gate) ? PL_OK : PL_PENDING;
    if (f->waits_for && wait_read(f->waits_for) != PL_OK)
        status = PL_FAILED;
    atomic_store(&f->inside, 0);
    return status;
}

static int flight_cancel(void *arg)
{
    flight *f = arg;
    CHECK(atomic_load(&f->inside) == 0 && !atomic_load(&f->n_freed));
    atomic_fetch_add(&f->n_cancels, 1);
    if (f->cancel_text)
        pl_fail(PL_EINDEX, f->cancel_text);
    return f->cancel_status;
}

static void flight_free(void *arg) { atomic_fetch_add(&((flight *)arg)->n_freed, 1); }

static void fly(flight *f, uintptr_t read, uintptr_t write, uintptr_t order, int lane, int priority, double deadline_s)
{
    CHECK(pl_push_polled(flight_run, flight_cancel, f, flight_free, &read, read != 0, &write, write != 0, order, lane,
                         0, priority, deadline_s, "flight", 7) == PL_OK);
}

static void until(atomic_int *count, int n)
{
    for (int64_t start_ns = pl_profiler_now(); atomic_load(count) < n; sched_yield())
        CHECK(pl_profiler_now() - start_ns < (int64_t)20e9);
}

static void rule_many_in_one_lane(void)
{
    enum { N = 5 };
    flight flights[N] = {0};
    uintptr_t vars[N];
    atomic_bool gates[N] = {false};
    for (int i = 0; i < N; i++) {
        flights[i].gate = &gates[i];
        fly(&flights[i], 0, vars[i] = array_of(0), 0, PL_LANE_COMM, 0, 0);
    }
    for (int i = 0; i < N; i++)
        until(&flights[i].n_calls, 3);        /* all are polled, none is done */
    uintptr_t other = array_of(0);            /* and the lane does other work */
    CHECK(pl_push(pl_noop, NULL, NULL, NULL, 0, &other, 1, PL_LANE_COMM, 0, 0, "noop", 1) == PL_OK);
    CHECK(wait_read(other) == PL_OK);
    for (int i = N - 1; i >= 0; i--) {        /* they end in another order than they began */
        CHECK(pl_wait_read(vars[i], 0) == PL_AGAIN);
        atomic_store(&gates[i], true);
        CHECK(wait_read(vars[i]) == PL_OK && pl_array_version(vars[i]) == 1);
        pl_array_free(vars[i]);
    }
    report_all();
    for (int i = 0; i < N; i++)
        CHECK(flights[i].n_freed == 1 && flights[i].n_cancels == 0);
    pl_array_free(other);
}

/* ordered: the first is ready last, and yet starts first. */
static void rule_order(bool ordered)
{
    static const int priorities[] = {0, 5, -1, 5}, by_priority[] = {2, 0, 3, 1};
    enum { N = 4 };
    flight flights[N] = {0}, blocker = {0};
    atomic_bool open = true, held = false;
    uintptr_t gate = array_of(0), order = ordered ? pl_array_new(0) : 0;
    blocker.gate = &held;
    fly(&blocker, 0, gate, 0, PL_LANE_IO, 0, 0);
    until(&blocker.n_calls, 1);
    atomic_store(&n_started, 0);
    for (int i = 0; i < N; i++) {
        flights[i].gate = &open;
        fly(&flights[i], i == 0 || !ordered ? gate : 0, 0, order, PL_LANE_COMM, priorities[i], 0);
    }
    atomic_store(&held, true);
    report_all();
    for (int i = 0; i < N; i++)
        CHECK(flights[i].started_as == (ordered ? i : by_priority[i]));
    pl_array_free(gate);
    pl_array_free(order);
}

/* Of those in flight the one with the highest priority is polled first, though it started last. */
typedef struct { atomic_bool *open; bool opens; atomic_int n_calls, ended_as; } ranked;
static atomic_bool may_open;
static atomic_int n_ended;

static int ranked_run(void *arg)
{
    ranked *r = arg;
    atomic_fetch_add(&r->n_calls, 1);
    if (r->opens && atomic_load(&may_open))
        atomic_store(r->open, true);          /* the others end in the order in which they are polled next */
    if (!atomic_load(r->open))
        return PL_PENDING;
    atomic_store(&r->ended_as, atomic_fetch_add(&n_ended, 1));
    return PL_OK;
}

static void rule_polled_by_priority(void)
{
    static const int priorities[] = {0, -3, 2, 2, -3, 9}, expected[] = {3, 4, 1, 2, 5, 0};
    enum { N = 6 };
    ranked flights[N] = {0};
    atomic_bool open = false;
    atomic_store(&may_open, false);
    atomic_store(&n_ended, 0);
    for (int i = 0; i < N; i++) {
        flights[i] = (ranked){.open = &open, .opens = i == N - 1};
        CHECK(pl_push_polled(ranked_run, NULL, &flights[i], NULL, NULL, 0, NULL, 0, 0, PL_LANE_COMM, 0, priorities[i],
                             0, "ranked", 7) == PL_OK);
        until(&flights[i].n_calls, 2);        /* it is in flight before the next one */
    }
    atomic_store(&may_open, true);
    report_all();
    for (int i = 0; i < N; i++)
        CHECK(flights[i].ended_as == expected[i]);
}

/* With a common order they are in flight together; an op that claims the same var as an array is not. */
static void rule_order_ends_at_the_start(void)
{
    atomic_bool open = false;
    flight a = {.gate = &open}, b = {.gate = &open}, c = {.gate = &open};
    uintptr_t order = pl_array_new(0);
    fly(&a, 0, 0, order, PL_LANE_COMM, 0, 0);
    fly(&b, 0, 0, order, PL_LANE_COMM, 0, 0);
    until(&b.n_calls, 2);
    CHECK(pl_array_version(order) == 2);
    fly(&c, 0, order, order, PL_LANE_COMM, 0, 0);
    until(&c.n_calls, 2);
    CHECK(pl_array_version(order) == 2 && pl_wait_read(order, 0) == PL_AGAIN);
    atomic_store(&open, true);
    CHECK(wait_read(order) == PL_OK && pl_array_version(order) == 3);
    report_all();
    pl_array_free(order);
}

static void rule_deadline(const char *cancel_text)
{
    atomic_bool never = false;
    flight f = {.gate = &never, .cancel_text = cancel_text};
    uintptr_t in = array_of(1), out = array_of(2), after = array_of(3);
    fly(&f, in, out, 0, PL_LANE_COMM, 0, 1e-3);
    CHECK(pl_push(pl_noop, NULL, NULL, &out, 1, &after, 1, PL_LANE_CPU, 0, 0, "after", 9) == PL_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(wait_read(i ? after : out) == PL_FAILED && pl_error_location() == 7);
        CHECK(strcmp(pl_error_name(), "flight") == 0);
        CHECK(cancel_text ? pl_error_status() == PL_EINDEX && strcmp(pl_error_message(), cancel_text) == 0
                          : pl_error_status() == PL_ETIMEOUT && strstr(pl_error_message(), "its deadline is 0.001 s"));
    }
    CHECK(wait_read(in) == PL_OK);
    report_all();
    CHECK(f.n_cancels == 1 && f.n_freed == 1 && f.n_calls >= 1);
    CHECK(pl_push(pl_noop, NULL, NULL, NULL, 0, &out, 1, PL_LANE_CPU, 0, 0, "heals", 9) == PL_OK);
    CHECK(wait_read(out) == PL_OK);
    uintptr_t all[] = {in, out, after};
    for (int i = 0; i < 3; i++)
        pl_array_free(all[i]);
}

/* A cancel that cannot give up its memory: that is never used again. */
static void rule_memory_is_kept(void)
{
    atomic_bool never = false;
    flight f = {.gate = &never, .cancel_status = PL_PENDING};
    pl_storage_stats before, after;
    uintptr_t out = pl_array_new(1 << 16);
    pl_storage_get_stats(&before);
    void *data = pl_array_data(out);
    fly(&f, 0, out, 0, PL_LANE_COMM, 0, 1e-3);
    CHECK(wait_read(out) == PL_FAILED && pl_error_status() == PL_ETIMEOUT);
    CHECK(pl_push(pl_noop, NULL, NULL, NULL, 0, &out, 1, PL_LANE_CPU, 0, 0, "n", 1) == PL_EINVAL);
    CHECK(strstr(pl_error_message(), "may still write this array"));
    pl_array_free(out);
    report_all();
    pl_storage_get_stats(&after);
    CHECK(after.used_bytes == before.used_bytes && f.n_freed == 1);
    uintptr_t other = pl_array_new(1 << 16);
    CHECK(pl_array_data(other) != data);
    pl_array_free(other);
}

static void rule_abort(void)
{
    enum { N = 3 };
    atomic_bool never = false, open = true;
    flight flights[N] = {0}, done = {.gate = &open}, later = {.gate = &open}, elsewhere = {.gate = &never};
    uintptr_t vars[N], gate = array_of(0), later_gate = array_of(0), queued = array_of(0);
    atomic_bool held = false, later_held = false;
    flight blocker = {.gate = &held}, later_blocker = {.gate = &later_held};
    flight waits = {.gate = &never}, unseen = {.gate = &never};
    fly(&elsewhere, 0, 0, 0, PL_LANE_CPU, 0, 0.05);
    fly(&blocker, 0, gate, 0, PL_LANE_IO, 0, 0);
    fly(&later_blocker, 0, later_gate, 0, PL_LANE_IO, 0, 0);
    for (int i = 0; i < N; i++) {
        flights[i].gate = &never;
        fly(&flights[i], 0, vars[i] = array_of(0), 0, PL_LANE_COMM, 0, 0);
    }
    fly(&done, gate, 0, 0, PL_LANE_COMM, 0, 0);
    fly(&waits, gate, queued, 0, PL_LANE_COMM, 0, 0);   /* it would go into flight after the abort */
    fly(&unseen, later_gate, 0, 0, PL_LANE_COMM, 0, 0);
    for (int i = 0; i < N; i++)
        until(&flights[i].n_calls, 1);
    pl_fail(PL_EINDEX, "rank 3 is gone");
    CHECK(pl_flight_abort(PL_LANE_COMM, 0) == PL_OK);
    fly(&later, 0, 0, 0, PL_LANE_COMM, 0, 0);
    for (int i = 0; i < N; i++)
        CHECK(wait_read(vars[i]) == PL_FAILED && pl_error_status() == PL_EINDEX && pl_error_location() == 7 &&
              strcmp(pl_error_message(), "rank 3 is gone") == 0);
    atomic_store(&held, true);
    CHECK(wait_read(gate) == PL_OK && wait_read(queued) == PL_FAILED && pl_error_status() == PL_EINDEX);
    atomic_store(&later_held, true);
    int status;
    while ((status = pl_wait_all(1000)) == PL_AGAIN) {}
    CHECK(status == PL_FAILED && pl_error_status() == PL_ETIMEOUT);     /* of another lane; the abort was reported */
    while ((status = pl_wait_all(1000)) == PL_AGAIN) {}
    CHECK(status == PL_OK && done.n_cancels == 0 && later.n_cancels == 0 && waits.n_cancels == 1 &&
          unseen.n_cancels == 1);
    for (int i = 0; i < N; i++) {
        CHECK(flights[i].n_cancels == 1 && flights[i].n_freed == 1);
        pl_array_free(vars[i]);
    }
    CHECK(pl_flight_abort(PL_LANE_COUNT, 0) == PL_FAILED);
    pl_array_free(gate);
    pl_array_free(later_gate);
    pl_array_free(queued);
}

/* A polled function that waits: for work of its own lane, and for another one in flight. */
static int waits_inside(void *arg)
{
    atomic_bool open = true;
    flight inner = {.gate = &open};
    uintptr_t plain = array_of(0), flying = array_of(0);
    flight *f = arg;
    CHECK(atomic_exchange(&f->inside, 1) == 0);
    CHECK(pl_push(pl_noop, NULL, NULL, NULL, 0, &plain, 1, PL_LANE_COMM, 0, 0, "plain", 1) == PL_OK);
    fly(&inner, 0, flying, 0, PL_LANE_COMM, 0, 0);
    CHECK(wait_read(plain) == PL_OK && wait_read(flying) == PL_OK && inner.n_freed == 1);
    pl_array_free(plain);
    pl_array_free(flying);
    atomic_store(&f->inside, 0);
    return atomic_fetch_add(&f->n_calls, 1) < 3 ? PL_PENDING : PL_OK;
}

static int waits_for_itself(void *arg)
{
    uintptr_t var = pl_array_new(0), own = (uintptr_t)arg;
    CHECK(wait_read(own) == PL_OK);           /* its own claim is ready */
    CHECK(pl_push(pl_noop, NULL, NULL, &own, 1, &var, 1, PL_LANE_COMM, 0, 0, "after", 1) == PL_OK);
    int status = wait_read(var);
    pl_array_free(var);
    return status == PL_OK ? PL_OK : pl_fail(status, "stuck");
}

static void rule_waits_inside(void)
{
    enum { N = 4 };
    flight flights[N] = {0};
    uintptr_t vars[N], own = array_of(0);
    for (int i = 0; i < N; i++) {
        vars[i] = array_of(0);
        CHECK(pl_push_polled(waits_inside, NULL, &flights[i], flight_free, NULL, 0, &vars[i], 1, 0, PL_LANE_COMM, 0, 0,
                             0, "waits", 1) == PL_OK);
    }
    for (int i = 0; i < N; i++) {
        CHECK(wait_read(vars[i]) == PL_OK && flights[i].n_calls == 4);
        pl_array_free(vars[i]);
    }
    CHECK(pl_push_polled(waits_for_itself, NULL, (void *)own, NULL, NULL, 0, &own, 1, 0, PL_LANE_COMM, 0, 0, 0, "self",
                         1) == PL_OK);
    CHECK(wait_read(own) == PL_FAILED && strcmp(pl_error_message(), "stuck") == 0);
    pl_array_free(own);
    report_all();
}

/* An op waits for one in flight of another lane: somebody can end that wait, though no thread is active. */
static void rule_in_flight_can_end(void)
{
    atomic_bool open = false, also = true;
    uintptr_t flying = array_of(0), out = array_of(0);
    flight f = {.gate = &open}, waits = {.gate = &also, .waits_for = flying};
    fly(&f, 0, flying, 0, PL_LANE_COMM, 0, 0);
    until(&f.n_calls, 1);
    fly(&waits, 0, out, 0, PL_LANE_IO, 0, 0);
    until(&waits.n_calls, 1);
    until(&f.n_calls, f.n_calls + 20);
    atomic_store(&open, true);
    CHECK(wait_read(out) == PL_OK);
    report_all();
    pl_array_free(flying);
    pl_array_free(out);
}

static int never_done(void *arg)
{
    (void)arg;
    return PL_PENDING;
}

static void rule_wrong_calls(void)
{
    uintptr_t var = array_of(0);
    CHECK(pl_push_polled(never_done, NULL, NULL, NULL, NULL, 0, &var, 1, 0, PL_LANE_GPU_COMM, 0, 0, 0, "gpu", 1) ==
          PL_FAILED && strstr(pl_error_message(), "can be polled"));
    CHECK(pl_push_polled(never_done, NULL, NULL, NULL, NULL, 0, &var, 1, 0, PL_LANE_COUNT, 0, 0, 0, "no", 1) ==
          PL_FAILED && strstr(pl_error_message(), "no such lane"));
    CHECK(pl_push(never_done, NULL, NULL, NULL, 0, &var, 1, PL_LANE_COMM, 0, 0, "plain", 1) == PL_OK);
    CHECK(wait_read(var) == PL_FAILED && strstr(pl_error_message(), "only an operation that is polled"));
    CHECK(pl_engine_pending() == 0);
    pl_array_free(var);
    report_all();
}

static int progressing(void *arg)
{
    pl_flight_progressed();
    return atomic_fetch_add((atomic_int *)arg, 1) < 50 ? PL_PENDING : PL_OK;
}

static void rule_profile(void)
{
    atomic_int n_calls = 0;
    pl_event events[64];
    pl_profiler_set(1);
    CHECK(pl_push_polled(progressing, NULL, &n_calls, NULL, NULL, 0, NULL, 0, 0, PL_LANE_COMM, 0, 0, 0, "profiled",
                         1) == PL_OK);
    report_all();
    pl_profiler_set(0);
    int64_t n = pl_profiler_take(events, 64);
    while (n > 0 && events[0].kind == PL_EVENT_WAIT)
        events[0] = events[--n];
    CHECK(n >= 1 && events[0].kind == PL_EVENT_FLIGHT && strcmp(events[0].name, "profiled") == 0);
    CHECK(events[0].polled_ns > 0 && events[0].polled_ns < events[0].end_ns - events[0].start_ns);
}

static int counts(void *arg)
{
    atomic_fetch_add(&((flight *)arg)->n_calls, 1);
    return PL_PENDING;
}

/* What has a deadline, or ends, is waited for; the rest goes on in the parent. */
static void rule_fork(void)
{
    atomic_bool open = false;
    flight f = {.gate = &open}, endless = {.gate = &open}, ends = {.gate = &open};
    uintptr_t a = array_of(0), b = array_of(0), c = array_of(0);
    fly(&f, 0, a, 0, PL_LANE_COMM, 0, 1.2);   /* longer than a fork waits for what has none */
    pl_engine_fork_begin();
    CHECK(pl_wait_read(a, 0) == PL_FAILED && pl_error_status() == PL_ETIMEOUT && f.n_freed == 1);
    pl_engine_fork_end();
    CHECK(pl_push_polled(counts, flight_cancel, &endless, flight_free, NULL, 0, &b, 1, 0, PL_LANE_COMM, 0, 0, 0,
                         "endless", 1) == PL_OK);
    fly(&ends, 0, c, 0, PL_LANE_COMM, 0, 0);
    until(&ends.n_calls, 1);
    pl_engine_fork_begin();
    pid_t child = fork();
    CHECK(child >= 0);
    pl_engine_fork_end();
    if (child == 0) {
        uintptr_t d = array_of(0);
        atomic_store(&open, true);
        flight mine = {.gate = &open};
        fly(&mine, 0, d, 0, PL_LANE_COMM, 0, 0);
        bool good = wait_read(d) == PL_OK && wait_read(c) == PL_FAILED && strstr(pl_error_message(), "forked");
        _exit(good ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    until(&endless.n_calls, endless.n_calls + 3);
    atomic_store(&open, true);
    CHECK(wait_read(c) == PL_OK);
    pl_fail(PL_FAILED, "enough");
    CHECK(pl_flight_abort(PL_LANE_COMM, 0) == PL_OK && wait_read(b) == PL_FAILED);
    report_all();
    uintptr_t all[] = {a, b, c};
    for (int i = 0; i < 3; i++)
        pl_array_free(all[i]);
}

static pthread_t first_caller, last_caller;

static int note_thread(void *arg)
{
    int n = atomic_fetch_add((atomic_int *)arg, 1);
    *(n ? &last_caller : &first_caller) = pthread_self();
    return n < 3 ? PL_PENDING : PL_OK;
}

/* A thread that runs its ops itself starts one, and its lane polls it. */
static void rule_inline(void)
{
    atomic_int n_calls = 0;
    uintptr_t out = array_of(0);
    pl_engine_stop();                         /* the lane has no thread yet */
    pl_engine_set_inline(1);
    CHECK(pl_push_polled(note_thread, NULL, &n_calls, NULL, NULL, 0, &out, 1, 0, PL_LANE_COMM, 0, 0, 0, "inline", 1) ==
          PL_OK);
    pl_engine_set_inline(0);
    CHECK(wait_read(out) == PL_OK && n_calls == 4 && pl_array_version(out) == 1);
    CHECK(pthread_equal(first_caller, pthread_self()) && !pthread_equal(last_caller, pthread_self()));
    pl_array_free(out);
    report_all();
}

static void rule_naive(void)
{
    atomic_int n_calls = 0;
    atomic_bool never = false;
    flight late = {.gate = &never};
    uintptr_t out = array_of(0), own = array_of(0);
    pl_engine_set_naive(1);
    CHECK(pl_push_polled(progressing, NULL, &n_calls, NULL, NULL, 0, &out, 1, 0, PL_LANE_COMM, 0, 0, 0, "naive", 1) ==
          PL_OK);
    CHECK(n_calls == 51 && pl_engine_pending() == 0 && pl_wait_read(out, 0) == PL_OK);
    fly(&late, 0, out, 0, PL_LANE_COMM, 0, 1e-3);
    CHECK(late.n_freed == 1 && late.n_cancels == 1 && pl_wait_read(out, 0) == PL_FAILED);
    rule_waits_inside();
    rule_deadline(NULL);
    rule_deadline("rank 1 did not answer");
    pl_engine_set_naive(0);
    pl_array_free(out);
    pl_array_free(own);
    report_all();
}

void flight_rules(void)
{
    rule_many_in_one_lane();
    rule_order(false);
    rule_order(true);
    rule_polled_by_priority();
    rule_order_ends_at_the_start();
    rule_deadline(NULL);
    rule_deadline("rank 1 did not answer");
    rule_memory_is_kept();
    rule_abort();
    rule_waits_inside();
    rule_in_flight_can_end();
    rule_wrong_calls();
    rule_profile();
    rule_fork();
    rule_inline();
    rule_naive();
}

/* ---- allocation failures ---------------------------------------------------------------------------------- */

/* In naive mode, so that all is allocated by this thread. */
bool flight_memory(void)
{
    atomic_bool open = true, never = false;
    flight good = {.gate = &open}, late = {.gate = &never};
    uintptr_t out = pl_array_new(8), order = pl_array_new(0), none = 0;
    bool all = out && order;
    pl_engine_set_naive(1);
    flight *flights[] = {&good, &late};
    for (int i = 0; i < 2 && out && order; i++) {
        int status = pl_push_polled(flight_run, flight_cancel, flights[i], flight_free, &none, 0, &out, 1, order,
                                    PL_LANE_COMM, 3, 0, 1e-5, "flight", 7);
        CHECK(flights[i]->n_freed == (status == PL_OK));
        all &= status == PL_OK;
        if (status == PL_OK)                  /* the poison is there even if there was no memory for its text */
            CHECK(wait_read(out) == (i ? PL_FAILED : PL_OK));
    }
    pl_fail(PL_FAILED, "over");
    all &= pl_flight_abort(PL_LANE_COMM, 3) == PL_OK;
    pl_engine_set_naive(0);
    pl_array_free(out);
    pl_array_free(order);
    return all;
}
