/* The thread pool of one instance: its threads share the pieces of each kernel.
 *
 * The caller of run opens a region and works on it; helpers that are awake join. The caller waits only for helpers that
 * have joined, so a region takes no longer than on the caller alone, however busy the cores are.
 *
 *   gate (region, places left)      --open-->  n places  --join, one each-->  0 places
 *                                      each member takes the pieces of its own range first, then pieces of others
 *   closed when no piece is left: the caller waits for the members that have joined
 *
 * Helpers watch the gate while a run goes on, and sleep otherwise. */
#include "thread.h"
#include "engine/core/thread_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { PLACE_BITS = 8, PLACES = (1 << PLACE_BITS) - 1, WATCH_NS = 2000000, CLOSE_NS = 200000, LOOKS = 64,
       STACK_BYTES = 2 << 20, WORK_PER_THREAD = 16384 };

/* The pieces [next, end) of one member. */
typedef struct { _Alignas(64) atomic_llong next; int64_t end; } range;
typedef struct { net_pool *pool; net_memory *memory; pthread_t thread; } helper;

struct net_pool {
    _Alignas(64) atomic_ullong gate;          /* number of the region << PLACE_BITS | places left */
    _Alignas(64) atomic_int n_left;           /* helpers that joined and have ended */
    atomic_bool caller_sleeps;
    _Alignas(64) pl_piece run;                /* from here on fixed while the region is open */
    void *arg;
    int n_places;
    _Alignas(64) atomic_bool running, stopping;
    atomic_int n_asleep;
    pthread_mutex_t lock;                     /* for both conditions; guards called */
    pthread_cond_t wake, ended;
    unsigned called;                          /* how often helpers were woken */
    int n_threads, n_helpers;
    helper *helpers;
    range *ranges;
};

static _Thread_local bool inside;             /* a piece is running on this thread, */
static _Thread_local int own_index;           /* which is this member of the region */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

static void relax(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb");
#endif
}

static void take_pieces(net_pool *pool, int index)
{
    inside = true;
    own_index = index;
    for (int i = 0; i < pool->n_places; i++) {
        range *r = &pool->ranges[index + i < pool->n_places ? index + i : index + i - pool->n_places];
        while (atomic_load_explicit(&r->next, memory_order_relaxed) < r->end) {
            int64_t at = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
            if (at < r->end)
                pool->run(pool->arg, at);
        }
    }
    inside = false;
    own_index = 0;
}

/* True if this helper has worked on a region. */
static bool join(net_pool *pool)
{
    unsigned long long gate = atomic_load(&pool->gate);
    do {
        if (!(gate & PLACES))
            return false;
    } while (!atomic_compare_exchange_weak(&pool->gate, &gate, gate - 1));
    take_pieces(pool, pool->n_places - (int)(gate & PLACES));
    atomic_fetch_add(&pool->n_left, 1);       /* the region may be closed after this */
    if (atomic_load(&pool->caller_sleeps)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_signal(&pool->ended);
        pthread_mutex_unlock(&pool->lock);
    }
    return true;
}

static void *helper_main(void *arg)
{
    helper *me = arg;
    net_pool *pool = me->pool;
    net_here = (net_thread){pool, me->memory};
    for (unsigned seen = 0; !atomic_load(&pool->stopping);) {
        for (int64_t end = now_ns() + WATCH_NS; atomic_load(&pool->running) && now_ns() < end;)
            for (int i = 0; i < LOOKS; i++, relax())
                if (join(pool)) {
                    end = now_ns() + WATCH_NS;
                    i = -1;
                }
        pthread_mutex_lock(&pool->lock);
        atomic_fetch_add(&pool->n_asleep, 1);
        while (seen == pool->called && !(atomic_load(&pool->gate) & PLACES) && !atomic_load(&pool->stopping))
            pthread_cond_wait(&pool->wake, &pool->lock);
        atomic_fetch_sub(&pool->n_asleep, 1);
        seen = pool->called;
        pthread_mutex_unlock(&pool->lock);
    }
    return NULL;
}

