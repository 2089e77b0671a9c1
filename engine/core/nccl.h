/* Collectives between GPUs, by NCCL: operations on the communication lane of a GPU. */
#ifndef PLAIT_NCCL_H
#define PLAIT_NCCL_H
#include "clique.h"
/* cffi reads from here on: */
enum { PL_NCCL_ALL_REDUCE = 0, PL_NCCL_REDUCE, PL_NCCL_REDUCE_SCATTER, PL_NCCL_ALL_GATHER, PL_NCCL_BROADCAST,
       PL_NCCL_SEND, PL_NCCL_RECEIVE };
typedef struct {
    int64_t n, from_bytes, to_bytes;          /* elements; where they begin in the arrays */
    int32_t kind, dtype, combine;             /* dtype, combine: ncclDataType_t, ncclRedOp_t */
    int32_t device, from, to;                 /* of the clique's devices; arrays of the operation */
    int32_t peer, unused;                     /* a rank: the root, or of SEND and RECEIVE */
} pl_nccl_step;
/* Runs steps as one group of calls when the arrays are ready, of which uses[i] says how each is used (PL_READ, ...).
 * All such operations of a process run in the order of pushing. known: 0, or an array that is read first.
 * timeout_s: from when the GPU begins with it; 0: none.  name: borrowed for ever. */
int pl_nccl_push(uintptr_t clique, const pl_nccl_step *steps, int n_steps, const uintptr_t *arrays,
                 const uint8_t *uses, int n_arrays, uintptr_t known, double timeout_s, const char *name,
                 int32_t location);
/* cffi stops reading here */
#endif
