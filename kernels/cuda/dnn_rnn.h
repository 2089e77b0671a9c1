/* Recurrent layers of a GPU by cuDNN. */
#ifndef PLK_CUDA_DNN_RNN_H
#define PLK_CUDA_DNN_RNN_H
#include "blas.h"
/* cffi reads from here on: */
enum { PLK_CUDNN_RNN_INFER = 0, PLK_CUDNN_RNN_TRAIN = 1, PLK_CUDNN_RNN_BACK = 2 };
/* All layers and steps of an RNN, or its gradient; sizes and the packing of parameters are the operator's
 * (kernels/ops/recurrent.py). lengths: int32 (batch,), every one `steps`, on the device. reserve_bytes: the part of
 * `reserve` that cuDNN may use, and that backward overwrites. before, after: launches around it, or NULL. otherwise:
 * runs if cuDNN packs differently, needs more memory or fails; forward and backward of the same sizes agree on that.
 * workspace_at: as in plk_blas. state: plk_cudnn_rnn_new's, of the plan alone. */
typedef struct {
    int32_t kind, dtype, tf32, mode, steps, batch, inputs, hidden, layers, directions;
    int64_t workspace_at, reserve_bytes;
    plk_where x, parameters, h, c, y, last_h, last_c, lengths, reserve;
    plk_where dy, dlast_h, dlast_c, dx, dparameters, dh, dc;
    const pl_launches *before, *after;
    plk_step otherwise;
    uintptr_t state;
} plk_cudnn_rnn;
enum { PLK_CUDNN_RNN_WORKSPACE_BYTES = 1073741824 };    /* the most scratch memory that cuDNN gets */
int plk_cudnn_rnn_load(const char *library);      /* 1: cuDNN's RNN can be used from now on */
uintptr_t plk_cudnn_rnn_new(void);                /* new; 0 when out of memory */
void plk_cudnn_rnn_free(uintptr_t state);
int plk_cudnn_rnn_run(const void *params, void *const *bufs, const double *scalars);
/* cffi stops reading here */
#endif
