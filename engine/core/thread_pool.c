/* The thread pool: threads that share the pieces of one kernel.
 *
 * The worker of cpu(0) opens a region and works on it. Idle threads join: callers that wait for a result, producers
 * that ran ahead, the pool's own helpers. The worker waits only for threads that have joined, so a region takes no
 * longer than on the worker alone, however busy the cores are. (A fork/join team also waits for threads that have no
 * core.) A producer counts as a member of the pool: helpers are woken for the remaining places.
 *
 *   gate (region, places left)      --open-->  n places  --join, one each-->  0 places
 *                                      each member takes the pieces of its own range first, then pieces of others
 *   closed when no piece is left: the worker waits for the members that have joined */
#include "thread_pool.h"
#include "error.h"
#include "lane.h"
#include "profiler.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_PLACES = 64, PLACE_BITS = 8, PLACES = (1 << PLACE_BITS) - 1, IDLE_NS = 5000000, CLOSE_NS = 200000,
       SPIN_NS = 50000 /* longer than a hand-over */, AHEAD_NS = 20000, MAX_VAIN = 6,
       PRODUCING_NS = 500000 };
_Static_assert(MAX_PLACES <= PLACES, "places left fit into the gate");

/* The pieces [next, end) of one member. */
typedef struct { _Alignas(64) atomic_llong next; int64_t end; } range;

static struct {
    _Alignas(64) atomic_ullong gate;          /* number of the region << PLACE_BITS | places left */
    _Alignas(64) atomic_int n_left;           /* threads that joined and have ended */
    atomic_bool worker_sleeps;
    _Alignas(64) pl_piece run;                /* from here on fixed while the region is open */
    void *arg;
    int n_places;
    range ranges[MAX_PLACES];
} region;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;      /* guards the variables below; for both conditions */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static pthread_t helpers[MAX_PLACES];
static int n_helpers, n_called;               /* alive; asked to wake up */
static atomic_bool stopping;                  /* read without the lock too */
/* read without the lock; n_wanted: the places of the last region, without the worker's */
static atomic_int n_asleep, n_watching, n_wanted;
static atomic_ullong pushes, pushes_at_sleep; /* of producers; what it was when one went to sleep */
static _Thread_local bool inside;             /* a piece is running on this thread, */
static _Thread_local int own_index;           /* which is this member of the region */
static _Thread_local int own_limit;           /* threads for this thread's kernels; 0: the usual number */

/* One region at a time: two would compete for the same cores. */
bool pl_thread_pool_available(void) { return !inside; }

/* ---- a region --------------------------------------------------------------------------------------------- */

static void take_pieces(int index)
{
    inside = true;
    own_index = index;
    for (int i = 0; i < region.n_places; i++) {
        range *r = &region.ranges[index + i < region.n_places ? index + i : index + i - region.n_places];
        while (atomic_load_explicit(&r->next, memory_order_relaxed) < r->end) {
            int64_t at = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
            if (at < r->end)
                region.run(region.arg, at);
        }
    }
    inside = false;
    own_index = 0;
}

int pl_thread_pool_index(void) { return own_index; }

/* True if this thread has worked on a region. */
static bool join(void)
{
    unsigned long long gate = atomic_load_explicit(&region.gate, memory_order_relaxed);
    do {
        if (!(gate & PLACES))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&region.gate, &gate, gate - 1, memory_order_acquire,
                                                    memory_order_relaxed));
    take_pieces(region.n_places - (int)(gate & PLACES));
    atomic_fetch_add(&region.n_left, 1);      /* the region may be closed after this */
    if (atomic_load(&region.worker_sleeps)) {
        pthread_mutex_lock(&lock);
        pthread_cond_signal(&ended);
        pthread_mutex_unlock(&lock);
    }
    if (pl_failed)
        pl_fail_forget();                     /* the kernel passes the failure to the worker itself */
    return true;
}

static void relax(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb");
#endif
}

static void wait_for_joined(int n_joined)
{
    int64_t end = 0;
    for (int i = 0; atomic_load_explicit(&region.n_left, memory_order_acquire) < n_joined; i++) {
        relax();
        if (i % 64 != 63)
            continue;
        if (!end)
            end = pl_profiler_now() + CLOSE_NS;
        else if (pl_profiler_now() > end)
            break;
    }                                         /* no yield: a busy process would keep the core for milliseconds */
    if (atomic_load(&region.n_left) >= n_joined)
        return;
    pthread_mutex_lock(&lock);                /* one of them lost its core: sleep, which frees this one */
    atomic_store(&region.worker_sleeps, true);
    while (atomic_load(&region.n_left) < n_joined)
        pthread_cond_wait(&ended, &lock);
    atomic_store(&region.worker_sleeps, false);
    pthread_mutex_unlock(&lock);
}

