/* Lanes: queues of ready ops, one worker thread each. Priority 0 is a plain FIFO; other priorities stand in a heap. */
#include "internal.h"

#include <omp.h>
#include <stdlib.h>

enum { MAX_DEVICES = 64, SPINS = 4000 };

struct pl_lane {
    pthread_t thread;
    pthread_cond_t wake;
    pl_op *head, *tail;              /* priority 0 */
    pl_op **heap;                    /* other priorities: highest first, then oldest */
    int n_heap, max_heap, kind, device;
    bool sleeping, stop;
    atomic_int n_ready;              /* read without the lock while spinning */
};

static pl_lane *lanes[PL_LANE_COUNT][MAX_DEVICES];
static _Thread_local pl_lane *current;
static _Thread_local struct { void *data; size_t bytes; } scratch;

static bool before(const pl_op *a, const pl_op *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->seq < b->seq;
}

static void heap_push(pl_lane *lane, pl_op *op)
{
    if (lane->n_heap == lane->max_heap) {
        int max = lane->max_heap ? 2 * lane->max_heap : 64;
        pl_op **heap = realloc(lane->heap, (size_t)max * sizeof *heap);
        if (!heap) {                 /* no memory: order by priority is lost, not the op */
            op->priority = 0;
            pl_lane_put(op);
            return;
        }
        lane->heap = heap;
        lane->max_heap = max;
    }
    int i = lane->n_heap++;
    for (; i > 0 && before(op, lane->heap[(i - 1) / 2]); i = (i - 1) / 2)
        lane->heap[i] = lane->heap[(i - 1) / 2];
    lane->heap[i] = op;
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

static pl_op *lane_pop(pl_lane *lane)
{
    pl_op *op = NULL;
    if (lane->n_heap && (!lane->head || lane->heap[0]->priority > 0)) {
        op = heap_pop(lane);
    } else if (lane->head) {
        op = lane->head;
        lane->head = op->next;
    }
    if (op)
        atomic_fetch_sub_explicit(&lane->n_ready, 1, memory_order_relaxed);
    return op;
}

void pl_lane_put(pl_op *op)
{
    pl_lane *lane = op->lane;
    atomic_fetch_add_explicit(&lane->n_ready, 1, memory_order_relaxed);
    if (op->priority != 0) {
        heap_push(lane, op);
    } else {
        op->next = NULL;
        if (lane->head)
            lane->tail->next = op;
        else
            lane->head = op;
        lane->tail = op;
    }
    if (lane->sleeping)
        pthread_cond_signal(&lane->wake);
}

static void *lane_main(void *arg)
{
    pl_lane *lane = arg;
    current = lane;
    pthread_mutex_lock(&pl_lock);
    for (;;) {
        pl_op *op = lane_pop(lane);
        if (op) {
            pl_op_execute(op);
            continue;
        }
        if (lane->stop)
            break;
        pthread_mutex_unlock(&pl_lock);       /* prepare: look for work a little while, without the lock */
        for (int i = 0; i < SPINS && !atomic_load_explicit(&lane->n_ready, memory_order_relaxed); i++)
            __builtin_ia32_pause();
        pthread_mutex_lock(&pl_lock);         /* recheck, then commit to sleep */
        while (!lane->head && !lane->n_heap && !lane->stop) {
            lane->sleeping = true;
            pthread_cond_wait(&lane->wake, &pl_lock);
            lane->sleeping = false;
        }
    }
    pthread_mutex_unlock(&pl_lock);
    free(scratch.data);
    scratch.data = NULL;
    scratch.bytes = 0;
    return NULL;
}

pl_lane *pl_lane_get(int kind, int device)
{
    if (kind < 0 || kind >= PL_LANE_COUNT || device < 0 || device >= MAX_DEVICES)
        return NULL;
    pl_lane **at = &lanes[kind][device];
    if (!*at) {
        pl_lane *lane = calloc(1, sizeof *lane);
        if (!lane)
            return NULL;
        lane->kind = kind;
        lane->device = device;
        pthread_cond_init(&lane->wake, NULL);
        if (pthread_create(&lane->thread, NULL, lane_main, lane) != 0) {
            free(lane);
            return NULL;
        }
        *at = lane;
    }
    return *at;
}

void pl_lane_stop_all(void)
{
    for (int kind = 0; kind < PL_LANE_COUNT; kind++)
        for (int device = 0; device < MAX_DEVICES; device++) {
            pthread_mutex_lock(&pl_lock);
            pl_lane *lane = lanes[kind][device];
            lanes[kind][device] = NULL;
            if (lane) {
                lane->stop = true;
                pthread_cond_signal(&lane->wake);
            }
            pthread_mutex_unlock(&pl_lock);
            if (lane) {
                pthread_join(lane->thread, NULL);
                free(lane->heap);
                free(lane);
            }
        }
}

int pl_engine_is_lane(void) { return current != NULL; }

int pl_threads(int64_t work)
{
    enum { WORK_PER_THREAD = 16384 };
    if (!current || work < 2 * WORK_PER_THREAD)
        return 1;
    int64_t n = work / WORK_PER_THREAD, max = omp_get_max_threads();
    return (int)(n < max ? n : max);
}

void *pl_scratch(size_t bytes)
{
    if (bytes > scratch.bytes) {
        free(scratch.data);
        scratch.bytes = 0;
        if (posix_memalign(&scratch.data, 64, bytes) != 0) {
            scratch.data = NULL;
            return NULL;
        }
        scratch.bytes = bytes;
    }
    return scratch.data;
}
