/* Device times for the profiler: while it is on, a CUDA event is recorded before and after the work of each op. When
 * both have happened, the time between them becomes an event of the profiler, in a row of the stream.
 *
 * CUDA measures only times between events, as floats. The clock of a stream starts with an event at which the host read
 * its own clock, and is moved to each event that is read, so that differences stay short and exact. */
#include "timing.h"
#include "gpu.h"
#include "profiler.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_PENDING = 4096 };

struct pl_timing {
    struct pl_timing *next;
    cu_event start, end;
    pl_event event;
};

/* Events can be reused on their own GPU only. */
static pl_timing *timing_new(pl_gpu *gpu)
{
    pl_enter();
    pl_timing *t = gpu->spare_timing;
    if (t)
        gpu->spare_timing = t->next;
    pl_leave();
    if (t || !(t = calloc(1, sizeof *t)))
        return t;
    if (cu.event_new(&t->start, 0) != 0 || cu.event_new(&t->end, 0) != 0) {
        if (t->start)
            cu.event_free(t->start);
        free(t);
        return NULL;
    }
    return t;
}

static void timing_free(pl_gpu *gpu, pl_timing *t)
{
    pl_enter();
    t->next = gpu->spare_timing;
    gpu->spare_timing = t;
    pl_leave();
}

/* Starts the stream's clock: the host's time at an event that has just happened. */
static bool clock_start(pl_stream *s)
{
    if (s->clock)
        return true;
    if (cu.event_new(&s->clock, 0) != 0)
        return false;
    if (cu.event_record(s->clock, s->handle) != 0 || cu.event_sync(s->clock) != 0) {
        cu.event_free(s->clock);
        s->clock = NULL;
        return false;
    }
    s->clock_ns = (double)pl_profiler_now();
    return true;
}

pl_timing *pl_timing_begin(pl_stream *s)
{
    pthread_mutex_lock(&s->event_lock);
    bool ticking = s->n_pending < MAX_PENDING && clock_start(s);
    pthread_mutex_unlock(&s->event_lock);
    pl_timing *t = ticking ? timing_new(s->gpu) : NULL;
    if (t && cu.event_record(t->start, s->handle) != 0) {
        timing_free(s->gpu, t);
        t = NULL;
    }
    return t;
}

void pl_timing_end(pl_stream *s, pl_timing *t, pl_event event)
{
    t->event = event;
    t->next = NULL;
    if (cu.event_record(t->end, s->handle) != 0) {
        timing_free(s->gpu, t);
        return;
    }
    pthread_mutex_lock(&s->event_lock);
    if (s->pending_tail)
        s->pending_tail->next = t;
    else
        s->pending = t;
    s->pending_tail = t;
    s->n_pending++;
    pthread_mutex_unlock(&s->event_lock);
}

/* Turns timings whose work is done into events of the profiler; all: waits for the others. */
static void stream_collect(pl_stream *s, bool all)
{
    char row[40];
    static const char *const kinds[] = {"compute", "h2d", "d2h", "comm"};
    snprintf(row, sizeof row, "gpu(%d) %s stream", s->gpu->number, kinds[s->kind - PL_LANE_GPU_COMPUTE]);
    for (;;) {
        pthread_mutex_lock(&s->event_lock);
        pl_timing *t = s->pending;
        bool ended = t && (all ? cu.event_sync(t->end) : cu.event_query(t->end)) == 0;
        if (ended) {
            s->pending = t->next;
            if (!s->pending)
                s->pending_tail = NULL;
            s->n_pending--;
        }
        float to_start_ms = 0, run_ms = 0;
        bool timed = ended && cu.event_elapsed(&to_start_ms, s->clock, t->start) == 0 &&
                     cu.event_elapsed(&run_ms, t->start, t->end) == 0;
        double start_ns = s->clock_ns + (double)to_start_ms * 1e6, end_ns = start_ns + (double)run_ms * 1e6;
        if (timed && t->event.kind == PL_EVENT_OP) {          /* the clock moves on to the end of this op */
            cu_event old = s->clock;
            s->clock = t->end;
            t->end = old;
            s->clock_ns = end_ns;
        }
        pthread_mutex_unlock(&s->event_lock);
        if (!ended)
            return;
        t->event.start_ns = (int64_t)start_ns;
        t->event.end_ns = (int64_t)end_ns;
        if (timed)
            pl_profiler_add(row, &t->event);
        timing_free(s->gpu, t);
    }
}

void pl_timing_collect(bool all)
{
    pl_gpu_scope scope;
    for (int g = 0; g < PL_MAX_GPUS; g++)
        for (int i = 0; pl_gpu_open_at(g) && i < PL_LANE_COUNT - PL_LANE_GPU_COMPUTE; i++)
            if (pl_gpu_begin(pl_gpu_open_at(g), &scope) == PL_OK) {
                stream_collect(&pl_gpu_open_at(g)->streams[i], all);
                pl_gpu_end(&scope);
            }
}
