/* The engine: ops, and the dependencies between them.
 *
 * Three nouns. A Var guards one storage chunk: a version counter, a FIFO queue of requests, an error if the chunk is
 * poisoned. An Op is a function with the vars it reads and writes. A Lane is a queue of ready ops with a worker thread.
 * Reads of a var run together, writes alone, in the order of pushing. When all requests of an op are granted, it goes
 * to its lane, or runs inline on the caller if it is cheap.
 *
 * Failure: an op that fails poisons what it writes; an op that reads poisoned data is skipped (a program: from the
 * first instruction that uses it) and passes the poison on;
 * an op that overwrites a whole array without reading it heals it. Every wait on a poisoned array reports the error.
 *
 * In all headers, pointers are borrowed (caller keeps), given (callee frees) or new (caller frees). Handles (uintptr_t)
 * are pointers that Python holds as plain ints; 0 means failure, with a message in pl_error_message(). Public functions
 * are thread-safe. The part of a header between the marks for cffi is public; the rest is for the engine's own files.
 * Read on in: engine.c (dependencies), push.c, lane.c, wait.c, flight.c, claims.c, deferred.c, thread_pool.c,
 * process.c, error.c, storage.c, array.c, plan.c, program.c, profiler.c; of GPUs: gpu.h, stream.c, memory.c, launch.c,
 * replay.c; of many processes: comm.c, schedule.c, mpi.c, heartbeat.c, link.c.
 */
#ifndef PLAIT_ENGINE_H
#define PLAIT_ENGINE_H
#include "array.h"
#include "lane.h"
#include "profiler.h"
/* cffi reads from here on: */
int pl_engine_set_priority(int priority);     /* of this thread's next pushes.  Returns the value before */
/* 1: this thread runs its ops itself if their arrays are free, expensive ones too.  Returns the value before */
int pl_engine_set_inline(int on);
void pl_engine_set_limits(int64_t n_ops, size_t pending_bytes);   /* beyond either a push waits; 0 keeps a limit */
/* A push that has waited so long returns PL_AGAIN and has done nothing, so that its caller can look for Ctrl-C. 0, the
 * default: it waits on. */
void pl_engine_set_patience(int timeout_ms);
int64_t pl_engine_pending(void);              /* ops pushed and not finished */
enum { PL_READ = 0, PL_WRITE = 1, PL_READWRITE = 2 };      /* how an op uses an array */
/* cffi stops reading here */

/* Of a request: granted; queued, and its op waits for it; queued, and its op runs without it, or waits for others. */
enum { PL_GRANTED = 0, PL_AWAITED = 1, PL_DEFERRED = 2 };

/* One op's claim on one var. */
struct pl_request {
    pl_op *op;
    pl_var *var;                /* NULL: it ended before its op */
    struct pl_request *next;
    int32_t n_claims;           /* arrays of the op that share the var */
    uint8_t mode, state;
};

/* How a program claims its arrays: claims.h. */
typedef struct pl_claims pl_claims;

struct pl_op {
    int (*run)(pl_op *op);      /* returns a status; called without the lock */
    void (*dispose)(pl_op *op); /* or NULL; called without the lock */
    pl_op *next;                /* in its lane, or the free-list */
    pl_op *outer;               /* the op that this thread was running when it began this one */
    pl_lane *lane;              /* NULL: it ran on its caller at once */
    pl_stream *stream;          /* of a GPU, or NULL */
    bool on_blocks;             /* it claims memory of a GPU, or page-locked memory */
    bool late;                  /* it claims arrays that had no memory yet */
    bool forbidden;             /* it would write read-only memory: it is not submitted */
    bool brief;                 /* a thread that waits may run it: PL_PLAN_BRIEF */
    pl_block *arena;            /* or NULL: freed when the uses of its op are recorded */
    pl_claims *claims;          /* of a program, or NULL; in the payload */
    struct pl_flight *flight;   /* of a polled op, or NULL; in the payload */
    pl_object *shared;          /* or NULL: plan or program that must outlive the op; one reference */
    const char *name, *label;
    const char *layer;          /* of its push, while the profiler is on; or NULL */
    int32_t pushed_by;          /* while the profiler is on: the number of that thread */
    bool *finished;             /* or NULL: set at the end, for a caller that sleeps on it */
    int64_t seq, push_ns;
    int64_t cause;              /* the seq of the op whose end granted its last request; 0: all were granted at once */
    size_t block_bytes, pending_bytes;      /* of this struct; of its new outputs */
    int32_t n_missing;          /* requests that it waits for */
    int32_t n_requests, priority, location, depth;
    void *payload;              /* behind the requests, in the same block */
    pl_request requests[];
};

extern _Thread_local pl_op *pl_running;       /* the innermost op that this thread runs */
extern struct pl_engine_state {
    int64_t n_pending;                        /* ops submitted and not finished */
    /* those of them that did not run at once on their caller; producers read it without the lock */
    atomic_int_fast64_t n_queued;
    int64_t n_ready;                          /* those of them that are ready in a lane */
    int64_t n_active, n_asleep;               /* threads inside an op: that run; that sleep in a wait */
    int64_t n_flying;                         /* ops in flight that no thread polls at this moment */
    atomic_size_t pending_bytes;              /* new outputs of queued ops; also read without the lock */
    int32_t n_idle_waiters, n_producers;      /* threads asleep until nothing is queued; until the queue has capacity */
    int32_t synchronous;                      /* > 0: every op runs on its caller */
    pl_op *releasing;                         /* running ops some of whose requests may end before they do */
    atomic_int n_blocked;                     /* requests that are not granted, and threads that wait for an array */
    bool lost;                                /* forked while ops were running: they will never finish here */
} pl_engine;

/* An op's life: pl_op_begin, pl_op_claim for each array, pl_op_submit or pl_op_abandon.
 * begin waits while the queue is full. It holds the lock on PL_OK only; PL_AGAIN: the queue stayed full for as long as
 * a push waits. */
int pl_op_begin(pl_op **made, int max_requests, size_t payload_bytes);
/* On PL_OK the op is given and the lock released; otherwise both are still the caller's. */
int pl_op_submit(pl_op *op, int lane, int device, bool may_inline);
void pl_op_abandon(pl_op *op);                /* instead of submit; releases the lock */
/* With the lock: runs it (unlocked). Then it is done, in flight, or waits in the middle. */
void pl_op_execute(pl_op *op);
bool pl_op_poll(pl_op *op);                   /* with the lock: runs one in flight again (unlocked); true: it is done */
pl_event pl_op_event(const pl_op *op, int kind, int64_t start_ns);   /* without the lock; for the profiler */
void pl_request_end(pl_request *request);     /* with the lock: ends a granted one before its op, as a success */
pl_error *pl_op_inherited(const pl_op *op);   /* with the lock: of poisoned inputs, if all are granted; or NULL */

/* A var claimed twice is merged. */
static inline void pl_op_claim(pl_op *op, pl_var *var, uint8_t mode)
{
    op->forbidden |= var->read_only && mode != PL_READ;
    op->late |= !var->data;
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
#endif
