/* Programs: a lowered graph, an array of (plan, buffers) over one arena; running one is a single op. */
#include "program.h"
#include "claims.h"
#include "launch.h"
#include "name.h"
#include "profiler.h"
#include "random.h"
#include "replay.h"
#include "thread_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BRANCH_BUFS = 16 };     /* of an instruction in a branch that runs at the same time as others */

typedef struct layer_names { struct layer_names *next; const char *names[]; } layer_names;

static void program_destroy(pl_object *object)
{
    pl_program *p = (pl_program *)object;
    for (layer_names *next, *l = p->layers; l; l = next) {
        next = l->next;
        free(l);
    }
    for (int i = 0; p->instr && i < p->n_instr; i++)
        pl_plan_free((uintptr_t)p->instr[i].plan);
    free(p->in_modes);
    free(p->out_bytes);
    free(p->instr);
    free(p->slots);
    free(p->scalars);
    free(p->dynamic);
    free(p->order);
    free(p->last);
    free(p->first);
    free(p->ends);
    free(p->sections);
    if (p->replays)
        pl_replays_free(p->replays);
    free(p);
}

/* Fills in the instructions; returns the number of all their scalars. */
static size_t instructions_init(pl_program *p, int n_instr, const uintptr_t *plans)
{
    int n_scalars = 0;
    pl_enter();
    for (int i = 0; i < n_instr; i++) {
        pl_plan *plan = (pl_plan *)plans[i];
        plan->object.refs++;
        p->instr[i] = (pl_instruction){.plan = plan, .first_slot = p->n_slots, .n_bufs = plan->n_in + plan->n_out,
                                    .first_scalar = n_scalars, .n_scalars = plan->n_scalars,
                                    .random = (plan->flags & PL_PLAN_RANDOM) != 0};
        p->n_slots += p->instr[i].n_bufs;
        p->n_random += p->instr[i].random;
        n_scalars += plan->n_scalars;
        if (p->instr[i].n_bufs > p->max_bufs)
            p->max_bufs = p->instr[i].n_bufs;
        if (plan->n_scalars > p->max_scalars)
            p->max_scalars = plan->n_scalars;
    }
    p->n_instr = n_instr;
    pl_leave();
    return (size_t)n_scalars;
}

static int branch_begin(const pl_program *p, int branch) { return branch ? p->ends[branch - 1] : 0; }

int pl_section_end(const pl_program *p, int branch)
{
    int end = branch + 1;
    while (end < p->n_branches && p->sections[end] == p->sections[branch])
        end++;
    return end;
}

/* Finds the last use of each input and output; false: out of memory. Arrays that the last instruction uses do not end
 * early. */
static bool last_uses_init(pl_program *p)
{
    int n = p->n_in + p->n_out;
    p->n_releases = 0;
    p->last = malloc(((size_t)n + 1) * sizeof *p->last);
    p->order = malloc(((size_t)n + 1) * sizeof *p->order);
    int *begins = calloc((size_t)p->n_instr + 1, sizeof *begins);
    if (p->last && p->order && begins) {
        for (int i = 0; i < n; i++)           /* the default: no instruction uses it */
            p->last[i] = i < p->n_in ? 0 : p->n_instr - 1;
        for (int i = 0; i < p->n_instr; i++)
            for (int k = p->instr[i].first_slot; k < p->instr[i].first_slot + p->instr[i].n_bufs; k++)
                if (p->slots[k].kind != PL_SLOT_ARENA)
                    p->last[p->slots[k].index + (p->slots[k].kind == PL_SLOT_OUTPUT ? p->n_in : 0)] = i;
        for (int i = 0; i < n; i++)
            begins[p->last[i] + 1] += p->last[i] + 1 < p->n_instr;
        for (int i = 1; i <= p->n_instr; i++)
            begins[i] += begins[i - 1];
        for (int i = 0; i < n; i++)
            if (p->last[i] + 1 < p->n_instr) {
                p->order[begins[p->last[i]]++] = i;
                p->n_releases++;
            }
    }
    free(begins);
    return p->last && p->order && begins;
}

/* Finds the first use of each input and output; false: out of memory. Of concurrent branches no one waits, so what they
 * use is claimed before their section; and a kernel in Python may read any array of its op. */
