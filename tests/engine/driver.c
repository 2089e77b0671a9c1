/* The engine without Python: random programs against a sequential oracle, every path of failure, fork, speed.
 *
 *   driver [random|control|claims|flight|messages|rules|memory|regions|beats|bench|all] [random programs] [first seed]
 * Built and run by sanitize.sh beside this file, under each sanitizer; exits with 1 at the first surprise. */
#include "driver.h"
#include "engine/core/profiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void fail_at(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: %s\n  last error: %s\n", file, line, condition, pl_error_message());
    exit(1);
}

static uint64_t random_state = 1;

static int below(int n)                       /* xorshift64* */
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (int)((random_state * 2685821657736338717u >> 33) % (uint64_t)n);
}

static double seconds(void) { return (double)pl_profiler_now() * 1e-9; }

int wait_read(uintptr_t array)
{
    int status;
    while ((status = pl_wait_read(array, 1000)) == PL_AGAIN) {}
    return status;
}

int wait_all(void)
{
    int status;
    while ((status = pl_wait_all(1000)) == PL_AGAIN) {}
    return status;
}

void report_all(void)
{
    while (wait_all() != PL_OK) {}
}

/* ---- random programs -------------------------------------------------------------------------------------- */

enum { N_ARRAYS = 7, MAX_ARGS = 3, N_OPS = 24 };

typedef struct { int n_reads, n_writes, reads[MAX_ARGS], writes[MAX_ARGS]; bool fails; uint64_t salt; } step;
typedef struct { step what; uint64_t *reads[MAX_ARGS], *writes[MAX_ARGS]; } call;
typedef struct { uint64_t value; int error; } cell;     /* error: number of the step that poisoned it, or -1 */

static uint64_t mix(uint64_t a, uint64_t b) { return (a ^ b) * 0x9E3779B97F4A7C15u + (a << 7); }

static int call_run(void *arg)
{
    call *c = arg;
    uint64_t h = c->what.salt;
    for (int i = 0; i < c->what.n_reads; i++)
        h = mix(h, *c->reads[i]);
    for (volatile int spin = (int)(c->what.salt % 64); spin > 0; spin--) {}
    if (c->what.fails) {
        char text[32];
        snprintf(text, sizeof text, "step %d", (int)c->what.salt);
        return pl_fail(PL_FAILED, text);
    }
    for (int i = 0; i < c->what.n_writes; i++)
        *c->writes[i] = mix(h, (uint64_t)i);
    return PL_OK;
}

/* What has to come out: the steps one after the other. */
static void oracle_run(const step *s, cell *cells)
{
    int error = s->fails ? (int)s->salt : -1;
    uint64_t h = s->salt;
    for (int i = s->n_reads - 1; i >= 0; i--)
        if (cells[s->reads[i]].error >= 0)
            error = cells[s->reads[i]].error;
    for (int i = 0; i < s->n_reads; i++)
        h = mix(h, cells[s->reads[i]].value);
    for (int i = 0; i < s->n_writes; i++) {
        cell *c = &cells[s->writes[i]];
        c->error = error;
        if (error < 0)
            c->value = mix(h, (uint64_t)i);
    }
}

static step random_step(int number)
{
    step s = {.n_reads = below(MAX_ARGS + 1), .n_writes = below(MAX_ARGS), .fails = below(12) == 0,
              .salt = (uint64_t)number};
    for (int i = 0; i < s.n_reads; i++)
        s.reads[i] = below(N_ARRAYS);
    for (int i = 0; i < s.n_writes; i++) {    /* writes differ from each other */
        bool again;
        do {
            again = false;
            s.writes[i] = below(N_ARRAYS);
            for (int k = 0; k < i; k++)
                again |= s.writes[k] == s.writes[i];
        } while (again);
    }
    return s;
}

