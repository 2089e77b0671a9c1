/* The team: threads that share the pieces of one kernel.
 *
 * The worker of cpu(0) opens a region and works on it; whoever is free joins: callers that wait for a result, producers
 * that ran ahead, helpers of the team's own. Nobody waits for a thread that has not joined, so that a region takes no
 * longer than on its worker alone however busy the cores are; fork/join teams wait for a thread that Python keeps from
 * its core. A producer counts as one of the team: helpers are woken for the places that are left. oneDNN brings
 * OpenMP's team: helpers sleep while it works.
 *
 *   gate (region, places left)      --open-->  n places  --join, one each-->  0 places
 *                                      pieces: every place takes those of its own part first, then what others left
 *   closed when no piece is left: the worker waits for those who joined, and only for them
 */
#include "internal.h"

#include <sched.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { MAX_PLACES = 64, PLACE_BITS = 8, PLACES = (1 << PLACE_BITS) - 1, IDLE_NS = 5000000, CLOSE_NS = 200000,
       SPIN_NS = 50000 /* long enough for a hand-over, too short to burn */, AHEAD_NS = 20000, MAX_VAIN = 6,
       PRODUCING_NS = 500000 };
_Static_assert(MAX_PLACES <= PLACES, "places left fit into the gate");

/* Pieces [next, end). */
typedef struct { _Alignas(64) atomic_llong next; int64_t end; } part;

static struct {
    _Alignas(64) atomic_ullong gate;          /* number of the region << PLACE_BITS | places left */
    _Alignas(64) atomic_int n_left;           /* threads that joined and have ended */
    atomic_bool worker_sleeps;
    _Alignas(64) pl_piece run;                /* from here on fixed while the region is open */
    void *arg;
    int n_places;
    part parts[MAX_PLACES];
} region;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;      /* of what follows, and of both conditions */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static pthread_t helpers[MAX_PLACES];
static int n_helpers, n_called;               /* alive; asked to wake up */
static atomic_bool stopping;                  /* read without the lock too */
/* read without the lock; places of the last region but the worker's */
static atomic_int n_asleep, n_watching, n_wanted;
static atomic_llong lent_ns;                  /* when the last of them ended */
static atomic_int n_lent;                     /* teams of OpenMP's that work now; read without the lock */
static atomic_ullong pushes, pushes_at_sleep; /* of producers; what it was when one went to sleep */
static _Thread_local bool inside;             /* a region's piece is running on this thread, */
static _Thread_local int at_place;            /* with this number */

/* May this thread open a region or a team of OpenMP's? One team only: two would compete for the same cores. */
bool pl_team_free(void)
{
#ifdef _OPENMP
    return !inside && !omp_in_parallel();
#else
    return !inside;
#endif
}

/* ---- a region --------------------------------------------------------------------------------------------- */

static void take_pieces(int place)
{
    inside = true;
    at_place = place;
    for (int i = 0; i < region.n_places; i++) {
        part *p = &region.parts[place + i < region.n_places ? place + i : place + i - region.n_places];
        while (atomic_load_explicit(&p->next, memory_order_relaxed) < p->end) {
            int64_t at = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
            if (at < p->end)
                region.run(region.arg, at);
        }
    }
    inside = false;
    at_place = 0;
}

int pl_team_place(void) { return at_place; }

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
    atomic_fetch_add(&region.n_left, 1);      /* the region may be gone after this */
    if (atomic_load(&region.worker_sleeps)) {
        pthread_mutex_lock(&lock);
        pthread_cond_signal(&ended);
        pthread_mutex_unlock(&lock);
    }
    if (pl_failed)
        pl_fail_forget();                     /* the kernel tells its own thread */
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
        sched_yield();
    }
    if (atomic_load(&region.n_left) >= n_joined)
        return;
    pthread_mutex_lock(&lock);                /* one of them lost its core: an idle one is left to it */
    atomic_store(&region.worker_sleeps, true);
    while (atomic_load(&region.n_left) < n_joined)
        pthread_cond_wait(&ended, &lock);
    atomic_store(&region.worker_sleeps, false);
    pthread_mutex_unlock(&lock);
}

/* ---- helpers ---------------------------------------------------------------------------------------------- */

/* How many more threads watch than a region has places for. */
static int watchers_over(void)
{
    return atomic_load_explicit(&n_watching, memory_order_relaxed) -
        atomic_load_explicit(&n_wanted, memory_order_relaxed);
}

/* Joins regions until done(arg) or until there was none for idle_ns; true: there was one. A waiter gives its core to
 * who wants it (the thread waited for, or one of its team); one that counts as watching has nothing else to do, and
 * goes first. */
static bool watch(bool (*done)(const void *arg), const void *arg, int64_t idle_ns, bool counts)
{
    int64_t end = pl_profiler_now() + idle_ns;
    bool helped = false;
    atomic_fetch_add_explicit(&n_watching, counts, memory_order_relaxed);
    do {
        for (int i = 0; i < 16; i++) {
            if (done(arg))
                goto end;
            if ((counts || watchers_over() < 0) && join()) {
                end = pl_profiler_now() + idle_ns;
                helped = true;
            }
            relax();
        }
        if (!counts)
            sched_yield();
    } while (pl_profiler_now() < end);
end:
    atomic_fetch_sub_explicit(&n_watching, counts, memory_order_relaxed);
    return helped;
}

void pl_spin(bool (*done)(const void *arg), const void *arg) { watch(done, arg, SPIN_NS, false); }

/* Producers have come to watch, or a team of OpenMP's works: a helper would keep them from their core. Or the end has
 * come. */
