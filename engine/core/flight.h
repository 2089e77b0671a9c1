/* Operations in flight: a polled op whose function returns PL_PENDING keeps its claims, and its lane goes on with other
 * ready ops and calls the function again from time to time. So several transfers are in flight in one lane.
 *
 * Between polls a lane that has nothing to start sleeps: an eighth of the time since something progressed, or a quarter
 * of the recent average between two polls that progressed; at least 20 us, at most 1 ms. An op that becomes ready, or a
 * thread that begins to wait, wakes it at once. */
#ifndef PLAIT_FLIGHT_H
#define PLAIT_FLIGHT_H
#include "push.h"
/* cffi reads from here on: */
/* Inside a polled function that returns PL_PENDING: it got further; the lane polls again soon. */
void pl_flight_progressed(void);
/* As above: its deadline counts from then (pl_profiler_now), if that is after its start. */
void pl_flight_alive(int64_t at_ns);
/* Ends the polled ops of a lane that were pushed before this call with the calling thread's last failure (pl_fail comes
 * first): those in flight now, those queued when they would go into flight. One that is done at its first call, or when
 * this call finds it running and it returns PL_OK, is done. They share one error, which names the first of them.
 * Returns at once: the worker ends them. */
int pl_flight_abort(int lane, int device);
/* cffi stops reading here */

/* What op->flight of a polled op points to, in its payload. Another file that makes one sets it before pl_op_submit, to
 * zeros but for cancel and deadline_s; its op->run may return PL_PENDING. */
typedef struct pl_flight {
    int (*cancel)(pl_op *op);                 /* or NULL; as above, without the lock */
    double deadline_s;
    pl_request *order;                        /* the request that ends at the start, or NULL */
    /* from here on the engine's; under pl_lock, or of the thread that polls */
    pl_lane *lane;                            /* that it was pushed to */
    int64_t n_aborts;                         /* of that lane, when it was pushed */
    int64_t start_ns, polled_ns, event_ns;    /* of the first return; inside the function; of the profiler, or 0 */
    int64_t alive_ns;                         /* of pl_flight_alive */
} pl_flight;

/* Those of a lane. */
typedef struct pl_flights {
    pl_op *head, *tail;                       /* in flight, in the order in which they are polled next: by priority */
    int n_listed;                             /* in this list; those being polled are not */
    int n;                                    /* both */
    int64_t poll_ns, progress_ns;             /* when they are polled next; when something progressed last */
    int64_t gap_ns;                           /* between two such polls, an average of the last ones */
    bool progressed;                          /* something did in the last poll */
    int64_t n_aborts;
    pl_error *abort_error;                    /* of the last pl_flight_abort, or NULL */
} pl_flights;

/* With the lock: */
int pl_flight_prepare(pl_op *op, int lane, int device);   /* when it is submitted */
void pl_flight_put(pl_op *op);                /* into op->lane's list: when it started, and after each poll */
void pl_flights_poll(pl_flights *flights);    /* each of them once; releases the lock meanwhile */
void pl_flights_hurry(pl_flights *flights);   /* they are due, and naps begin short again */
int64_t pl_flights_nap_ns(const pl_flights *flights);     /* until when a thread that polls them may sleep */
pl_error *pl_flight_aborted(const pl_op *op); /* the error that ends it now, with a reference; or NULL */
void pl_flight_last_call(void);               /* the process ends: ops without a deadline get one */

/* Without it: */
int pl_flight_run(pl_op *op);                 /* calls its function */
int64_t pl_flight_end_ns(const pl_op *op);    /* when its deadline is over */
/* Cancels the op and returns its error. given: that of an abort; NULL: the deadline is over. */
pl_error *pl_flight_give_up(pl_op *op, pl_error *given);
#endif
