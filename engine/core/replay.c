/* Programs on a GPU. When a program runs a second time on the same memory, its launches are recorded as a CUDA graph;
 * later runs on that memory replay it with one call of the driver. Dynamic scalars and random counters are set before
 * each replay. A program with a kernel in Python, or with dynamic scalars for a kernel of a library, is never recorded.
 * Nothing is recorded while the profiler is on, which times each instruction. Branches of a section are recorded on
 * separate streams, each with its own scratch memory.
 */
#include "replay.h"
#include "claims.h"
#include "gpu.h"
#include "launch.h"
#include "profiler.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_KEPT = 8, MIN_INSTRUCTIONS = 3, MAX_MARKS = 24, ATTEMPTS = 2 };

/* A launch whose arguments change from run to run. */
typedef struct { int instruction, launch, branch; cu_node node; } changing;

typedef struct {
    void **memory;               /* of inputs, outputs and arena; NULL: this entry is free */
    uint64_t scratch_epoch;
    int64_t n_runs, last_run;
    cu_graph graph;              /* NULL: not recorded yet */
    cu_exec exec;
    changing *changes;
    int n_changes, n_marks;
    int32_t *marks;              /* instructions after which it records events */
    cu_event *events;
} replay;

struct pl_replays {
    bool never;                  /* the program cannot be recorded */
    int64_t n_runs;
    replay kept[MAX_KEPT];
};

static void recording_drop(replay *r)
{
    if (r->exec)
        cu.exec_free(r->exec);
    if (r->graph)
        cu.graph_free(r->graph);
    for (int i = 0; r->events && i < r->n_marks; i++)
        if (r->events[i]) {
            pl_stream_unmark(r->events[i]);
            cu.event_free(r->events[i]);
            r->events[i] = NULL;
        }
    free(r->changes);
    r->exec = NULL;
    r->graph = NULL;
    r->changes = NULL;
    r->n_changes = 0;
}

static void replay_clear(replay *r)
{
    recording_drop(r);
    free(r->memory);
    free(r->marks);
    free(r->events);
    *r = (replay){0};
}

void pl_replays_free(struct pl_replays *replays)
{
    for (int i = 0; i < MAX_KEPT; i++)
        replay_clear(&replays->kept[i]);
    free(replays);
}

/* Do the scalars of an instruction change from run to run? */
static bool changes(const pl_program *p, const pl_instruction *in)
{
    for (int i = 0; i < p->n_dynamic; i++)
        if (p->dynamic[i] >= in->first_scalar && p->dynamic[i] < in->first_scalar + in->n_scalars)
            return true;
    return in->random;
}

static bool can_record(const pl_program *p)
{
    for (int i = 0; i < p->n_instr; i++) {
        const pl_plan *plan = p->instr[i].plan;
        if (plan->flags & PL_PLAN_PYTHON || (changes(p, &p->instr[i]) && plan->kernel != pl_kernel_launch))
            return false;
    }
    return p->n_instr >= MIN_INSTRUCTIONS;
}

/* ---- events inside a run ------------------------------------------------------------------------------------
 *
 * After the last use of an array whose earlier contents another stream or the host has waited for. */

int pl_program_marks(pl_op *op)
{
    pl_claims *c = op->claims;
    int n = 0;
    if (!pl_watching || pl_engine.synchronous > 0)
        return 0;
    pl_enter();
    for (int k = 0; k < c->n; k++) {
        const pl_request *r = &op->requests[c->request_of[c->order[k]]];
        int last = c->last[c->order[k]];
        if (r->mode != PL_READ && r->var && r->var->block && r->var->block->watched && (!n || c->marks[n - 1] != last))
            c->marks[n++] = last;
    }
    pl_leave();
    if (n > MAX_MARKS) {                      /* too many: some arrays are ready a little later */
        for (int i = 0; i < MAX_MARKS; i++)
            c->marks[i] = c->marks[(i + 1) * n / MAX_MARKS - 1];
        n = MAX_MARKS;
    }
    return c->n_marks = n;
}

