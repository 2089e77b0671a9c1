/* Late claims: a program waits for an array when it reaches the first instruction that uses it.
 *
 * Its requests are queued when it is pushed, as those of any op. It is ready as soon as the requests that its first
 * instruction needs are granted. When it reaches an array that is not granted, it returns to its lane, which runs other
 * ops; the grant makes it ready again:
 *
 *   waiting --> ready --> running --reaches an array that is not granted--> waiting --granted--> ready --> running ...
 *
 * All vars queue their requests in the order of pushing. So the oldest unfinished op holds all its requests, and every
 * other op waits for older ones only: there is no deadlock.
 *
 * A poisoned array stops the program before the first instruction that uses it, as if this instruction had failed,
 * whether the poison is seen early or late. */
#include "late.h"

static bool stops(const pl_request *r)
{
    return r->state != PL_GRANTED || (r->var && r->mode != PL_WRITE && r->var->error);
}

/* The first instruction that uses an array which is not granted, or is poisoned (*poison); n_instr: there is none. */
static int limit_of(const pl_op *op, pl_error **poison)
{
    const pl_early *e = op->early;
    int limit = e->n_instr;
    bool missing = false;
    if (!e->late && e->until == 0 && !pl_op_inherited(op))
        return limit;
    for (int i = 0; i < e->n_arrays; i++) {
        const pl_request *r = &op->requests[e->request_of[i]];
        if (e->first[i] > limit || !stops(r))
            continue;
        if (e->first[i] < limit)
            missing = false;
        if (e->first[i] < limit || !*poison)
            *poison = r->state == PL_GRANTED ? r->var->error : NULL;
        missing |= r->state != PL_GRANTED;
        limit = e->first[i];
        if (missing)                          /* it may turn out poisoned too, and the first of them counts */
            *poison = NULL;
    }
    return limit;
}

/* The op waits for the arrays that it needs before instruction `until` or earlier; false: they are granted. */
static bool await(pl_op *op, int until)
{
    const pl_early *e = op->early;
    for (int i = 0; i < e->n_arrays; i++) {
        pl_request *r = &op->requests[e->request_of[i]];
        if (e->first[i] <= until && r->state == PL_LATE) {
            r->state = PL_AWAITED;
            op->n_missing++;
        }
    }
    return op->n_missing > 0;
}

void pl_late_start(pl_op *op)
{
    op->early->late = true;
    for (int i = 0; i < op->n_requests; i++)
        if (op->requests[i].state == PL_AWAITED) {
            op->requests[i].state = PL_LATE;
            op->n_missing--;
        }
    await(op, 0);
}

/* Of a program that has run up to e->until, or has failed. */
static pl_step stop(pl_op *op, int until)
{
    pl_early *e = op->early;
    if (!await(op, until))
        return PL_STEP_END;
    if (e->until > 0 && !e->suspended) {
        e->suspended = true;
        pl_lane_suspend(op->lane, 1);
    }
    return PL_STEP_AWAIT;                     /* STATE: ready or running -> waiting */
}

pl_step pl_late_next(pl_op *op, pl_error **error)
{
    pl_early *e = op->early;
    pl_error *poison = NULL;
    if (*error)
        e->error = *error;
    int limit = e->error ? e->until : limit_of(op, &poison);
    if (limit < e->n_instr && !poison && e->until == 0 && !e->error && pl_lane_suspend(op->lane, 0) > 0)
        return stop(op, e->n_instr);          /* one suspended op a lane at a time: each holds an arena */
    if (limit > e->until) {
        e->until = limit;
        return PL_STEP_RUN;
    }
    if (poison) {
        pl_error_ref(e->error = poison);
        atomic_store(&e->n_done, e->until);
    }
    *error = e->error;
    return stop(op, e->error ? e->n_instr : limit);
}
