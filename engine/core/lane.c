/* Lanes: queues of ready ops, with one worker thread each. The worker runs the ready op of the highest priority; among
 * equal priorities the one that was pushed first, even if it became ready later. So work that has begun is finished
 * before more is begun. */
#include "lane.h"
#include "engine.h"
#include "flight.h"
#include "profiler.h"
#include "thread_pool.h"
#include "wait.h"

#include <stdio.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { MAX_DEVICES = 64, STACK_BYTES = 16 << 20 };

struct pl_lane {
    pthread_t thread;
    pthread_cond_t wake;
    pl_op *head, *tail;              /* of priority 0, in the order of pushing */
    pl_op **heap;                    /* of other priorities, or ready later than an op pushed after it */
    int n_heap, max_heap, kind, device;
    int n_blocked;                   /* threads asleep in a wait that would run its ops */
    int n_suspended;                 /* ops that began before all their requests were granted */
    bool alive, sleeping, stop;
    bool deferred;                   /* asleep with ready ops, inside a bulk scope */
    atomic_int n_ready;              /* read without the lock while spinning; */
    atomic_bool lent;                /* this too: a thread that waits runs the ops in the worker's place, */
    bool helps;                      /* which counts as watching, but is not awake yet */
    pl_flights flights;
};

static const char *const kind_names[] = {"cpu", "io", "comm", "gpu compute", "gpu h2d", "gpu d2h", "gpu comm"};
_Static_assert(sizeof kind_names / sizeof *kind_names == PL_LANE_COUNT, "a name for each lane");

pl_lane pl_lane_caller;
static pl_lane *lanes[PL_LANE_COUNT][MAX_DEVICES];      /* made at the first use, never freed */
static int n_deferred;
static _Thread_local pl_lane *current;       /* whose ops this thread runs: */
static _Thread_local bool stands_in;         /* in the place of the worker */
static _Thread_local struct { int size, left; } bulk;

/* ---- the queue -------------------------------------------------------------------------------------------- */

static bool before(const pl_op *a, const pl_op *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->seq < b->seq;
}

static bool heap_push(pl_lane *lane, pl_op *op)
{
    if (lane->n_heap == lane->max_heap) {
        int max = lane->max_heap ? 2 * lane->max_heap : 64;
        pl_op **heap = realloc(lane->heap, (size_t)max * sizeof *heap);
        if (!heap)
            return false;
        lane->heap = heap;
        lane->max_heap = max;
    }
    int i = lane->n_heap++;
    for (; i > 0 && before(op, lane->heap[(i - 1) / 2]); i = (i - 1) / 2)
        lane->heap[i] = lane->heap[(i - 1) / 2];
    lane->heap[i] = op;
    return true;
}

static pl_op *heap_pop(pl_lane *lane)
{
    pl_op *top = lane->heap[0], *last = lane->heap[--lane->n_heap];
    int i = 0, child;
    while ((child = 2 * i + 1) < lane->n_heap) {
        if (child + 1 < lane->n_heap && before(lane->heap[child + 1], lane->heap[child]))
            child++;
        if (!before(lane->heap[child], last))
            break;
        lane->heap[i] = lane->heap[child];
        i = child;
    }
    lane->heap[i] = last;
    return top;
}

static void lane_add_ready(pl_lane *lane, int n)
{
    int now = atomic_load_explicit(&lane->n_ready, memory_order_relaxed) + n;
    atomic_store_explicit(&lane->n_ready, now, memory_order_relaxed);
    pl_engine.n_ready += n;
}

static bool heap_is_first(const pl_lane *lane)
{
    return lane->n_heap && (!lane->head || before(lane->heap[0], lane->head));
}

static pl_op *lane_pop(pl_lane *lane)
{
    pl_op *op = NULL;
    if (heap_is_first(lane)) {
        op = heap_pop(lane);
    } else if (lane->head) {
        op = lane->head;
        lane->head = op->next;
    }
    if (op)
        lane_add_ready(lane, -1);
    return op;
}

static void lane_wake(pl_lane *lane)
{
    n_deferred -= lane->deferred;
    lane->deferred = false;
    if (lane->sleeping)
        pthread_cond_signal(&lane->wake);
    if (lane->n_blocked)
        pl_wait_announce();
}

void pl_lane_put(pl_op *op)
{
    pl_lane *lane = op->lane;
    bool in_order = op->priority == 0 && (!lane->head || lane->tail->seq < op->seq);
    if (in_order || !heap_push(lane, op)) {             /* out of memory: it only loses its turn */
        op->next = NULL;
        if (lane->head)
            lane->tail->next = op;
        else
            lane->head = op;
        lane->tail = op;
    }
    lane_add_ready(lane, 1);
    if (bulk.size > 1 && lane->sleeping && --bulk.left > 0) {
        n_deferred += !lane->deferred;
        lane->deferred = true;
    } else {
        bulk.left = bulk.size;
        lane_wake(lane);
    }
}

