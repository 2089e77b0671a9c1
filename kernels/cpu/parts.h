/* Pieces of work for a team of threads: each takes those of its own part first, then what others have left. A thread
 * finds what it wrote a layer before in its own cache, and a slow one is helped. */
#ifndef PLK_PARTS_H
#define PLK_PARTS_H
#include <stdatomic.h>
#include "kernel.h"

/* Pixels. Threads share larger images by rows and smaller ones by channels: then no cache line has two writers, and one
 * layer finds what the last one left. */
enum { PLK_SMALL_IMAGE = 512 };

/* Pieces of a region that n_threads share: more than threads, since some come late. */
static inline int plk_pieces(int n_threads) { return n_threads > 1 ? 4 * n_threads : 1; }

typedef struct {
    _Alignas(64) atomic_llong next;
    int64_t end;
} plk_part;

static inline void plk_parts_init(plk_part *parts, int64_t n, int n_threads)
{
    for (int i = 0; i < n_threads; i++) {
        int64_t begin;
        plk_share(n, 1, i, n_threads, &begin, &parts[i].end);
        atomic_init(&parts[i].next, begin);
    }
}

/* The next piece for one thread of the team, or -1. */
static inline int64_t plk_parts_take(plk_part *parts, int thread, int n_threads)
{
    for (int i = 0; i < n_threads; i++) {
        plk_part *part = &parts[thread + i < n_threads ? thread + i : thread + i - n_threads];
        if (atomic_load_explicit(&part->next, memory_order_relaxed) >= part->end)
            continue;
        int64_t taken = atomic_fetch_add_explicit(&part->next, 1, memory_order_relaxed);
        if (taken < part->end)
            return taken;
    }
    return -1;
}
#endif
