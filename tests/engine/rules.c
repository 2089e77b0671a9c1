/* What the engine promises, a function for each rule: order, errors, owners, programs, fork, bad calls. */
#include "driver.h"
#include "engine/core/name.h"
#include "engine/core/profiler.h"
#include "engine/core/random.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int gate, order[16], n_order;
static atomic_int released;

static int wait_gate(void *arg)
{
    (void)arg;
    while (!atomic_load(&gate)) {}
    return PL_OK;
}

static int note_order(void *arg)
{
    int at = atomic_fetch_add(&n_order, 1);
    atomic_store(&order[at], (int)(intptr_t)arg);
    return PL_OK;
}

static void push(pl_fn fn, void *arg, uintptr_t read, uintptr_t write, int lane, int priority)
{
    CHECK(pl_push(fn, arg, NULL, &read, read != 0, &write, write != 0, lane, 0, priority, "fn", 7) == PL_OK);
}

static void rule_priorities(void)
{
    static const int expected[] = {5, 5, 1, 0, 0, -2};
    int pushed[] = {0, 5, -2, 1, 0, 5};
    atomic_store(&gate, 0);
    atomic_store(&n_order, 0);
    uintptr_t vars[6];
    push(wait_gate, NULL, 0, 0, PL_LANE_IO, 9);
    for (int i = 0; i < 6; i++) {
        vars[i] = pl_array_new(0);
        push(note_order, (void *)(intptr_t)pushed[i], 0, vars[i], PL_LANE_IO, pushed[i]);
    }
    atomic_store(&gate, 1);
    CHECK(wait_all() == PL_OK && atomic_load(&n_order) == 6);
    for (int i = 0; i < 6; i++) {
        CHECK(atomic_load(&order[i]) == expected[i]);
        pl_array_free(vars[i]);
    }
}

static int fails(void *arg)
{
    (void)arg;
    return pl_fail(PL_FAILED, "the function says no");
}

static void rule_errors(void)
{
    uintptr_t bad = plan_of(fails_run, 1, 0, 0), add = plan_of(add_run, 2, 0, 0), x = double_array(1);
    uintptr_t y = pl_invoke1(bad, x, 0), z = pl_invoke2(add, x, y), part = pl_array_view(y, 0);
    CHECK(y && z);
    for (int i = 0; i < 2; i++) {             /* at every wait, on whatever depends on it */
        CHECK(wait_read(y) == PL_FAILED && strcmp(pl_error_message(), "the kernel says no") == 0);
        CHECK(wait_read(z) == PL_FAILED && strcmp(pl_error_name(), "kernel") == 0);
        CHECK(wait_read(part) == PL_FAILED && pl_array_poisoned(part));
    }
    CHECK(wait_all() == PL_OK);               /* it was reported */
    CHECK(pl_invoke(add, (uintptr_t[]){x, x}, &y, NULL, 3) == PL_OK);
    CHECK(double_value(y) == 2.0 && !pl_array_poisoned(part));      /* overwritten: healed; z is not */
    CHECK(wait_read(z) == PL_FAILED);
    pl_array_overwritten(z);
    CHECK(wait_read(z) == PL_OK);
    uintptr_t more[2] = {pl_invoke1(bad, x, 0), pl_invoke1(bad, x, 0)};
    pl_array_free(more[0]);                   /* an error outlives its array until it is reported */
    CHECK(wait_all() == PL_FAILED && wait_all() == PL_FAILED && wait_all() == PL_OK);
    uintptr_t pair = pl_array_new(2 * sizeof(double));          /* writing a part does not heal the whole */
    CHECK(pl_push(fails, NULL, NULL, NULL, 0, &pair, 1, 0, 0, 0, "f", 1) == PL_OK);
    CHECK(pl_invoke(add, (uintptr_t[]){x, x}, &pair, NULL, 3) == PL_OK && wait_read(pair) == PL_FAILED);
    uintptr_t all[] = {x, y, z, part, more[1], pair};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pl_array_free(all[i]);
    pl_plan_free(bad);
    pl_plan_free(add);
    char huge[20000];
    memset(huge, 'a', sizeof huge - 1);
    memcpy(huge + sizeof huge - 4, "end", 4);
    pl_fail(PL_FAILED, huge);
    const char *kept = pl_error_message();
    CHECK(strlen(kept) < 8192 && strstr(kept, "\n  ...\n") && strstr(kept, "aend"));
}

