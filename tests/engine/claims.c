/* Programs claim each array before its first use, and end with it after its last use: they wait for no array that they
 * do not need yet, and who waits for one of theirs does not wait for the rest. */
#include "driver.h"
#include "engine/core/profiler.h"

#include <sched.h>
#include <string.h>

enum { FAILS = 7 };

/* ---- rules ------------------------------------------------------------------------------------------------ */

static atomic_int gates[2], reached;

static int copy_run(const void *params, void *const *bufs, const double *scalars)
{
    const int *gate = params;                 /* -1: none; FAILS: it fails */
    (void)scalars;
    if (*gate == FAILS)
        return pl_fail(PL_FAILED, "the middle fails");
    if (*gate >= 0)
        atomic_store(&reached, 1 + *gate);
    while (*gate >= 0 && !atomic_load(&gates[*gate]))
        sched_yield();
    *(uint64_t *)bufs[1] = *(uint64_t *)bufs[0] + 1;
    return PL_OK;
}

static int store_run(void *arg)
{
    *(uint64_t *)arg = 100;
    return PL_OK;
}

static const size_t word[] = {sizeof(uint64_t)}, words[] = {sizeof(uint64_t), sizeof(uint64_t)};

static uintptr_t copy_plan(int gate)
{
    return pl_plan_new(copy_run, &gate, sizeof gate, 1, 1, word, NULL, 0, 0, PL_LANE_CPU, 0, "copy", NULL);
}

/* in0 -> out0, then behind a gate (or a failure) in1 -> out1; before: a gate in front of the first */
static uintptr_t two_copies(int before, int between, int lane)
{
    uintptr_t plans[] = {copy_plan(before), copy_plan(between), copy_plan(-1)};
    const pl_slot slots[] = {{PL_SLOT_INPUT, 0, 0}, {PL_SLOT_OUTPUT, 0, 0}, {PL_SLOT_INPUT, 1, 0},
                             {PL_SLOT_ARENA, 0, 0}, {PL_SLOT_ARENA, 0, 0},  {PL_SLOT_OUTPUT, 1, 0}};
    const uint8_t modes[] = {PL_READ, PL_READ};
    uintptr_t p = pl_program_new(2, modes, 2, words, 3, plans, slots, NULL, 64, 0, lane, 0, "two");
    for (int i = 0; i < 3; i++)
        pl_plan_free(plans[i]);
    CHECK(p);
    return p;
}

static bool soon(uintptr_t array) { return pl_wait_read(array, 20000) == PL_OK; }

/* Without a wait, which would end requests itself. */
static bool written(uintptr_t array)
{
    for (int64_t start_ns = pl_profiler_now(); pl_array_version(array) == 0; sched_yield())
        if (pl_profiler_now() - start_ns > (int64_t)20e9)
            return false;
    return true;
}

/* waits_first: what depends on the first copy is pushed while that has not begun. */
static void rule_before_the_end(bool waits_first)
{
    uintptr_t p = two_copies(0, 1, PL_LANE_CPU), in[] = {array_of(1), array_of(2)}, out[2] = {0, 0}, stored = in[0];
    atomic_store(&gates[0], !waits_first);
    atomic_store(&gates[1], 0);
    atomic_store(&reached, 0);
    CHECK(pl_program_run(p, in, out, NULL, -1) == PL_OK);
    while (atomic_load(&reached) != (waits_first ? 1 : 2))
        sched_yield();
    CHECK(pl_push(store_run, pl_array_data(stored), NULL, &out[0], 1, &stored, 1, PL_LANE_IO, 0, 0, "store", 1) ==
          PL_OK);
    CHECK(!waits_first || pl_wait_read(stored, 0) == PL_AGAIN);
    atomic_store(&gates[0], 1);
    CHECK(written(stored) && *(uint64_t *)pl_array_data(stored) == 100 && pl_array_version(out[0]) == 1);
    CHECK(soon(out[0]) && *(uint64_t *)pl_array_data(out[0]) == 2);
    CHECK(pl_wait_read(out[1], 0) == PL_AGAIN && pl_wait_write(in[1], 0) == PL_AGAIN && pl_array_version(out[1]) == 0);
    pl_array_free(out[0]);                    /* its memory is another array's while the program runs on */
    uintptr_t other = array_of(7);
    atomic_store(&gates[1], 1);
    CHECK(soon(out[1]) && *(uint64_t *)pl_array_data(out[1]) == 4 && *(uint64_t *)pl_array_data(other) == 7);
    uintptr_t all[] = {in[0], in[1], out[1], other};
    for (int i = 0; i < 4; i++)
        pl_array_free(all[i]);
    pl_program_free(p);
    nothing_is_left();
}

