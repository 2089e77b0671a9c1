/* Deferred claims: a program waits for an array when it reaches the first instruction that uses it.
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
#include "deferred.h"

static bool stops(const pl_request *r)
{
    return r->state != PL_GRANTED || (r->var && r->mode != PL_WRITE && r->var->error);
}

/* The first instruction that uses an array which is not granted, or is poisoned (*poison); n_instr: there is none. */
static int limit_of(const pl_op *op, pl_error **poison)
{
    const pl_claims *c = op->claims;
    int limit = c->n_instr;
    bool missing = false;
    if (!c->deferred && c->until == 0 && !pl_op_inherited(op))
        return limit;
    for (int i = 0; i < c->n_arrays; i++) {
        const pl_request *r = &op->requests[c->request_of[i]];
        if (c->first[i] > limit || !stops(r))
            continue;
        if (c->first[i] < limit)
            missing = false;
        if (c->first[i] < limit || !*poison)
            *poison = r->state == PL_GRANTED ? r->var->error : NULL;
        missing |= r->state != PL_GRANTED;
        limit = c->first[i];
        if (missing)                          /* it may turn out poisoned too, and the first of them counts */
            *poison = NULL;
    }
    return limit;
}

/* The op waits for the arrays that it needs before instruction `until` or earlier; false: they are granted. */
static bool await(pl_op *op, int until)
{
    const pl_claims *c = op->claims;
    for (int i = 0; i < c->n_arrays; i++) {
        pl_request *r = &op->requests[c->request_of[i]];
        if (c->first[i] <= until && r->state == PL_DEFERRED) {
            r->state = PL_AWAITED;
            op->n_missing++;
        }
    }
    return op->n_missing > 0;
}

void pl_deferred_start(pl_op *op)
{
    op->claims->deferred = true;
    for (int i = 0; i < op->n_requests; i++)
        if (op->requests[i].state == PL_AWAITED) {
            op->requests[i].state = PL_DEFERRED;
            op->n_missing--;
        }
    await(op, 0);
}

/* Of a program that has run up to c->until, or has failed. */
static pl_next stop(pl_op *op, int until)
{
    pl_claims *c = op->claims;
    if (!await(op, until))
        return PL_NEXT_END;
    if (c->until > 0 && !c->suspended) {
        c->suspended = true;
        pl_lane_suspend(op->lane, 1);
    }
    return PL_NEXT_AWAIT;                     /* STATE: ready or running -> waiting */
}

pl_next pl_deferred_next(pl_op *op, pl_error **error)
{
    pl_claims *c = op->claims;
    pl_error *poison = NULL;
    if (*error)
        c->error = *error;
    int limit = c->error ? c->until : limit_of(op, &poison);
    if (limit < c->n_instr && !poison && c->until == 0 && !c->error && pl_lane_suspend(op->lane, 0) > 0)
        return stop(op, c->n_instr);          /* one suspended op a lane at a time: each holds an arena */
    if (limit > c->until) {
        c->until = limit;
        return PL_NEXT_RUN;
    }
    if (poison) {
        pl_error_ref(c->error = poison);
        atomic_store(&c->n_done, c->until);
    }
    *error = c->error;
    return stop(op, c->error ? c->n_instr : limit);
}
