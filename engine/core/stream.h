/* Streams of GPUs: the order of what they run, and how other streams and the host wait for it. */
#ifndef PLAIT_STREAM_H
#define PLAIT_STREAM_H
#include "cuda.h"
#include "engine.h"
/* cffi reads from here on: */
/* Inside a kernel of a plan on a GPU: its device is current on this thread, its stream's lock is held. */
int pl_gpu_device(void);
void *pl_gpu_stream(void);                    /* CUstream; NULL outside */
void *pl_gpu_compute_stream(int device);      /* of its compute lane, at any time; NULL: there is none */
void *pl_gpu_scratch(size_t bytes);           /* of the stream, until the kernel returns; NULL, with a message */
/* cffi stops reading here */

enum { PL_EVENTS = 4, PL_MARKS = 64, PL_BRANCHES = 4 };

typedef struct pl_timing pl_timing;
typedef struct { cu_event event; uint64_t number; } pl_mark;     /* the event covers all operations up to that number */

/* The operations of a stream are numbered in the order in which they are enqueued. */
struct pl_stream {
    pl_gpu *gpu;
    int kind;                        /* of its lane: PL_LANE_GPU_* */
    cu_stream handle;
    pthread_mutex_t lock;            /* recursive; held over the launches of a kernel, for its scratch memory */
    atomic_uint_fast64_t last;       /* number of the last operation enqueued */
    atomic_uint_fast64_t done;       /* all up to this one are known to be complete */
    pthread_mutex_t event_lock;      /* guards the events; held for at most one call of the driver */
    pl_mark events[PL_EVENTS];
    pl_mark marks[PL_MARKS];         /* recorded inside programs; a ring */
    pl_mark replayed[PL_MARKS];      /* the same, of recorded programs, which own the events */
    unsigned n_marks, n_replayed;
    pl_timing *pending, *pending_tail;      /* device times that are not read yet */
    int n_pending;
    cu_event clock;                  /* or NULL: an event that happened at clock_ns of the host */
    double clock_ns;
    struct { pl_block *block; size_t bytes; } scratch[PL_BRANCHES];     /* guarded by lock, as all below */
    uint64_t scratch_epoch;          /* how often it changed */
    /* or NULL: streams on which programs are recorded, one for each concurrent branch; nothing runs there */
    cu_stream captures[PL_BRANCHES];
    cu_event forks[PL_BRANCHES];     /* order these streams */
};

extern _Thread_local struct pl_gpu_now {                         /* what this thread's kernel runs on */
    pl_stream *stream;
    cu_stream handle;                                            /* of the stream, or the one that captures */
    int branch;                                                  /* of a section that is recorded; else 0 */
    bool staged;                                                 /* it copies from memory that nothing else uses */
    struct pl_recorder *recorder;                                /* or NULL: launches are recorded, not run */
} pl_gpu_now;
int pl_stream_open(pl_stream *stream, pl_gpu *gpu, int kind);
int pl_stream_find(int lane, int device, pl_stream **stream);    /* lane: PL_LANE_GPU_*; PL_OK, or with a message */
void pl_stream_lock(pl_stream *stream);
void pl_stream_unlock(pl_stream *stream);
int pl_stream_follow(pl_stream *stream, pl_stream *other);       /* it waits for all that the other has enqueued */
uint64_t pl_stream_mark(pl_stream *stream);                      /* records an event now; returns its number */
/* Launches a recorded program that records n events; *number: of the first one, the others follow. */
int pl_stream_replay(pl_stream *stream, cu_exec exec, const cu_event *events, int n, uint64_t *number);
void pl_stream_unmark(cu_event event);                           /* before it is destroyed */
int pl_streams_wait(int timeout_ms);                             /* for all that is enqueued */

/* or NULL: why nothing that GPUs have is valid any more. Their operations fail with it, and so does each wait. */
extern pl_error *_Atomic pl_gpu_lost;
void pl_gpu_lose(pl_error *error);                               /* given; without pl_lock */
static inline pl_error *pl_op_lost(const pl_op *op)              /* of an op that uses a GPU, or NULL; borrowed */
{
    return op->stream || op->on_blocks ? atomic_load(&pl_gpu_lost) : NULL;
}

extern atomic_bool pl_watching;                                  /* some block was watched */
int pl_op_run_on_gpu(pl_op *op);                          /* op->run, in the order of streams; without the lock */
void pl_request_record_use(pl_op *op, pl_request *request, uint64_t number);  /* before it ends early; with pl_lock */

/* What the host, or work enqueued on a stream from now on, does before it uses a block; without the lock. */
int pl_block_wait(pl_block *block, bool for_write, int timeout_ms);           /* the host: PL_OK, PL_AGAIN, PL_FAILED */
int pl_block_await(pl_stream *stream, pl_block *block, bool for_write);       /* the stream, on the GPU */
/* Inside a kernel on a GPU: memory that its stream uses until it is given back, both in the stream's order. */
int pl_block_take(pl_block *block);                              /* without pl_lock */
void pl_block_give(pl_block *block);                             /* with pl_lock */
bool pl_block_idle(const pl_block *block);                       /* with pl_lock: no use is left, as far as is known */
void pl_block_settle(pl_block *block);                           /* waits for every use, without a time limit */
#endif