/* Cores that this process may use. */
static int cores(void)
{
    static atomic_int known;
    int n = atomic_load_explicit(&known, memory_order_relaxed);
    if (!n) {
        cpu_set_t set;
        n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
        n = n > 0 ? n : 1;
        atomic_store_explicit(&known, n, memory_order_relaxed);
    }
    return n;
}

/* ---- helpers ---------------------------------------------------------------------------------------------- */

/* How many more threads watch than the last region had places for. */
static int watchers_over(void)
{
    return atomic_load_explicit(&n_watching, memory_order_relaxed) -
        atomic_load_explicit(&n_wanted, memory_order_relaxed);
}

/* Joins regions until done(arg), or until there was none for idle_ns. Returns whether there was one. A waiter yields
 * the only core, which the thread that it waits for needs; of several, a busy process would take it for milliseconds.
 * A thread that counts as watching has nothing else to do and joins first. */
static bool watch_counted(bool (*done)(const void *arg), const void *arg, int64_t idle_ns, bool counts)
{
    int64_t end = pl_profiler_now() + idle_ns;
    bool helped = false;
    do {
        for (int i = 0; i < 16; i++) {
            if (done(arg))
                return helped;
            if ((counts || watchers_over() < 0) && join()) {
                end = pl_profiler_now() + idle_ns;
                helped = true;
            }
            relax();
        }
        if (!counts && cores() == 1)
            sched_yield();
    } while (pl_profiler_now() < end);
    return helped;
}

static bool watch(bool (*done)(const void *arg), const void *arg, int64_t idle_ns, bool counts)
{
    pl_thread_pool_expect(counts);
    bool helped = watch_counted(done, arg, idle_ns, counts);
    pl_thread_pool_expect(-counts);
    return helped;
}

void pl_thread_pool_expect(int change) { atomic_fetch_add_explicit(&n_watching, change, memory_order_relaxed); }

void pl_thread_pool_watch(bool (*done)(const void *arg), const void *arg)
{
    watch_counted(done, arg, IDLE_NS, true);
    pl_thread_pool_expect(-1);
}

void pl_thread_pool_spin(bool (*done)(const void *arg), const void *arg) { watch(done, arg, SPIN_NS, false); }

/* Whether helpers should sleep: producers watch and need the cores, or the pool stops. */
static bool surplus(const void *arg)
{
    (void)arg;
    return watchers_over() > 0 || atomic_load_explicit(&stopping, memory_order_relaxed);
}

