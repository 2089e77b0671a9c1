/* The profiler: each thread appends events to its own buffer; a full buffer moves to a common list. */
#include "profiler.h"
#include "name.h"
#include "object.h"
#include "storage.h"
#include "timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RECORDS = 1, PRINTS = 2 };     /* bits of pl_profiling */
enum { BUFFER_EVENTS = 8192, MAX_FULL = 512, MAX_THREADS = 256 };

typedef struct buffer {
    struct buffer *next;
    int32_t thread, taken;           /* taken: events that were taken already; under pl_lock */
    atomic_int n;                    /* only the owner raises it, after it wrote the event */
    pl_event events[BUFFER_EVENTS];
} buffer;

atomic_int pl_profiling;
static buffer *live, *full;          /* of running threads; full, or of threads that ended */
static int n_full, n_threads;
static pthread_key_t ending;         /* its destructor runs when a thread ends */
static const char *thread_names[MAX_THREADS];
static _Thread_local buffer *own;
static _Thread_local const char *own_name;

int64_t pl_profiler_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void switch_bit(int bit, int on)
{
    if (on)
        atomic_fetch_or(&pl_profiling, bit);
    else
        atomic_fetch_and(&pl_profiling, ~bit);
}

void pl_profiler_set(int on) { switch_bit(RECORDS, on); }
void pl_profiler_print(int on) { switch_bit(PRINTS, on); }

void pl_profiler_name_thread(const char *name) { own_name = pl_name(name); }

const char *pl_profiler_thread(int thread)
{
    pl_enter();
    const char *name = thread >= 0 && thread < n_threads ? thread_names[thread] : NULL;
    pl_leave();
    return name;
}

/* Threads are numbered by name, so that a restarted lane continues its own row. */
static int thread_number(const char *name)
{
    int i = 0;
    while (i < n_threads && thread_names[i] != name)
        i++;
    if (i == MAX_THREADS)
        return MAX_THREADS - 1;
    if (i == n_threads)
        thread_names[n_threads++] = name;
    return i;
}

static const char *thread_name(void)
{
    if (!own_name) {
        static atomic_int n_unnamed;
        char name[32];
        snprintf(name, sizeof name, "thread %d", atomic_fetch_add(&n_unnamed, 1));
        own_name = pl_name(name);
    }
    return own_name;
}

static buffer *own_buffer(void)
{
    buffer *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    thread_name();
    pl_enter();
    b->thread = own_name ? thread_number(own_name) : 0;
    b->next = live;
    live = b;
    pl_leave();
    own = b;
    pthread_setspecific(ending, b);
    return b;
}

/* Moves this thread's buffer to the common list; if that is full, its events are lost. */
static void buffer_hand_over(void)
{
    buffer *b = own, **at = &live;
    if (!b)
        return;
    pl_enter();
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    if (n_full < MAX_FULL) {
        b->next = full;
        full = b;
        n_full++;
        b = NULL;
    }
    pl_leave();
    free(b);
    own = NULL;
}

static void thread_ended(void *unused)
{
    (void)unused;
    buffer_hand_over();
}

__attribute__((constructor)) static void profiler_init(void) { pthread_key_create(&ending, thread_ended); }

static void event_print(const char *row, const pl_event *e)
{
    const char *where = row ? row : thread_name();
    fprintf(stderr, "plait ops: %-8s %10.1f us  %s%s %s\n", where ? where : "", (double)(e->end_ns - e->start_ns) / 1e3,
            e->kind == PL_EVENT_INSTRUCTION ? "  " : "", e->name, e->label ? e->label : "");
}

/* row: the name of the event's row; NULL: this thread's. */
static void event_add(const char *row, pl_event event)
{
    int wanted = atomic_load_explicit(&pl_profiling, memory_order_relaxed);
    event.name = event.name ? event.name : "";
    if (wanted & PRINTS)
        event_print(row, &event);
    if (!(wanted & RECORDS))
        return;
    if (own && atomic_load_explicit(&own->n, memory_order_relaxed) == BUFFER_EVENTS)
        buffer_hand_over();
    buffer *b = own ? own : own_buffer();
    if (!b)
        return;
    int n = atomic_load_explicit(&b->n, memory_order_relaxed);
    pl_enter();
    event.thread = row ? thread_number(row) : b->thread;
    event.used_bytes = (int64_t)pl_storage_used();
    pl_leave();
    b->events[n] = event;
    atomic_store_explicit(&b->n, n + 1, memory_order_release);
}

void pl_profiler_record(int kind, const char *name, const char *label, int64_t push_ns, int64_t start_ns)
{
    event_add(NULL, (pl_event){.name = name, .label = label, .push_ns = push_ns, .start_ns = start_ns,
                               .end_ns = pl_profiler_now(), .kind = kind});
}

void pl_profiler_flight(const char *name, const char *label, int64_t push_ns, int64_t start_ns, int64_t polled_ns)
{
    event_add(NULL, (pl_event){.name = name, .label = label, .push_ns = push_ns, .start_ns = start_ns,
                               .end_ns = pl_profiler_now(), .polled_ns = polled_ns, .kind = PL_EVENT_FLIGHT});
}

void pl_profiler_add(const char *row, int kind, const char *name, const char *label, int64_t push_ns, int64_t start_ns,
                     int64_t end_ns)
{
    const char *kept = pl_name(row);
    if (kept)
        event_add(kept, (pl_event){.name = name, .label = label, .push_ns = push_ns, .start_ns = start_ns,
                                   .end_ns = end_ns, .kind = kind});
}

static int64_t buffer_take(buffer *b, pl_event *events, int64_t max)
{
    int64_t n = atomic_load_explicit(&b->n, memory_order_acquire) - b->taken;
    if (n > max)
        n = max;
    memcpy(events, b->events + b->taken, (size_t)n * sizeof *events);
    b->taken += (int32_t)n;
    return n;
}

int64_t pl_profiler_take(pl_event *events, int64_t max)
{
    int64_t n = 0;
    pl_timing_collect(true);
    pl_enter();
    while (full && n < max) {
        buffer *b = full;
        n += buffer_take(b, events + n, max - n);
        if (b->taken == atomic_load_explicit(&b->n, memory_order_relaxed)) {
            full = b->next;
            n_full--;
            free(b);
        }
    }
    for (buffer *b = live; b; b = b->next)
        n += buffer_take(b, events + n, max - n);
    pl_leave();
    return n;
}
