/* How the threads of the pool share what a kernel does.
 *
 * A kernel whose work is a range of elements, rows or tiles calls plk_run_parts. One that needs a fixed division, such
 * as one that reads all its input in each thread, calls plk_run_shares. One that has tasks of its own (tiles of a
 * convolution, panels of a matrix product) numbers them and calls pl_thread_pool_run.
 */
#ifndef PLK_PARTS_H
#define PLK_PARTS_H
#include "engine/core/thread_pool.h"
#include "kernel.h"

/* Pixels. Threads share larger images by rows and smaller ones by channels: then no cache line has two writers, and a
 * layer finds the results of the layer before in its cache. */
enum { PLK_SMALL_IMAGE = 512 };

/* Elements [begin, end) of n for share i of n_shares, at multiples of `unit`. */
static inline void plk_share(int64_t n, int64_t unit, int i, int n_shares, int64_t *begin, int64_t *end)
{
    int64_t units = (n + unit - 1) / unit, per = units / n_shares, more = units % n_shares;
    int64_t first = i * per + (i < more ? i : more), last = first + per + (i < more);
    *begin = first * unit < n ? first * unit : n;
    *end = last * unit < n ? last * unit : n;
}

/* What a kernel was called with, for its parts. */
typedef struct { const void *params; void *const *bufs; const double *scalars; } plk_call;

typedef void (*plk_part)(void *arg, int64_t begin, int64_t end);
typedef struct { plk_part run; void *arg; int64_t n, unit; int n_shares; } plk_shares;

static inline void plk_run_share(void *arg, int64_t i)
{
    const plk_shares *s = (const plk_shares *)arg;
    int64_t begin, end;
    plk_share(s->n, s->unit, (int)i, s->n_shares, &begin, &end);
    s->run(s->arg, begin, end);
}

/* Calls run(arg, begin, end) for n_shares equal shares of [0, n), on as many threads. Shares may be empty. */
static inline void plk_run_shares(int n_shares, int64_t n, int64_t unit, plk_part run, void *arg)
{
    plk_shares all = {run, arg, n, unit, n_shares};
    pl_thread_pool_run(n_shares, n_shares, plk_run_share, &all);
}

/* Calls run(arg, begin, end) for parts of [0, n) that begin at multiples of `unit`, on pl_threads(work) threads. There
 * are more parts than threads, since threads may join late, and each is small, so that all threads end together. */
static inline void plk_run_parts(int64_t work, int64_t n, int64_t unit, plk_part run, void *arg)
{
    enum { WORK_PER_PART = 32768, LEAST = 4, MOST = 32 };
    int n_threads = pl_threads(work);
    int64_t units = (n + unit - 1) / unit, n_parts = work / WORK_PER_PART;
    if (units < 1)
        return;
    if (n_threads == 1) {
        run(arg, 0, n);
        return;
    }
    n_parts = n_parts < LEAST * n_threads ? LEAST * n_threads : n_parts > MOST * n_threads ? MOST * n_threads : n_parts;
    plk_shares all = {run, arg, n, unit, (int)(n_parts < units ? n_parts : units)};
    pl_thread_pool_run(n_threads, all.n_shares, plk_run_share, &all);
}
#endif
