/* Structures that the engine's modules share. Everything here is guarded by pl_lock unless it says otherwise. */
#ifndef PLAIT_INTERNAL_H
#define PLAIT_INTERNAL_H
#include "plait.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct pl_error { int refs; bool told; int32_t location; char *name, *text; struct pl_error *next; } pl_error;
typedef struct pl_op pl_op;
typedef struct pl_var pl_var;
typedef struct pl_lane pl_lane;

/* One op's claim on one var. */
typedef struct pl_request { pl_op *op; pl_var *var; struct pl_request *next; uint8_t mode; } pl_request;

struct pl_var {
    int32_t refs;               /* arrays and requests that hold it; at 0 it is freed */
    int32_t n_readers;          /* granted reads */
    int32_t n_waiters;          /* threads blocked in pl_wait_* */
    bool writing;               /* a granted write */
    pl_request *head, *tail;    /* requests not granted yet, in the order of pushing */
    uint64_t writes_pushed, version;
    pl_error *error;            /* set: the contents are not valid */
    void *data;
    size_t bytes;
    pl_free_fn release;         /* foreign memory: called with owner instead of going to the pool */
    void *owner;
};

typedef struct pl_array { pl_var *var; char *data; } pl_array;

struct pl_op {
    int (*run)(pl_op *op);      /* returns a status; called without the lock */
    void (*dispose)(pl_op *op); /* or NULL; called without the lock */
    pl_op *next;
    pl_lane *lane;
    const char *name;
    int64_t seq;
    size_t block_bytes, held_bytes;
    int32_t n_missing;          /* requests not granted yet */
    int32_t n_requests, priority, location;
    void *payload;              /* n_requests requests, then the payload, in the same block */
    pl_request requests[];
};

extern pthread_mutex_t pl_lock;

/* engine.c.  pl_op_new: new op with room for its payload; fill requests with pl_op_claim, then pl_op_submit. */
pl_op *pl_op_new(int max_requests, size_t payload_bytes);
void pl_op_claim(pl_op *op, pl_var *var, uint8_t mode);          /* a var claimed twice is merged */
void pl_op_discard(pl_op *op);                                   /* not submitted */
void pl_op_submit(pl_op *op, bool may_inline);                   /* given */
void pl_op_execute(pl_op *op);                                   /* with the lock held: runs (unlocked) and completes */
void pl_var_unref(pl_var *var);                                  /* with the lock held */
int pl_wait_var(pl_var *var, bool for_write, int timeout_ms);
uint64_t pl_random_claim(int n, uint64_t *seed);                 /* first of n counters */

/* lane.c */
pl_lane *pl_lane_get(int kind, int device);                      /* with the lock held; NULL when it cannot start */
void pl_lane_put(pl_op *op);                                     /* with the lock held */
void pl_lane_stop_all(void);

/* array.c */
int pl_kernel_run(uintptr_t plan, void *const *bufs, const double *scalars);
void pl_plan_counts(uintptr_t plan, int *n_bufs, int *n_scalars, int *flags);

/* storage.c (own lock) */
void *pl_storage_alloc(size_t bytes);
void pl_storage_free(void *data, size_t bytes);

/* error.c */
pl_error *pl_error_new(const char *text, const char *name, int32_t location);
void pl_error_unref(pl_error *error);                            /* with the lock held */
int pl_error_report(pl_error *error);                            /* with the lock held: copies it to this thread */
#endif