/* Without a recording: arrays [first_reported, n_reported) of the order have had their last use. */
void pl_program_mark(pl_program_args *call, int first_reported, int n_done)
{
    pl_claims *c = call->op->claims;
    int i = 0;
    while (i < c->n_marks && c->marks[i] != n_done - 1)
        i++;
    if (i == c->n_marks)
        return;
    uint64_t number = pl_stream_mark(call->op->stream);
    for (int k = first_reported; k < call->n_reported; k++)
        c->number_of[c->order[k]] = number;
}

/* ---- the memory of a run ---------------------------------------------------------------------------------- */

static size_t memory_count(const pl_program *p) { return (size_t)p->n_in + (size_t)p->n_out + 1; }

static const pl_claims *marked(const pl_program_args *call)    /* or NULL: no event is needed */
{
    return call->op && call->op->claims->n_marks ? call->op->claims : NULL;
}

static bool same_marks(const replay *r, const pl_program_args *call)
{
    const pl_claims *c = marked(call);
    return r->n_marks == (c ? c->n_marks : 0) &&
           (!c || memcmp(r->marks, c->marks, (size_t)c->n_marks * sizeof *c->marks) == 0);
}

static bool same_memory(const replay *r, const pl_program_args *call, const pl_stream *s)
{
    size_t n = memory_count(call->program) - 1;
    return r->memory && r->scratch_epoch == s->scratch_epoch && r->memory[n] == call->arena &&
           memcmp(r->memory, call->data, n * sizeof *r->memory) == 0 && same_marks(r, call);
}

/* The entry of this run's memory; a new one replaces the least recently used. NULL: out of host memory. */
static replay *replay_find(struct pl_replays *replays, const pl_program_args *call, const pl_stream *s)
{
    replay *oldest = &replays->kept[0];
    for (int i = 0; i < MAX_KEPT; i++) {
        replay *r = &replays->kept[i];
        if (same_memory(r, call, s))
            return r;
        if (r->last_run < oldest->last_run)
            oldest = r;
    }
    replay_clear(oldest);
    size_t n = memory_count(call->program);
    if (!(oldest->memory = malloc(n * sizeof *oldest->memory)))
        return NULL;
    memcpy(oldest->memory, call->data, (n - 1) * sizeof *oldest->memory);
    const pl_claims *c = marked(call);
    if (c) {
        oldest->marks = pl_copied(c->marks, (size_t)c->n_marks, sizeof *c->marks);
        oldest->events = calloc((size_t)c->n_marks, sizeof *oldest->events);
        oldest->n_marks = oldest->marks && oldest->events ? c->n_marks : 0;
    }
    if (c && !oldest->n_marks) {
        replay_clear(oldest);
        return NULL;
    }
    oldest->memory[n - 1] = call->arena;
    oldest->scratch_epoch = s->scratch_epoch;
    return oldest;
}

/* ---- recording -------------------------------------------------------------------------------------------- */

/* Called by launch.c after each launch while this thread records. */
void pl_recorder_note(pl_recorder *recorder, int launch)
{
    if (!recorder->wanted || recorder->failed)
        return;
    if (recorder->n == recorder->max) {
        int max = recorder->max ? 2 * recorder->max : 16;
        changing *grown = realloc(recorder->changes, (size_t)max * sizeof *grown);
        if (!grown) {
            recorder->failed = true;
            return;
        }
        recorder->changes = grown;
        recorder->max = max;
    }
    int status = 0;
    uint64_t id = 0;
    cu_graph graph = NULL;
    const cu_node *last = NULL;
    size_t n_last = 0;
    int code = cu.capture_info(pl_gpu_now.handle, &status, &id, &graph, &last, &n_last);
    recorder->failed = code != 0 || n_last != 1;
    if (!recorder->failed)
        ((changing *)recorder->changes)[recorder->n++] =
            (changing){recorder->instruction, launch, pl_gpu_now.branch, last[0]};
}

