/* The kernel of every plan that consists of CUDA launches. */
#ifndef PLAIT_LAUNCH_H
#define PLAIT_LAUNCH_H
#include "cuda.h"
#include "plan.h"
#include "profiler.h"
/* cffi reads from here on: */
/* Its params: pl_launches; what it points to belongs to the plan's owner. TOGETHER: a cooperative launch, all blocks at
 * once. */
enum { PL_LAUNCH_KERNEL = 0, PL_LAUNCH_FILL = 1, PL_LAUNCH_COPY = 2, PL_LAUNCH_TOGETHER = 3 };
enum { PL_ARGUMENT_BUFFER = 0, PL_ARGUMENT_SCRATCH = 1, PL_ARGUMENT_SCALAR = 2 };
enum { PL_SCALAR_FLOAT32 = 0, PL_SCALAR_FLOAT64 = 1, PL_SCALAR_INT32 = 2, PL_SCALAR_INT64 = 3, PL_SCALAR_UINT64 = 4 };
typedef struct { int32_t kind, index, at, type; int64_t offset_bytes; } pl_argument;   /* at: byte of the arguments */
typedef struct {
    uintptr_t function;
    int32_t kind, shared_bytes, n_params, first_param, n_arguments, first_argument, data_at, data_bytes;
    uint32_t grid[3], block[3];
} pl_launch;
typedef struct {
    int32_t n;
    int64_t scratch_bytes;
    const pl_launch *launches;
    const int32_t *offsets;                   /* where each parameter of a launch begins in its data */
    const pl_argument *arguments;             /* what a call puts into the data */
    /* constant arguments; FILL: (to, value, bytes), COPY: (to, from, bytes) */
    const char *data;
} pl_launches;
int pl_kernel_launch(const void *params, void *const *bufs, const double *scalars);
/* Inside a kernel with PL_PLAN_PYTHON: runs another kernel of its GPU, which may use scratch memory. */
int pl_kernel_run_locked(pl_kernel kernel, const void *params, void *const *bufs, const double *scalars);
/* cffi stops reading here */

int pl_kernel_run_on_gpu(const pl_plan *plan, void *const *bufs, const double *scalars);
/* event: its times are filled in when the GPU has run it. */
int pl_kernel_run_timed(const pl_plan *plan, void *const *bufs, const double *scalars, pl_event event);
/* Sets the arguments of a recorded launch. */
int pl_launch_update(const pl_launches *p, int launch, void *const *bufs, const double *scalars, cu_exec exec,
                     cu_node node);
#endif