static void *helper_main(void *arg)
{
    (void)arg;
    pl_profiler_name_thread("thread pool");
    pl_thread_pool_limit(1);
    for (bool stop = false; !stop;) {
        watch(surplus, NULL, IDLE_NS, true);
        pthread_mutex_lock(&lock);
        atomic_fetch_add_explicit(&n_asleep, 1, memory_order_relaxed);
        while (!n_called && !stopping)
            pthread_cond_wait(&wake, &lock);
        atomic_fetch_sub_explicit(&n_asleep, 1, memory_order_relaxed);
        n_called -= n_called > 0;
        stop = stopping;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void call_helpers(int n, int max)
{
    pthread_mutex_lock(&lock);
    n_called = n;
    if (n == 1)
        pthread_cond_signal(&wake);
    else
        pthread_cond_broadcast(&wake);
    for (; n_helpers < max && n > atomic_load_explicit(&n_asleep, memory_order_relaxed) && !stopping; n--)
        if (pthread_create(&helpers[n_helpers], NULL, helper_main, NULL) == 0)
            n_helpers++;
        else
            break;
    pthread_mutex_unlock(&lock);
}

/* Wakes helpers for the places that no thread watches, and leaves a core to an active producer. */
static void fill(int n_places)
{
    static unsigned long long seen;
    static int64_t seen_ns;
    int n = n_places - 1 - atomic_load_explicit(&n_watching, memory_order_relaxed);
    if (n <= 0)
        return;
    unsigned long long now = atomic_load_explicit(&pushes, memory_order_relaxed);
    int64_t now_ns = pl_profiler_now();
    if (now != seen) {
        seen = now;
        seen_ns = now_ns;
    }
    if (n_places >= cores() && now_ns - seen_ns < PRODUCING_NS &&
        now != atomic_load_explicit(&pushes_at_sleep, memory_order_relaxed))
        n--;
    if (n > 0)
        call_helpers(n, n_places - 1);
}

/* Also inside a piece, whose index belongs to another region. */
static void run_alone(int64_t n_pieces, pl_piece run, void *arg)
{
    bool outer = inside;
    int index = own_index;
    inside = true;
    own_index = 0;
    for (int64_t i = 0; i < n_pieces; i++)
        run(arg, i);
    inside = outer;
    own_index = index;
}

void pl_thread_pool_run(int n_threads, int64_t n_pieces, pl_piece run, void *arg)
{
    int n_places = n_threads < n_pieces ? n_threads : (int)n_pieces;
    if (n_places < 2 || !pl_lane_has_pool()) {
        run_alone(n_pieces, run, arg);
        return;
    }
    if (n_places > MAX_PLACES)
        n_places = MAX_PLACES;
    region.run = run;
    region.arg = arg;
    region.n_places = n_places;
    for (int i = 0; i < n_places; i++) {
        atomic_store_explicit(&region.ranges[i].next, i * n_pieces / n_places, memory_order_relaxed);
        region.ranges[i].end = (i + 1) * n_pieces / n_places;
    }
    atomic_store_explicit(&region.n_left, 0, memory_order_relaxed);
    unsigned long long closed = atomic_load_explicit(&region.gate, memory_order_relaxed);
    atomic_store_explicit(&region.gate, closed + (1 << PLACE_BITS) + (unsigned)n_places - 1, memory_order_release);
    atomic_store_explicit(&n_wanted, n_places - 1, memory_order_relaxed);
    fill(n_places);
    take_pieces(0);
    unsigned long long left =
        atomic_fetch_and_explicit(&region.gate, ~(unsigned long long)PLACES, memory_order_relaxed);
    wait_for_joined(n_places - 1 - (int)(left & PLACES));
}

/* ---- how many threads ------------------------------------------------------------------------------------- */

/* OMP_NUM_THREADS (of a list the first number), which users of other libraries set too; else the cores. */
static int usual_size(void)
{
    static atomic_int known;
    int n = atomic_load_explicit(&known, memory_order_relaxed);
    if (!n) {
        const char *text = getenv("OMP_NUM_THREADS");
        long asked = text ? strtol(text, NULL, 10) : 0;
        n = asked > 0 ? (int)(asked < MAX_PLACES ? asked : MAX_PLACES) : cores();
        atomic_store_explicit(&known, n, memory_order_relaxed);
    }
    return n;
}

int pl_thread_pool_size(void) { return own_limit ? own_limit : usual_size(); }
void pl_thread_pool_limit(int n_threads) { own_limit = n_threads; }

int pl_threads(int64_t work)
{
    enum { WORK_PER_THREAD = 16384 };
    if (work < 2 * WORK_PER_THREAD || !pl_lane_has_pool())
        return 1;
    int64_t n = work / WORK_PER_THREAD, max = pl_thread_pool_size();
    return (int)(n < max ? n : max);
}

/* ---- producers, stopping ---------------------------------------------------------------------------------- */

void pl_thread_pool_help(bool (*done)(const void *arg), const void *arg)
{
    static _Thread_local struct { int vain, skip; } me;
    if (me.skip-- > 0)
        return;
    me.vain = watch(done, arg, AHEAD_NS, true) ? 0 : me.vain < MAX_VAIN ? me.vain + 1 : MAX_VAIN;
    me.skip = (1 << me.vain) - 1;
}

void pl_thread_pool_producer_pushed(void) { atomic_fetch_add_explicit(&pushes, 1, memory_order_relaxed); }

void pl_thread_pool_producer_sleeps(void)
{
    atomic_store_explicit(&pushes_at_sleep, atomic_load_explicit(&pushes, memory_order_relaxed), memory_order_relaxed);
}

void pl_thread_pool_stop(void)
{
    pthread_mutex_lock(&lock);
    stopping = true;
    pthread_cond_broadcast(&wake);
    int n = n_helpers;
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < n; i++)
        pthread_join(helpers[i], NULL);
    pthread_mutex_lock(&lock);
    n_helpers = n_called = 0;
    stopping = false;
    pthread_mutex_unlock(&lock);
}

void pl_thread_pool_forget(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    wake = ended = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    n_helpers = n_called = 0;
    stopping = false;
    atomic_store(&n_asleep, 0);
    atomic_store(&n_watching, 0);
    atomic_store(&region.gate, 0);
    atomic_store(&region.worker_sleeps, false);
}