static void rule_failure(bool naive)
{
    uintptr_t p = two_copies(-1, FAILS, PL_LANE_CPU), in[] = {array_of(1), array_of(2)}, out[2] = {0, 0};
    pl_engine_set_naive(naive);
    CHECK(pl_program_run(p, in, out, NULL, 5) == PL_OK);
    CHECK(wait_read(out[0]) == PL_OK && *(uint64_t *)pl_array_data(out[0]) == 2);
    CHECK(wait_read(out[1]) == PL_FAILED && strcmp(pl_error_message(), "the middle fails") == 0 &&
          pl_error_location() == 5);
    CHECK(wait_read(in[0]) == PL_OK && wait_read(in[1]) == PL_OK);
    for (int i = 0; i < 2; i++) {
        pl_array_free(in[i]);
        pl_array_free(out[i]);
    }
    pl_program_free(p);
    pl_engine_set_naive(0);
    nothing_is_left();
}

/* ---- rules: arrays that are not granted when a program begins ---------------------------------------------- */

/* The writer of a deferred array: behind gate 0 it stores 100, or fails. */
static int write_gated(void *arg)
{
    while (!atomic_load(&gates[0]))
        sched_yield();
    return arg ? store_run(arg) : pl_fail(PL_FAILED, "the writer fails");
}

typedef struct { uintptr_t program, in[2], out[2]; } copies;

/* in[1] waits for its writer on a lane; then the program that reads it last is pushed. */
static copies deferred_copies(int first_gate, bool writer_fails, int lane, int priority)
{
    copies c = {two_copies(first_gate, -1, PL_LANE_CPU), {array_of(1), array_of(2)}, {0, 0}};
    atomic_store(&gates[0], pl_engine.synchronous > 0);
    void *to = writer_fails ? NULL : pl_array_data(c.in[1]);
    CHECK(pl_push(write_gated, to, NULL, NULL, 0, &c.in[1], 1, lane, 0, priority, "writer", 3) == PL_OK);
    CHECK(pl_program_run(c.program, c.in, c.out, NULL, 5) == PL_OK);
    return c;
}

static void copies_free(copies *c)
{
    for (int i = 0; i < 2; i++) {
        pl_array_free(c->in[i]);
        pl_array_free(c->out[i]);
    }
    pl_program_free(c->program);
}

/* The program has done what it can; its lane runs other operations, but begins no second program of the kind. */
static void rule_begins_before_its_inputs(void)
{
    copies c = deferred_copies(-1, false, PL_LANE_IO, 0);
    CHECK(soon(c.out[0]) && *(uint64_t *)pl_array_data(c.out[0]) == 2);
    uintptr_t again[2] = {0, 0}, other = array_of(3);
    CHECK(pl_program_run(c.program, c.in, again, NULL, 6) == PL_OK);
    CHECK(pl_push(store_run, pl_array_data(other), NULL, NULL, 0, &other, 1, PL_LANE_CPU, 0, 0, "store", 1) == PL_OK);
    CHECK(soon(other) && *(uint64_t *)pl_array_data(other) == 100);
    CHECK(pl_wait_read(c.out[1], 0) == PL_AGAIN && pl_wait_read(again[0], 0) == PL_AGAIN);
    atomic_store(&gates[0], 1);
    CHECK(soon(c.out[1]) && *(uint64_t *)pl_array_data(c.out[1]) == 102);
    CHECK(soon(again[1]) && *(uint64_t *)pl_array_data(again[1]) == 102);
    for (int i = 0; i < 2; i++)
        pl_array_free(again[i]);
    pl_array_free(other);
    copies_free(&c);
    nothing_is_left();
}

