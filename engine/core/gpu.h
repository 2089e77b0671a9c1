/* GPUs inside the engine: devices, streams, blocks of memory. See docs/design/gpu.md for the order they keep. */
#ifndef PLAIT_GPU_H
#define PLAIT_GPU_H
#include "cuda.h"
#include "internal.h"

enum { PL_MAX_GPUS = 32, PL_EVENTS = 4, PL_MARKS = 64, PL_BRANCHES = 4 };

typedef struct pl_timing pl_timing;
typedef struct { cu_event event; uint64_t number; } pl_mark;     /* "all up to that number" */

/* A stream's operations are numbered in the order in which they are enqueued. */
struct pl_stream {
    pl_gpu *gpu;
    int kind;                        /* of its lane: PL_LANE_GPU_* */
    cu_stream handle;
    pthread_mutex_t lock;            /* recursive; held over the launches of a kernel, for its scratch memory */
    atomic_uint_fast64_t last;       /* number of the last operation enqueued */
    atomic_uint_fast64_t done;       /* all up to this one are known to be complete */
    pthread_mutex_t event_lock;      /* guards the events; held for a call of the driver at most */
    pl_mark events[PL_EVENTS];
    pl_mark marks[PL_MARKS];         /* recorded inside programs; a ring */
    pl_mark replayed[PL_MARKS];      /* the same, of recordings, whose events they are */
    unsigned n_marks, n_replayed;
    pl_timing *pending, *pending_tail;      /* device times that are not read yet */
    int n_pending;
    cu_event clock;                  /* or NULL: an event that happened at clock_ns of the host */
    double clock_ns;
    struct { pl_block *block; size_t bytes; } scratch[PL_BRANCHES];     /* guarded by lock, as what follows */
    uint64_t scratch_epoch;          /* how often it changed */
    /* or NULL: where programs are recorded, branches beside each other; nothing runs there */
    cu_stream captures[PL_BRANCHES];
    cu_event forks[PL_BRANCHES];     /* order these streams */
};

struct pl_gpu {
    int number;
    cu_device device;
    cu_context context;
    pl_stream streams[PL_LANE_COUNT - PL_LANE_GPU_COMPUTE];
    pl_timing *spare_timing;         /* under pl_lock */
};

/* cuda.c */
pl_gpu *pl_gpu_get(int device);                                  /* opened at the first use; NULL, with a text */
pl_gpu *pl_gpu_open_at(int device);                              /* NULL: not opened yet */
typedef struct { cu_context before; bool changed; } pl_gpu_scope;
int pl_gpu_begin(pl_gpu *gpu, pl_gpu_scope *scope);              /* its context becomes this thread's */
void pl_gpu_end(const pl_gpu_scope *scope);

/* stream.c */
extern _Thread_local struct pl_gpu_now {                         /* what this thread's kernel runs on */
    pl_stream *stream;
    cu_stream handle;                                            /* of the stream, or the one that captures */
    int branch;                                                  /* 0 unless it is recorded beside others */
    bool staged;                                                 /* it copies from memory that nobody else uses */
    struct pl_recorder *recorder;                                /* or NULL: launches are recorded, not run */
} pl_gpu_now;
int pl_stream_open(pl_stream *stream, pl_gpu *gpu, int kind);
void pl_stream_lock(pl_stream *stream);
void pl_stream_unlock(pl_stream *stream);
uint64_t pl_stream_mark(pl_stream *stream);                      /* records an event now; the number that it covers */
/* Launches a recording that records n events; number: of the first, the others follow. */
int pl_stream_replay(pl_stream *stream, cu_exec exec, const cu_event *events, int n, uint64_t *number);
void pl_stream_unmark(cu_event event);                           /* before it is destroyed */
/* work enqueued from now on waits on the GPU */
int pl_block_await(pl_stream *stream, pl_block *block, bool for_write);

/* timing.c: device times, while the profiler is on */
pl_timing *pl_timing_begin(pl_stream *stream);                   /* NULL: this one is not timed */
void pl_timing_end(pl_stream *stream, pl_timing *timing, int kind, const char *name, const char *label,
                   int64_t push_ns);

/* launch.c, replay.c */
typedef struct pl_recorder {
    int instruction;                 /* of the program, that runs now */
    bool wanted, failed;             /* wanted: its arguments change from run to run */
    int n, max;
    void *changes;
} pl_recorder;
void pl_recorder_note(pl_recorder *recorder, int launch);
int pl_launch_update(const pl_launches *p, int launch, void *const *bufs, const double *scalars, cu_exec exec,
                     cu_node node);                              /* the arguments of a recorded launch */
#endif