static void note_release(void *owner)
{
    (void)owner;
    CHECK(pl_engine_pending() >= 0);          /* deadlocks if it is called with the lock */
    atomic_fetch_add(&released, 1);
}

static void rule_foreign(void)
{
    double mine = 4;
    atomic_store(&released, 0);
    uintptr_t add = plan_of(add_run, 2, 0, 0), a = pl_array_wrap(&mine, sizeof mine, note_release, NULL);
    uintptr_t b = pl_invoke2(add, a, a), view = pl_array_view(a, 0);
    pl_array_free(a);
    CHECK(double_value(b) == 8.0 && atomic_load(&released) == 0 && pl_array_shares(view, view));
    pl_array_free(view);
    wait_all();
    pl_engine_stop();                         /* the release may have been the worker's */
    CHECK(atomic_load(&released) == 1);
    pl_plan_free(add);                        /* the plan outlives its pending ops */
    pl_array_free(b);
    a = pl_array_wrap(&mine, sizeof mine, NULL, NULL);
    pl_array_free(a);
}

static uintptr_t inner_var;

static int inner_run(void *arg)
{
    (void)arg;
    uintptr_t var = pl_array_new(0);
    push(pl_noop, NULL, 0, var, PL_LANE_IO, 0);
    int status = wait_read(var);              /* on the worker's own lane */
    pl_array_free(var);
    return status;
}

static int inner_elsewhere_run(void *arg)
{
    (void)arg;
    uintptr_t var = pl_array_new(0);
    push(pl_noop, NULL, 0, var, PL_LANE_CPU, 0);
    int status = wait_read(var);
    pl_array_free(var);
    return status;
}

/* Between the end of what a worker waits for and its waking, nobody runs: that is not a wait that cannot end. */
static void rule_woken_is_active(void)
{
    uintptr_t var = pl_array_new(0);
    for (int i = 0; i < 300; i++) {
        push(inner_elsewhere_run, NULL, 0, var, PL_LANE_IO, 0);
        int status;
        while ((status = pl_wait_read(var, 0)) == PL_AGAIN) {}
        CHECK(status == PL_OK);
    }
    pl_array_free(var);
}

static int writes_undeclared(void *arg)
{
    CHECK(pl_wait_read((uintptr_t)arg, 0) == PL_OK);
    return pl_wait_write((uintptr_t)arg, 1000) == PL_EINVAL ? PL_OK : pl_fail(PL_FAILED, "it may write");
}

static int waits_for_itself(void *arg)
{
    uintptr_t var = pl_array_new(0);
    CHECK(wait_read((uintptr_t)arg) == PL_OK);          /* its own claim is ready */
    push(pl_noop, NULL, (uintptr_t)arg, var, PL_LANE_IO, 0);
    int status = wait_read(var);
    CHECK(wait_all() == PL_EINVAL);
    pl_array_free(var);
    return status == PL_OK ? PL_OK : pl_fail(status, "stuck");
}

static void rule_inside(void)
{
    inner_var = pl_array_new(0);
    push(writes_undeclared, (void *)inner_var, inner_var, 0, PL_LANE_IO, 0);
    for (int i = 0; i < 50; i++)
        push(inner_run, NULL, 0, i % 2 ? inner_var : 0, PL_LANE_IO, 0);
    CHECK(wait_read(inner_var) == PL_OK && wait_all() == PL_OK);
    push(waits_for_itself, (void *)inner_var, 0, inner_var, PL_LANE_IO, 0);
    CHECK(wait_read(inner_var) == PL_FAILED && strcmp(pl_error_message(), "stuck") == 0);
    pl_array_free(inner_var);
    report_all();
}

static void *pusher(void *arg)
{
    uintptr_t *vars = arg;
    for (int i = 0; i < 2000; i++)
        CHECK(pl_push(pl_noop, NULL, NULL, vars, 2, vars + 2, 1, i % 3, 0, i % 2, "noop", -1) == PL_OK);
    CHECK(wait_read(vars[2]) == PL_OK);
    return NULL;
}

