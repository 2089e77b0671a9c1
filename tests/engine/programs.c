/* Random programs with loops, branches and sections, run from several threads at once, against an interpreter that
 * knows neither arenas nor slots. */
#include "driver.h"
#include "engine/core/control.h"

#include <stdlib.h>
#include <string.h>

/* A graph of values, each a few numbers wide; mixes, and control flow whose bodies are graphs. */
enum { MAX_VALUES = 24, MAX_INPUTS = 4, MAX_OUTPUTS = 4, MAX_WIDTH = 4, MAX_DEPTH = 2 };
enum kind { MIX, COUNT, LOOP, BRANCH };

typedef struct graph graph;
typedef struct {
    enum kind kind;
    uint64_t salt;
    bool fails, random_count, reverse;
    int n_in, n_out, in[MAX_INPUTS], first_out, length, chain;
    graph *body, *test, *other;               /* other: the second way of a branch */
} step;

struct graph {
    int n_in, n_values, n_steps, n_out, widths[MAX_VALUES], outputs[MAX_OUTPUTS], chains[MAX_VALUES];
    bool readable[MAX_VALUES];                /* what a way that was not gone leaves unwritten is not */
    step steps[MAX_VALUES];
    uintptr_t program;
};

typedef struct { uint64_t salt; int n_in, widths[2], width; bool fails; } mix_params;

static uint64_t mixed(uint64_t a, uint64_t b) { return (a ^ b) * 0x9E3779B97F4A7C15u + (a << 7) + (b >> 29); }

static _Thread_local uint64_t state;

static int below(int n)                       /* xorshift64* */
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (int)((state * 2685821657736338717u >> 33) % (uint64_t)n);
}

/* ---- kernels ---------------------------------------------------------------------------------------------- */

static void mix(const mix_params *p, const uint64_t *a, const uint64_t *b, uint64_t *out)
{
    uint64_t made[MAX_WIDTH];
    for (int i = 0; i < p->width; i++)
        made[i] = mixed(mixed(p->salt + (uint64_t)i, a[i % p->widths[0]]), b[i % p->widths[1]]);
    memcpy(out, made, sizeof *made * (size_t)p->width);
}

static int mix_run(const void *params, void *const *bufs, const double *scalars)
{
    const mix_params *p = params;
    if (p->fails)
        return pl_fail(PL_FAILED, "a mix fails");
    mix(p, bufs[0], bufs[1], bufs[2]);
    return scalars[0] == (double)(p->salt % 1000) ? PL_OK : pl_fail(PL_FAILED, "these are another plan's scalars");
}

static int count_run(const void *params, void *const *bufs, const double *scalars)
{
    const mix_params *p = params;
    (void)scalars;
    *(uint64_t *)bufs[1] = *(const uint64_t *)bufs[0] % p->salt;
    return PL_OK;
}

/* ---- random graphs ---------------------------------------------------------------------------------------- */

static graph *graph_random(int n_in, const int *in_widths, int n_out, const int *out_widths, int depth, int n_chains);

static int value_add(graph *g, int width, int chain, bool readable)
{
    CHECK(g->n_values < MAX_VALUES);
    g->widths[g->n_values] = width;
    g->chains[g->n_values] = chain;
    g->readable[g->n_values] = readable;
    return g->n_values++;
}

/* A value that a step of this chain may read: an input, its own chain's, or any where chain is -1. */
static int value_any(const graph *g, int chain)
{
    for (;;) {
        int v = below(g->n_values);
        if (g->readable[v] && (chain < 0 || g->chains[v] < 0 || g->chains[v] == chain))
            return v;
    }
}

static void add_mix(graph *g, int width, int chain)
{
    step *s = &g->steps[g->n_steps++];
    *s = (step){.kind = MIX, .salt = (uint64_t)below(1 << 30), .fails = below(60) == 0, .n_in = 2, .n_out = 1,
                .in = {value_any(g, chain), value_any(g, chain)}, .chain = chain};
    s->first_out = value_add(g, width, chain, true);
}

