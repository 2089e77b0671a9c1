/* NCCL, NVIDIA's library of collectives between GPUs: its functions, and its communicators. */
#ifndef PLAIT_CLIQUE_H
#define PLAIT_CLIQUE_H
#include "gpu.h"
/* cffi reads from here on: */
int pl_nccl_open(const char *library);        /* a path or name, once.  PL_OK, or with a message */
enum { PL_NCCL_ID_BYTES = 128 };
int pl_nccl_new_id(void *id);                 /* PL_NCCL_ID_BYTES, the same for all ranks of a communicator */

/* GPUs that communicate: of n_ranks, the ranks first_rank, first_rank + 1, ... are these devices of this process.
 * group: of the processes (schedule.h), kept; 0: all ranks are here.  Kept as long as the process lives, since the end
 * of a communicator waits for the other ranks.  0: failure. */
uintptr_t pl_clique_new(int n_ranks, int first_rank, const int32_t *devices, int n_devices, uintptr_t group);
/* Joins the other ranks when `id`, an array of the host, is ready: a polled operation. Collectives that are pushed
 * meanwhile wait for it, and fail if it does. */
int pl_clique_join(uintptr_t clique, uintptr_t id, double timeout_s, const char *name, int32_t location);
/* cffi stops reading here */

typedef struct { char bytes[PL_NCCL_ID_BYTES]; } nccl_id;
typedef struct { size_t bytes; unsigned magic, version; int blocking; } nccl_config;   /* of 2.14; later ones read it */
typedef struct nccl_comm nccl_comm;
enum { NCCL_OK = 0, NCCL_IN_PROGRESS = 7 };

/* name of our pointer, exported symbol, parameters. Source: NCCL's user guide. */
#define NCCL_FUNCTIONS(X) \
    X(new_id, ncclGetUniqueId, (nccl_id *id)) \
    X(join, ncclCommInitRankConfig, (nccl_comm **made, int n_ranks, nccl_id id, int rank, const nccl_config *config)) \
    X(abort, ncclCommAbort, (nccl_comm *comm)) \
    X(state, ncclCommGetAsyncError, (nccl_comm *comm, int *state)) \
    X(group_start, ncclGroupStart, (void)) \
    X(group_end, ncclGroupEnd, (void)) \
    X(all_reduce, ncclAllReduce, (const void *from, void *to, size_t n, int dtype, int combine, nccl_comm *comm, \
                                  cu_stream stream)) \
    X(reduce, ncclReduce, (const void *from, void *to, size_t n, int dtype, int combine, int root, nccl_comm *comm, \
                           cu_stream stream)) \
    X(reduce_scatter, ncclReduceScatter, (const void *from, void *to, size_t n, int dtype, int combine, \
                                          nccl_comm *comm, cu_stream stream)) \
    X(all_gather, ncclAllGather, (const void *from, void *to, size_t n, int dtype, nccl_comm *comm, cu_stream stream)) \
    X(broadcast, ncclBroadcast, (const void *from, void *to, size_t n, int dtype, int root, nccl_comm *comm, \
                                 cu_stream stream)) \
    X(send, ncclSend, (const void *from, size_t n, int dtype, int to, nccl_comm *comm, cu_stream stream)) \
    X(receive, ncclRecv, (void *to, size_t n, int dtype, int from, nccl_comm *comm, cu_stream stream))


#define NCCL_DECLARE(name, symbol, parameters) int (*name) parameters;
typedef struct {
    NCCL_FUNCTIONS(NCCL_DECLARE)
    const char *(*error_string)(int code);
    const char *(*last_error)(nccl_comm *comm);              /* or NULL: of NCCL 2.13 and later */
} nccl_functions;
#undef NCCL_DECLARE
extern nccl_functions nccl;                   /* set by pl_nccl_open */
extern pl_array *pl_nccl_order;               /* the same; a Var that all collectives write */
int pl_nccl_fail(int code, const char *what, nccl_comm *comm);   /* a ncclResult_t as a status, with a message */

typedef struct { pl_gpu *gpu; pl_stream *stream; nccl_comm *comm; } pl_member;
typedef struct pl_clique {
    struct pl_clique *next;                   /* of all */
    uintptr_t group;                          /* or 0 */
    int n_ranks, first_rank, n_members;
    bool joining, ended;
    pl_array *joined;                         /* a Var: written by the operation that joins */
    int64_t n_pushed;                         /* under pl_lock */
    int64_t n_begun, n_launched, n_done;      /* of the collectives pushed, those that were not skipped are launched */
    pl_member members[];
} pl_clique;

/* Guards communicators and what is known of them. Taken before pl_lock. */
extern pthread_mutex_t pl_nccl_lock;
extern atomic_bool pl_nccl_given_up;
/* With it: */
int pl_clique_state(const pl_clique *clique, nccl_comm **at);   /* NCCL_OK, NCCL_IN_PROGRESS, or an error; *at: whose */
/* Ends it, where something may run on the GPUs: it returns, with undefined values. This thread's failure is why. */
void pl_clique_lose(pl_clique *clique, const char *name, int32_t location);

void pl_nccl_give_up(const char *message);    /* without it: ends all communicators: the job is given up */
#endif
