/* The profiler: each thread appends events to its own buffer; a full buffer moves to a common list. The list has a lock
 * of its own, which is taken last, so that events can be recorded with and without the engine's. */
#include "profiler.h"
#include "name.h"
#include "object.h"
#include "storage.h"
#include "timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_EVENTS = 8192, MAX_FULL = 512, MAX_THREADS = 256 };

typedef struct buffer {
    struct buffer *next;
    int32_t thread, taken;           /* taken: events that were taken already; under list_lock */
    atomic_int n;                    /* only the owner raises it, after it wrote the event */
    pl_event events[BUFFER_EVENTS];
} buffer;

atomic_int pl_profiling;
_Thread_local const char *pl_profiler_layer;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static buffer *live, *full;          /* of running threads; full, or of threads that ended */
static int n_full, n_threads;
static int64_t n_lost;
static pthread_key_t ending;         /* its destructor runs when a thread ends */
static const char *thread_names[MAX_THREADS];
static _Thread_local buffer *own;
static _Thread_local const char *own_name;
static _Thread_local int own_number = -1;
static _Thread_local struct { const char *name; int32_t location; } own_waits;

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

void pl_profiler_set(int on) { switch_bit(PL_RECORDS, on); }
void pl_profiler_print(int on) { switch_bit(PL_PRINTS, on); }

void pl_profiler_set_layer(const char *layer) { pl_profiler_layer = layer; }

void pl_profiler_name_waits(const char *name, int32_t location)
{
    own_waits.name = name;
    own_waits.location = location;
}

/* ---- threads ---------------------------------------------------------------------------------------------- */

const char *pl_profiler_thread(int thread)
{
    pthread_mutex_lock(&list_lock);
    const char *name = thread >= 0 && thread < n_threads ? thread_names[thread] : NULL;
    pthread_mutex_unlock(&list_lock);
    return name;
}

/* With list_lock. Threads are numbered by name, so that a restarted lane continues its own row. */
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

void pl_profiler_name_thread(const char *name)
{
    own_name = pl_name(name);
    own_number = -1;
}

int pl_profiler_begin(void)
{
    if (own_number >= 0)
        return own_number;
    if (!own_name) {
        char name[32];
        long id = syscall(SYS_gettid);
        snprintf(name, sizeof name, id == getpid() ? "MainThread" : "thread %ld", id);
        own_name = pl_name(name);
    }
    pthread_mutex_lock(&list_lock);
    own_number = own_name ? thread_number(own_name) : 0;
    pthread_mutex_unlock(&list_lock);
    return own_number;
}

/* A child's only thread continues with what its parent recorded. */
void pl_profiler_forked(void) { pthread_mutex_init(&list_lock, NULL); }

/* ---- buffers ---------------------------------------------------------------------------------------------- */

static buffer *own_buffer(void)
{
    buffer *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->thread = pl_profiler_begin();
    pthread_mutex_lock(&list_lock);
    b->next = live;
    live = b;
    pthread_mutex_unlock(&list_lock);
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
    pthread_mutex_lock(&list_lock);
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    if (n_full < MAX_FULL) {
        b->next = full;
        full = b;
        n_full++;
        b = NULL;
    } else {
        n_lost += atomic_load_explicit(&b->n, memory_order_relaxed) - b->taken;
    }
    pthread_mutex_unlock(&list_lock);
    free(b);
    own = NULL;
}

static void thread_ended(void *unused)
{
    (void)unused;
    buffer_hand_over();
}

__attribute__((constructor)) static void profiler_init(void) { pthread_key_create(&ending, thread_ended); }

/* ---- printing --------------------------------------------------------------------------------------------- */

/* The thread whose line has no end yet, and the start of its event. A crash leaves this line as the last one. */
static struct { const void *thread; int64_t start_ns; } line;
static _Thread_local int depth;      /* instructions that this thread is in: a loop, and one of its body */

