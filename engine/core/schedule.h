/* Groups of ranks, and schedules: what a collective sends, receives and computes, as data. */
#ifndef PLAIT_SCHEDULE_H
#define PLAIT_SCHEDULE_H
#include "plan.h"
/* cffi reads from here on: */
/* Ranks that communicate.  communicator: a handle, for this group alone.  0: failure. */
uintptr_t pl_group_new(uintptr_t communicator, int rank, int n_ranks, const int32_t *world_ranks);
void pl_group_free(uintptr_t group);          /* operations that are pushed keep it */

/* A schedule is a list of slices, which use the scratch memory in turn. A slice is a list of rounds. A round is
 * n_messages steps that run together, then other steps, one after the other. */
enum { PL_STEP_SEND = 0, PL_STEP_RECEIVE = 1, PL_STEP_COMBINE = 2, PL_STEP_COPY = 3 };
enum { PL_AT_SCRATCH = -1 };
typedef struct { int64_t offset; int32_t array, unused; } pl_place;     /* array: of the operation, or PL_AT_SCRATCH */
typedef struct {
    pl_place at;                /* SEND: read; otherwise written */
    int64_t bytes;              /* of SEND, RECEIVE, COPY */
    int32_t kind, peer;         /* peer: SEND, RECEIVE */
    int32_t plan;               /* COMBINE: the number of its plan */
    int32_t first, n;           /* COMBINE: inputs of the plan, among the places; COPY: first is its source */
} pl_step;
typedef struct { int32_t first_step, n_messages, n_steps; } pl_round;
typedef struct { int32_t first_round, n_rounds; } pl_slice;
typedef struct {
    const pl_step *steps;
    const pl_place *places;
    const pl_round *rounds;
    const pl_slice *slices;
    const uintptr_t *plans;     /* borrowed; kept as long as the schedule */
    int32_t n_steps, n_places, n_rounds, n_slices, n_plans, n_arrays;
    int32_t n_slots;            /* slices at a time */
    int64_t scratch_bytes;      /* of one slot */
} pl_schedule_spec;
uintptr_t pl_schedule_new(const pl_schedule_spec *spec);     /* copies all; 0: failure */
void pl_schedule_free(uintptr_t schedule);    /* operations that are pushed keep it */
/* cffi stops reading here */

typedef struct {
    atomic_int refs;
    uintptr_t communicator;
    int rank, n_ranks;
    int32_t world_ranks[];
} pl_group;

typedef struct {
    atomic_int refs;
    pl_schedule_spec spec;
    int max_messages;                         /* of a round */
} pl_schedule;

void pl_group_keep(uintptr_t group);          /* one more reference; 0: nothing */
int pl_group_self(uintptr_t group);           /* this process, as a rank of the world; 0 without a group */
#endif