static bool first_uses_init(pl_program *p)
{
    int n = p->n_in + p->n_out, python = p->n_instr;
    bool any = false;
    if (pl_lane_is_gpu(p->lane))              /* work is enqueued ahead of what it waits for, and recorded as a whole */
        return true;
    free(p->first);
    if (!(p->first = calloc((size_t)n + 1, sizeof *p->first)))
        return false;
    for (int i = p->n_instr - 1; i >= 0; i--) {
        if (p->instr[i].plan->flags & PL_PLAN_PYTHON)
            python = i;
        for (int k = p->instr[i].first_slot; k < p->instr[i].first_slot + p->instr[i].n_bufs; k++)
            if (p->slots[k].kind != PL_SLOT_ARENA)
                p->first[p->slots[k].index + (p->slots[k].kind == PL_SLOT_OUTPUT ? p->n_in : 0)] = i;
    }
    for (int i = 0; i < n; i++) {
        p->first[i] = p->first[i] < python ? p->first[i] : python;
        for (int b = 0, end; b < p->n_branches; b = end) {
            end = pl_section_end(p, b);
            if (end - b > 1 && p->first[i] < p->ends[end - 1] && p->first[i] > branch_begin(p, b))
                p->first[i] = branch_begin(p, b);
        }
        any |= p->first[i] > 0;
    }
    if (!any) {
        free(p->first);
        p->first = NULL;
    }
    return true;
}

uintptr_t pl_program_new(int n_in, const uint8_t *in_modes, int n_out, const size_t *out_bytes, int n_instr,
                         const uintptr_t *plans, const pl_slot *slots, const double *scalars, size_t arena_bytes,
                         int flags, int lane, int device, const char *name)
{
    pl_program *p = calloc(1, sizeof *p);
    if (p) {
        *p = (pl_program){.object = {.refs = 1, .destroy = program_destroy}, .n_in = n_in, .n_out = n_out,
                          .flags = flags, .lane = lane, .device = device, .arena_bytes = arena_bytes,
                          .instr = calloc((size_t)n_instr + 1, sizeof *p->instr), .name = pl_name(name)};
        if (p->instr && p->name) {
            size_t n_scalars = instructions_init(p, n_instr, plans);
            p->n_scalars = (int64_t)n_scalars;
            p->in_modes = pl_copied(in_modes, (size_t)n_in, 1);
            p->out_bytes = pl_copied(out_bytes, (size_t)n_out, sizeof *out_bytes);
            p->slots = pl_copied(slots, (size_t)p->n_slots, sizeof *slots);
            p->scalars = pl_copied(scalars, n_scalars, sizeof *scalars);
            if (p->in_modes && p->out_bytes && p->slots && p->scalars && last_uses_init(p) && first_uses_init(p))
                return (uintptr_t)p;
        }
        program_destroy(&p->object);
    }
    pl_fail(PL_ENOMEM, "program: out of memory");
    return 0;
}

int pl_program_set_layers(uintptr_t program, const char *const *names)
{
    pl_program *p = (pl_program *)program;
    size_t bytes = (size_t)p->n_instr * sizeof *names;
    pl_enter();
    layer_names *l, **at = &p->layers;
    while ((l = *at) && memcmp(l->names, names, bytes) != 0)
        at = &l->next;
    if (l)
        *at = l->next;
    else if ((l = malloc(sizeof *l + bytes)))
        memcpy(l->names, names, bytes);
    if (l) {
        l->next = p->layers;
        p->layers = l;
    }
    pl_leave();
    return l ? PL_OK : pl_fail(PL_ENOMEM, "program: out of memory");
}

void pl_program_free(uintptr_t program) { pl_plan_free(program); }    /* both begin with a pl_object */

const double *pl_instruction_args(const pl_instruction *in, pl_program_args *call, void **bufs)
{
    const pl_program *p = call->program;
    const pl_slot *slot = &p->slots[in->first_slot];
    const double *scalars = call->all + in->first_scalar;
    char **inputs = call->data, **outputs = call->data + p->n_in;
    for (int k = 0; k < in->n_bufs; k++) {
        char *base = slot[k].kind == PL_SLOT_ARENA ? call->arena :
                     slot[k].kind == PL_SLOT_INPUT ? inputs[slot[k].index] : outputs[slot[k].index];
        bufs[k] = base + slot[k].offset_bytes;
    }
    if (in->random) {
        memcpy(call->scalars, scalars, (size_t)in->n_scalars * sizeof(double));
        call->scalars[in->n_scalars] = (double)call->seed;
        call->scalars[in->n_scalars + 1] = (double)call->counter++;
        scalars = call->scalars;
    }
    return scalars;
}

/* *last_ns: when this thread's instruction before it ended, for the profiler, or 0: reading the clock costs more than
 * what lies between two instructions. */
