/* Requests that end before their op: a program releases an array after the last instruction that uses it.
 *
 * The thread that runs the op reports how far it is. It ends requests itself only when another op or thread is blocked;
 * one that blocks later ends them on its behalf.
 *
 * No wake-up is lost: the runner first stores how far it is and then reads whether anything is blocked; whatever blocks
 * first counts itself as blocked and then reads how far the runner is.  Both are sequentially consistent. */
#include "claims.h"
#include "stream.h"

void pl_claims_begin(pl_op *op)
{
    pl_claims *c = op->claims;
    if (!c->awaited || c->begun)
        return;
    c->begun = true;
    c->next = pl_engine.releasing;
    pl_engine.releasing = op;
}

void pl_claims_end(pl_op *op)
{
    pl_claims *c = op->claims;
    int n_done = atomic_load(&c->n_done);
    for (; c->n_ended < c->n && c->last[c->order[c->n_ended]] < n_done; c->n_ended++) {
        pl_request *r = &op->requests[c->request_of[c->order[c->n_ended]]];
        if (--r->n_claims > 0)
            continue;
        if (op->stream)
            pl_request_record_use(op, r, c->number_of ? c->number_of[c->order[c->n_ended]] : 0);
        pl_request_end(r);                    /* STATE: granted -> ended, while its op runs on */
    }
}

void pl_claims_end_all(void)
{
    for (pl_op *op = pl_engine.releasing; op; op = op->claims->next)
        pl_claims_end(op);
}

void pl_claims_report(pl_op *op, int n_done)
{
    atomic_store(&op->claims->n_done, n_done);
    if (atomic_load(&pl_engine.n_blocked) == 0)
        return;
    pl_enter();
    pl_claims_end(op);
    pl_leave();
}

void pl_claims_close(pl_op *op, bool failed)
{
    if (op->claims->begun) {
        pl_op **at = &pl_engine.releasing;
        while (*at != op)
            at = &(*at)->claims->next;
        *at = op->claims->next;
    }
    if (failed)
        pl_claims_end(op);                    /* outputs that were complete before the failure stay valid */
    if (op->claims->suspended)
        pl_lane_suspend(op->lane, -1);
}
