/* The profiler: events of ops and instructions. */
#ifndef PLAIT_PROFILER_H
#define PLAIT_PROFILER_H
#include <stdatomic.h>
#include <stdint.h>
/* cffi reads from here on: */
/* An instruction is part of its program's op. Ops that were in flight overlap with others of their thread. */
enum { PL_EVENT_OP = 0, PL_EVENT_INSTRUCTION = 1, PL_EVENT_FLIGHT = 2 };
typedef struct {
    const char *name, *label;                 /* never freed; label may be NULL */
    int64_t push_ns, start_ns, end_ns;        /* pl_profiler_now's clock; push_ns 0 for instructions */
    int64_t used_bytes;                       /* storage in use at the end */
    int64_t polled_ns;                        /* of FLIGHT: the time inside its function; 0 for others */
    int32_t thread, kind;
} pl_event;
void pl_profiler_set(int on);                 /* records events */
void pl_profiler_print(int on);               /* prints each on standard error when it ends */
int64_t pl_profiler_now(void);                /* ns, monotonic */
int64_t pl_profiler_take(pl_event *events, int64_t max);   /* removes up to max events; returns how many; unordered */
const char *pl_profiler_thread(int thread);   /* "cpu(0)", "thread 3", ...; never freed; NULL: no such thread */
/* cffi stops reading here */

/* Without the lock: */
extern atomic_int pl_profiling;               /* someone wants events: not 0 */
static inline int64_t pl_profiler_clock(void)         /* 0 when off */
{
    return atomic_load_explicit(&pl_profiling, memory_order_relaxed) ? pl_profiler_now() : 0;
}
void pl_profiler_record(int kind, const char *name, const char *label, int64_t push_ns, int64_t start_ns);
/* Of an op that was in flight. */
void pl_profiler_flight(const char *name, const char *label, int64_t push_ns, int64_t start_ns, int64_t polled_ns);
/* An event of a row of its own, not of this thread. */
void pl_profiler_add(const char *row, int kind, const char *name, const char *label, int64_t push_ns, int64_t start_ns,
                     int64_t end_ns);
void pl_profiler_name_thread(const char *name);
#endif
