/* Plans: one operator call with everything known but the arrays. */
#ifndef PLAIT_PLAN_H
#define PLAIT_PLAN_H
#include "error.h"
#include "object.h"
/* cffi reads from here on: */
/* bufs: inputs, then outputs.  scalars: the dynamic parameters; for random plans then seed and call counter. */
typedef int (*pl_kernel)(const void *params, void *const *bufs, const double *scalars);
enum { PL_PLAN_INLINE = 1,   /* so cheap that it runs on the caller when its arrays are ready */
       PL_PLAN_RANDOM = 2,
       PL_PLAN_PYTHON = 4,   /* takes the GIL: the lock of its stream is not held meanwhile */
       PL_PLAN_TO_HOST = 8, PL_PLAN_TO_PINNED = 16, /* memory of new outputs; without both the lane's device */
       PL_PLAN_BRIEF = 32    /* milliseconds, and no Python: a thread that waits may run it in the worker's place */ };
/* params: borrowed, copied.  mutates: n_in bytes, 1 = that input is written in place (may be NULL).  shapes: of inputs
 * and outputs, for the profiler; copied (may be NULL). */
uintptr_t pl_plan_new(pl_kernel kernel, const void *params, size_t params_bytes, int n_in, int n_out,
                      const size_t *out_bytes, const uint8_t *mutates, int n_scalars, int flags, int lane, int device,
                      const char *name, const char *shapes);
void pl_plan_free(uintptr_t plan);            /* pending ops and programs keep it until they are done */
void pl_plan_own(uintptr_t plan, pl_free_fn release, void *owner);   /* owner: given, released with the plan */
/* Runs a plan. out[i]: 0 asks for a new array, whose handle is stored there; otherwise that array is written.
 * On failure nothing is queued and out is as it was. */
int pl_invoke(uintptr_t plan, const uintptr_t *in, uintptr_t *out, const double *scalars, int32_t location);
uintptr_t pl_invoke1(uintptr_t plan, uintptr_t a, double scalar);          /* one output: its handle, 0 on failure */
uintptr_t pl_invoke2(uintptr_t plan, uintptr_t a, uintptr_t b);
/* cffi stops reading here */

typedef struct pl_plan {
    pl_object object;
    pl_kernel kernel;
    void *params;
    size_t *out_bytes;
    uint8_t *mutates;
    const char *name;
    char *shapes;
    _Atomic(const char *) label;          /* shapes, never freed: set when the profiler first records it */
    pl_free_fn release;         /* or NULL; called with owner when the plan is destroyed */
    void *owner;
    int n_in, n_out, n_scalars, flags, lane, device;
    int memory;                 /* of new outputs: PL_MEMORY_* */
} pl_plan;
int pl_kernel_run(const pl_plan *plan, void *const *bufs, const double *scalars);   /* without the lock */
const char *pl_plan_label(pl_plan *plan);     /* without the lock: its shapes, for the profiler; or NULL */
int pl_memory_of(int lane, int device, int flags);               /* memory of new outputs: PL_MEMORY_* */
void *pl_copied(const void *data, size_t n, size_t item_bytes);  /* new, at least one byte; NULL: out of memory */
#endif