static void call_helpers(net_pool *pool)
{
    if (atomic_load(&pool->n_asleep) == 0)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->called++;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

void net_pool_begin(net_pool *pool)
{
    atomic_store(&pool->running, true);
    call_helpers(pool);
}

void net_pool_end(net_pool *pool) { atomic_store(&pool->running, false); }

net_pool *net_pool_new(int n_threads, net_memory *memory)
{
    net_pool *pool = aligned_alloc(64, sizeof *pool);
    if (!pool)
        return NULL;
    *pool = (net_pool){.n_threads = n_threads, .helpers = calloc((size_t)n_threads, sizeof(helper)),
                       .ranges = aligned_alloc(64, (size_t)n_threads * sizeof(range))};
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->ended, NULL);
    pthread_attr_t with;
    bool fits = pool->helpers && pool->ranges && pthread_attr_init(&with) == 0;
    if (fits) {
        pthread_attr_setstacksize(&with, STACK_BYTES);
        for (; pool->n_helpers < n_threads - 1; pool->n_helpers++) {    /* fewer than asked for will do */
            helper *h = &pool->helpers[pool->n_helpers];
            *h = (helper){pool, &memory[pool->n_helpers + 1], 0};
            if (pthread_create(&h->thread, &with, helper_main, h))
                break;
        }
        pthread_attr_destroy(&with);
    } else {
        net_pool_free(pool);
    }
    return fits ? pool : NULL;
}

void net_pool_free(net_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->stopping, true);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->n_helpers; i++)
        pthread_join(pool->helpers[i].thread, NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_cond_destroy(&pool->ended);
    pthread_mutex_destroy(&pool->lock);
    free(pool->helpers);
    free(pool->ranges);
    free(pool);
}

/* ---- what kernels call: see engine/core/thread_pool.h ----------------------------------------------------- */

static void wait_for_joined(net_pool *pool, int n_joined)
{
    int64_t end = 0;
    for (int i = 0; atomic_load_explicit(&pool->n_left, memory_order_acquire) < n_joined; i++) {
        relax();
        if (i % LOOKS != LOOKS - 1)
            continue;
        if (!end)
            end = now_ns() + CLOSE_NS;
        else if (now_ns() > end)
            break;
    }
    if (atomic_load(&pool->n_left) >= n_joined)
        return;
    pthread_mutex_lock(&pool->lock);          /* one of them lost its core: sleep, which frees this one */
    atomic_store(&pool->caller_sleeps, true);
    while (atomic_load(&pool->n_left) < n_joined)
        pthread_cond_wait(&pool->ended, &pool->lock);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->lock);
}

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
    net_pool *pool = net_here.pool;
    int n_places = n_threads < n_pieces ? n_threads : (int)n_pieces;
    n_places = n_places < pool->n_threads ? n_places : pool->n_threads;
    if (n_places < 2 || inside || net_here.memory->measures) {
        run_alone(n_pieces, run, arg);
        return;
    }
    pool->run = run;
    pool->arg = arg;
    pool->n_places = n_places;
    for (int i = 0; i < n_places; i++) {
        atomic_store_explicit(&pool->ranges[i].next, i * n_pieces / n_places, memory_order_relaxed);
        pool->ranges[i].end = (i + 1) * n_pieces / n_places;
    }
    atomic_store_explicit(&pool->n_left, 0, memory_order_relaxed);
    unsigned long long closed = atomic_load_explicit(&pool->gate, memory_order_relaxed);
    atomic_store(&pool->gate, closed + (1 << PLACE_BITS) + (unsigned)n_places - 1);
    call_helpers(pool);
    take_pieces(pool, 0);
    unsigned long long left = atomic_fetch_and(&pool->gate, ~(unsigned long long)PLACES);
    wait_for_joined(pool, n_places - 1 - (int)(left & PLACES));
}

int pl_thread_pool_index(void) { return own_index; }

int pl_thread_pool_size(void) { return net_here.pool->n_threads; }

int pl_threads(int64_t work)
{
    int max = pl_thread_pool_size();
    if (work < 2 * WORK_PER_THREAD || inside)
        return 1;
    return work / WORK_PER_THREAD < max ? (int)(work / WORK_PER_THREAD) : max;
}