static int range_record(pl_program_args *call, int *at, int end)
{
    const pl_program *p = call->program;
    int status = PL_OK;
    for (; *at < end && status == PL_OK; ++*at) {
        const pl_instruction *in = &p->instr[*at];
        pl_gpu_now.recorder->instruction = *at;
        pl_gpu_now.recorder->wanted = changes(p, in);
        status = pl_kernel_run(in->plan, call->bufs, pl_instruction_args(in, call, call->bufs));
    }
    return status;
}

/* Records events for the marks up to instruction n_done, from *mark on. */
static int marks_record(replay *r, int *mark, int n_done)
{
    int code = 0;
    for (; *mark < r->n_marks && r->marks[*mark] < n_done && code == 0; ++*mark) {
        code = cu.event_new(&r->events[*mark], CU_EVENT_DISABLE_TIMING);
        if (code == 0)
            code = cu.event_record_inside(r->events[*mark], pl_gpu_now.handle, CU_EVENT_EXTERNAL);
    }
    return code ? pl_gpu_fail(code, "gpu: an event cannot be recorded") : PL_OK;
}

/* Capture stream `to` waits for what `from` has recorded so far. */
static int streams_join(pl_stream *s, int from, int to)
{
    int code = cu.event_record(s->forks[from], s->captures[from]);
    return code ? code : cu.stream_wait(s->captures[to], s->forks[from], 0);
}

/* Records branches [first, end) on up to `threads` concurrent streams, the first on the one that captures. */
static int section_record(pl_program_args *call, pl_stream *s, int first, int end, int *at)
{
    int n = call->program->threads < PL_BRANCHES ? call->program->threads : PL_BRANCHES, code = 0, status = PL_OK;
    n = n < end - first ? n : end - first;
    for (int k = 1; k < n && code == 0; k++)
        code = streams_join(s, 0, k);
    for (int b = first; b < end && code == 0 && status == PL_OK; b++) {
        pl_gpu_now.branch = (b - first) % n;
        pl_gpu_now.handle = s->captures[pl_gpu_now.branch];
        status = range_record(call, at, call->program->ends[b]);
    }
    pl_gpu_now.branch = 0;
    pl_gpu_now.handle = s->captures[0];
    for (int k = 1; k < n && code == 0; k++)
        code = streams_join(s, k, 0);
    return status != PL_OK || code == 0 ? status : pl_gpu_fail(code, "gpu: branches cannot be recorded");
}

static int program_record(pl_program_args *call, pl_stream *s, replay *r)
{
    const pl_program *p = call->program;
    int status = PL_OK, mark = 0, at = 0;
    for (int b = 0, end; b < p->n_branches && status == PL_OK; b = end) {
        end = pl_section_end(p, b);
        while (end - b == 1 && at < p->ends[b] && status == PL_OK) {
            status = range_record(call, &at, at + 1);
            if (status == PL_OK)
                status = marks_record(r, &mark, at);
        }
        if (end - b > 1 && (status = section_record(call, s, b, end, &at)) == PL_OK)
            status = marks_record(r, &mark, at);
    }
    while (!p->n_branches && at < p->n_instr && status == PL_OK) {
        status = range_record(call, &at, at + 1);
        if (status == PL_OK)
            status = marks_record(r, &mark, at);
    }
    return status;
}

static bool captures_open(pl_stream *s)
{
    for (int k = 0; k < PL_BRANCHES; k++)
        if ((!s->captures[k] && cu.stream_new(&s->captures[k], CU_STREAM_NON_BLOCKING, 0) != 0) ||
            (!s->forks[k] && cu.event_new(&s->forks[k], CU_EVENT_DISABLE_TIMING) != 0))
            return false;
    return true;
}

