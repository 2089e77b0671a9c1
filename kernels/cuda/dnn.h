/* Convolutions of a GPU by cuDNN. */
#ifndef PLK_CUDA_DNN_H
#define PLK_CUDA_DNN_H
#include "blas.h"
/* cffi reads from here on: */
enum { PLK_CUDNN_FORWARD = 0, PLK_CUDNN_DATA = 1, PLK_CUDNN_WEIGHT = 2, PLK_CUDNN_MAX_DIMS = 5 };
/* A convolution, or its gradient; nd: 2 or 3 axes, sizes are (batch, channels, axes), steps in elements. out is y, dx
 * or dw. act: 1, relu(y + addend + bias) in the same call. workspace_at: as in plk_blas. otherwise: what runs where
 * cuDNN has nothing for these sizes (the plan's owner's). state: plk_cudnn_new's, of the plan alone. */
typedef struct {
    int32_t kind, dtype, nd, channels_last, tf32, groups, act;
    int32_t x[5], w[5], y[5], x_steps[5], y_steps[5], pad[3], stride[3], dilate[3];
    int64_t workspace_at;
    plk_where left, right, out, bias, addend;    /* forward: x, w; data: dy, w; weight: dy, x */
    const pl_launches *otherwise, *after;        /* after: launches after cuDNN's, or NULL */
    uintptr_t state;
} plk_cudnn;
enum { PLK_CUDNN_WORKSPACE_BYTES = 268435456 };    /* an algorithm that needs more scratch memory is not used */
int plk_cudnn_load(const char *library);      /* 1: cuDNN can be used from now on */
uintptr_t plk_cudnn_new(void);                /* new; 0 when out of memory */
void plk_cudnn_free(uintptr_t state);
int plk_cudnn_run(const void *params, void *const *bufs, const double *scalars);
/* cffi stops reading here */

/* cudnnHandle_t of this thread's device, on its stream; NULL: there is none */
void *plk_cudnn_handle(void);
#endif
