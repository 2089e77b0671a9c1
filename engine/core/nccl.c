/* Collectives between GPUs.
 *
 * An operation enqueues its calls on the comm streams of its GPUs, and is then done for the engine, as any operation of
 * a GPU. On each stream the ranks must make the same calls in the same order, or they wait for each other for ever. So
 * all operations write one Var, pl_nccl_order: they run in the order of pushing, which is that of the program. A
 * *watch*, a polled operation of the host, sees each of them end. One that does not end in time, or whose rank is gone,
 * ends the communicator. See docs/design/distributed.md. */
#include "nccl.h"
#include "comm.h"
#include "flight.h"
#include "profiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { NAP_NS = 50000, MESSAGE_BYTES = 1000 };
static const double ENDLESS_S = 1e9;          /* for the engine: a watch has a deadline of its own */

typedef struct {
    atomic_int refs;                          /* of its operation, and of its watch */
    pl_clique *clique;
    pl_nccl_step *steps;
    pl_array **arrays;                        /* views, until the calls are enqueued */
    int n_steps, n_arrays;
    int64_t id, turn, start_ns;               /* counted at push, at launch; when its stream began with it, or 0 */
    cu_event start, end;
    double timeout_s;
    const char *name;
    int32_t location;
    bool enqueued;                            /* something may run on the GPUs */
} call;