static void rule_many_threads(void)
{
    enum { N = 4 };
    pthread_t threads[N];
    uintptr_t vars[3] = {pl_array_new(0), pl_array_new(0), pl_array_new(0)};
    pl_engine_set_limits(64, 0);              /* and the producers wait */
    for (int i = 0; i < N; i++)
        CHECK(pthread_create(&threads[i], NULL, pusher, vars) == 0);
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    CHECK(wait_all() == PL_OK && pl_array_version(vars[2]) == N * 2000);
    for (int i = 0; i < 3; i++)
        pl_array_free(vars[i]);
    pl_engine_set_limits(4096, 0);
}

static atomic_int n_inside;
static _Thread_local bool is_waiter;

/* Whether a thread that waits runs this; -1: another one runs ops of the lane too. */
static int where_run(const void *params, void *const *bufs, const double *scalars)
{
    (void)params, (void)scalars;
    int n = atomic_fetch_add(&n_inside, 1) + 1;
    for (volatile int i = 0; i < 60000; i++) {}      /* longer than the worker takes to wake up */
    atomic_fetch_sub(&n_inside, 1);
    *(double *)bufs[1] = n == 1 ? is_waiter : -1;
    return PL_OK;
}

static void *waiter(void *arg)
{
    uintptr_t *plans = arg, a = double_array(1);
    double on_caller = 0;
    is_waiter = true;
    for (int i = 0; i < 300; i++) {
        if (i % 4 == 0)
            usleep(300);                      /* the worker falls asleep */
        uintptr_t brief = pl_invoke1(plans[0], a, 0), next = pl_invoke1(plans[i % 2], brief, 0);
        uintptr_t other = pl_invoke1(plans[1], a, 0);
        if (i % 8 == 7)
            CHECK(pl_wait_all(1000) == PL_OK);
        double of_next = double_value(next), of_brief = double_value(brief), of_other = double_value(other);
        CHECK(of_brief >= 0 && of_next >= 0 && of_other == 0 && (of_next == 0 || i % 2 == 0));
        on_caller += of_brief;
        pl_array_free(brief);
        pl_array_free(next);
        pl_array_free(other);
    }
    pl_array_free(a);
    is_waiter = false;
    return (void *)(uintptr_t)on_caller;
}

/* Whoever waits may run brief ops in the place of a worker that sleeps; one thread at a time, and no other ops. */
static void rule_stand_in(void)
{
    enum { N = 3 };
    pthread_t threads[N];
    uintptr_t plans[] = {plan_of(where_run, 1, 0, PL_PLAN_BRIEF), plan_of(where_run, 1, 0, 0)};
    CHECK(waiter(plans) != NULL);
    for (int i = 0; i < N; i++)
        CHECK(pthread_create(&threads[i], NULL, waiter, plans) == 0);
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    pl_plan_free(plans[0]);
    pl_plan_free(plans[1]);
}

static size_t used_bytes(void)
{
    pl_storage_stats stats;
    pl_storage_get_stats(&stats);
    return stats.used_bytes;
}

/* An array that is written when the gate opens. */
static uintptr_t gated(void)
{
    uintptr_t a = double_array(1);
    atomic_store(&gate, 0);
    push(wait_gate, NULL, 0, a, PL_LANE_IO, 0);
    return a;
}

static void rule_pressure(void)
{
    uintptr_t scale = plan_of(scale_run, 1, 1, 0), first = double_array(1), last = first;
    pl_engine_set_limits(0, 10 * sizeof(double));       /* ten outputs may be in the queue */
    for (int i = 0; i < 500; i++) {
        uintptr_t next = pl_invoke1(scale, last, 1.0);
        CHECK(next && pl_engine_pending() <= 11);
        if (last != first)
            pl_array_free(last);
        last = next;
    }
    CHECK(double_value(last) == 251.0);
    pl_engine_set_limits(0, (size_t)1 << 40);
    pl_array_free(first);
    pl_array_free(last);
    pl_plan_free(scale);
}

