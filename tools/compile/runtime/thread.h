/* What the threads of a network know, and what its parts ask of each other. */
#ifndef PLAIT_NET_THREAD_H
#define PLAIT_NET_THREAD_H
#include "network.h"

/* The memory of one thread, for kernels. Sizes are those of the largest kernel: found when the network is loaded, by
 * one run that measures, in which blocks grow. */
struct net_memory {
    bool measures;
    char *scratch, *packed, *heap;            /* pl_scratch, plk_gemm_scratch, net_take; to measure, no heap is used */
    size_t scratch_bytes, packed_bytes, heap_bytes;
    size_t heap_used, heap_live;              /* bytes up to the last block; blocks that are not given back */
};

/* This thread, while it works on a network. */
typedef struct { net_pool *pool; net_memory *memory; } net_thread;
extern _Thread_local net_thread net_here __attribute__((visibility("hidden")));

net_pool *net_pool_new(int n_threads, net_memory *memory);    /* memory: borrowed, n_threads of them; NULL: none left */
void net_pool_free(net_pool *pool);           /* may be NULL */
void net_pool_begin(net_pool *pool);          /* a run begins: helpers wake up, */
void net_pool_end(net_pool *pool);            /* and go to sleep */

int net_memory_fix(net_memory *measured, net_memory *threads, int n);    /* each thread's; 0: out of memory */
void net_memory_free(net_memory *memory);

extern _Thread_local char net_message[256] __attribute__((visibility("hidden")));   /* of the last pl_fail */
#endif