static void random_program(uint64_t seed)
{
    random_state = seed * 0x9E3779B97F4A7C15u + 1;
    cell cells[N_ARRAYS];
    uintptr_t arrays[N_ARRAYS];
    uint64_t version[N_ARRAYS] = {0};
    for (int i = 0; i < N_ARRAYS; i++) {
        CHECK((arrays[i] = pl_array_new(sizeof(uint64_t))));
        *(uint64_t *)pl_array_data(arrays[i]) = cells[i].value = (uint64_t)i;
        cells[i].error = -1;
    }
    pl_engine_set_naive(below(8) == 0);
    int bulk = below(3) ? 0 : below(10), n_ops = 1 + below(N_OPS);
    pl_engine_set_bulk(bulk);
    for (int number = 0; number < n_ops; number++) {
        step s = random_step(number);
        call *c = malloc(sizeof *c);
        CHECK(c);
        c->what = s;
        uintptr_t reads[MAX_ARGS], writes[MAX_ARGS];
        for (int i = 0; i < s.n_reads; i++) {
            reads[i] = arrays[s.reads[i]];
            c->reads[i] = pl_array_data(reads[i]);
        }
        for (int i = 0; i < s.n_writes; i++) {
            writes[i] = arrays[s.writes[i]];
            c->writes[i] = pl_array_data(writes[i]);
            version[s.writes[i]]++;
        }
        CHECK(pl_push(call_run, c, free, reads, s.n_reads, writes, s.n_writes, below(3), below(2),
                      below(3) ? 0 : below(7) - 3, "random", number) == PL_OK);
        oracle_run(&s, cells);
        if (below(20) == 0)
            wait_read(arrays[below(N_ARRAYS)]);
    }
    for (int i = 0; i < N_ARRAYS; i++) {
        int status = wait_read(arrays[i]);
        CHECK(status == (cells[i].error < 0 ? PL_OK : PL_FAILED));
        char text[32];
        snprintf(text, sizeof text, "step %d", cells[i].error);
        if (status == PL_FAILED)
            CHECK(strcmp(pl_error_message(), text) == 0 && pl_error_location() == cells[i].error);
        else
            CHECK(*(uint64_t *)pl_array_data(arrays[i]) == cells[i].value);
        CHECK(pl_array_version(arrays[i]) == version[i]);
        pl_array_free(arrays[i]);
    }
    pl_engine_set_bulk(0);
    report_all();
    CHECK(pl_engine_pending() == 0);
}

/* ---- kernels ---------------------------------------------------------------------------------------------- */

int add_run(const void *params, void *const *bufs, const double *scalars)
{
    (void)params;
    (void)scalars;
    *(double *)bufs[2] = *(double *)bufs[0] + *(double *)bufs[1];
    return PL_OK;
}

int scale_run(const void *params, void *const *bufs, const double *scalars)
{
    *(double *)bufs[1] = *(double *)bufs[0] * scalars[0] + *(const double *)params;
    return PL_OK;
}

int fails_run(const void *params, void *const *bufs, const double *scalars)
{
    (void)params;
    (void)bufs;
    (void)scalars;
    return pl_fail(PL_EINVAL, "the kernel says no");
}

int random_run(const void *params, void *const *bufs, const double *scalars)
{
    (void)params;
    memcpy(bufs[0], scalars, 2 * sizeof(double));       /* seed and counter */
    return PL_OK;
}

const size_t one_double[] = {sizeof(double)};
static const size_t two_doubles[] = {2 * sizeof(double)};

uintptr_t plan_of(pl_kernel kernel, int n_in, int n_scalars, int flags)
{
    static const double offset = 0.5;
    return pl_plan_new(kernel, &offset, sizeof offset, n_in, 1, flags & PL_PLAN_RANDOM ? two_doubles : one_double,
                       NULL, n_scalars, flags, PL_LANE_CPU, 0, "kernel", "()+()");
}

uintptr_t double_array(double value)
{
    uintptr_t a = pl_array_new(sizeof value);
    if (a)
        *(double *)pl_array_data(a) = value;
    return a;
}

