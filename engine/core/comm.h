/* Collectives over MPI's messages: polled operations on the comm lane that run a schedule. */
#ifndef PLAIT_COMM_H
#define PLAIT_COMM_H
#include "schedule.h"
/* cffi reads from here on: */
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

/* A rank whose program ended well, and whose last messages had time to arrive; -1: none did. */
int pl_group_left(uintptr_t group);
#endif
