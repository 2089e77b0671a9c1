/* Matrix products by cuBLASLt, and calls of several kernels one after the other. */
#ifndef PLK_CUDA_BLAS_H
#define PLK_CUDA_BLAS_H
#include "engine/core/launch.h"
/* cffi reads from here on: */
/* The location of an array of a call: a buffer (PL_ARGUMENT_BUFFER), the stream's scratch memory (PL_ARGUMENT_SCRATCH),
 * or -1: there is none. */
typedef struct { int32_t kind, index; int64_t offset_bytes; } plk_where;

/* Steps of one call, which share scratch memory. */
typedef struct { pl_kernel run; const void *params; } plk_step;
/* steps: the plan's owner's */
typedef struct { int32_t n; int64_t scratch_bytes; const plk_step *steps; } plk_steps;
int plk_steps_run(const void *params, void *const *bufs, const double *scalars);

/* y = act(alpha op(a) op(b) + beta c + bias), row-major, n_batch of them; an operand whose step is 0 is the same for
 * all. a_row, b_row, y_row: elements from one row to the next, as the arrays lie in memory. dtype: PLK_F32, PLK_F64,
 * PLK_F16 or PLK_BF16. act: PLK_BLAS_*; aux: gets the input of gelu. c may be missing. state: of
 * plk_blas_new, for this plan alone. workspace_at: offset of the library's workspace in the scratch memory. */
enum { PLK_BLAS_NONE = 0, PLK_BLAS_RELU = 1, PLK_BLAS_GELU = 2 };
typedef struct {
    int64_t n_batch, m, n, k, a_step, b_step, y_step, a_row, b_row, y_row, workspace_at;
    int32_t dtype, transpose_a, transpose_b, act, tf32;
    double alpha;
    plk_where a, b, c, bias, y, aux;
    uintptr_t state;
} plk_blas;
enum { PLK_BLAS_WORKSPACE_BYTES = 33554432 };      /* the library's workspace */
int plk_blas_load(const char *library);       /* 1: cuBLASLt can be used from now on */
uintptr_t plk_blas_new(void);                 /* new; 0 when out of memory */
void plk_blas_free(uintptr_t state);
int plk_blas_run(const void *params, void *const *bufs, const double *scalars);
/* cffi stops reading here */

/* Opens a library and finds its functions, in the order of their names; 0: it or one of them is missing. */
int plk_library_load(const char *path, int n, const char *const *names, void **functions);

void *plk_where_find(const plk_where *place, void *const *bufs, char *scratch);
#endif
