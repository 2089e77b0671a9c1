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
#endif