static int instruction_run(const pl_instruction *in, pl_program_args *call, void **bufs, int64_t *last_ns)
{
    const double *scalars = pl_instruction_args(in, call, bufs);
    if (!pl_profiler_on())
        return pl_kernel_run(in->plan, bufs, scalars);
    int64_t start_ns = *last_ns ? *last_ns : pl_profiler_now();
    pl_event event = {.name = in->plan->name, .label = pl_plan_label(in->plan), .start_ns = start_ns, .seq = call->seq,
                      .layer = call->layers ? call->layers[in - call->program->instr] : NULL, .location = -1,
                      .kind = PL_EVENT_INSTRUCTION};
    if (pl_lane_is_gpu(in->plan->lane))
        return pl_kernel_run_timed(in->plan, bufs, scalars, event);
    pl_profiler_start(&event);
    int status = pl_kernel_run(in->plan, bufs, scalars);
    pl_profiler_end(&event, status != PL_OK);
    *last_ns = event.end_ns;
    return status;
}

/* Runs instructions [*at, end); leaves *at on the one that failed. */
static int range_run(pl_program_args *call, void **bufs, int *at, int end)
{
    int status = PL_OK;
    int64_t last_ns = 0;
    for (; *at < end; ++*at)
        if ((status = instruction_run(&call->program->instr[*at], call, bufs, &last_ns)) != PL_OK)
            break;
    return status;
}

/* As range_run; reports to the engine where arrays have had their last use. */
static int range_run_reporting(pl_program_args *call, int *at, int end)
{
    const pl_program *p = call->program;
    int status = PL_OK;
    while (*at < end && status == PL_OK) {
        int stop = call->op && call->n_reported < p->n_releases ? p->last[p->order[call->n_reported]] + 1 : end;
        status = range_run(call, call->bufs, at, stop < end ? stop : end);
        if (status == PL_OK)
            pl_program_report(call, *at);
    }
    return status;
}

void pl_program_report(pl_program_args *call, int n_done)
{
    const pl_program *p = call->program;
    int before = call->n_reported;
    if (!call->op)
        return;
    while (call->n_reported < p->n_releases && p->last[p->order[call->n_reported]] < n_done)
        call->n_reported++;
    if (call->n_reported == before)
        return;
    if (call->op->claims->n_marks)
        pl_program_mark(call, before, n_done);
    pl_claims_report(call->op, n_done);
}

/* If several branches fail, the error of the first one is kept. */
typedef struct {
    pl_program_args *call;
    int first, failed, status, at;
    char message[256];
    pthread_mutex_t lock;
} section;

static void branch_piece(void *arg, int64_t i)
{
    section *s = arg;
    void *bufs[BRANCH_BUFS];
    int b = s->first + (int)i, here = branch_begin(s->call->program, b);
    int status = range_run(s->call, bufs, &here, s->call->program->ends[b]);
    if (status == PL_OK)
        return;
    pthread_mutex_lock(&s->lock);
    if (b < s->failed) {
        s->failed = b;
        s->status = status;
        s->at = here;
        snprintf(s->message, sizeof s->message, "%s", pl_error_message());
    }
    pthread_mutex_unlock(&s->lock);
}

/* Runs branches [first, end) at once. The message of a failure moves to this thread. */
static int section_run(pl_program_args *call, int first, int end, int *at)
{
    section s = {.call = call, .first = first, .failed = end, .lock = PTHREAD_MUTEX_INITIALIZER};
    pl_thread_pool_run(call->program->threads, end - first, branch_piece, &s);
    if (s.status == PL_OK)
        return PL_OK;
    *at = s.at;
    return pl_fail(s.status, s.message);
}

static int branches_run(pl_program_args *call, int *at)
{
    const pl_program *p = call->program;
    int status = PL_OK;
    for (int b = 0, end; b < p->n_branches && *at < call->end && status == PL_OK; b = end) {
        end = pl_section_end(p, b);
        int stop = p->ends[end - 1] < call->end ? p->ends[end - 1] : call->end;
        if (*at < stop && end - b > 1 && p->threads > 1 && pl_lane_has_pool()) {
            status = section_run(call, b, end, at);
            if (status == PL_OK)
                pl_program_report(call, *at = stop);
        } else {
            status = range_run_reporting(call, at, stop);
        }
    }
    return status;
}

int pl_instructions_run(pl_program_args *call, int *at)
{
    const pl_program *p = call->program;
    *at = call->begin;
    return p->n_branches ? branches_run(call, at) : range_run_reporting(call, at, call->end);
}

