/* Random programs of operations in flight and others, compared with the same steps one after the other. */
#include "driver.h"
#include "engine/core/flight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_ARRAYS = 6, MAX_ARGS = 3, N_OPS = 20, N_THREADS = 3 };
enum { ENDS, FAILS, NEVER, N_ENDINGS };

typedef struct {
    uint64_t state;                           /* of the random numbers */
    uint64_t seed;
} thread_of;

typedef struct {
    int n_reads, n_writes, ending, n_polls, spin;
    bool polled, waits, cancelled;
    atomic_bool inside;
    uint64_t salt, *reads[MAX_ARGS], *writes[MAX_ARGS];
} call;

typedef struct { uint64_t value; int error, status; } cell;   /* error: number of the step that poisoned it, or -1 */

static int below(thread_of *t, int n)         /* xorshift64* */
{
    t->state ^= t->state >> 12;
    t->state ^= t->state << 25;
    t->state ^= t->state >> 27;
    return (int)((t->state * 2685821657736338717u >> 33) % (uint64_t)n);
}

static uint64_t mix(uint64_t a, uint64_t b) { return (a ^ b) * 0x9E3779B97F4A7C15u + (a << 7) + (b >> 29); }

static int poll_thrice(void *arg) { return ++*(int *)arg < 3 ? PL_PENDING : PL_OK; }

/* A wait inside a polled function: its lane starts and polls others meanwhile. */
static void wait_for_another(int lane)
{
    int n_polls = 0;
    uintptr_t var = pl_array_new(0);
    CHECK(pl_push_polled(poll_thrice, NULL, &n_polls, NULL, NULL, 0, &var, 1, 0, lane, 0, 0, 0, "inner", -1) == PL_OK);
    CHECK(wait_read(var) == PL_OK);
    pl_array_free(var);
}

static int call_run(void *arg)
{
    call *c = arg;
    CHECK(!atomic_exchange(&c->inside, true) && !c->cancelled);
    for (volatile int spin = c->spin; spin > 0; spin--) {}
    if (c->waits)
        wait_for_another((int)(c->salt % 3));
    int status = PL_OK;
    if (c->polled && (c->ending == NEVER || c->n_polls-- > 0)) {
        status = PL_PENDING;
        if (c->salt % 4 == 0)
            pl_flight_progressed();
    } else if (c->ending == FAILS) {
        char text[32];
        snprintf(text, sizeof text, "step %d", (int)c->salt);
        status = pl_fail(PL_FAILED, text);
    } else {
        uint64_t h = c->salt;
        for (int i = 0; i < c->n_reads; i++)
            h = mix(h, *c->reads[i]);
        for (int i = 0; i < c->n_writes; i++)
            *c->writes[i] = mix(h, (uint64_t)i);
    }
    atomic_store(&c->inside, false);
    return status;
}

static int call_cancel(void *arg)
{
    call *c = arg;
    CHECK(!atomic_load(&c->inside) && !c->cancelled && c->ending == NEVER);
    c->cancelled = true;
    for (int i = 0; i < c->n_writes; i++)     /* until here they are this op's */
        *c->writes[i] = 0;
    return PL_OK;
}

static void call_free(void *arg)
{
    CHECK(!atomic_load(&((call *)arg)->inside));
    free(arg);
}

/* What has to come out. */
static void oracle(const call *c, const int *reads, const int *writes, cell *cells)
{
    int error = c->ending == ENDS ? -1 : (int)c->salt, status = c->ending == NEVER ? PL_ETIMEOUT : PL_FAILED;
    uint64_t h = c->salt;
    for (int i = c->n_reads - 1; i >= 0; i--)
        if (cells[reads[i]].error >= 0) {
            error = cells[reads[i]].error;
            status = cells[reads[i]].status;
        }
    for (int i = 0; i < c->n_reads; i++)
        h = mix(h, cells[reads[i]].value);
    for (int i = 0; i < c->n_writes; i++)
        cells[writes[i]] = (cell){error < 0 ? mix(h, (uint64_t)i) : 0, error, status};
}