uintptr_t array_of(uint64_t value)
{
    uintptr_t a = pl_array_new(sizeof value);
    CHECK(a);
    *(uint64_t *)pl_array_data(a) = value;
    return a;
}

void nothing_is_left(void)
{
    report_all();
    CHECK(pl_engine_pending() == 0 && atomic_load(&pl_engine.n_blocked) == 0 && !pl_engine.releasing);
}

double double_value(uintptr_t a)
{
    CHECK(wait_read(a) == PL_OK);
    return *(double *)pl_array_data(a);
}

/* ---- speed ------------------------------------------------------------------------------------------------ */

static void bench(void)
{
    enum { N = 1000000 };
    uintptr_t vars[3] = {pl_array_new(0), pl_array_new(0), pl_array_new(0)};
    for (int round = 0; round < 3; round++) {
        double start = seconds();
        for (int i = 0; i < N; i++)
            pl_push(pl_noop, NULL, NULL, vars, 2, vars + 2, 1, PL_LANE_CPU, 0, 0, "noop", -1);
        wait_all();
        printf("push, 3 vars, through a lane: %.3f us\n", (seconds() - start) * 1e6 / N);
    }
    uintptr_t add = plan_of(add_run, 2, 0, PL_PLAN_INLINE), queued = plan_of(add_run, 2, 0, 0);
    uintptr_t a = double_array(1), b = double_array(2);
    double start = seconds();
    for (int i = 0; i < N; i++)
        pl_array_free(pl_invoke2(add, a, b));
    printf("inline add, new output and its free: %.1f ns\n", (seconds() - start) * 1e9 / N);
    start = seconds();
    for (int i = 0; i < 20000; i++) {
        uintptr_t c = pl_invoke2(queued, a, b);
        wait_read(c);
        pl_array_free(c);
    }
    printf("queued add and a wait for it: %.2f us\n", (seconds() - start) * 1e6 / 20000);
    uintptr_t all[] = {a, b, vars[0], vars[1], vars[2]};
    for (int i = 0; i < 5; i++)
        pl_array_free(all[i]);
    pl_plan_free(add);
    pl_plan_free(queued);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "all";
    int n_programs = argc > 2 ? atoi(argv[2]) : 10000, seed = argc > 3 ? atoi(argv[3]) : 1;
    bool all = strcmp(what, "all") == 0;
    if (all || strcmp(what, "rules") == 0) {
        rules();
        claims_rules();
        flight_rules();
    }
    if (all || strcmp(what, "memory") == 0)
        memory_failures();
    if (all || strcmp(what, "random") == 0) {
        for (int i = 0; i < n_programs; i++)
            random_program((uint64_t)(seed + i));
        printf("random: %d programs equal the oracle\n", n_programs);
    }
    if (all || strcmp(what, "control") == 0) {
        for (int i = 0; i < n_programs; i++)
            random_control((uint64_t)(seed + i));
        printf("control: %d programs equal the oracle\n", n_programs);
    }
    if (all || strcmp(what, "claims") == 0) {
        for (int i = 0; i < n_programs; i++)
            random_claims((uint64_t)(seed + i));
        printf("claims: %d programs equal the oracle\n", n_programs);
    }
    if (all || strcmp(what, "flight") == 0) {
        for (int i = 0; i < n_programs; i++)
            random_flight((uint64_t)(seed + i));
        printf("flight: %d programs equal the oracle\n", n_programs);
    }
    if (all || strcmp(what, "messages") == 0) {
        open_messages();
        for (int i = 0; i < n_programs; i++)
            random_messages((uint64_t)(seed + i));
        failed_messages();
        printf("messages: %d programs of collectives have the right values\n", n_programs);
    }
    if (all || strcmp(what, "regions") == 0)
        regions();
    if (all || strcmp(what, "beats") == 0)
        beats();
    if (all || strcmp(what, "bench") == 0)
        bench();
    CHECK(pl_engine_close(10000) == PL_OK);
    pl_error_forget();
    pl_storage_trim();
    return 0;
}
