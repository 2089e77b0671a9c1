/* Structures that the engine's modules share. Everything is guarded by pl_lock unless it says otherwise. */
#ifndef PLAIT_INTERNAL_H
#define PLAIT_INTERNAL_H
#include "plait.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct pl_object pl_object;
typedef struct pl_op pl_op;
typedef struct pl_var pl_var;
typedef struct pl_lane pl_lane;
typedef struct pl_gpu pl_gpu;
typedef struct pl_stream pl_stream;
typedef struct pl_block pl_block;

/* What vars, errors, plans and programs start with: at 0 references it is destroyed, outside the lock, since an
 * owner's release may be Python code. */
struct pl_object { int32_t refs; void (*destroy)(pl_object *object); pl_object *next_dead; };

typedef struct pl_error {
    pl_object object;
    bool untold;                /* in the list of errors not yet reported */
    int32_t location, status;
    const char *name;
    char *text;
    pl_free_fn release;         /* or NULL: called with owner at the end */
    void *owner;
    struct pl_error *next;
} pl_error;

/* One op's claim on one var. */
typedef struct pl_request {
    pl_op *op;
    pl_var *var;                /* NULL: it ended before its op */
    struct pl_request *next;
    int32_t n_claims;           /* arrays of the op that share the var */
    uint8_t mode;
} pl_request;

typedef struct pl_array { pl_var *var; char *data; } pl_array;

struct pl_var {
    pl_object object;           /* refs: arrays and requests that hold it */
    int32_t n_readers;          /* granted reads */
    int32_t n_sleepers;         /* threads asleep in wait_var */
    bool writing;               /* a granted write */
    bool exposed;               /* others may write the memory without the engine */
    bool read_only;             /* no op may write the memory: the system forbids it, or its owner */
    atomic_int n_users;         /* requests pushed and not finished; read without the lock by spinning waiters */
    pl_request *head, *tail;    /* requests not granted yet, in the order of pushing */
    uint64_t writes_pushed;
    atomic_uint_fast64_t version;   /* finished writes; read without the lock by spinning waiters */
    int64_t claim_seq;          /* the op that claimed it last, */
    int32_t claim_index;        /* and with which of its requests */
    pl_error *error;            /* set: the contents are not valid */
    pl_block *block;            /* NULL: plain memory of the host */
    void *data;
    size_t bytes;
    pl_free_fn release;         /* foreign memory: called with owner instead of going to the pool */
    void *owner;
    pl_array first;             /* the array that pl_array_new returned */
};

/* What of an op may end before it: a program is done with an array after the last instruction that uses it. The thread
 * that runs the op tells how far it is; it ends requests itself only when somebody is held up, and who is held up
 * later ends them for it. */
typedef struct pl_early {
    const int32_t *order, *last;    /* n arrays in the order of their last use; by array: that instruction */
    int32_t *request_of;        /* by array */
    int n, n_ended;             /* n_ended: of `order`; under pl_lock */
    bool awaited;               /* others may be held up while it runs: it stands in the list */
    atomic_int n_done;          /* instructions, all before and none behind */
    uint64_t *number_of;        /* on a GPU, by array: what its stamp says; 0: a number of its own.  NULL on the host */
    int32_t *marks;             /* on a GPU: n_marks instructions behind which the stream records an event */
    int n_marks;
    struct pl_op *next;         /* in the list of running ones */
} pl_early;