static int poll_gated(void *arg) { return atomic_load(&gates[0]) ? store_run(arg) : PL_PENDING; }

/* The writer of its deferred array is in flight in its own lane. */
static void rule_deferred_after_flight(void)
{
    copies c = {two_copies(-1, -1, PL_LANE_CPU), {array_of(1), array_of(2)}, {0, 0}};
    atomic_store(&gates[0], 0);
    CHECK(pl_push_polled(poll_gated, NULL, pl_array_data(c.in[1]), NULL, NULL, 0, &c.in[1], 1, 0, PL_LANE_CPU, 0, 0, 0,
                         "flies", 3) == PL_OK);
    CHECK(pl_program_run(c.program, c.in, c.out, NULL, 5) == PL_OK);
    CHECK(soon(c.out[0]) && *(uint64_t *)pl_array_data(c.out[0]) == 2 && pl_wait_read(c.out[1], 0) == PL_AGAIN);
    atomic_store(&gates[0], 1);
    CHECK(soon(c.out[1]) && *(uint64_t *)pl_array_data(c.out[1]) == 102);
    copies_free(&c);
    nothing_is_left();
}

/* It gets an array that a running program has ended with, and will not report again. */
static void rule_deferred_after_release(void)
{
    uintptr_t p = two_copies(-1, 1, PL_LANE_CPU), in[] = {array_of(1), array_of(2)}, out[2] = {0, 0};
    atomic_store(&gates[1], 0);
    atomic_store(&reached, 0);
    CHECK(pl_program_run(p, in, out, NULL, 5) == PL_OK);
    while (!atomic_load(&reached))
        sched_yield();
    copies c = {two_copies(-1, -1, PL_LANE_IO), {in[1], out[0]}, {0, 0}};
    CHECK(pl_program_run(c.program, c.in, c.out, NULL, 6) == PL_OK);
    CHECK(written(c.out[1]) && *(uint64_t *)pl_array_data(c.out[1]) == 4 && pl_array_version(out[1]) == 0);
    atomic_store(&gates[1], 1);
    pl_array_free(in[0]);
    pl_array_free(out[1]);
    copies_free(&c);
    pl_program_free(p);
    nothing_is_left();
}

/* The writer runs on the lane of the program, which is popped first. */
static void rule_same_lane(void)
{
    uintptr_t busy = array_of(0);             /* keeps the lane busy until all is pushed */
    atomic_store(&gates[0], 0);
    CHECK(pl_push(write_gated, pl_array_data(busy), NULL, NULL, 0, &busy, 1, PL_LANE_CPU, 0, 9, "busy", 1) == PL_OK);
    copies c = deferred_copies(-1, false, PL_LANE_CPU, -1);
    atomic_store(&gates[0], 1);
    CHECK(soon(c.out[1]) && *(uint64_t *)pl_array_data(c.out[1]) == 102);
    pl_array_free(busy);
    copies_free(&c);
    nothing_is_left();
}

/* As if the instruction that reads it had failed, no matter when it fails and who runs the program. */
static void rule_poisoned_deferred(bool naive)
{
    pl_engine_set_naive(naive);
    copies c = deferred_copies(-1, true, PL_LANE_IO, 0);
    CHECK(soon(c.out[0]) && *(uint64_t *)pl_array_data(c.out[0]) == 2);
    atomic_store(&gates[0], 1);
    CHECK(wait_read(c.out[1]) == PL_FAILED && strcmp(pl_error_message(), "the writer fails") == 0);
    CHECK(pl_error_location() == 3 && strcmp(pl_error_name(), "writer") == 0);
    CHECK(pl_program_run(c.program, c.in, c.out, NULL, 6) == PL_OK);         /* now it is known at the start */
    CHECK(wait_read(c.out[0]) == PL_OK && pl_array_version(c.out[0]) == 2 && wait_read(c.out[1]) == PL_FAILED);
    copies_free(&c);
    pl_engine_set_naive(0);
    nothing_is_left();
}