static int run_on_host(pl_op *op, pl_program_args *call, int *at)
{
    if (!call->arena) {
        pl_enter();
        call->arena = pl_storage_alloc(call->program->arena_bytes);
        pl_leave();
        if (!call->arena)
            return PL_ENOMEM;
    }
    if (op->claims && op->claims->first)
        call->end = op->claims->until;
    int status = pl_instructions_run(call, at);
    call->begin = call->end;
    return status;
}

static void arena_free(pl_op *op)
{
    pl_program_args *call = op->payload;
    if (!call->arena)
        return;
    pl_enter();
    pl_storage_free(call->arena, call->program->arena_bytes);
    pl_leave();
}

static int program_run(pl_op *op)
{
    pl_program_args *call = op->payload;
    if (op->late && pl_op_give(op, call->program->n_in + call->program->n_out, call->data, call->requests) != PL_OK)
        return PL_ENOMEM;
    call->op = op->claims && op->claims->awaited ? op : NULL;
    if (op->stream && op->claims && pl_program_marks(op) > 0)
        call->op = op;
    int at = -1, status = op->stream ? pl_program_run_on_gpu(op, call, &at) : run_on_host(op, call, &at);
    if (status != PL_OK && at >= 0) {
        op->name = call->program->instr[at].plan->name;
        if (op->claims)
            atomic_store(&op->claims->n_done, at);
    }
    return status;
}

static size_t call_bytes(const pl_program *p)
{
    size_t n = (size_t)p->n_in + (size_t)p->n_out;
    return (sizeof(pl_program_args) + (n + (size_t)p->max_bufs) * sizeof(void *) +
            ((size_t)p->max_scalars + 2) * sizeof(double) + 63) & ~(size_t)63;
}

size_t pl_program_scratch_bytes(uintptr_t program)
{
    return call_bytes((const pl_program *)program);
}

size_t pl_program_arena_bytes(uintptr_t program) { return ((const pl_program *)program)->arena_bytes; }

int pl_program_call(uintptr_t program, char *const *data, void *scratch, void *arena, uint64_t seed, uint64_t *counter)
{
    const pl_program *p = (const pl_program *)program;
    size_t n = (size_t)p->n_in + (size_t)p->n_out;
    pl_program_args *call = scratch;
    call->program = p;
    call->scalars = (double *)(call->data + n);
    call->all = p->scalars;
    call->bufs = (void **)(call->scalars + p->max_scalars + 2);
    call->seed = seed;
    call->counter = *counter;
    call->op = NULL;
    call->layers = p->layers ? p->layers->names : NULL;
    call->seq = 0;
    call->n_reported = call->begin = 0;
    call->end = p->n_instr;
    memcpy(call->data, data, n * sizeof *data);
    int at;
    call->arena = arena;
    int status = pl_instructions_run(call, &at);
    *counter = call->counter;
    return status;
}

int pl_program_split(uintptr_t program, int threads, int n, const int32_t *ends, const int32_t *sections)
{
    pl_program *p = (pl_program *)program;
    for (int b = 0; b < n; b++)               /* concurrent branches: at most BRANCH_BUFS, not random */
        if ((b + 1 < n && sections[b] == sections[b + 1]) || (b && sections[b] == sections[b - 1]))
            for (int i = b ? ends[b - 1] : 0; i < ends[b]; i++)
                if (p->instr[i].n_bufs > BRANCH_BUFS || p->instr[i].random)
                    return pl_fail(PL_EINVAL,
                                   "program: an instruction of a concurrent branch is random or has too many arrays");
    p->ends = pl_copied(ends, (size_t)n, sizeof *ends);
    p->sections = pl_copied(sections, (size_t)n, sizeof *sections);
    if (!p->ends || !p->sections)
        return pl_fail(PL_ENOMEM, "program: out of memory");
    p->n_branches = n;
    p->threads = threads;
    return first_uses_init(p) ? PL_OK : pl_fail(PL_ENOMEM, "program: out of memory");
}

int pl_program_set_dynamic(uintptr_t program, int n, const int32_t *at)
{
    pl_program *p = (pl_program *)program;
    p->dynamic = pl_copied(at, (size_t)n, sizeof *at);
    if (!p->dynamic)
        return pl_fail(PL_ENOMEM, "program: out of memory");
    p->n_dynamic = n;
    return PL_OK;
}

