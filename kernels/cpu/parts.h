/* How threads share what a kernel does. */
#ifndef PLK_PARTS_H
#define PLK_PARTS_H
#include "kernel.h"

/* Pixels. Threads share larger images by rows and smaller ones by channels: then no cache line has two writers, and one
 * layer finds what the last one left. */
enum { PLK_SMALL_IMAGE = 512 };

/* Pieces of a region that n_threads share: more than threads, since some come late, and small beside all of it, so that
 * they end together. work: as for pl_threads. */
static inline int plk_pieces(int n_threads, int64_t work)
{
    enum { WORK_PER_PIECE = 32768, LEAST = 4, MOST = 32 };
    int64_t n = work / WORK_PER_PIECE;
    n = n < LEAST * n_threads ? LEAST * n_threads : n > MOST * n_threads ? MOST * n_threads : n;
    return n_threads > 1 ? (int)n : 1;
}

/* What a kernel was called with, for its parts. */
typedef struct { const void *params; void *const *bufs; const double *scalars; } plk_call;

typedef void (*plk_part)(void *arg, int64_t begin, int64_t end);
typedef struct { plk_part run; void *arg; int64_t n, unit; int n_pieces; } plk_parts;

static inline void plk_run_part(void *arg, int64_t piece)
{
    const plk_parts *all = (const plk_parts *)arg;
    int64_t begin, end;
    plk_share(all->n, all->unit, (int)piece, all->n_pieces, &begin, &end);
    all->run(all->arg, begin, end);
}

/* Calls run(arg, begin, end) for parts of [0, n) that begin at multiples of `unit`, in places of pl_threads(work). */
static inline void plk_run_parts(int64_t work, int64_t n, int64_t unit, plk_part run, void *arg)
{
    int n_threads = pl_threads(work);
    int64_t units = (n + unit - 1) / unit, n_pieces = plk_pieces(n_threads, work);
    plk_parts all = {run, arg, n, unit, (int)(n_pieces < units ? n_pieces : units)};
    if (units > 0)
        pl_team_run(n_threads, all.n_pieces, plk_run_part, &all);
}
#endif