static void call_free(void *arg)
{
    call *c = arg;
    pl_gpu_scope scope;
    if (atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    if ((c->start || c->end) && pl_gpu_begin(c->clique->members[0].gpu, &scope) == PL_OK) {
        if (c->start)
            cu.event_free(c->start);
        if (c->end)
            cu.event_free(c->end);
        pl_gpu_end(&scope);
    }
    for (int i = 0; i < c->n_arrays; i++)
        pl_array_free((uintptr_t)c->arrays[i]);
    free(c->steps);
    free(c->arrays);
    free(c);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

/* With pl_nccl_lock. PL_OK: it is done; PL_PENDING: it goes on; else what is wrong with it. */
static int call_check(const call *c, bool done)
{
    const pl_clique *q = c->clique;
    nccl_comm *at = NULL;
    char text[MESSAGE_BYTES];
    int state = pl_clique_state(q, &at), rank = pl_group_self(q->group), left = pl_group_left(q->group);
    if (state != NCCL_OK && state != NCCL_IN_PROGRESS)
        return pl_nccl_fail(state, c->name, at);
    if (done)
        return PL_OK;
    if (c->start_ns && left >= 0) {
        snprintf(text, sizeof text, "%s: rank %d waits for rank %d, whose program has ended\n"
                 "  fix: the same number of batches on all ranks", c->name, rank, left);
        return pl_fail(PL_FAILED, text);
    }
    if (!c->start_ns || c->timeout_s <= 0 || pl_profiler_now() - c->start_ns < (int64_t)(c->timeout_s * 1e9))
        return PL_PENDING;
    snprintf(text, sizeof text, "%s: rank %d waited %g s for the other ranks' GPUs\n"
             "  fix: look what they do; PLAIT_COMM_TIMEOUT=seconds if it may take so long",
             c->name, rank, c->timeout_s);
    return pl_fail(PL_ETIMEOUT, text);
}

/* PL_PENDING, or PL_OK: it is done, or lost. They end in the order in which they were launched. */
static int call_watch(void *arg)
{
    call *c = arg;
    pl_clique *q = c->clique;
    pl_gpu_scope scope;
    int status = PL_PENDING;
    pthread_mutex_lock(&pl_nccl_lock);
    if (q->ended) {
        status = PL_OK;
    } else if (q->n_done == c->turn && (status = pl_gpu_begin(q->members[0].gpu, &scope)) == PL_OK) {
        int code = c->start_ns ? 0 : cu.event_query(c->start);
        if (code == 0 && !c->start_ns)
            c->start_ns = pl_profiler_now();
        if (code == 0)
            code = cu.event_query(c->end);
        pl_gpu_end(&scope);
        status = call_check(c, code != CU_NOT_READY);     /* of a GPU that failed: waits for its arrays say so */
        q->n_done += status == PL_OK;
        if (status != PL_OK && status != PL_PENDING)
            pl_clique_lose(q, c->name, c->location);
        status = status == PL_PENDING ? PL_PENDING : PL_OK;
    }
    pthread_mutex_unlock(&pl_nccl_lock);
    return status;
}

static int call_abandon(void *arg)            /* by pl_flight_abort, after pl_nccl_give_up */
{
    (void)arg;
    return PL_OK;
}

/* ---- the launch ------------------------------------------------------------------------------------------------- */

static int step_enqueue(const call *c, const pl_nccl_step *s)
{
    const pl_member *m = &c->clique->members[s->device];
    char *from = s->from < 0 ? NULL : c->arrays[s->from]->data + s->from_bytes;
    char *to = s->to < 0 ? NULL : c->arrays[s->to]->data + s->to_bytes;
    size_t n = (size_t)s->n;
    switch (s->kind) {
    case PL_NCCL_ALL_REDUCE:
        return nccl.all_reduce(from, to, n, s->dtype, s->combine, m->comm, m->stream->handle);
    case PL_NCCL_REDUCE:
        return nccl.reduce(from, to, n, s->dtype, s->combine, s->peer, m->comm, m->stream->handle);
    case PL_NCCL_REDUCE_SCATTER:
        return nccl.reduce_scatter(from, to, n, s->dtype, s->combine, m->comm, m->stream->handle);
    case PL_NCCL_ALL_GATHER:
        return nccl.all_gather(from, to, n, s->dtype, m->comm, m->stream->handle);
    case PL_NCCL_BROADCAST:
        return nccl.broadcast(from, to, n, s->dtype, s->peer, m->comm, m->stream->handle);
    case PL_NCCL_SEND:
        return nccl.send(from, n, s->dtype, s->peer, m->comm, m->stream->handle);
    default:
        return nccl.receive(to, n, s->dtype, s->peer, m->comm, m->stream->handle);
    }
}

/* Makes the calls, all in one group, and waits until the library has enqueued them: the first call of a kind makes
 * connections, for which it needs the other ranks. */
static int steps_enqueue(call *c)
{
    pl_clique *q = c->clique;
    pl_gpu_scope scope;
    nccl_comm *at = NULL;
    int status = pl_nccl_fail(nccl.group_start(), c->name, NULL);
    if (status != PL_OK)
        return status;
    for (int i = 0; i < c->n_steps && status == PL_OK; i++) {
        const pl_member *m = &q->members[c->steps[i].device];
        if ((status = pl_gpu_begin(m->gpu, &scope)) != PL_OK)
            break;
        int code = step_enqueue(c, &c->steps[i]);
        status = pl_nccl_fail(code == NCCL_IN_PROGRESS ? NCCL_OK : code, c->name, m->comm);
        pl_gpu_end(&scope);
    }
    int code = nccl.group_end();
    if (status == PL_OK && code != NCCL_IN_PROGRESS)
        status = pl_nccl_fail(code, c->name, q->members[0].comm);
    c->enqueued = status == PL_OK;
    c->start_ns = pl_profiler_now();          /* for the deadline of what follows */
    while (status == PL_OK && pl_clique_state(q, &at) == NCCL_IN_PROGRESS) {
        if (atomic_load(&pl_nccl_given_up))
            status = pl_fail(PL_FAILED, "NCCL: the job was given up");
        else if ((status = call_check(c, false)) == PL_PENDING)
            status = PL_OK;
        nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    }
    c->start_ns = 0;
    return status == PL_OK ? pl_nccl_fail(pl_clique_state(q, &at), c->name, at) : status;
}

/* The first GPU's stream waited for all arrays. The others wait for it, and then it for them, so that it stands for
 * all: with the engine the arrays are used by this stream. */
static int enqueue(call *c)
{
    pl_clique *q = c->clique;
    pl_stream *first = q->members[0].stream;
    int status = PL_OK, code = cu.event_new(&c->start, CU_EVENT_DISABLE_TIMING);
    if (code == 0)
        code = cu.event_new(&c->end, CU_EVENT_DISABLE_TIMING);
    if (code == 0)
        code = cu.event_record(c->start, first->handle);
    if (code)
        return pl_gpu_fail(code, c->name);
    for (int i = 1; i < q->n_members && status == PL_OK; i++)
        status = pl_stream_follow(q->members[i].stream, first);
    if (status == PL_OK)
        status = steps_enqueue(c);
    for (int i = 1; i < q->n_members && status == PL_OK; i++)
        status = pl_stream_follow(first, q->members[i].stream);
    return status == PL_OK ? pl_gpu_fail(cu.event_record(c->end, first->handle), c->name) : status;
}

/* Where other processes take part, one that does not make its calls would be out of step from then on. */
static int call_launch(call *c)
{
    pl_clique *q = c->clique;
    bool others = q->n_members < q->n_ranks;
    int status = PL_OK;
    pthread_mutex_lock(&pl_nccl_lock);
    if (q->ended)
        status = pl_fail(PL_FAILED, "NCCL: the communicator was ended by an error");
    else if (others && q->n_begun != c->id)
        status = pl_fail(PL_FAILED, "NCCL: an earlier collective of this rank did not run, since its arrays were not"
                                    " valid; the ranks' calls do not match any more");
    else
        status = enqueue(c);
    if (status == PL_OK)
        c->turn = q->n_launched++;
    else if ((others || c->enqueued) && !q->ended)
        pl_clique_lose(q, c->name, c->location);
    q->n_begun = c->id + 1;
    pthread_mutex_unlock(&pl_nccl_lock);
    return status;
}

static int call_run(pl_op *op)
{
    call *c = *(call **)op->payload;
    int status = call_launch(c);
    if (status != PL_OK)
        return status;
    if (pl_engine.synchronous > 0) {          /* nobody polls while this operation runs */
        while (call_watch(c) == PL_PENDING)
            nanosleep(&(struct timespec){0, NAP_NS}, NULL);
        return PL_OK;
    }
    atomic_fetch_add(&c->refs, 1);
    status = pl_push_polled(call_watch, call_abandon, c, call_free, NULL, 0, NULL, 0, 0, PL_LANE_COMM, 0, 0,
                            c->timeout_s > 0 ? ENDLESS_S : 0, c->name, c->location);
    if (status != PL_OK)
        call_free(c);
    return status;
}

static void call_dispose(pl_op *op)
{
    call *c = *(call **)op->payload;
    for (int i = 0; i < c->n_arrays; i++)
        pl_array_free((uintptr_t)c->arrays[i]);
    c->n_arrays = 0;
    call_free(c);
}

static call *call_new(pl_clique *q, const pl_nccl_step *steps, int n_steps, const uintptr_t *arrays, int n_arrays)
{
    call *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->refs = 1;
    c->clique = q;
    c->steps = pl_copied(steps, (size_t)n_steps, sizeof *steps);
    c->arrays = calloc((size_t)n_arrays + 1, sizeof *c->arrays);
    c->n_steps = n_steps;
    bool whole = c->steps && c->arrays;
    for (; whole && c->n_arrays < n_arrays; c->n_arrays += whole)
        whole = (c->arrays[c->n_arrays] = (pl_array *)pl_array_view(arrays[c->n_arrays], 0)) != NULL;
    if (whole)
        return c;
    call_free(c);
    return NULL;
}

int pl_nccl_push(uintptr_t handle, const pl_nccl_step *steps, int n_steps, const uintptr_t *arrays,
                 const uint8_t *uses, int n_arrays, uintptr_t known, double timeout_s, const char *name,
                 int32_t location)
{
    pl_clique *q = (pl_clique *)handle;
    pl_op *op;
    call *c = call_new(q, steps, n_steps, arrays, n_arrays);
    if (!c)
        return pl_fail(PL_ENOMEM, "collective: out of memory");
    c->timeout_s = timeout_s;
    c->name = name;
    c->location = location;
    int status = pl_op_begin(&op, n_arrays + 3, sizeof c);
    if (status != PL_OK) {
        call_free(c);
        return status;
    }
    *(call **)op->payload = c;
    op->run = call_run;
    op->dispose = call_dispose;
    op->name = name;
    op->location = location;
    op->priority = 0;                         /* of its own it would only wait for those before it */
    for (int i = 0; i < n_arrays; i++) {
        pl_array *a = (pl_array *)arrays[i];
        bool part = uses[i] == PL_WRITE && a->data != a->var->data;       /* the rest stays */
        pl_op_claim(op, a->var, part ? PL_READWRITE : uses[i]);
    }
    pl_op_claim(op, q->joined->var, PL_READ);
    if (known)
        pl_op_claim(op, ((pl_array *)known)->var, PL_READ);
    pl_op_claim(op, pl_nccl_order->var, PL_WRITE);
    c->id = q->n_pushed++;                    /* with pl_lock: in the order of the Var's queue */
    status = pl_op_submit(op, PL_LANE_GPU_COMM, q->members[0].gpu->number, false);
    if (status != PL_OK) {
        q->n_pushed--;
        pl_op_abandon(op);
        call_free(c);
    }
    return status;
}