void pl_lane_wake_deferred(void)
{
    for (int i = 0; n_deferred > 0 && i < PL_LANE_COUNT * MAX_DEVICES; i++) {
        pl_lane *lane = lanes[i / MAX_DEVICES][i % MAX_DEVICES];
        if (lane && lane->deferred)
            lane_wake(lane);
    }
}

int pl_engine_set_bulk(int size)
{
    int old = bulk.size;
    bulk.size = bulk.left = size;
    pl_enter();
    pl_lane_wake_deferred();
    pl_leave();
    return old;
}

/* ---- operations in flight --------------------------------------------------------------------------------- */

pl_flights *pl_lane_flights(pl_lane *lane) { return &lane->flights; }

bool pl_lane_work(pl_lane *lane)
{
    pl_op *op;
    if (lane->lent && !stands_in)
        return false;
    if (lane->flights.n_listed && pl_profiler_now() >= lane->flights.poll_ns)
        pl_flights_poll(&lane->flights);
    else if ((op = lane_pop(lane)))
        pl_op_execute(op);
    else if (lane->flights.n_listed && lane->flights.progressed)
        pl_flights_poll(&lane->flights);      /* what got further may get further still: no nap before */
    else
        return false;
    return true;
}

static pl_lane *lane_at(int i) { return i < 0 ? &pl_lane_caller : lanes[i / MAX_DEVICES][i % MAX_DEVICES]; }

void pl_lane_hurry_all(void)
{
    for (int i = -1; pl_engine.n_flying > 0 && i < PL_LANE_COUNT * MAX_DEVICES; i++)
        if (lane_at(i) && lane_at(i)->flights.n_listed) {
            pl_flights_hurry(&lane_at(i)->flights);
            lane_wake(lane_at(i));
        }
}

bool pl_lane_endless_only(void)
{
    for (int i = -1; i < PL_LANE_COUNT * MAX_DEVICES; i++)
        for (pl_op *op = lane_at(i) ? lane_at(i)->flights.head : NULL; op; op = op->next)
            if (op->flight->deadline_s > 0)
                return false;
    return pl_engine.n_flying > 0 && pl_engine.n_active == 0 && pl_engine.n_ready == 0;
}

/* ---- the worker ------------------------------------------------------------------------------------------- */

static bool lane_is_back(const void *arg)
{
    return !atomic_load_explicit(&((const pl_lane *)arg)->lent, memory_order_relaxed);
}

static bool lane_has_work(const void *arg)
{
    return atomic_load_explicit(&((const pl_lane *)arg)->n_ready, memory_order_relaxed) > 0 && lane_is_back(arg);
}

bool pl_lane_has_pool(void)
{
    return current && current->kind == PL_LANE_CPU && current->device == 0 && pl_thread_pool_available();
}

/* Sleeps until a poll is due, or an op is ready. */
static void lane_nap(pl_lane *lane)
{
    struct timespec end = pl_wait_time(lane->flights.poll_ns);
    if (pl_flush())
        return;
    lane->sleeping = true;
    pthread_cond_timedwait(&lane->wake, &pl_lock, &end);
    lane->sleeping = false;
}

static void *lane_main(void *arg)
{
    pl_lane *lane = arg;
    char name[32];
    current = lane;
    snprintf(name, sizeof name, "%s(%d)", kind_names[lane->kind], lane->device);
    pl_profiler_name_thread(name);
    if (!pl_lane_has_pool())
        pl_thread_pool_limit(1);
#ifdef PR_SET_TIMERSLACK
    prctl(PR_SET_TIMERSLACK, 1000UL);         /* ns; the default lengthens each nap by 50 us */
#endif
    pl_enter();
    for (;;) {
        if (pl_lane_work(lane))
            continue;
        if (lane->stop)
            break;
        if (lane->flights.n_listed) {
            lane_nap(lane);
            continue;
        }
        if (lane->helps) {
            lane->helps = false;
            pl_leave();
            pl_thread_pool_watch(lane_is_back, lane);
            pl_enter();
        } else if (!lane->lent) {
            pl_leave();                       /* look for work a little while, without the lock */
            pl_thread_pool_spin(lane_has_work, lane);
            pl_enter();
        }
        /* look again, then sleep */
        while (!lane_has_work(lane) && !lane->stop && !lane->flights.n_listed && !lane->helps) {
            lane->sleeping = true;
            pthread_cond_wait(&lane->wake, &pl_lock);
            lane->sleeping = false;
        }
    }
    pl_leave();
    return NULL;
}