/* Inputs: what is sliced, two states, one as it is[, the count]. Outputs: the states, the stack, the iterations. */
static void add_loop(graph *g, int depth, int chain)
{
    int length = 1 + below(MAX_WIDTH), n_in = 4, in[MAX_INPUTS];
    for (int i = 0; i < 4; i++)
        in[i] = value_any(g, chain);
    bool counted = below(3) == 0, tested = !counted && below(2);
    if (counted) {                            /* a mix, its remainder, a slot less for what is as it is */
        step *c = &g->steps[g->n_steps++];
        *c = (step){.kind = COUNT, .salt = (uint64_t)length + 1, .n_in = 1, .n_out = 1, .in = {value_any(g, chain)},
                    .chain = chain};
        c->first_out = in[3] = value_add(g, 1, chain, true);
    }
    if (g->widths[in[0]] < length)
        length = g->widths[in[0]];
    if (counted)
        g->steps[g->n_steps - 1].salt = (uint64_t)length + 1;
    int widths[MAX_INPUTS] = {1, g->widths[in[1]], g->widths[in[2]], g->widths[in[3]]};
    int out_widths[MAX_OUTPUTS] = {widths[1], widths[2], 1};
    step *s = &g->steps[g->n_steps++];
    *s = (step){.kind = LOOP, .n_in = n_in, .n_out = 4, .length = length, .random_count = counted,
                .reverse = !tested && below(2), .chain = chain};
    memcpy(s->in, in, sizeof in);
    s->body = graph_random(4, widths, 3, out_widths, depth - 1, 1);
    if (tested)
        s->test = graph_random(2, widths + 1, 1, (int[]){1}, 0, 1);
    s->first_out = value_add(g, widths[1], chain, true);
    value_add(g, widths[2], chain, true);
    value_add(g, length, chain, true);
    value_add(g, 1, chain, true);
}

/* Inputs: two, tested and read. Outputs: one of both ways, one of each, which way. */
static void add_branch(graph *g, int depth, int chain)
{
    int in[2] = {value_any(g, chain), value_any(g, chain)}, widths[2] = {g->widths[in[0]], g->widths[in[1]]};
    int out_widths[2] = {1 + below(MAX_WIDTH), 1 + below(MAX_WIDTH)};
    step *s = &g->steps[g->n_steps++];
    *s = (step){.kind = BRANCH, .n_in = 2, .n_out = 4, .in = {in[0], in[1]}, .chain = chain};
    s->test = graph_random(2, widths, 1, (int[]){1}, 0, 1);
    s->body = graph_random(2, widths, 2, out_widths, depth - 1, 1);
    s->other = graph_random(2, widths, 2, out_widths, depth - 1, 1);
    s->first_out = value_add(g, out_widths[0], chain, true);
    value_add(g, out_widths[1], chain, false);
    value_add(g, out_widths[1], chain, false);
    value_add(g, 1, chain, true);
}

/* Chains of steps that do not read each other, then the steps of the outputs, which read anything. */
static graph *graph_random(int n_in, const int *in_widths, int n_out, const int *out_widths, int depth, int n_chains)
{
    graph *g = calloc(1, sizeof *g);
    CHECK(g);
    for (int i = 0; i < n_in; i++)
        value_add(g, in_widths[i], -1, true);
    g->n_in = n_in;
    for (int chain = 0; chain < n_chains; chain++)
        for (int i = 0; i < 2 + below(2) && g->n_values + 5 + 2 * (n_chains - chain) + n_out < MAX_VALUES; i++) {
            int what = depth > 0 ? below(4) : 0;
            if (what == 1)
                add_loop(g, depth, chain);
            else if (what == 2)
                add_branch(g, depth, chain);
            else
                add_mix(g, 1 + below(MAX_WIDTH), chain);
        }
    g->n_out = n_out;
    for (int k = 0; k < n_out; k++) {
        add_mix(g, out_widths[k], -1);
        g->outputs[k] = g->n_values - 1;
    }
    return g;
}

static void graph_free(void *graph_or_null)
{
    graph *g = graph_or_null;
    if (!g)
        return;
    pl_program_free(g->program);
    for (int i = 0; i < g->n_steps; i++) {
        graph_free(g->steps[i].body);
        graph_free(g->steps[i].test);
        graph_free(g->steps[i].other);
    }
    free(g);
}