static void line_begin(const char *row, const pl_event *e)
{
    if (line.thread)
        fputc('\n', stderr);
    line.thread = NULL;
    int indent = e->kind == PL_EVENT_INSTRUCTION ? 2 * (depth ? depth : 1) : 0;
    fprintf(stderr, "plait ops: %-10s %*s%s", row ? row : "", indent, "", e->name ? e->name : "");
    if (e->label)
        fprintf(stderr, " %s", e->label);
    if (e->layer)
        fprintf(stderr, " [%s]", e->layer);
}

static void line_end(const pl_event *e, bool failed)
{
    fprintf(stderr, "  %s%.1f us\n", failed ? "failed after " : "", (double)(e->end_ns - e->start_ns) / 1e3);
    line.thread = NULL;
}

void pl_profiler_print_start(const pl_event *event)
{
    pl_profiler_begin();
    depth += event->kind == PL_EVENT_INSTRUCTION;
    flockfile(stderr);
    line_begin(own_name, event);
    fflush(stderr);
    line.thread = &own;
    line.start_ns = event->start_ns;
    funlockfile(stderr);
}

/* row: NULL: it is this thread's, and has had a start. */
static void event_print(const char *row, const pl_event *e, bool failed)
{
    flockfile(stderr);
    if (row || line.thread != &own || line.start_ns != e->start_ns)
        line_begin(row ? row : own_name, e);
    line_end(e, failed);
    funlockfile(stderr);
    depth -= !row && e->kind == PL_EVENT_INSTRUCTION;
}

/* ---- recording -------------------------------------------------------------------------------------------- */

static void event_add(int thread, const pl_event *event)
{
    if (!(atomic_load_explicit(&pl_profiling, memory_order_relaxed) & PL_RECORDS))
        return;
    if (own && atomic_load_explicit(&own->n, memory_order_relaxed) == BUFFER_EVENTS)
        buffer_hand_over();
    buffer *b = own ? own : own_buffer();
    if (!b)
        return;
    int n = atomic_load_explicit(&b->n, memory_order_relaxed);
    pl_event *made = &b->events[n];
    *made = *event;
    made->name = event->name ? event->name : "";
    made->thread = thread < 0 ? b->thread : thread;
    made->used_bytes = (int64_t)pl_storage_used();
    atomic_store_explicit(&b->n, n + 1, memory_order_release);
}

void pl_profiler_end(pl_event *event, bool failed)
{
    event->end_ns = pl_profiler_now();
    if (atomic_load_explicit(&pl_profiling, memory_order_relaxed) & PL_PRINTS)
        event_print(NULL, event, failed);
    event_add(-1, event);
}

void pl_profiler_waited(int64_t start_ns, int64_t seq)
{
    event_add(-1, &(pl_event){.name = own_waits.name ? own_waits.name : "wait", .start_ns = start_ns,
                              .end_ns = pl_profiler_now(), .seq = seq, .kind = PL_EVENT_WAIT,
                              .location = own_waits.name ? own_waits.location : -1});
}

void pl_profiler_queue_was_full(const char *op, int64_t start_ns, int64_t end_ns, int32_t location)
{
    event_add(-1, &(pl_event){.name = "full queue", .label = op, .layer = pl_profiler_layer, .start_ns = start_ns,
                              .end_ns = end_ns, .kind = PL_EVENT_WAIT, .location = location});
}

void pl_profiler_add(const char *row, const pl_event *event)
{
    const char *kept = pl_name(row);
    if (!kept)
        return;
    if (atomic_load_explicit(&pl_profiling, memory_order_relaxed) & PL_PRINTS)
        event_print(kept, event, false);
    pthread_mutex_lock(&list_lock);
    int thread = thread_number(kept);
    pthread_mutex_unlock(&list_lock);
    event_add(thread, event);
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

int64_t pl_profiler_lost(void)
{
    pthread_mutex_lock(&list_lock);
    int64_t lost = n_lost;
    n_lost = 0;
    pthread_mutex_unlock(&list_lock);
    return lost;
}

int64_t pl_profiler_take(pl_event *events, int64_t max)
{
    int64_t n = 0;
    pl_timing_collect(true);
    pthread_mutex_lock(&list_lock);
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
    pthread_mutex_unlock(&list_lock);
    return n;
}