/* It fails before it reaches the deferred array: what it writes is poisoned, and its claims end in their turn. */
static void rule_failure_before_deferred(void)
{
    copies c = deferred_copies(FAILS, false, PL_LANE_IO, 0);
    uintptr_t copy[2] = {0, 0}, in[2] = {c.in[1], c.out[1]}, after = two_copies(-1, -1, PL_LANE_CPU);
    CHECK(pl_program_run(after, in, copy, NULL, 7) == PL_OK);
    CHECK(pl_wait_write(c.in[1], 0) == PL_AGAIN);
    atomic_store(&gates[0], 1);
    CHECK(wait_read(c.out[0]) == PL_FAILED && strcmp(pl_error_message(), "the middle fails") == 0);
    CHECK(wait_read(c.out[1]) == PL_FAILED && pl_error_location() == 5);
    CHECK(wait_read(copy[0]) == PL_OK && *(uint64_t *)pl_array_data(copy[0]) == 101 && wait_read(copy[1]) == PL_FAILED);
    for (int i = 0; i < 2; i++)
        pl_array_free(copy[i]);
    pl_program_free(after);
    copies_free(&c);
    nothing_is_left();
}

static int asks_run(const void *params, void *const *bufs, const double *scalars)
{
    (void)scalars;
    atomic_store(&reached, 1);
    uintptr_t deferred = *(const uintptr_t *)params;
    if (wait_read(deferred) != PL_OK)
        return PL_FAILED;
    *(uint64_t *)bufs[1] = *(uint64_t *)bufs[0] + *(uint64_t *)pl_array_data(deferred);
    return PL_OK;
}

/* A kernel waits for an array that its program claims later. */
static void rule_waits_inside(void)
{
    uintptr_t in[] = {array_of(1), array_of(2)}, out[2] = {0, 0};
    uintptr_t plans[] = {pl_plan_new(asks_run, &in[1], sizeof in[1], 1, 1, word, NULL, 0, 0, 0, 0, "asks", NULL),
                         copy_plan(-1)};
    const pl_slot slots[] = {{PL_SLOT_INPUT, 0, 0}, {PL_SLOT_OUTPUT, 0, 0}, {PL_SLOT_INPUT, 1, 0},
                             {PL_SLOT_OUTPUT, 1, 0}};
    const uint8_t modes[] = {PL_READ, PL_READ};
    uintptr_t p = pl_program_new(2, modes, 2, words, 2, plans, slots, NULL, 0, 0, PL_LANE_CPU, 0, "asks");
    copies c = {p, {in[0], in[1]}, {0, 0}};
    CHECK(p);
    atomic_store(&gates[0], 0);
    atomic_store(&reached, 0);
    CHECK(pl_push(write_gated, pl_array_data(in[1]), NULL, NULL, 0, &in[1], 1, PL_LANE_IO, 0, 0, "writer", 3) == PL_OK);
    CHECK(pl_program_run(p, in, out, NULL, 5) == PL_OK);
    CHECK(pl_push(write_gated, pl_array_data(in[1]), NULL, NULL, 0, &in[1], 1, PL_LANE_IO, 0, 0, "next", 3) == PL_OK);
    while (!atomic_load(&reached))
        sched_yield();
    atomic_store(&gates[0], 1);
    CHECK(soon(out[1]) && *(uint64_t *)pl_array_data(out[1]) == 101 && *(uint64_t *)pl_array_data(out[0]) == 101);
    for (int i = 0; i < 2; i++) {
        c.out[i] = out[i];
        pl_plan_free(plans[i]);
    }
    copies_free(&c);
    nothing_is_left();
}

void claims_rules(void)
{
    rule_begins_before_its_inputs();
    rule_deferred_after_flight();
    rule_deferred_after_release();
    rule_same_lane();
    rule_poisoned_deferred(false);
    rule_poisoned_deferred(true);
    rule_failure_before_deferred();
    rule_waits_inside();
    rule_before_the_end(false);
    rule_before_the_end(true);
    rule_failure(false);
    rule_failure(true);
}
