/* The profiler: events of ops, instructions and waits. */
#ifndef PLAIT_PROFILER_H
#define PLAIT_PROFILER_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
/* cffi reads from here on: */
/* An instruction is part of its program's op. Ops that were in flight overlap with others of their thread. A wait is
 * the time that a thread was blocked in the engine. */
enum { PL_EVENT_OP = 0, PL_EVENT_INSTRUCTION = 1, PL_EVENT_FLIGHT = 2, PL_EVENT_WAIT = 3 };
typedef struct {
    const char *name, *label, *layer;         /* never freed; label (shapes) and layer may be NULL */
    int64_t push_ns, start_ns, end_ns;        /* pl_profiler_now's clock; push_ns 0: of no push, or before the start */
    int64_t used_bytes;                       /* storage in use at the end */
    int64_t polled_ns;                        /* of FLIGHT: the time inside its function; 0 for others */
    int64_t seq;                              /* of the op, counted from 1; of WAIT: of the op waited for, or 0 */
    int64_t cause;                            /* the op whose end let this one start; 0: it could start when pushed */
    int32_t thread, pushed_by;                /* numbers of threads, see pl_profiler_thread */
    int32_t location, kind;                   /* where it was pushed; of WAIT: who waits; -1: unknown */
} pl_event;
void pl_profiler_set(int on);                 /* records events */
/* Prints each op and instruction on standard error: its name when it starts, its time when it ends. */
void pl_profiler_print(int on);
int64_t pl_profiler_now(void);                /* ns, monotonic: one clock for all processes of a machine */
int64_t pl_profiler_take(pl_event *events, int64_t max);   /* removes up to max events; returns how many; unordered */
int64_t pl_profiler_lost(void);               /* events since the last call for which there was no room */
const char *pl_profiler_thread(int thread);   /* "cpu(0)", "thread 4711", ...; never freed; NULL: no such thread */
/* The layer of the ops that this thread pushes from now on. layer: of pl_name, or NULL. */
void pl_profiler_set_layer(const char *layer);
/* What this thread's waits are called from now on, and where they are; NULL: as the engine calls them. */
void pl_profiler_name_waits(const char *name, int32_t location);
/* cffi stops reading here */

/* All of these with or without the lock, if this thread has called pl_profiler_begin without it before. */
extern atomic_int pl_profiling;               /* someone wants events: not 0 */
extern _Thread_local const char *pl_profiler_layer;
static inline bool pl_profiler_on(void) { return atomic_load_explicit(&pl_profiling, memory_order_relaxed) != 0; }
static inline int64_t pl_profiler_clock(void) { return pl_profiler_on() ? pl_profiler_now() : 0; }    /* 0 when off */
int pl_profiler_begin(void);                  /* the number of this thread */
void pl_profiler_print_start(const pl_event *event);
enum { PL_RECORDS = 1, PL_PRINTS = 2 };       /* bits of pl_profiling */
static inline void pl_profiler_start(const pl_event *event)    /* it starts: for those who print */
{
    if (atomic_load_explicit(&pl_profiling, memory_order_relaxed) & PL_PRINTS)
        pl_profiler_print_start(event);
}
void pl_profiler_end(pl_event *event, bool failed);        /* it ends now */
void pl_profiler_waited(int64_t start_ns, int64_t seq);    /* from then to now, for the op seq or 0 */
void pl_profiler_queue_was_full(const char *op, int64_t start_ns, int64_t end_ns, int32_t location);
void pl_profiler_add(const char *row, const pl_event *event);     /* one of a row of its own, with all its times */
void pl_profiler_name_thread(const char *name);            /* without the lock */
void pl_profiler_forked(void);                /* in a child */
#endif
