/* Lanes: queues of ready ops, with one worker thread each. */
#ifndef PLAIT_LANE_H
#define PLAIT_LANE_H
#include <stdbool.h>
#include <stdint.h>
/* cffi reads from here on: */
enum { PL_LANE_CPU = 0, PL_LANE_IO = 1, PL_LANE_COMM = 2, PL_LANE_GPU_COMPUTE = 3, PL_LANE_GPU_H2D = 4,
       PL_LANE_GPU_D2H = 5, PL_LANE_GPU_COMM = 6, PL_LANE_COUNT = 7 };
/* This thread wakes a sleeping lane once per `size` ops, or when anybody waits; 0 or 1: at every op. Returns the size
 * before. */
int pl_engine_set_bulk(int size);
int pl_engine_is_lane(void);                  /* 1 on a worker thread */
/* cffi stops reading here */

typedef struct pl_op pl_op;
typedef struct pl_lane pl_lane;
static inline bool pl_lane_is_gpu(int lane) { return lane >= PL_LANE_GPU_COMPUTE && lane < PL_LANE_COUNT; }
bool pl_lane_has_pool(void);                  /* this thread's kernels may use several threads */
pl_lane *pl_lane_own(void);                   /* the lane whose ready ops this thread runs while it waits, or NULL */

/* With the lock: */
extern pl_lane pl_lane_caller;                /* has no thread: callers run its ops */
pl_lane *pl_lane_get(int kind, int device);   /* NULL, with a message, when its thread cannot start */
void pl_lane_put(pl_op *op);                  /* it is ready */
pl_lane *pl_lane_find(int kind, int device);  /* the same, without a thread yet */
struct pl_flights *pl_lane_flights(pl_lane *lane);
bool pl_lane_work(pl_lane *lane);             /* polls its ops in flight if they are due, or runs a ready one */
/* For a thread outside of ops that waits until done(arg): while the worker of cpu(0) sleeps, runs brief ops in its
 * place, none that was pushed after operation `last`. */
void pl_lane_stand_in(bool (*done)(const void *arg), const void *arg, int64_t last);
void pl_lane_hurry_all(void);                 /* they are due now in all lanes */
bool pl_lane_endless_only(void);              /* nothing but ops in flight without a deadline could move */
void pl_lane_block(pl_lane *lane, int change);        /* +1, -1: a thread that could run its ops sleeps in a wait */
int pl_lane_suspend(pl_lane *lane, int change);       /* returns how many ops have begun and wait (deferred.c) */
void pl_lane_wake_deferred(void);             /* the lanes that a bulk scope left asleep */
void pl_lane_forget_all(void);                /* in a forked child */

/* Without the lock: */
void pl_lane_stop_all(void);                  /* nothing is queued; what is in flight is not polled from here on, */
void pl_lane_resume_all(void);                /* until here */
#endif
