/* Included before every kernel: the memory that one takes for a call is a piece of its thread's block. */
#ifndef PLAIT_NET_ALLOCATE_H
#define PLAIT_NET_ALLOCATE_H
#include <stdlib.h>
void *net_take(size_t bytes);                 /* or NULL */
void *net_take_zeros(size_t n, size_t bytes); /* or NULL */
void net_give(void *block);
#define malloc net_take
#define calloc net_take_zeros
#define free net_give
#pragma GCC poison realloc aligned_alloc
#endif
