/* Random programs that contend for a few arrays, with deferred claims, early release and failures in the middle,
 * compared with the same steps one after the other. */
#include "driver.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { N_ARRAYS = 8, MAX_INSTR = 9, MAX_ARRAYS_EACH = 7, N_OPS = 14 };

static uint64_t state;

static int below(int n)                       /* xorshift64* */
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (int)((state * 2685821657736338717u >> 33) % (uint64_t)n);
}

static const size_t word[] = {sizeof(uint64_t)};

static uint64_t mixed(uint64_t a, uint64_t b) { return (a ^ b) * 0x9E3779B97F4A7C15u + (a << 7) + (b >> 29); }

typedef struct { uint64_t salt; bool fails; int spin; } mix_params;
/* a, b, out: numbers of the program's arrays, inputs first.  claim: before this step what it uses is claimed. */
typedef struct { mix_params p; int a, b, out, claim; } instruction;
typedef struct { uint64_t value; int error; } cell;              /* error: of which op, or -1 */

static uint64_t mix(const mix_params *p, uint64_t a, uint64_t b) { return mixed(mixed(p->salt, a), b); }

static int mix_run(const void *params, void *const *bufs, const double *scalars)
{
    const mix_params *p = params;
    (void)scalars;
    for (volatile int i = p->spin; i > 0; i--) {}
    if (p->spin % 5 == 0)
        sched_yield();
    if (p->fails) {
        char text[32];
        snprintf(text, sizeof text, "op %d", (int)(p->salt >> 8));
        return pl_fail(PL_FAILED, text);
    }
    *(uint64_t *)bufs[2] = mix(p, *(uint64_t *)bufs[0], *(uint64_t *)bufs[1]);
    return PL_OK;
}

/* The first step that uses an array of the program; n: the array is only written. */
static int first_use(int array, const int *use, int n_in, const instruction *steps, int n)
{
    int k = 0;
    bool read = false;
    for (int i = 0; i < n_in; i++)
        read |= use[i] == use[array];
    while (k < n && steps[k].a != array && steps[k].b != array && steps[k].out != array)
        k++;
    return !read ? n : k == n ? 0 : steps[k].claim;      /* what no step uses is claimed at the start */
}

/* What has to come out.  use: the array behind each of the program's. */
static void oracle(int number, cell *cells, const int *use, int n_in, int n_arrays, const instruction *steps, int n)
{
    int failed = n, error = -1;
    for (int i = 0; i < n_arrays; i++) {      /* a poisoned array stops it before its first use */
        int first = cells[use[i]].error < 0 ? n : first_use(i, use, n_in, steps, n);
        if (first < failed) {
            failed = first;
            error = cells[use[i]].error;
        }
    }
    for (int k = 0; k < failed; k++) {
        if (steps[k].p.fails) {
            failed = k;
            error = number;
            break;
        }
        cells[use[steps[k].out]].value = mix(&steps[k].p, cells[use[steps[k].a]].value, cells[use[steps[k].b]].value);
    }
    for (int i = n_in; i < n_arrays; i++) {   /* written ones: valid if nothing behind the failure uses them */
        int last = 0;
        for (int k = 0; k < n; k++)
            if (use[steps[k].a] == use[i] || use[steps[k].b] == use[i] || use[steps[k].out] == use[i])
                last = k;
        cells[use[i]].error = error < 0 || last < failed ? -1 : error;
    }
}

/* Two steps that may run at the same time. */
static bool independent(const instruction *x, const instruction *y, const int *use)
{
    return use[x->out] != use[y->a] && use[x->out] != use[y->b] && use[x->out] != use[y->out] &&
           use[y->out] != use[x->a] && use[y->out] != use[x->b];
}

/* Steps [from, middle) and [middle, to) become branches that run at the same time, if they may. */
static void split_random(uintptr_t program, const int *use, instruction *steps, int n)
{
    int from = below(n), middle = from + 1 + below(n - from), to = middle + 1 + below(n);
    to = to < n ? to : n;
    bool concurrent = middle < to;
    for (int x = from; x < middle; x++)
        for (int y = middle; y < to; y++)
            concurrent = concurrent && independent(&steps[x], &steps[y], use);
    int32_t ends[4], sections[4];
    int n_ends = 0;
    const int at[] = {from, middle, to, n}, of[] = {0, 1, concurrent ? 1 : 2, 3};
    for (int i = 0; i < 4; i++)
        if (at[i] > (n_ends ? ends[n_ends - 1] : 0)) {
            ends[n_ends] = at[i];
            sections[n_ends++] = of[i];
        }
    for (int i = from; concurrent && i < to; i++)
        steps[i].claim = steps[i].claim < from ? steps[i].claim : from;
    CHECK(pl_program_split(program, 2, n_ends, ends, sections) == PL_OK);
}

