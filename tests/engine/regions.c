/* Regions of the thread pool: every piece runs once, whichever threads join, across stops and forks. */
#include "driver.h"
#include "engine/core/thread_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PIECES = 300, THREADS = 3, N_PRODUCERS = 2, N_OPS = 400 };

typedef struct { int n_pieces; int times[MAX_PIECES]; int64_t sums[THREADS], nested; } region_op;

static void inner_piece(void *arg, int64_t i)
{
    CHECK(pl_thread_pool_index() == 0);              /* on one thread: inside a piece no other joins */
    *(int64_t *)arg += i;
}

static void piece(void *arg, int64_t i)
{
    region_op *r = arg;
    int64_t inner = 0;
    CHECK(pl_thread_pool_index() >= 0 && pl_thread_pool_index() < THREADS);
    CHECK(pl_threads(1 << 30) == 1);
    pl_thread_pool_run(THREADS, 5, inner_piece, &inner);
    CHECK(inner == 10);
    CHECK(pl_thread_pool_index() < THREADS);
    r->times[i]++;
    r->sums[pl_thread_pool_index()] += i;            /* a place is one thread */
}

static int run_region(void *arg)
{
    region_op *r = arg;
    int64_t sum = 0;
    pl_thread_pool_run(THREADS, r->n_pieces, piece, r);
    for (int i = 0; i < r->n_pieces; i++)
        CHECK(r->times[i] == 1);
    for (int i = 0; i < THREADS; i++)
        sum += r->sums[i];
    CHECK(sum == (int64_t)r->n_pieces * (r->n_pieces - 1) / 2);
    return PL_OK;
}

/* The same as a kernel, which a thread that waits may run. */
static int region_kernel(const void *params, void *const *bufs, const double *scalars)
{
    (void)params, (void)scalars;
    region_op r = {.n_pieces = 40};
    *(double *)bufs[1] = *(double *)bufs[0];
    return run_region(&r);
}

static void *produce(void *arg)
{
    uintptr_t array = pl_array_new(8), brief = plan_of(region_kernel, 1, 0, PL_PLAN_BRIEF), one = double_array(1);
    uint64_t state = (uint64_t)(uintptr_t)arg + 1;
    for (int i = 0; i < N_OPS; i++) {
        region_op *r = calloc(1, sizeof *r);
        state = state * 6364136223846793005u + 1442695040888963407u;
        r->n_pieces = (int)((state >> 33) % MAX_PIECES);
        CHECK(pl_push(run_region, r, free, NULL, 0, &array, 1, PL_LANE_CPU, 0, 0, "region", -1) == PL_OK);
        if (i % 50 == 49)
            CHECK(wait_read(array) == PL_OK);
        if (i % 50 > 40) {
            usleep(i % 100);
            uintptr_t same = pl_invoke1(brief, one, 0);
            CHECK(double_value(same) == 1);
            pl_array_free(same);
        }
    }
    CHECK(wait_read(array) == PL_OK);
    pl_array_free(array);
    pl_array_free(one);
    pl_plan_free(brief);
    return NULL;
}

static void produce_at_once(void)
{
    pthread_t threads[N_PRODUCERS];
    for (uintptr_t i = 0; i < N_PRODUCERS; i++)
        CHECK(pthread_create(&threads[i], NULL, produce, (void *)i) == 0);
    for (int i = 0; i < N_PRODUCERS; i++)
        pthread_join(threads[i], NULL);
}

void regions(void)
{
    region_op alone = {.n_pieces = 7};
    run_region(&alone);                       /* this thread is no worker: it takes every piece itself */
    CHECK(alone.sums[0] == 21);
    for (int round = 0; round < 3; round++) {
        produce_at_once();
        pl_engine_stop();
    }
    pl_engine_fork_begin();
    pid_t child = fork();
    pl_engine_fork_end();
    CHECK(child >= 0);
    produce(NULL);
    if (child == 0)
        _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    printf("regions: %d, each piece once\n", 3 * N_PRODUCERS * N_OPS + N_OPS + 1);
}