/* The scalars of a run: the program's own, or a copy with the dynamic ones set. */
static const double *scalars_of_run(const pl_program *p, const double *dynamic, double *copy)
{
    if (!p->n_dynamic)
        return p->scalars;
    memcpy(copy, p->scalars, (size_t)p->n_scalars * sizeof(double));
    for (int i = 0; i < p->n_dynamic; i++)
        copy[p->dynamic[i]] = dynamic[i];
    return copy;
}

/* With the lock, after an op has claimed the arrays. */
static pl_claims *claims_fill(pl_claims *c, const pl_program *p, const int32_t *requests)
{
    *c = (pl_claims){.order = p->order, .last = p->last, .n = p->n_releases, .n_arrays = p->n_in + p->n_out,
                    .n_instr = p->n_instr, .request_of = requests};
    size_t n = (size_t)p->n_in + (size_t)p->n_out;
    if (pl_lane_is_gpu(p->lane)) {
        uint64_t *numbers = (uint64_t *)(c + 1);
        c->marks = (int32_t *)(numbers + n);
        c->number_of = memset(numbers, 0, n * sizeof *numbers);
    }
    return c;
}

static int run_once(uintptr_t handle, const uintptr_t *in, uintptr_t *out, const double *dynamic, int32_t location)
{
    pl_program *p = (pl_program *)handle;
    size_t n = (size_t)p->n_in + (size_t)p->n_out, n_scalars = (size_t)p->max_scalars + 2;
    size_t n_all = p->n_dynamic ? (size_t)p->n_scalars : 0;
    size_t per_array = pl_lane_is_gpu(p->lane) ? sizeof(uint64_t) + sizeof(int32_t) : 0;
    size_t claims_bytes = p->n_releases || p->first ? sizeof(pl_claims) + n * per_array : 0;
    pl_op *op;
    int status = pl_op_begin(&op, (int)n, sizeof(pl_program_args) + (n + (size_t)p->max_bufs) * sizeof(void *) +
                             (n_scalars + n_all) * sizeof(double) + claims_bytes + n * sizeof(int32_t) +
                             (size_t)p->n_out);
    if (status != PL_OK)
        return status;
    pl_program_args *call = op->payload;
    call->program = p;
    call->scalars = (double *)(call->data + n);
    call->all = scalars_of_run(p, dynamic, call->scalars + n_scalars);
    call->bufs = (void **)(call->scalars + n_scalars + n_all);
    call->n_reported = call->begin = 0;
    call->end = p->n_instr;
    call->arena = NULL;
    call->layers = p->layers ? p->layers->names : NULL;
    call->seq = op->seq;
    pl_claims *claims = (pl_claims *)(call->bufs + p->max_bufs);
    call->requests = (int32_t *)((char *)claims + claims_bytes);
    uint8_t *fresh = (uint8_t *)(call->requests + n);
    if (p->n_random)
        call->counter = pl_random_claim(p->n_random, &call->seed);
    op->run = program_run;
    op->brief = (p->flags & PL_PLAN_BRIEF) != 0;
    op->dispose = pl_lane_is_gpu(p->lane) ? NULL : arena_free;
    op->name = p->name;
    op->location = location;
    op->shared = &p->object;
    p->object.refs++;
    for (int i = 0; i < p->n_in; i++)
        call->data[i] = pl_input_claim(op, in[i], p->in_modes[i], &call->requests[i]);
    status = pl_outputs_claim(op, p->n_out, out, p->out_bytes, pl_memory_of(p->lane, p->device, p->flags),
                              !(p->flags & PL_PLAN_INLINE), call->data + p->n_in, call->requests + p->n_in, fresh);
    if (status == PL_OK) {
        if (claims_bytes)
            op->claims = claims_fill(claims, p, call->requests);
        if (op->claims && !op->on_blocks)
            op->claims->first = p->first;
        status = pl_op_submit(op, p->lane, p->device, (p->flags & PL_PLAN_INLINE) != 0);
        if (status == PL_OK)
            return PL_OK;
        pl_outputs_undo(p->n_out, out, fresh);
    }
    pl_op_abandon(op);
    return status;
}

int pl_program_run(uintptr_t handle, const uintptr_t *in, uintptr_t *out, const double *dynamic, int32_t location)
{
    const pl_program *p = (const pl_program *)handle;
    int status = run_once(handle, in, out, dynamic, location);
    if (status == PL_ENOMEM && pl_memory_wait(pl_memory_of(p->lane, p->device, p->flags)))
        status = run_once(handle, in, out, dynamic, location);
    return status;
}