/* A new output has no memory before its op runs, unless someone needs its address. */
static void rule_late(void)
{
    enum { N = 100 };
    uintptr_t scale = plan_of(scale_run, 1, 1, 0), bad = plan_of(fails_run, 1, 0, 0), first = gated();
    uintptr_t random = plan_of(random_run, 0, 0, PL_PLAN_RANDOM), add = plan_of(add_run, 2, 0, 0);
    size_t before = used_bytes(), class_bytes;
    pl_size_class(sizeof(double), &class_bytes);
    uintptr_t last = pl_invoke1(scale, first, 1.0);
    for (int i = 1; i < N; i++) {             /* nobody keeps those between */
        uintptr_t next = pl_invoke1(scale, last, 1.0);
        pl_array_free(last);
        last = next;
    }
    uintptr_t fails = pl_invoke1(bad, first, 0), after = pl_invoke2(add, fails, first);
    CHECK(used_bytes() == before);
    uintptr_t shown = pl_invoke1(scale, first, 3.0), view = pl_array_view(shown, 0);
    CHECK(view && used_bytes() == before + class_bytes);
    void *data = pl_array_data(fails);
    CHECK(data && data == pl_array_data(fails) && used_bytes() == before + 2 * class_bytes);
    uintptr_t program = small_program(add, scale, random), in[2] = {first, last}, out[2] = {0, 0};
    CHECK(pl_program_run(program, in, out, NULL, -1) == PL_OK && used_bytes() == before + 2 * class_bytes);
    atomic_store(&gate, 1);
    CHECK(double_value(view) == 3.5 && wait_read(fails) == PL_FAILED && wait_read(after) == PL_FAILED);
    CHECK(double_value(out[0]) == 3 * (1 + 51.0) + 0.5 && double_value(last) == 2 * 156.5);
    CHECK(pl_invoke(add, (uintptr_t[]){first, first}, &after, NULL, -1) == PL_OK && double_value(after) == 2.0);
    uintptr_t all[] = {first, last, fails, after, shown, view, out[0], out[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pl_array_free(all[i]);
    uintptr_t plans[] = {scale, bad, random, add};
    for (int i = 0; i < 4; i++)
        pl_plan_free(plans[i]);
    pl_program_free(program);
}

uintptr_t small_program(uintptr_t add, uintptr_t scale, uintptr_t random)
{
    static const uint8_t modes[] = {PL_READ, PL_READWRITE};
    static const pl_slot slots[] = {{PL_SLOT_INPUT, 0, 0}, {PL_SLOT_INPUT, 1, 0}, {PL_SLOT_ARENA, 0, 64},
                                    {PL_SLOT_ARENA, 0, 64}, {PL_SLOT_OUTPUT, 0, 0},
                                    {PL_SLOT_OUTPUT, 1, 0},
                                    {PL_SLOT_OUTPUT, 0, 0}, {PL_SLOT_OUTPUT, 0, 0}, {PL_SLOT_INPUT, 1, 0}};
    static const double scalars[] = {3.0};
    const uintptr_t plans[] = {add, scale, random, add};
    const size_t out_bytes[] = {sizeof(double), 2 * sizeof(double)};
    return pl_program_new(2, modes, 2, out_bytes, 4, plans, slots, scalars, 128, 0, PL_LANE_CPU, 0, "program");
}

static void rule_programs(void)
{
    uintptr_t add = plan_of(add_run, 2, 0, 0), scale = plan_of(scale_run, 1, 1, 0);
    uintptr_t random = plan_of(random_run, 0, 0, PL_PLAN_RANDOM), p = small_program(add, scale, random);
    CHECK(p);
    pl_plan_free(add);                        /* the program keeps them */
    pl_plan_free(scale);
    pl_plan_free(random);
    pl_seed(42);
    pl_profiler_set(1);
    uintptr_t in[] = {double_array(1), double_array(2)}, out[2] = {0, 0};
    const char *first = pl_name("first"), *other = pl_name("other"), *outer = pl_name("outer");
    pl_profiler_set_layer(outer);
    CHECK(pl_program_set_layers(p, (const char *const[]){first, first, first, first}) == PL_OK);
    for (int i = 0; i < 3; i++) {
        CHECK(pl_program_run(p, in, out, NULL, 5) == PL_OK);
        CHECK(pl_program_set_layers(p, i ? (const char *const[]){first, first, first, first}
                                         : (const char *const[]){NULL, NULL, NULL, other}) == PL_OK);
    }
    pl_profiler_set_layer(NULL);
    pl_program_free(p);
    CHECK(double_value(out[0]) == 366.5);         /* in[1]: 2, 19, 121 */
    CHECK(wait_read(out[1]) == PL_OK);
    double *counter = pl_array_data(out[1]);
    CHECK(counter[0] == 42.0 && counter[1] == 2.0);
    pl_profiler_set(0);
    pl_event events[64];
    int64_t n = pl_profiler_take(events, 64), n_instr = 0, n_ops = 0, n_first = 0, n_other = 0;
    CHECK(pl_profiler_take(events, 64) == 0 && pl_profiler_thread(events[0].thread));
    for (int i = 0; i < n; i++) {
        CHECK(events[i].end_ns >= events[i].start_ns && events[i].start_ns >= events[i].push_ns);
        n_ops += events[i].kind == PL_EVENT_OP && events[i].layer == outer;
        if (events[i].kind != PL_EVENT_INSTRUCTION)
            continue;
        n_instr += strcmp(events[i].label, "()+()") == 0;
        n_first += events[i].layer == first;
        n_other += events[i].layer == other;
    }
    /* runs keep the names that they were pushed with */
    CHECK(n_instr == 12 && n_ops == 3 && n_first == 8 && n_other == 1);
    for (int i = 0; i < 2; i++) {
        pl_array_free(in[i]);
        pl_array_free(out[i]);
    }
}

static void rule_program_error(void)
{
    uintptr_t bad = plan_of(fails_run, 0, 0, 0), out = 0;
    pl_slot slot = {PL_SLOT_OUTPUT, 0, 0};
    uintptr_t p = pl_program_new(0, NULL, 1, one_double, 1, &bad, &slot, NULL, 0, 0, 0, 0, "program");
    CHECK(pl_program_run(p, NULL, &out, NULL, 9) == PL_OK && wait_read(out) == PL_FAILED);
    CHECK(strcmp(pl_error_name(), "kernel") == 0 && pl_error_location() == 9);
    pl_array_free(out);
    pl_plan_free(bad);
    pl_program_free(p);
}

static void rule_storage(void)
{
    pl_storage_stats before, after;
    pl_storage_get_stats(&before);
    CHECK(pl_array_new((size_t)1 << 45) == 0 && strstr(pl_error_message(), "out of memory"));
    CHECK(pl_array_new((size_t)-1) == 0);
    for (size_t bytes = 0; bytes < 5000000; bytes = bytes * 5 / 4 + 1) {
        uintptr_t a = pl_array_new(bytes);
        CHECK(a && (uintptr_t)pl_array_data(a) % 64 == 0);
        memset(pl_array_data(a), 1, bytes);
        pl_array_free(a);
    }
    pl_storage_get_stats(&after);
    CHECK(after.used_bytes == before.used_bytes && after.peak_bytes >= 4000000);
    pl_storage_trim();
    pl_storage_get_stats(&after);
    CHECK(after.pooled_bytes == 0);
}

static void rule_fork(void)
{
    uintptr_t add = plan_of(add_run, 2, 0, 0), a = double_array(2), b = pl_invoke2(add, a, a);
    pid_t child = fork();
    CHECK(child >= 0);
    uintptr_t c = pl_invoke2(add, b, b);
    bool good = wait_read(c) == PL_OK && *(double *)pl_array_data(c) == 8.0 && wait_all() == PL_OK;
    if (child == 0)
        _exit(good ? 0 : 1);
    int status;
    CHECK(good && waitpid(child, &status, 0) == child && status == 0);
    pl_array_free(a);
    pl_array_free(b);
    pl_array_free(c);
    pl_plan_free(add);
}

static void rule_bad_calls(void)
{
    uintptr_t plan = pl_plan_new(add_run, NULL, 0, 0, 1, one_double, NULL, 0, 0, 99, 0, "x", NULL);
    uintptr_t var = pl_array_new(0), out = 0;
    CHECK(pl_push(pl_noop, NULL, NULL, &var, 1, &var, 1, PL_LANE_COUNT, 0, 0, "x", -1) == PL_FAILED);
    CHECK(pl_invoke(plan, NULL, &out, NULL, -1) == PL_FAILED && out == 0);
    CHECK(strstr(pl_error_message(), "no such lane"));
    CHECK(wait_read(var) == PL_OK && pl_engine_pending() == 0);
    pl_plan_free(plan);
    pl_array_free(var);
}

void rules(void)
{
    rule_priorities();
    rule_errors();
    rule_foreign();
    rule_inside();
    rule_woken_is_active();
    rule_many_threads();
    rule_stand_in();
    rule_pressure();
    rule_late();
    rule_programs();
    rule_program_error();
    rule_storage();
    rule_fork();
    rule_bad_calls();
    pl_engine_set_naive(1);
    rule_errors();
    rule_inside();
    rule_many_threads();
    rule_programs();
    pl_engine_set_naive(0);
}
