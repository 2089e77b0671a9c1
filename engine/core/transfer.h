/* Copies between memories: the host's, page-locked or not, and those of GPUs. */
#ifndef PLAIT_TRANSFER_H
#define PLAIT_TRANSFER_H
#include <stddef.h>
#include <stdint.h>
/* cffi reads from here on: */
/* The kernel of such copies; its params: pl_transfer.  On the lanes GPU_H2D and GPU_D2H it ends when the copy is there.
 * staged: nothing else uses the page-locked source, so it need not wait. */
typedef struct { size_t bytes; int32_t staged; } pl_transfer;
int pl_kernel_transfer(const void *params, void *const *bufs, const double *scalars);
/* Inside a kernel with PL_PLAN_PYTHON: copies from and to its device after all that its stream runs; waits. */
int pl_gpu_read(void *to, const void *from, size_t bytes);
int pl_gpu_write(void *to, const void *from, size_t bytes);
/* cffi stops reading here */

int pl_gpu_copy(void *to, const void *from, size_t bytes);       /* inside a kernel, on its stream */
int pl_gpu_zero(void *to, size_t bytes);
#endif
