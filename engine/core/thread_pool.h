/* The thread pool: threads that share the pieces of one kernel. */
#ifndef PLAIT_THREAD_POOL_H
#define PLAIT_THREAD_POOL_H
#include <stdbool.h>
#include <stdint.h>
/* cffi reads from here on: */
int pl_threads(int64_t work);                 /* how many threads `work` elementary steps deserve here */
/* Calls run(arg, i) for each piece i in [0, n_pieces), on this thread and on up to n_threads - 1 idle ones; each thread
 * starts with adjacent pieces. All are done on return. Pieces must not wait for each other. Uses this thread
 * alone where it is not the worker of cpu(0), or inside a piece. arg: borrowed. */
typedef void (*pl_piece)(void *arg, int64_t i);
void pl_thread_pool_run(int n_threads, int64_t n_pieces, pl_piece run, void *arg);
int pl_thread_pool_index(void);               /* inside a piece: the number of this thread, below n_threads */
int pl_thread_pool_size(void);                /* how many threads a lane's kernels have */
void pl_thread_pool_limit(int n_threads);     /* for this thread's kernels, of processes that share cores */
/* cffi stops reading here */

/* Without the lock: */
/* Waits a moment until done(arg), and works on open regions meanwhile. */
void pl_thread_pool_spin(bool (*done)(const void *arg), const void *arg);
/* The same for a producer that ran ahead; the less there is to do, the less often it looks. */
void pl_thread_pool_help(bool (*done)(const void *arg), const void *arg);
void pl_thread_pool_expect(int change);       /* 1: as if one more thread waited for regions; it will call */
void pl_thread_pool_watch(bool (*done)(const void *arg), const void *arg);    /* works on regions until done(arg) */
bool pl_thread_pool_available(void);          /* this thread may open a region */
void pl_thread_pool_producer_pushed(void);
void pl_thread_pool_producer_sleeps(void);    /* and leaves its core */
void pl_thread_pool_stop(void);               /* no region is open */
void pl_thread_pool_forget(void);             /* in a forked child */
#endif
