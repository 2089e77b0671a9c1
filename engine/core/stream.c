/* Streams: the order of what they run, and how the host waits for it.
 *
 * For the engine an op on a GPU lane is finished when its work is enqueued. Each block keeps its uses: (stream, number)
 * of the last write and of later reads. Before the work of an op is enqueued, its stream is made to wait for the uses
 * by other streams; an op on a host lane waits itself. Events are recorded on demand; one event covers all operations
 * of its stream up to a number. See docs/design/gpu.md. */
#include "stream.h"
#include "claims.h"
#include "gpu.h"
#include "profiler.h"
#include "timing.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { N_STREAMS = PL_LANE_COUNT - PL_LANE_GPU_COMPUTE, MAX_USES = 32, SPIN_NS = 50000, MAX_NAP_NS = 100000,
       FOREVER_MS = 1 << 30 };

_Thread_local struct pl_gpu_now pl_gpu_now;
atomic_bool pl_watching;
pl_error *_Atomic pl_gpu_lost;

int pl_stream_open(pl_stream *s, pl_gpu *gpu, int kind)
{
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&s->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    pthread_mutex_init(&s->event_lock, NULL);
    s->gpu = gpu;
    s->kind = kind;
    int code = cu.stream_new(&s->handle, CU_STREAM_NON_BLOCKING, 0);
    for (int i = 0; i < PL_EVENTS && code == 0; i++)
        code = cu.event_new(&s->events[i].event, CU_EVENT_DISABLE_TIMING);
    return pl_gpu_fail(code, "gpu: a stream cannot be created");
}

int pl_stream_find(int lane, int device, pl_stream **stream)
{
    pl_gpu *gpu = pl_gpu_get(device);
    *stream = gpu ? &gpu->streams[lane - PL_LANE_GPU_COMPUTE] : NULL;
    return gpu ? PL_OK : PL_FAILED;
}

void pl_stream_lock(pl_stream *s) { pthread_mutex_lock(&s->lock); }
void pl_stream_unlock(pl_stream *s) { pthread_mutex_unlock(&s->lock); }

/* ---- events ----------------------------------------------------------------------------------------------- */

static void done_raise(pl_stream *s, uint64_t number)    /* with event_lock */
{
    if (atomic_load(&s->done) < number)
        atomic_store(&s->done, number);
}

/* The first event that covers a number. */
static void marks_search(pl_mark *marks, int n, uint64_t number, pl_mark **found)
{
    for (int i = 0; i < n; i++)
        if (marks[i].number >= number && (!*found || marks[i].number < (*found)->number))
            *found = &marks[i];
}

/* An event of the stream that covers `number`; recorded now if there is none. With event_lock. */
static int event_covering(pl_stream *s, uint64_t number, pl_mark **mark)
{
    pl_mark *oldest = &s->events[0];
    *mark = NULL;
    marks_search(s->events, PL_EVENTS, number, mark);
    marks_search(s->marks, s->n_marks < PL_MARKS ? (int)s->n_marks : PL_MARKS, number, mark);
    marks_search(s->replayed, s->n_replayed < PL_MARKS ? (int)s->n_replayed : PL_MARKS, number, mark);
    for (int i = 1; i < PL_EVENTS; i++)
        if (s->events[i].number < oldest->number)
            oldest = &s->events[i];
    if (*mark)
        return PL_OK;
    uint64_t last = atomic_load(&s->last);    /* before recording: the event covers it */
    pl_gpu_scope scope;                       /* another GPU's context may be current on this thread */
    int status = pl_gpu_begin(s->gpu, &scope);
    if (status != PL_OK)
        return status;
    status = pl_gpu_fail(cu.event_record(oldest->event, s->handle), "gpu: an event cannot be recorded");
    pl_gpu_end(&scope);
    if (status == PL_OK) {
        oldest->number = last;
        *mark = oldest;
    }
    return status;
}

/* Takes a number before it records the event: operations that other threads enqueue meanwhile have larger numbers, or
 * are covered. */
uint64_t pl_stream_mark(pl_stream *s)
{
    pthread_mutex_lock(&s->event_lock);
    pl_mark *m = &s->marks[s->n_marks++ % PL_MARKS];
    uint64_t number = atomic_fetch_add(&s->last, 1) + 1;
    m->number = 0;
    if (m->event || cu.event_new(&m->event, CU_EVENT_DISABLE_TIMING) == 0)
        m->number = cu.event_record(m->event, s->handle) == 0 ? number : 0;
    pthread_mutex_unlock(&s->event_lock);
    return number;
}