static mix_params params_of(const graph *g, const step *s)
{
    return (mix_params){.salt = s->salt, .n_in = s->n_in, .widths = {g->widths[s->in[0]], g->widths[s->in[1]]},
                        .width = g->widths[s->first_out], .fails = s->fails};
}

/* ---- what has to come out --------------------------------------------------------------------------------- */

typedef uint64_t number[MAX_WIDTH];

static bool graph_oracle(const graph *g, number *in, number *out);

static bool loop_oracle(const step *s, number *in, number *out)
{
    uint64_t n = s->random_count ? in[3][0] : (uint64_t)s->length, done = 0;
    number now[4], next[3], flag;
    memcpy(now, in, sizeof now);
    memset(out, 0, 4 * sizeof *out);
    for (; done < n; done++) {
        uint64_t t = s->reverse ? n - 1 - done : done;
        if (s->test) {
            if (!graph_oracle(s->test, now + 1, &flag))
                return false;
            if (!flag[0])
                break;
        }
        now[0][0] = in[0][t];
        if (!graph_oracle(s->body, now, next))
            return false;
        memcpy(now + 1, next, 2 * sizeof *next);
        out[2][t] = next[2][0];
    }
    memcpy(out, now + 1, 2 * sizeof *now);
    out[3][0] = done;
    return true;
}

static bool branch_oracle(const step *s, number *in, number *out)
{
    number flag, made[2];
    if (!graph_oracle(s->test, in, &flag) || !graph_oracle(flag[0] ? s->body : s->other, in, made))
        return false;
    memcpy(out[0], made[0], sizeof *made);
    out[3][0] = flag[0] != 0;
    return true;
}

/* Returns how many steps come before the one that fails; all of them: none does. */
static int steps_oracle(const graph *g, number *in, number *out)
{
    int n_good = 0;
    number values[MAX_VALUES];
    memcpy(values, in, (size_t)g->n_in * sizeof *in);
    for (int i = 0; i < g->n_steps; i++) {
        const step *s = &g->steps[i];
        number given[MAX_INPUTS];
        for (int k = 0; k < s->n_in; k++)
            memcpy(given[k], values[s->in[k]], sizeof *given);
        mix_params p = params_of(g, s);
        bool good = !s->fails;
        if (s->kind == MIX && good)
            mix(&p, given[0], given[1], values[s->first_out]);
        else if (s->kind == COUNT)
            values[s->first_out][0] = given[0][0] % s->salt;
        else if (s->kind == LOOP)
            good = loop_oracle(s, given, values + s->first_out);
        else if (s->kind == BRANCH)
            good = branch_oracle(s, given, values + s->first_out);
        if (!good)
            break;
        n_good++;
    }
    for (int k = 0; k < g->n_out; k++)
        memcpy(out[k], values[g->outputs[k]], sizeof *out);
    return n_good;
}

static bool graph_oracle(const graph *g, number *in, number *out)
{
    return steps_oracle(g, in, out) == g->n_steps;
}

/* The last step that makes or reads an output. */
static int last_use(const graph *g, int output)
{
    int last = 0;
    for (int i = 0; i < g->n_steps; i++) {
        for (int k = 0; k < g->steps[i].n_in; k++)
            if (g->steps[i].in[k] == g->outputs[output])
                last = i;
        if (g->steps[i].first_out == g->outputs[output])
            last = i;
    }
    return last;
}

/* ---- programs of graphs ----------------------------------------------------------------------------------- */

static void graph_compile(graph *g, int flags, int lane, int device, bool split);

static const int32_t as_inputs[] = {PL_PART_WHOLE, PL_PART_WHOLE}, of_states[] = {PL_PART_STATE, PL_PART_STATE},
                     in_order[] = {0, 1, 2, 3}, two[] = {1, 2}, stacked[] = {2}, places[] = {0, 0, 1, 3},
                     of_loop[] = {PL_PART_SLICE, PL_PART_STATE, PL_PART_STATE, PL_PART_WHOLE};
static const int64_t one_number[] = {8, 0, 0, 0};

typedef struct { int64_t state_bytes[2]; } loop_sizes;

