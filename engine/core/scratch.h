/* Scratch memory of threads, for kernels on the CPU. */
#ifndef PLAIT_SCRATCH_H
#define PLAIT_SCRATCH_H
#include <stddef.h>
#include <stdint.h>
/* cffi reads from here on: */
void *pl_scratch(size_t bytes);               /* this thread's, valid until the kernel returns; NULL: out of memory */
void pl_workspace_add(int64_t bytes);         /* counts other scratch memory in the statistics; negative: freed */
/* cffi stops reading here */

int64_t pl_workspace_bytes(void);             /* scratch memory of all threads */
#endif