struct pl_op {
    int (*run)(pl_op *op);      /* returns a status; called without the lock */
    void (*dispose)(pl_op *op); /* or NULL; called without the lock */
    pl_op *next;                /* in its lane, or the free-list */
    pl_op *outer;               /* the op that this thread was running when it began this one */
    pl_lane *lane;              /* NULL: it ran on its caller at once */
    pl_stream *stream;          /* of a GPU, or NULL */
    bool on_blocks;             /* it claims memory of a GPU, or page-locked memory */
    bool forbidden;             /* it would write read-only memory: it is not submitted */
    pl_block *arena;            /* or NULL: freed when the op is stamped */
    pl_early *early;            /* or NULL; in the payload */
    pl_object *shared;          /* or NULL: plan or program that must outlive the op; one reference */
    const char *name, *label;
    bool *finished;             /* or NULL: set at the end, for a caller that sleeps on it */
    int64_t seq, push_ns;
    size_t block_bytes, held_bytes;
    int32_t n_missing;          /* requests not granted yet */
    int32_t n_requests, priority, location, depth;
    void *payload;              /* behind the requests, in the same block */
    pl_request requests[];
};

/* engine.c.  An op's life: pl_op_begin, pl_op_claim for each array, pl_op_submit or pl_op_abandon. */
extern pthread_mutex_t pl_lock;
extern pthread_cond_t pl_done;                /* sleeping waiters; woken by pl_announce alone */
extern _Thread_local pl_op *pl_running;           /* the innermost op that this thread runs */
extern struct pl_engine_state {
    int64_t n_pending;                        /* ops submitted and not finished */
    /* those of them that did not run at once on their caller; read without the lock by producers */
    atomic_int_fast64_t n_queued;
    int64_t n_ready;                          /* those of them that stand in a lane */
    int64_t n_active, n_asleep;               /* threads inside an op that go on; that sleep in a wait */
    atomic_size_t held_bytes;                 /* new outputs of queued ops; read without the lock too */
    int32_t n_idle_waiters, n_producers;      /* threads asleep until nothing is pending; until there is room */
    int32_t synchronous;                      /* > 0: every op runs on its caller */
    pl_op *early;                             /* running ops some of whose requests may end before they do */
    atomic_int n_held_up;                     /* requests that are not granted, and threads that wait for an array */
    bool lost;                                /* forked while ops were running: they will never finish here */
} pl_engine;
void pl_enter(void);                                             /* takes the lock */
void pl_leave(void);                                             /* gives it back, then destroys dead objects */
bool pl_flush(void);                                             /* with the lock: true if it had to let go of it */
void pl_object_unref(pl_object *object);
void pl_var_unref(pl_var *var);
/* Waits for room. Holds the lock on PL_OK only; PL_AGAIN: there was no room for as long as a push waits. */
int pl_op_begin(pl_op **made, int max_requests, size_t payload_bytes);
int pl_op_submit(pl_op *op, int lane, int device, bool may_inline);   /* PL_OK: given, and the lock is left */
void pl_op_abandon(pl_op *op);                                   /* not submitted; leaves the lock */
void pl_op_execute(pl_op *op);                                   /* runs (unlocked) and completes */
uint64_t pl_random_claim(int n, uint64_t *seed);                 /* first of n counters */
void pl_early_tell(pl_op *op, int n_done);                       /* by the thread that runs it, without the lock */
void pl_early_end(pl_op *op);                                     /* with the lock: what it is done with */
void pl_early_end_all(void);                                     /* with the lock: what running ops are done with */

/* A var claimed twice is merged. */
static inline void pl_op_claim(pl_op *op, pl_var *var, uint8_t mode)
{
    op->forbidden |= var->read_only && mode != PL_READ;
    if (var->claim_seq == op->seq) {
        pl_request *r = &op->requests[var->claim_index];
        r->n_claims++;
        if (r->mode != mode)
            r->mode = PL_READWRITE;
        return;
    }
    var->claim_seq = op->seq;
    var->claim_index = op->n_requests;
    pl_request *r = &op->requests[op->n_requests++];
    op->on_blocks |= var->block != NULL;
    r->op = op;
    r->var = var;
    r->n_claims = 1;
    r->mode = mode;
}

static inline bool pl_lane_is_gpu(int lane) { return lane >= PL_LANE_GPU_COMPUTE && lane < PL_LANE_COUNT; }