int pl_stream_replay(pl_stream *s, cu_exec exec, const cu_event *events, int n, uint64_t *number)
{
    pthread_mutex_lock(&s->event_lock);
    *number = atomic_fetch_add(&s->last, (uint64_t)n) + 1;
    int code = cu.exec_launch(exec, s->handle);
    for (int i = 0; i < n && code == 0; i++)
        s->replayed[s->n_replayed++ % PL_MARKS] = (pl_mark){events[i], *number + (uint64_t)i};
    pthread_mutex_unlock(&s->event_lock);
    return pl_gpu_fail(code, "gpu: a recorded program cannot be launched");
}

void pl_stream_unmark(cu_event event)
{
    for (int g = 0; g < PL_MAX_GPUS; g++)
        for (int i = 0; pl_gpu_open_at(g) && i < N_STREAMS; i++) {
            pl_stream *s = &pl_gpu_open_at(g)->streams[i];
            pthread_mutex_lock(&s->event_lock);
            for (int k = 0; k < PL_MARKS; k++)
                if (s->replayed[k].event == event)
                    s->replayed[k].number = 0;
            pthread_mutex_unlock(&s->event_lock);
        }
}

/* Work that is enqueued on `stream` from now on waits for a use, on the GPU. */
static int use_await(pl_stream *stream, const pl_use *use)
{
    pl_stream *other = use->stream;
    pl_mark *mark;
    if (!other || other == stream || atomic_load(&other->done) >= use->number)
        return PL_OK;
    pthread_mutex_lock(&other->event_lock);
    int status = event_covering(other, use->number, &mark);
    pl_gpu_scope scope;                       /* this thread may have no GPU's context */
    if (status == PL_OK && (status = pl_gpu_begin(stream->gpu, &scope)) == PL_OK) {
        status = pl_gpu_fail(cu.stream_wait(stream->handle, mark->event, 0), "gpu: a stream cannot wait for another");
        pl_gpu_end(&scope);
    }
    pthread_mutex_unlock(&other->event_lock);
    return status;
}

int pl_stream_follow(pl_stream *s, pl_stream *other)
{
    /* a new number: an event that was recorded before covers less */
    pl_use all = {other, atomic_fetch_add(&other->last, 1) + 1};
    return use_await(s, &all);
}

/* It may be called while another thread holds pl_lock and waits for a stream: that wait ends first. */
void pl_gpu_lose(pl_error *error)
{
    pl_error *none = NULL;
    bool first = atomic_compare_exchange_strong(&pl_gpu_lost, &none, error);
    pl_enter();
    if (first)
        pl_error_remember(error);
    else
        pl_error_unref(error);
    pl_leave();
}

static void nap(int64_t waited_ns)
{
    if (waited_ns < SPIN_NS) {
        sched_yield();
        return;
    }
    int64_t ns = waited_ns / 16 < MAX_NAP_NS ? waited_ns / 16 : MAX_NAP_NS;
    nanosleep(&(struct timespec){0, (long)ns}, NULL);
}

static int number_settle(pl_stream *s, uint64_t number, int timeout_ms)
{
    int status;
    for (int64_t start_ns = pl_profiler_now(), waited_ns = 0;; waited_ns = pl_profiler_now() - start_ns) {
        pl_mark *mark;
        pthread_mutex_lock(&s->event_lock);
        status = event_covering(s, number, &mark);
        int code = status == PL_OK ? cu.event_query(mark->event) : 0;
        bool lost = atomic_load(&pl_gpu_lost);          /* after the query: it may have ended because of that */
        if (status == PL_OK && code == 0 && !lost)
            done_raise(s, mark->number);
        pthread_mutex_unlock(&s->event_lock);
        if (lost)
            return pl_fail(PL_FAILED, "gpu: a collective of GPUs failed, and with it what they compute");
        if (status != PL_OK || code == 0)
            return status;
        if (code != CU_NOT_READY) {
            char message[120];
            snprintf(message, sizeof message, "gpu(%d): a kernel that was launched earlier has failed", s->gpu->number);
            return pl_gpu_fail(code, message);
        }
        if (waited_ns / 1000000 >= timeout_ms)
            return PL_AGAIN;
        nap(waited_ns);
    }
}

/* The host waits for a use. */
static int use_settle(const pl_use *use, int timeout_ms)
{
    pl_stream *s = use->stream;
    pl_gpu_scope scope;
    if (!s || atomic_load(&s->done) >= use->number)
        return PL_OK;
    int status = pl_gpu_begin(s->gpu, &scope);
    if (status != PL_OK)
        return status;
    status = number_settle(s, use->number, timeout_ms);
    pl_gpu_end(&scope);
    return status;
}