/* Records a run without running it. False: it failed, and the attempt is undone. */
static bool recorded(replay *r, pl_program_args *call, pl_stream *s)
{
    pl_recorder recorder = {0};
    uint64_t counter = call->counter;
    r->scratch_epoch = s->scratch_epoch;
    if (cu.capture_begin(s->captures[0], CU_CAPTURE_RELAXED) != 0)
        return false;
    pl_gpu_now.handle = s->captures[0];       /* a separate stream: what other threads enqueue is not recorded */
    pl_gpu_now.recorder = &recorder;
    int status = program_record(call, s, r);
    pl_gpu_now.handle = s->handle;
    pl_gpu_now.recorder = NULL;
    call->counter = counter;
    bool good = cu.capture_end(s->captures[0], &r->graph) == 0 && status == PL_OK && !recorder.failed &&
                r->scratch_epoch == s->scratch_epoch && cu.exec_new(&r->exec, r->graph, 0) == 0;
    r->changes = recorder.changes;
    r->n_changes = recorder.n;
    if (!good) {
        recording_drop(r);
        if (pl_failed)
            pl_fail_forget();
    }
    return good;
}

/* The first attempt fails if branches grow their scratch memory. */
static bool replay_record(replay *r, pl_program_args *call, pl_stream *s)
{
    bool good = false;
    for (int i = 0; i < ATTEMPTS && !good && captures_open(s); i++)
        good = recorded(r, call, s);
    if (!good)
        replay_clear(r);
    return good;
}

/* Sets the arguments of this run in the launches that change. */
static int replay_update(replay *r, pl_program_args *call)
{
    const pl_program *p = call->program;
    int status = PL_OK;
    for (int i = 0, k = 0; i < p->n_instr && k < r->n_changes && status == PL_OK; i++) {
        const pl_instruction *in = &p->instr[i];
        if (!in->random && r->changes[k].instruction != i)
            continue;
        const double *scalars = pl_instruction_args(in, call, call->bufs);
        for (; k < r->n_changes && r->changes[k].instruction == i && status == PL_OK; k++) {
            pl_gpu_now.branch = r->changes[k].branch;
            status = pl_launch_update(in->plan->params, r->changes[k].launch, call->bufs, scalars, r->exec,
                                      r->changes[k].node);
        }
    }
    pl_gpu_now.branch = 0;
    return status;
}

/* Gives each array the number of the first event after its last use; `first`: the number of the first event. */
static void numbers_set(pl_claims *c, uint64_t first)
{
    int mark = 0;
    for (int k = 0; k < c->n; k++) {
        while (mark < c->n_marks && c->marks[mark] < c->last[c->order[k]])
            mark++;
        if (mark == c->n_marks)
            break;
        c->number_of[c->order[k]] = first + (uint64_t)mark;
    }
    atomic_store(&c->n_done, c->marks[c->n_marks - 1] + 1);
}

static int run_recorded(struct pl_replays *replays, pl_program_args *call, pl_stream *s, int *at)
{
    replay *r = replay_find(replays, call, s);
    if (r) {
        r->last_run = ++replays->n_runs;
        if (++r->n_runs == 2 && !r->exec)
            replays->never = !replay_record(r, call, s);
    }
    if (!r || !r->exec)
        return pl_instructions_run(call, at);
    int status = replay_update(r, call);
    uint64_t number;
    if (status == PL_OK)
        status = pl_stream_replay(s, r->exec, r->events, r->n_marks, &number);
    if (status == PL_OK && r->n_marks)
        numbers_set(call->op->claims, number);
    return status;
}

int pl_program_run_on_gpu(pl_op *op, pl_program_args *call, int *at)
{
    pl_program *p = (pl_program *)call->program;
    pl_stream *s = op->stream;
    pl_enter();
    op->arena = pl_block_new(PL_MEMORY_GPU + s->gpu->number, p->arena_bytes);
    pl_leave();
    if (!op->arena)
        return PL_ENOMEM;
    call->arena = op->arena->data;
    int status = pl_block_await(s, op->arena, true);
    if (status != PL_OK)
        return status;
    if (!p->replays && (p->replays = calloc(1, sizeof *p->replays)))
        p->replays->never = !can_record(p);
    if (!p->replays || p->replays->never || pl_engine.synchronous > 0 || pl_profiler_clock())
        return pl_instructions_run(call, at);
    pl_stream_lock(s);
    status = run_recorded(p->replays, call, s, at);
    pl_stream_unlock(s);
    return status;
}