/* wait.c */
void pl_announce(void);                                          /* what some waiter waits for may have happened */
void pl_wait_finished(const bool *finished);
/* PL_AGAIN when the time is over; 0: never */
int pl_wait_room(int64_t max_queued, size_t max_held_bytes, int timeout_ms);
int pl_wait_queue(int patience_ms);                              /* PL_AGAIN: nothing finished for so long */

/* lane.c */
pl_lane *pl_lane_get(int kind, int device);                      /* NULL, with a text, when it cannot start */
extern pl_lane pl_lane_caller;                                   /* has no thread: callers run its ops */
void pl_lane_put(pl_op *op);
pl_op *pl_lane_pop(pl_lane *lane);
pl_lane *pl_lane_own(void);                                      /* whose ready ops this thread runs while it waits */
void pl_lane_block(pl_lane *lane, int change);                   /* one thread more or less sleeps in a wait */
void pl_lane_wake_held(void);
bool pl_lane_has_team(void);                                     /* this thread's kernels may use several threads */
void pl_lane_stop_all(void);                                     /* without the lock, nothing queued */
void pl_lane_forget_all(void);                                   /* in a forked child */

/* team.c (without the lock) */
/* Waits a moment until done(arg), working with the team meanwhile. */
void pl_spin(bool (*done)(const void *arg), const void *arg);
/* The same for a producer that ran ahead; if there is nothing for it to do it looks less often. */
void pl_team_help(bool (*done)(const void *arg), const void *arg);
bool pl_team_free(void);
void pl_team_pushed(void);                                       /* a producer pushed an op; */
void pl_team_sleeps(void);                                       /* and left its core */
void pl_team_stop(void);                                         /* no region is open */
void pl_team_forget(void);                                       /* in a forked child */

/* array.c */
/* Claims outputs; out[i] == 0 makes one, in that memory, and sets fresh[i].  Failure: made ones are freed, out is as
 * before. */
int pl_outputs_claim(pl_op *op, int n, uintptr_t *out, const size_t *out_bytes, int memory, char **data,
                     uint8_t *fresh);
void pl_outputs_undo(int n, uintptr_t *out, const uint8_t *fresh);

/* plan.c */
typedef struct pl_plan {
    pl_object object;
    pl_kernel kernel;
    void *params;
    size_t *out_bytes;
    uint8_t *mutates;
    const char *name, *label;
    pl_free_fn release;         /* or NULL; called with owner when the plan is destroyed */
    void *owner;
    int n_in, n_out, n_scalars, flags, lane, device;
    int memory;                 /* of new outputs: PL_MEMORY_* */
} pl_plan;
int pl_kernel_run(const pl_plan *plan, void *const *bufs, const double *scalars);   /* without the lock */
int pl_memory_of(int lane, int device, int flags);               /* where new outputs lie: PL_MEMORY_* */
void *pl_copied(const void *data, size_t n, size_t item_bytes);  /* new, at least one byte; NULL: no memory */

/* storage.c */
void *pl_storage_alloc(size_t bytes);                            /* NULL, with a text */
void pl_storage_free(void *data, size_t bytes);
size_t pl_storage_used(void);
size_t pl_machine_bytes(void);                                   /* physical memory */
enum { PL_MIN_SHIFT = 6, PL_MAX_SHIFT = 46, PL_SIZE_CLASSES = 4 * (PL_MAX_SHIFT - PL_MIN_SHIFT + 1) };
#define PL_MAX_BLOCK_BYTES ((size_t)1 << PL_MAX_SHIFT)
int pl_size_class(size_t bytes, size_t *class_bytes);            /* the class, and its own size */

/* guard.c: blocks between unreadable pages, for debugging */
int pl_guard_side(void);                                         /* PL_GUARD_*; 0: off */
bool pl_guard_owns(const void *data);
void *pl_guard_alloc(size_t bytes);                              /* NULL: no memory */
void pl_guard_free(void *data, size_t bytes);