/* ---- blocks ----------------------------------------------------------------------------------------------- */

/* The uses that an op waits for: the highest number of each stream. */
typedef struct { int n; pl_use uses[MAX_USES]; } use_list;

static void list_add(use_list *list, const pl_use *use)
{
    int i = 0;
    if (!use->stream || atomic_load(&use->stream->done) >= use->number)
        return;
    while (i < list->n && list->uses[i].stream != use->stream)
        i++;
    if (i == MAX_USES)                        /* too many streams: the host waits for this one now */
        use_settle(use, FOREVER_MS);
    else if (i == list->n)
        list->uses[list->n++] = *use;
    else if (list->uses[i].number < use->number)
        list->uses[i].number = use->number;
}

/* With pl_lock, which guards the uses. */
static void list_add_block(use_list *list, const pl_block *block, bool for_write)
{
    list_add(list, &block->write);
    for (int i = 0; for_write && i < block->n_reads; i++)
        list_add(list, &block->reads[i]);
}

/* With pl_lock: another stream, or the host (NULL), waits for a write that is not complete. Copy lanes do not need it:
 * they wait for their own copies. */
static void block_watch(pl_block *block, const pl_stream *by)
{
    const pl_use *made = &block->write;
    if (made->stream && made->stream != by && made->stream->kind != PL_LANE_GPU_H2D &&
        made->stream->kind != PL_LANE_GPU_D2H && atomic_load(&made->stream->done) < made->number) {
        block->watched = true;
        atomic_store(&pl_watching, true);
    }
}

static int list_settle(const use_list *list, int timeout_ms)
{
    int status = PL_OK;
    for (int i = 0; i < list->n && status == PL_OK; i++)
        status = use_settle(&list->uses[i], timeout_ms);
    return status;
}

int pl_block_wait(pl_block *block, bool for_write, int timeout_ms)
{
    use_list list = {0};
    pl_enter();
    block_watch(block, NULL);
    list_add_block(&list, block, for_write);
    pl_leave();
    return list_settle(&list, timeout_ms);
}

/* With pl_lock. Asks the driver of each stream once. */
bool pl_block_idle(const pl_block *block)
{
    use_list list = {0};
    list_add_block(&list, block, true);
    return list.n == 0 || list_settle(&list, 0) == PL_OK;
}

void pl_block_settle(pl_block *block)         /* with pl_lock; the block is in no other use */
{
    use_list list = {0};
    list_add_block(&list, block, true);
    list_settle(&list, FOREVER_MS);
}

int pl_block_await(pl_stream *stream, pl_block *block, bool for_write)
{
    use_list list = {0};
    int status = PL_OK;
    pl_enter();
    list_add_block(&list, block, for_write);
    pl_leave();
    for (int i = 0; i < list.n && status == PL_OK; i++)
        status = use_await(stream, &list.uses[i]);
    return status;
}

int pl_block_take(pl_block *block) { return pl_block_await(pl_gpu_now.stream, block, true); }

void pl_block_give(pl_block *block)
{
    pl_stream *s = pl_gpu_now.stream;         /* a new number: it covers all that is launched so far */
    pl_block_record_use(block, s, atomic_fetch_add(&s->last, 1) + 1, true);
    pl_block_free(block);
}

int pl_streams_wait(int timeout_ms)
{
    int status = PL_OK;
    for (int g = 0; g < PL_MAX_GPUS; g++)
        for (int i = 0; pl_gpu_open_at(g) && i < N_STREAMS && status == PL_OK; i++) {
            pl_stream *s = &pl_gpu_open_at(g)->streams[i];
            pl_use all = {s, atomic_load(&s->last)};
            status = use_settle(&all, timeout_ms);
        }
    return status;
}

/* ---- ops -------------------------------------------------------------------------------------------------- */

/* Collects the uses that an op waits for. Returns whether something it writes is watched. */
static bool op_uses(const pl_op *op, use_list *list)
{
    bool watched = false;
    pl_enter();
    for (int i = 0; i < op->n_requests; i++)
        if (op->requests[i].var->block) {
            block_watch(op->requests[i].var->block, op->stream);
            watched |= op->requests[i].mode != PL_READ && op->requests[i].var->block->watched;
            list_add_block(list, op->requests[i].var->block, op->requests[i].mode != PL_READ);
        }
    pl_leave();
    return watched;
}

static void block_record_use(pl_block *block, pl_stream *s, uint64_t number, bool wrote)
{
    pl_use evicted;
    while ((evicted = pl_block_record_use(block, s, number, wrote)).stream) {
        use_await(s, &evicted);               /* then this stream's use stands for that one too */
        number = atomic_fetch_add(&s->last, 1) + 1;
    }
}