/* Is its first op one that a waiting thread may run? */
static bool lane_is_brief(const pl_lane *lane, int64_t last)
{
    const pl_op *op = heap_is_first(lane) ? lane->heap[0] : lane->head;
    return op && op->brief && op->seq <= last;
}

void pl_lane_stand_in(bool (*done)(const void *arg), const void *arg, int64_t last)
{
    pl_lane *lane = lanes[PL_LANE_CPU][0];
    if (!lane || !lane->sleeping || lane->lent || lane->stop || lane->flights.n_listed || !lane_is_brief(lane, last))
        return;
    current = lane;
    lane->lent = stands_in = true;
    if ((lane->helps = pl_thread_pool_size() > 1))
        pl_thread_pool_expect(1);
    do {
        pl_op_execute(lane_pop(lane));
    } while (!done(arg) && lane_is_brief(lane, last));
    if (lane->helps)
        pl_thread_pool_expect(-1);
    lane->lent = lane->helps = stands_in = false;
    current = NULL;
    if (lane->n_ready)
        lane_wake(lane);
}

static bool lane_start(pl_lane *lane)
{
    pthread_attr_t attr;
    lane->stop = false;
    if (pthread_attr_init(&attr) != 0)
        return false;
    pthread_attr_setstacksize(&attr, STACK_BYTES);      /* a wait runs other ops on the same stack */
    lane->alive = pthread_create(&lane->thread, &attr, lane_main, lane) == 0;
    pthread_attr_destroy(&attr);
    return lane->alive;
}

pl_lane *pl_lane_find(int kind, int device)
{
    if (kind < 0 || kind >= PL_LANE_COUNT || device < 0) {
        pl_fail(PL_EINVAL, "engine: there is no such lane");
        return NULL;
    }
    pl_lane **at = &lanes[kind][device % MAX_DEVICES];
    if (!*at && (*at = calloc(1, sizeof **at))) {
        (*at)->kind = kind;
        (*at)->device = device % MAX_DEVICES;
        pl_wait_condition_init(&(*at)->wake);
    }
    if (!*at)
        pl_fail(PL_ENOMEM, "engine: out of memory for a lane");
    return *at;
}

pl_lane *pl_lane_get(int kind, int device)
{
    pl_lane *lane = pl_lane_find(kind, device);
    if (lane && !lane->alive && !lane_start(lane)) {
        pl_fail(PL_ENOMEM, "engine: the lane's worker thread could not be started");
        return NULL;
    }
    return lane;
}

int pl_engine_is_lane(void) { return current != NULL; }

pl_lane *pl_lane_own(void)
{
    return current ? current : pl_engine.synchronous > 0 || pl_lane_caller.flights.n ? &pl_lane_caller : NULL;
}

void pl_lane_block(pl_lane *lane, int change) { lane->n_blocked += change; }
int pl_lane_suspend(pl_lane *lane, int change) { return lane->n_suspended += change; }

void pl_lane_stop_all(void)
{
    for (int i = 0; i < PL_LANE_COUNT * MAX_DEVICES; i++) {
        pl_enter();
        pl_lane *lane = lanes[i / MAX_DEVICES][i % MAX_DEVICES];
        bool stopping = lane && lane->alive && lane != current && !lane->stop;
        if (stopping) {
            lane->stop = true;
            pthread_cond_signal(&lane->wake);
        }
        pl_leave();
        if (stopping) {
            pthread_join(lane->thread, NULL);
            pl_enter();
            lane->alive = false;              /* ops that arrived meanwhile wait for the next start */
            if (lane_has_work(lane))
                lane_start(lane);
            pl_leave();
        }
    }
    if (!current)
        pl_thread_pool_stop();
}

void pl_lane_resume_all(void)
{
    pl_enter();
    for (int i = 0; i < PL_LANE_COUNT * MAX_DEVICES; i++)
        if (lane_at(i) && !lane_at(i)->alive && pl_engine.n_pending > 0)
            lane_start(lane_at(i));           /* out of memory: the next push to this lane tries again */
    pl_leave();
}

void pl_lane_forget_all(void)
{
    for (int i = 0; i < PL_LANE_COUNT * MAX_DEVICES; i++)
        lanes[i / MAX_DEVICES][i % MAX_DEVICES] = NULL;     /* leaked: its thread may have used it */
    pl_lane_caller = (pl_lane){0};
    n_deferred = 0;
    current = NULL;
    stands_in = false;
    pl_thread_pool_forget();
}