static void random_op(int number, uintptr_t *arrays, cell *cells, uint64_t *version)
{
    int n_in = 1 + below(4), n_out = 1 + below(3), n = n_out + below(MAX_INSTR - n_out + 1), use[MAX_ARRAYS_EACH];
    bool written[N_ARRAYS] = {false};
    instruction steps[MAX_INSTR];
    for (int i = 0; i < n_in; i++)
        use[i] = below(N_ARRAYS);
    for (int i = n_in; i < n_in + n_out; i++) {          /* outputs differ from each other; they may be inputs */
        do
            use[i] = below(N_ARRAYS);
        while (written[use[i]]);
        written[use[i]] = true;
        version[use[i]]++;
    }
    int n_ready = 0, fails_at = below(5) ? -1 : below(n), python_at = below(5) ? n : below(n);
    uintptr_t plans[MAX_INSTR];
    pl_slot slots[3 * MAX_INSTR];
    for (int k = 0; k < n; k++) {
        int left = n - k, out = n_ready < n_out && (left == n_out - n_ready || below(2)) ? n_ready++ : -1;
        if (out < 0 && n_ready == 0)
            out = n_ready++;
        instruction *s = &steps[k];
        s->out = n_in + (out >= 0 ? out : below(n_ready));
        int readable = n_in + n_ready - (out >= 0);      /* outputs that are there already */
        s->a = below(readable);
        s->b = below(readable);
        s->p = (mix_params){
            .salt = (uint64_t)number << 8 | (uint64_t)k, .fails = k == fails_at, .spin = below(4) ? 0 : below(3000)};
        s->claim = k < python_at ? k : python_at;        /* before a kernel in Python all is claimed */
        plans[k] = pl_plan_new(mix_run, &s->p, sizeof s->p, 2, 1, word, NULL, 0, k == python_at ? PL_PLAN_PYTHON : 0,
                               PL_LANE_CPU, 0, "mix", NULL);
        const int of[] = {s->a, s->b, s->out};
        for (int i = 0; i < 3; i++)
            slots[3 * k + i] = of[i] < n_in ? (pl_slot){PL_SLOT_INPUT, of[i], 0}
                                            : (pl_slot){PL_SLOT_OUTPUT, of[i] - n_in, 0};
    }
    uint8_t modes[4] = {PL_READ, PL_READ, PL_READ, PL_READ};
    const size_t out_bytes[] = {sizeof(uint64_t), sizeof(uint64_t), sizeof(uint64_t)};
    uintptr_t in[4], out[3];
    int flags = (below(4) ? 0 : PL_PLAN_INLINE) | (below(2) ? PL_PLAN_BRIEF : 0);
    uintptr_t p = pl_program_new(n_in, modes, n_out, out_bytes, n, plans, slots, NULL, 0, flags, below(3), below(2),
                                 "mixes");
    CHECK(p);
    if (below(2) == 0)
        split_random(p, use, steps, n);
    for (int i = 0; i < n_in; i++)
        in[i] = arrays[use[i]];
    for (int i = 0; i < n_out; i++)
        out[i] = arrays[use[n_in + i]];
    CHECK(pl_program_run(p, in, out, NULL, number) == PL_OK);
    oracle(number, cells, use, n_in, n_in + n_out, steps, n);
    pl_program_free(p);
    for (int k = 0; k < n; k++)
        pl_plan_free(plans[k]);
}

void random_claims(uint64_t seed)
{
    state = seed * 0x9E3779B97F4A7C15u + 1;
    cell cells[N_ARRAYS];
    uintptr_t arrays[N_ARRAYS];
    uint64_t version[N_ARRAYS] = {0};
    for (int i = 0; i < N_ARRAYS; i++) {
        arrays[i] = array_of((uint64_t)i);
        cells[i] = (cell){(uint64_t)i, -1};
    }
    pl_engine_set_naive(below(8) == 0);
    for (int number = 0, n = 1 + below(N_OPS); number < n; number++) {
        random_op(number, arrays, cells, version);
        if (below(6) == 0) {                  /* another user of a memory that is free already, perhaps */
            int i = below(N_ARRAYS);
            int status = wait_read(arrays[i]);
            CHECK(status == (cells[i].error < 0 ? PL_OK : PL_FAILED));
        }
        if (below(8) == 0) {                  /* its last users may run still */
            int i = below(N_ARRAYS);
            pl_array_free(arrays[i]);
            arrays[i] = array_of((uint64_t)number);
            cells[i] = (cell){(uint64_t)number, -1};
            version[i] = 0;
        }
    }
    for (int i = 0; i < N_ARRAYS; i++) {
        int status = wait_read(arrays[i]);
        char text[32];
        snprintf(text, sizeof text, "op %d", cells[i].error);
        CHECK(status == (cells[i].error < 0 ? PL_OK : PL_FAILED));
        if (status == PL_FAILED)
            CHECK(strcmp(pl_error_message(), text) == 0 && pl_error_location() == cells[i].error);
        else
            CHECK(*(uint64_t *)pl_array_data(arrays[i]) == cells[i].value);
        CHECK(pl_array_version(arrays[i]) == version[i]);
        pl_array_free(arrays[i]);
    }
    nothing_is_left();
}