static uintptr_t loop_plan(const graph *g, const step *s, const size_t *out_bytes)
{
    loop_sizes *sizes = malloc(sizeof *sizes);
    CHECK(sizes);
    for (int i = 0; i < 2; i++)
        sizes->state_bytes[i] = 8 * g->widths[s->in[1 + i]];
    pl_loop p = {.body = {s->body->program, 4, 3, of_loop, places, one_number, NULL},
                 .length = s->length, .n_in = 4, .n_stacked = 1, .n_states = 2, .reverse = s->reverse,
                 .count_at = s->random_count ? 3 : -1, .count_out = 3, .flag_bytes = 8,
                 .states_at = two, .stacked_at = stacked, .next_at = in_order, .result_at = stacked,
                 .final_at = in_order, .state_bytes = sizes->state_bytes, .out_bytes = one_number};
    if (s->test)
        p.test = (pl_part){s->test->program, 2, 1, of_states, in_order, one_number, NULL};
    uintptr_t plan = pl_plan_new(pl_kernel_loop, &p, sizeof p, 4, 4, out_bytes, NULL, 0, 0, 0, 0, "loop", NULL);
    pl_plan_own(plan, free, sizes);
    return plan;
}

static uintptr_t branch_plan(const step *s, const size_t *out_bytes)
{
    pl_branch p = {.test = {s->test->program, 2, 1, as_inputs, in_order, one_number, NULL},
                   .ways = {{s->body->program, 2, 2, as_inputs, in_order, one_number, NULL},
                            {s->other->program, 2, 2, as_inputs, in_order, one_number, NULL}},
                   .n_in = 2, .n_shared = 1, .first_own = {1, 2}, .flag_at = 3, .flag_bytes = 8};
    return pl_plan_new(pl_kernel_branch, &p, sizeof p, 2, 4, out_bytes, NULL, 0, 0, 0, 0, "branch", NULL);
}

static uintptr_t step_plan(const graph *g, step *s)
{
    size_t out_bytes[MAX_OUTPUTS];
    for (int k = 0; k < s->n_out; k++)
        out_bytes[k] = 8 * (size_t)g->widths[s->first_out + k];
    graph *parts[] = {s->body, s->test, s->other};
    for (int i = 0; i < 3; i++)
        if (parts[i])
            graph_compile(parts[i], 0, 0, 0, below(2));
    if (s->kind == LOOP)
        return loop_plan(g, s, out_bytes);
    if (s->kind == BRANCH)
        return branch_plan(s, out_bytes);
    mix_params p = params_of(g, s);
    return pl_plan_new(s->kind == MIX ? mix_run : count_run, &p, sizeof p, s->n_in, 1, out_bytes, NULL,
                       s->kind == MIX, 0, 0, 0, s->kind == MIX ? "mix" : "count", NULL);
}

static void graph_compile(graph *g, int flags, int lane, int device, bool split)
{
    uintptr_t plans[MAX_VALUES];
    pl_slot slots[MAX_VALUES * (MAX_INPUTS + MAX_OUTPUTS)], where[MAX_VALUES];
    double scalars[MAX_VALUES];
    size_t out_bytes[MAX_OUTPUTS], arena_bytes = 0;
    int n_slots = 0, n_scalars = 0, n_ends = 0;
    int32_t ends[MAX_VALUES], sections[MAX_VALUES];
    for (int v = 0; v < g->n_values; v++) {   /* every value has a place of its own, no byte beside it */
        where[v] = (pl_slot){PL_SLOT_ARENA, 0, (int64_t)arena_bytes};
        if (v < g->n_in)
            where[v] = (pl_slot){PL_SLOT_INPUT, v, 0};
        else
            arena_bytes += 8 * (size_t)g->widths[v];
    }
    for (int k = 0; k < g->n_out; k++) {
        where[g->outputs[k]] = (pl_slot){PL_SLOT_OUTPUT, k, 0};
        out_bytes[k] = 8 * (size_t)g->widths[g->outputs[k]];
    }
    for (int i = 0; i < g->n_steps; i++) {
        step *s = &g->steps[i];
        CHECK((plans[i] = step_plan(g, s)));
        for (int k = 0; k < s->n_in; k++)
            slots[n_slots++] = where[s->in[k]];
        for (int k = 0; k < s->n_out; k++)
            slots[n_slots++] = where[s->first_out + k];
        if (s->kind == MIX)
            scalars[n_scalars++] = (double)(s->salt % 1000);
        bool last = i + 1 == g->n_steps || g->steps[i + 1].chain != s->chain;
        if (last) {
            sections[n_ends] = s->chain < 0;
            ends[n_ends++] = i + 1;
        }
    }
    static const uint8_t modes[MAX_INPUTS] = {PL_READ, PL_READ, PL_READ, PL_READ};
    g->program = pl_program_new(g->n_in, modes, g->n_out, out_bytes, g->n_steps, plans, slots, scalars, arena_bytes,
                                flags, lane, device, "graph");
    CHECK(g->program);
    for (int i = 0; i < g->n_steps; i++)
        pl_plan_free(plans[i]);
    if (split)
        CHECK(pl_program_split(g->program, 3, n_ends, ends, sections) == PL_OK);
}

