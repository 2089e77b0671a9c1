/* Arrays: views of the storage of a var. A var guards one storage chunk and counts its versions. */
#ifndef PLAIT_ARRAY_H
#define PLAIT_ARRAY_H
#include "error.h"
#include "memory.h"
#include "object.h"
/* cffi reads from here on: */
uintptr_t pl_array_new(size_t bytes);                             /* new; from the pool, uninitialised */
uintptr_t pl_array_new_in(int memory, size_t bytes);              /* new; page-locked memory needs pl_gpu_open */
uintptr_t pl_array_view(uintptr_t array, int64_t offset_bytes);   /* new; shares the var */
uintptr_t pl_array_wrap(void *data, size_t bytes, pl_free_fn release, void *owner);  /* new; foreign memory */
uintptr_t pl_array_wrap_in(int memory, void *data, size_t bytes, pl_free_fn release, void *owner);
void pl_array_free(uintptr_t array);                              /* pending ops keep the storage until they are done */
void *pl_array_data(uintptr_t array);         /* wait first. NULL: out of memory */
uint64_t pl_array_version(uintptr_t array);                       /* finished writes of its var: they can be seen */
int pl_array_shares(uintptr_t a, uintptr_t b);                    /* 1: the same var */
/* How many arrays, itself included, and unfinished requests share its var. */
int pl_array_users(uintptr_t array);
int pl_array_is_sole(uintptr_t array);        /* 1: no other array has its memory, and nothing outside the engine */
int pl_array_poisoned(uintptr_t array);
void pl_array_expose(uintptr_t array);        /* others got its address and may write its memory at any time */
void pl_array_protect(uintptr_t array);       /* from now on an op that would write its memory fails: PL_EINVAL */
int pl_array_protected(uintptr_t array);
/* Identifies the contents that an array has when all ops pushed so far are done: equal versions mean equal contents,
 * as long as the array of the first version is not freed. Exposed arrays never give the same version twice. */
typedef struct { uint64_t var, data, writes; } pl_version;
/* From now on these arrays are watched. Returns what pl_watched_writes did before: while it still does, all versions
 * that were asked for since then are the same. 0: they may change at any time. */
uint64_t pl_arrays_versions(const uintptr_t *arrays, int n, pl_version *versions);
uint64_t pl_watched_writes(void);             /* grows when a write of a watched array is pushed, or one is exposed */
void pl_array_overwritten(uintptr_t array);   /* the caller waited for writing and stored new contents: heals */
/* cffi stops reading here */

typedef struct pl_op pl_op;
typedef struct pl_request pl_request;
typedef struct pl_var pl_var;
typedef struct pl_array { pl_var *var; char *data; } pl_array;

struct pl_var {
    pl_object object;           /* refs: arrays and requests that hold it */
    int32_t n_readers;          /* granted reads */
    int32_t n_sleepers;         /* threads asleep in wait_var */
    bool writing;               /* a granted write */
    bool exposed;               /* others may write the memory without the engine */
    bool read_only;             /* no op may write the memory: the system or its owner forbids it */
    bool watched;               /* its writes are counted in pl_watched_writes, too */
    atomic_int n_users;         /* requests pushed and not finished; spinning waiters read it without the lock */
    pl_request *head, *tail;    /* requests not granted yet, in the order of pushing */
    uint64_t writes_pushed;
    int64_t last_writer;        /* the seq of the op that was pushed last to write it */
    atomic_uint_fast64_t version;   /* finished writes; spinning waiters read it without the lock */
    int64_t claim_seq;          /* the last op that claimed it, */
    int32_t claim_index;        /* and the number of its request */
    pl_error *error;            /* set: the contents are not valid */
    pl_block *block;            /* NULL: plain memory of the host */
    void *data;                 /* NULL: its memory is given when the op that writes it first begins to run */
    size_t bytes;
    pl_free_fn release;         /* foreign memory: called with owner instead of returning it to the pool */
    void *owner;
    pl_array first;             /* the array that pl_array_new returned */
};

/* With the lock: */
void pl_var_unref(pl_var *var);
int pl_var_give(pl_var *var);                 /* memory, if it has none yet */
void pl_var_count_write(pl_var *var);         /* one more is pushed */
/* Claims an input of an op. Returns its address, or NULL if it has no memory yet; *request is its number in the op. */
char *pl_input_claim(pl_op *op, uintptr_t array, uint8_t mode, int32_t *request);
/* Claims the outputs of an op; out[i] == 0 makes one in that memory and sets fresh[i]. late: in memory of the host it
 * gets its memory when the op runs. On failure new ones are freed and out is as before. */
int pl_outputs_claim(pl_op *op, int n, uintptr_t *out, const size_t *out_bytes, int memory, bool late, char **data,
                     int32_t *requests, uint8_t *fresh);
void pl_outputs_undo(int n, uintptr_t *out, const uint8_t *fresh);
/* Without the lock, when the op runs: gives memory to its arrays that have none yet, and their addresses to data. */
int pl_op_give(pl_op *op, int n, char **data, const int32_t *requests);
#endif