static void random_call(thread_of *t, int number, const uintptr_t *arrays, uintptr_t order, cell *cells,
                        uint64_t *version)
{
    int reads[MAX_ARGS], writes[MAX_ARGS];
    uintptr_t in[MAX_ARGS], out[MAX_ARGS];
    call *c = calloc(1, sizeof *c);
    CHECK(c);
    c->n_reads = below(t, MAX_ARGS + 1);
    c->n_writes = below(t, MAX_ARGS);
    c->polled = below(t, 3) > 0;
    c->n_polls = below(t, 2) ? 0 : below(t, 12);
    c->ending = below(t, 8) ? ENDS : c->polled && below(t, 3) == 0 ? NEVER : FAILS;
    c->waits = below(t, 12) == 0;
    c->spin = below(t, 4) ? 0 : below(t, 2000);
    c->salt = (uint64_t)number;
    bool used[N_ARRAYS] = {false};
    for (int i = 0; i < c->n_reads; i++) {
        in[i] = arrays[reads[i] = below(t, N_ARRAYS)];
        c->reads[i] = pl_array_data(in[i]);
    }
    for (int i = 0; i < c->n_writes; i++) {   /* writes differ from each other */
        do
            writes[i] = below(t, N_ARRAYS);
        while (used[writes[i]]);
        used[writes[i]] = true;
        version[writes[i]]++;
        out[i] = arrays[writes[i]];
        c->writes[i] = pl_array_data(out[i]);
    }
    oracle(c, reads, writes, cells);
    int lane = below(t, 3), device = below(t, 2), priority = below(t, 3) ? 0 : below(t, 7) - 3;
    int status;
    if (c->polled)
        status = pl_push_polled(call_run, call_cancel, c, call_free, in, c->n_reads, out, c->n_writes,
                                below(t, 3) ? 0 : order, lane, device, priority,
                                c->ending == NEVER ? 1e-5 * below(t, 30) + 1e-6 : below(t, 2) ? 1000 : 0, "random",
                                number);
    else
        status = pl_push(call_run, c, call_free, in, c->n_reads, out, c->n_writes, lane, device, priority, "random",
                         number);
    CHECK(status == PL_OK);
}

static void check_array(uintptr_t array, const cell *c)
{
    int status = wait_read(array);
    CHECK(status == (c->error < 0 ? PL_OK : PL_FAILED));
    if (status == PL_OK) {
        CHECK(*(uint64_t *)pl_array_data(array) == c->value);
        return;
    }
    char text[32];
    snprintf(text, sizeof text, "step %d", c->error);
    CHECK(pl_error_status() == c->status && pl_error_location() == c->error);
    CHECK(c->status == PL_ETIMEOUT ? strstr(pl_error_message(), "its deadline is") != NULL
                                   : strcmp(pl_error_message(), text) == 0);
}

static void *random_thread(void *arg)
{
    thread_of *t = arg;
    t->state = t->seed * 0x9E3779B97F4A7C15u + 1;
    cell cells[N_ARRAYS];
    uintptr_t arrays[N_ARRAYS], order = pl_array_new(0);
    uint64_t version[N_ARRAYS] = {0};
    for (int i = 0; i < N_ARRAYS; i++) {
        arrays[i] = array_of((uint64_t)i);
        cells[i] = (cell){(uint64_t)i, -1, 0};
    }
    pl_engine_set_bulk(below(t, 3) ? 0 : below(t, 10));
    pl_engine_set_inline(below(t, 5) == 0);
    for (int number = 0, n = 1 + below(t, N_OPS); number < n; number++) {
        random_call(t, number, arrays, order, cells, version);
        if (below(t, 10) == 0) {
            int i = below(t, N_ARRAYS);
            check_array(arrays[i], &cells[i]);
        }
    }
    for (int i = 0; i < N_ARRAYS; i++) {
        check_array(arrays[i], &cells[i]);
        CHECK(pl_array_version(arrays[i]) == version[i]);
        pl_array_free(arrays[i]);
    }
    pl_array_free(order);
    pl_engine_set_bulk(0);
    pl_engine_set_inline(0);
    pl_error_forget();
    return NULL;
}

void random_flight(uint64_t seed)
{
    pthread_t threads[N_THREADS];
    thread_of of[N_THREADS];
    pl_engine_set_naive(seed % 8 == 0);
    int n = seed % 3 == 0 ? N_THREADS : 1;
    for (int i = 0; i < n; i++) {
        of[i].seed = seed * N_THREADS + (uint64_t)i;
        CHECK(pthread_create(&threads[i], NULL, random_thread, &of[i]) == 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    report_all();
    pl_engine_set_naive(0);
    CHECK(pl_engine_pending() == 0 && pl_engine.n_flying == 0 && atomic_load(&pl_engine.n_blocked) == 0);
}