/* ---- runs from several threads ---------------------------------------------------------------------------- */

enum { N_THREADS = 3, N_RUNS = 6, N_RESULTS = 3 };

typedef struct { const graph *graph; uint64_t seed; } runner;

static void *run_often(void *arg)
{
    const runner *r = arg;
    const graph *g = r->graph;
    uintptr_t in[MAX_INPUTS], out[N_RUNS][MAX_OUTPUTS] = {0};
    number given[MAX_INPUTS], expected[MAX_OUTPUTS];
    state = r->seed;
    for (int i = 0; i < g->n_in; i++) {
        size_t bytes = 8 * (size_t)g->widths[i];
        for (int k = 0; k < MAX_WIDTH; k++)
            given[i][k] = (uint64_t)below(1 << 30);
        CHECK((in[i] = pl_array_new(bytes)));
        memcpy(pl_array_data(in[i]), given[i], bytes);
    }
    int n_good = steps_oracle(g, given, expected);
    for (int run = 0; run < N_RUNS; run++) {
        CHECK(pl_program_run(g->program, in, out[run], NULL, run) == PL_OK);
        if (below(3) == 0)
            wait_read(out[run][0]);
    }
    for (int i = 0; i < g->n_in; i++)
        pl_array_free(in[i]);
    for (int run = 0; run < N_RUNS; run++)
        for (int k = 0; k < g->n_out; k++) {
            bool good = last_use(g, k) < n_good;         /* what is made before a failure stands */
            CHECK(wait_read(out[run][k]) == (good ? PL_OK : PL_FAILED));
            if (good)
                CHECK(memcmp(pl_array_data(out[run][k]), expected[k], 8 * (size_t)g->widths[g->outputs[k]]) == 0);
            else
                CHECK(strcmp(pl_error_message(), "a mix fails") == 0);
            pl_array_free(out[run][k]);
        }
    pl_error_forget();
    return NULL;
}

void random_control(uint64_t seed)
{
    state = seed * 0x9E3779B97F4A7C15u + 1;
    int in_widths[MAX_INPUTS], out_widths[N_RESULTS];
    for (int i = 0; i < MAX_INPUTS; i++)
        in_widths[i] = 1 + below(MAX_WIDTH);
    for (int k = 0; k < N_RESULTS; k++)
        out_widths[k] = 1 + below(MAX_WIDTH);
    graph *g = graph_random(MAX_INPUTS, in_widths, N_RESULTS, out_widths, MAX_DEPTH, 1 + below(3));
    int flags = (below(2) ? PL_PLAN_INLINE : 0) | (below(2) ? PL_PLAN_BRIEF : 0);
    graph_compile(g, flags, below(3), below(2), below(3) > 0);
    pl_engine_set_naive(below(8) == 0);
    pthread_t threads[N_THREADS];
    runner runners[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        runners[i] = (runner){g, seed * 64 + (uint64_t)i + 1};
        CHECK(pthread_create(&threads[i], NULL, run_often, &runners[i]) == 0);
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    report_all();
    CHECK(pl_engine_pending() == 0);
    graph_free(g);
}