void pl_request_record_use(pl_op *op, pl_request *r, uint64_t number)
{
    pl_stream *s = op->stream;                /* all uses of the array are launched: the number covers them */
    if (r->var->block && r->var->block->gpu)
        block_record_use(r->var->block, s, number ? number : atomic_fetch_add(&s->last, 1) + 1, r->mode != PL_READ);
}

/* Uses of page-locked memory are recorded only for copies that the host does not wait for. */
static void op_record_uses(pl_op *op, pl_stream *s, uint64_t number, bool staged)
{
    pl_enter();
    for (int i = 0; i < op->n_requests; i++) {
        pl_block *block = op->requests[i].var ? op->requests[i].var->block : NULL;
        if (block && (block->gpu || staged))
            block_record_use(block, s, number, op->requests[i].mode != PL_READ);
    }
    if (op->arena) {
        block_record_use(op->arena, s, number, true);
        pl_block_free(op->arena);
        op->arena = NULL;
    }
    pl_leave();
}

static int op_run_on_host(pl_op *op)
{
    use_list list = {0};
    op_uses(op, &list);
    int status = list_settle(&list, FOREVER_MS);
    return status == PL_OK ? op->run(op) : status;
}

int pl_op_run_on_gpu(pl_op *op)
{
    pl_stream *s = op->stream;
    use_list list = {0};
    pl_gpu_scope scope;
    struct pl_gpu_now outer = pl_gpu_now;
    if (!s)
        return op_run_on_host(op);
    int status = pl_gpu_begin(s->gpu, &scope);
    if (status != PL_OK)
        return status;
    bool watched = op_uses(op, &list);
    for (int i = 0; i < list.n && status == PL_OK; i++)
        status = use_await(s, &list.uses[i]);
    pl_gpu_now = (struct pl_gpu_now){.stream = s, .handle = s->handle};
    pl_timing *timing = status == PL_OK && pl_profiler_clock() ? pl_timing_begin(s) : NULL;
    pl_event event = timing ? pl_op_event(op, PL_EVENT_OP, 0) : (pl_event){0};
    if (status == PL_OK)
        status = op->run(op);
    if (timing)
        pl_timing_end(s, timing, event);
    bool staged = pl_gpu_now.staged;
    pl_gpu_now = outer;
    if (status == PL_OK && op->claims && op->claims->n_marks) {     /* with the numbers of their events */
        pl_enter();
        pl_claims_end(op);
        pl_leave();
    }
    /* a number taken after its launches: an event that covers it covers them */
    pl_use own = {s, watched && !op->claims ? pl_stream_mark(s) : atomic_fetch_add(&s->last, 1) + 1};
    op_record_uses(op, s, own.number, staged);
    bool copies = !staged && (s->kind == PL_LANE_GPU_H2D || s->kind == PL_LANE_GPU_D2H);
    if (status == PL_OK && (copies || pl_engine.synchronous > 0))
        status = use_settle(&own, FOREVER_MS);
    pl_gpu_end(&scope);
    return status;
}

/* ---- what kernels ask ------------------------------------------------------------------------------------- */

int pl_gpu_device(void) { return pl_gpu_now.stream ? pl_gpu_now.stream->gpu->number : -1; }

void *pl_gpu_stream(void) { return pl_gpu_now.handle; }

void *pl_gpu_compute_stream(int device)
{
    pl_gpu *gpu = pl_gpu_get(device);
    return gpu ? gpu->streams[0].handle : NULL;
}

/* Grows by at least a half. The old block is freed in the order of the stream. */
void *pl_gpu_scratch(size_t bytes)
{
    pl_stream *s = pl_gpu_now.stream;
    if (!s) {
        pl_fail(PL_EINVAL, "gpu: scratch memory was requested outside a kernel");
        return NULL;
    }
    pl_block **block = &s->scratch[pl_gpu_now.branch].block;
    size_t *capacity = &s->scratch[pl_gpu_now.branch].bytes;
    if (bytes <= *capacity)
        return (*block)->data;
    size_t wanted = *capacity + *capacity / 2;
    pl_enter();
    pl_block *grown = pl_block_new(PL_MEMORY_GPU + s->gpu->number, bytes > wanted ? bytes : wanted);
    if (grown && *block)
        pl_block_give(*block);
    pl_leave();
    if (!grown || pl_block_await(s, grown, true) != PL_OK)
        return NULL;
    *block = grown;
    *capacity = grown->class_bytes;
    s->scratch_epoch++;
    return grown->data;
}
