/* Collectives over MPI's messages: polled operations on the comm lane that run a schedule. */
#ifndef PLAIT_COMM_H
#define PLAIT_COMM_H
#include "plan.h"
/* cffi reads from here on: */
/* Finds MPI's functions in a library that is already loaded.  byte, no_request: the handles of MPI_BYTE and
 * MPI_REQUEST_NULL; request_bytes: of such a handle in memory; truncated: MPI_ERR_TRUNCATE. */
int pl_mpi_open(const char *library, uintptr_t byte, uintptr_t no_request, size_t request_bytes, int largest_tag,
                int truncated);
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

/* Runs a schedule when its arrays are ready: n_arrays of the schedule, of which writes[i] says how each is used
 * (PL_READ, PL_WRITE, PL_READWRITE). id: the same on all ranks, not used by another operation of the group that may be
 * in flight. description: compared with the other ranks', or NULL: not compared. name: borrowed for ever. */
int pl_schedule_push(uintptr_t schedule, uintptr_t group, const uintptr_t *arrays, const uint8_t *uses, int id,
                     const char *description, int priority, double timeout_s, const char *name, int32_t location);
int pl_group_ids(void);                       /* ids are below this number */
/* Bytes that may be on their way at a time, of all operations together. */
void pl_comm_set_credit(int64_t bytes);
typedef struct { int64_t n_operations, n_messages, sent_bytes, n_polls, n_looks; } pl_comm_stats;
void pl_comm_get_stats(pl_comm_stats *stats);
/* From now on every operation of every group fails with this message, those in flight too. */
void pl_comm_give_up(const char *message);
/* A pl_heartbeat_fn: a rank that did not end well gives up all; one that did, only what still waits for it. */
void pl_comm_rank_left(int rank, int state, const char *text);
/* cffi stops reading here */

void pl_group_keep(uintptr_t group);          /* one more reference; 0: nothing */
int pl_group_self(uintptr_t group);           /* this process, as a rank of the world; 0 without a group */
/* A rank whose program ended well, and whose last messages had time to arrive; -1: none did. */
int pl_group_left(uintptr_t group);
#endif
