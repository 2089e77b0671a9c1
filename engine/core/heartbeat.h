/* The heartbeat of a job of many processes: which ranks are alive. A thread that needs neither GIL nor MPI finds out,
 * over TCP.
 *
 * Rank 0 listens, the others connect. Each side sends a beat (one byte) several times within the limit. A rank's
 * state changes once, from ALIVE to another, and rank 0 reports it to all others. The first state beyond FINISHED gives
 * up the job.
 */
#ifndef PLAIT_HEARTBEAT_H
#define PLAIT_HEARTBEAT_H
#include <stdint.h>
/* cffi reads from here on: */
enum {
    PL_RANK_ALIVE = 0,
    PL_RANK_FINISHED = 1,                     /* it reported success */
    PL_RANK_FAILED = 2,                       /* it reported a failure, with a text */
    PL_RANK_ENDED = 3,                        /* its process ended without a report */
    PL_RANK_STOPPED = 4,                      /* its machine acknowledges our bytes, but no beat came in time */
    PL_RANK_CUT = 5,                          /* nothing was acknowledged: a cut link, or a machine that is off */
    PL_RANK_COUNT = 6
};
enum { PL_HEARTBEAT_TOKEN_BYTES = 16, PL_HEARTBEAT_TEXT_BYTES = 4096 };
/* Starts the thread.  token: PL_HEARTBEAT_TOKEN_BYTES random bytes, the same on all ranks.  addresses: of rank 0,
 * numeric, separated by spaces; on rank 0 itself ignored, like port.  A rank other than 0 returns when rank 0 has
 * answered.  When the job is given up, the thread prints why, on one rank.  grace_ms: so long after that it ends the
 * process with status 1; 0: it never does.  PL_FAILED, PL_ENOMEM, PL_EINVAL with a message, and nothing started. */
int pl_heartbeat_start(int rank, int size, const char *addresses, int port, const char *token, int limit_ms,
                       int grace_ms);
int pl_heartbeat_port(void);                  /* where rank 0 listens */
int pl_heartbeat_addresses(char *text, int max_bytes);    /* of this machine, as start takes them */
int pl_heartbeat_absent(int timeout_ms);      /* on rank 0: a rank that is not connected by then; -1: all are */
/* This rank fails ("rank 1 of 4 failed: " and the text), or ends well (text: "" or what others may want to know); the
 * first report counts.  Waits at most timeout_ms until the peers' machines have it.  Does nothing where no heartbeat
 * runs. */
void pl_heartbeat_fail(const char *text, int timeout_ms);
void pl_heartbeat_finish(const char *text, int timeout_ms);
/* PL_OK: every rank is FINISHED, or no heartbeat runs.  PL_FAILED, with a message: the job was given up.  PL_AGAIN: not
 * yet. */
int pl_heartbeat_wait(int timeout_ms);
int pl_heartbeat_alive(int timeout_ms);       /* waits until no rank is ALIVE; returns how many are */
int pl_heartbeat_culprit(void);               /* for which rank the job was given up; -1: it was not.  Never blocks */
int pl_heartbeat_state(int rank);             /* PL_RANK_*; ALIVE where no heartbeat runs */
int pl_heartbeat_text(int rank, char *text, int max_bytes);       /* why; returns the rank's state */
/* Reports success if nothing was reported, closes the connections and joins the thread, within timeout_ms. */
void pl_heartbeat_stop(int timeout_ms);
/* fn(rank, state, text): called once for each rank that is not ALIVE, now or later; this rank may be one (it was
 * stopped, and given up).  By the heartbeat's thread, or by this call for what is known already; without a lock of
 * ours.  NULL: never again; on return no call is under way. */
typedef void (*pl_heartbeat_fn)(int rank, int state, const char *text);
void pl_heartbeat_watch(pl_heartbeat_fn fn);
/* cffi stops reading here */

/* For fork: the child has no heartbeat, and its parent's connections are closed there. */
void pl_heartbeat_fork_prepare(void);
void pl_heartbeat_fork_parent(void);
void pl_heartbeat_fork_child(void);
#endif