/* memory.c: blocks of memory of a GPU, and page-locked ones of the host; pooled in the same size classes */
typedef struct { pl_stream *stream; uint64_t number; } pl_use;
enum { PL_MAX_READS = 3 };
struct pl_block {
    pl_gpu *gpu;                /* NULL: page-locked memory of the host */
    void *data;
    size_t class_bytes;
    int size_class;             /* -1: foreign memory, or nothing */
    int n_reads;
    bool watched;               /* others have waited for a write of it: the next one tells when it is there */
    /* the stamps: last write, reads since then (one a stream); stream NULL: none */
    pl_use write, reads[PL_MAX_READS];
    pl_block *next;             /* in its pool */
};
/* NULL, with a text; has the stamps of its last user */
pl_block *pl_block_new(int memory, size_t bytes);
/* of a GPU, after a failure, without the lock: true when ops that hold some of it have ended since */
bool pl_memory_wait(int memory);
pl_block *pl_block_wrap(int memory, void *data);
void pl_block_free(pl_block *block);
/* Returns the read that lost its place (stream NULL: none): the stream must wait for it and stamp again. */
pl_use pl_block_stamp(pl_block *block, pl_stream *stream, uint64_t number, bool wrote);

/* cuda.c, stream.c */
extern atomic_bool pl_watching;                                  /* some block was watched */
void pl_gpu_forget(void);                                        /* in a forked child: no GPU can be used there */
int pl_stream_find(int lane, int device, pl_stream **stream);    /* of a lane PL_LANE_GPU_*; PL_OK, or with a text */
int pl_kernel_run_on_gpu(const pl_plan *plan, void *const *bufs, const double *scalars);
int pl_gpu_copy(void *to, const void *from, size_t bytes);       /* inside a kernel, on its stream */
int pl_gpu_zero(void *to, size_t bytes);
int pl_kernel_run_timed(const pl_plan *plan, void *const *bufs, const double *scalars);
void pl_request_stamp(pl_op *op, pl_request *request, uint64_t number);  /* before it ends early; with pl_lock */
/* op->run, in the order of streams; without the lock */
int pl_op_run_on_gpu(pl_op *op);
/* on the host, without the lock: PL_OK, PL_AGAIN, PL_FAILED */
int pl_block_wait(pl_block *block, bool for_write, int timeout_ms);
/* Inside a kernel on a GPU: memory that its stream uses until it is given back, both in the stream's order. */
int pl_block_take(pl_block *block);                              /* without pl_lock */
void pl_block_give(pl_block *block);                             /* with pl_lock */
bool pl_block_idle(const pl_block *block);                       /* no use is left, as far as is known */
void pl_block_settle(pl_block *block);                           /* waits for every use, whatever it takes */
int pl_streams_wait(int timeout_ms);                             /* for all that is enqueued */

/* error.c */
extern _Thread_local bool pl_failed;                                 /* this thread has a failure */
void pl_fail_forget(void);                                       /* that one; without the lock */
pl_error *pl_error_new(int status, const char *name, int32_t location);   /* from this thread's failure; never NULL */
int pl_error_report(pl_error *error);                            /* copies it to this thread; it counts as reported */
void pl_error_remember(pl_error *error);                         /* in the list of errors not yet reported */
pl_error *pl_error_oldest_untold(void);                          /* borrowed, or NULL */
void pl_error_forget_all(void);                                  /* in a forked child: they are the parent's */

/* profiler.c (without the lock) */
extern atomic_int pl_profiling;
void pl_profiler_record(int kind, const char *name, const char *label, int64_t push_ns, int64_t start_ns);
static inline int64_t pl_profiler_clock(void)                    /* 0 when off */
{
    return atomic_load_explicit(&pl_profiling, memory_order_relaxed) ? pl_profiler_now() : 0;
}
void pl_profiler_add(const char *row, int kind, const char *name, const char *label, int64_t push_ns, int64_t start_ns,
                     int64_t end_ns);                            /* an event of a row that is no thread's */
void pl_timing_collect(bool all);                                /* timing.c: device times become events */
void pl_profiler_name_thread(const char *name);
#endif