static bool surplus(const void *arg)
{
    (void)arg;
    return watchers_over() > 0 || atomic_load_explicit(&n_lent, memory_order_relaxed) > 0 ||
           atomic_load_explicit(&stopping, memory_order_relaxed);
}

static void *helper_main(void *arg)
{
    (void)arg;
    pl_profiler_name_thread("team");
    pl_team_limit(1);
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

static long cores(void)
{
#ifdef _OPENMP
    return omp_get_num_procs();
#else
    return sysconf(_SC_NPROCESSORS_ONLN);
#endif
}

/* Wakes helpers for places that nobody watches; the core of a producer is not theirs. */
static void fill(int n_places)
{
    static unsigned long long seen;
    static int64_t seen_ns;
    static long n_cpus;
    int n = n_places - 1 - atomic_load_explicit(&n_watching, memory_order_relaxed);
    if (n <= 0)
        return;
    unsigned long long now = atomic_load_explicit(&pushes, memory_order_relaxed);
    int64_t now_ns = pl_profiler_now();
    if (now != seen) {
        seen = now;
        seen_ns = now_ns;
    }
    if (!n_cpus)
        n_cpus = cores();
    if (n_places >= n_cpus && now_ns - seen_ns < PRODUCING_NS &&
        now != atomic_load_explicit(&pushes_at_sleep, memory_order_relaxed))
        n--;
    if (n > 0)
        call_helpers(n, n_places - 1);
}

/* Also inside a piece, whose place is not one of this region's. */
static void run_alone(int64_t n_pieces, pl_piece run, void *arg)
{
    bool outer = inside;
    int place = at_place;
    inside = true;
    at_place = 0;
    for (int64_t i = 0; i < n_pieces; i++)
        run(arg, i);
    inside = outer;
    at_place = place;
}

/* libgomp's threads spin after a primitive, on the cores that helpers would need: a network with primitives runs on
 * them alone. */
static bool openmp_is_awake(void)
{
    enum { AWAKE_NS = 250000000 };
    return atomic_load_explicit(&n_lent, memory_order_relaxed) > 0 ||
           (atomic_load_explicit(&lent_ns, memory_order_relaxed) &&
            pl_profiler_now() - atomic_load_explicit(&lent_ns, memory_order_relaxed) < AWAKE_NS);
}

#ifdef _OPENMP
static void run_on_openmp(void)
{
#pragma omp parallel num_threads(region.n_places)
    {
        take_pieces(omp_get_thread_num());
        if (omp_get_thread_num() && pl_failed)
            pl_fail_forget();
    }
}
#else
static void run_on_openmp(void) { take_pieces(0); }
#endif

void pl_team_run(int n_threads, int64_t n_pieces, pl_piece run, void *arg)
{
    int n_places = n_threads < n_pieces ? n_threads : (int)n_pieces;
    if (n_places < 2 || !pl_lane_has_team()) {
        run_alone(n_pieces, run, arg);
        return;
    }
    if (n_places > MAX_PLACES)
        n_places = MAX_PLACES;
    region.run = run;
    region.arg = arg;
    region.n_places = n_places;
    for (int i = 0; i < n_places; i++) {
        atomic_store_explicit(&region.parts[i].next, i * n_pieces / n_places, memory_order_relaxed);
        region.parts[i].end = (i + 1) * n_pieces / n_places;
    }
    if (openmp_is_awake()) {
        run_on_openmp();
        return;
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

int pl_team_threads(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

void pl_team_limit(int n_threads)
{
#ifdef _OPENMP
    omp_set_num_threads(n_threads);
#endif
    (void)n_threads;
}

int pl_team_lend(int n_threads)
{
    int usual = pl_team_threads();
    if (n_threads > 1)
        atomic_fetch_add_explicit(&n_lent, 1, memory_order_relaxed);
    if (n_threads != usual)
        pl_team_limit(n_threads);
    return usual;
}

void pl_team_take_back(int n_threads, int usual)
{
    if (n_threads > 1) {
        atomic_store_explicit(&lent_ns, pl_profiler_now(), memory_order_relaxed);
        atomic_fetch_sub_explicit(&n_lent, 1, memory_order_relaxed);
    }
    if (n_threads != usual)
        pl_team_limit(usual);
}

int pl_threads(int64_t work)
{
    enum { WORK_PER_THREAD = 16384 };
    if (work < 2 * WORK_PER_THREAD || !pl_lane_has_team())
        return 1;
    int64_t n = work / WORK_PER_THREAD, max = pl_team_threads();
    return (int)(n < max ? n : max);
}

/* ---- producers, stopping ---------------------------------------------------------------------------------- */

/* What a producer sees that ran ahead. */
void pl_team_help(bool (*done)(const void *arg), const void *arg)
{
    static _Thread_local struct { int vain, skip; } me;
    if (me.skip-- > 0)
        return;
    me.vain = watch(done, arg, AHEAD_NS, true) ? 0 : me.vain < MAX_VAIN ? me.vain + 1 : MAX_VAIN;
    me.skip = (1 << me.vain) - 1;
}

void pl_team_pushed(void) { atomic_fetch_add_explicit(&pushes, 1, memory_order_relaxed); }

void pl_team_sleeps(void)
{
    atomic_store_explicit(&pushes_at_sleep, atomic_load_explicit(&pushes, memory_order_relaxed), memory_order_relaxed);
}

void pl_team_stop(void)
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

void pl_team_forget(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    wake = ended = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    n_helpers = n_called = 0;
    stopping = false;
    atomic_store(&n_asleep, 0);
    atomic_store(&n_watching, 0);
    atomic_store(&n_lent, 0);
    atomic_store(&lent_ns, 0);
    atomic_store(&region.gate, 0);
    atomic_store(&region.worker_sleeps, false);
}
