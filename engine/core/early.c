/* Requests that end before their op: a program releases an array after the last instruction that uses it.
 *
 * The thread that runs the op reports how far it is. It ends requests itself only when another op or thread is blocked;
 * one that blocks later ends them on its behalf.
 *
 * No wake-up is lost: the runner first stores how far it is and then reads whether anything is blocked; whatever blocks
 * first counts itself as blocked and then reads how far the runner is.  Both are sequentially consistent. */
#include "early.h"
#include "stream.h"

void pl_early_begin(pl_op *op)
{
    pl_early *e = op->early;
    if (!e->awaited || e->begun)
        return;
    e->begun = true;
    e->next = pl_engine.early;
    pl_engine.early = op;
}

void pl_early_end(pl_op *op)
{
    pl_early *e = op->early;
    int n_done = atomic_load(&e->n_done);
    for (; e->n_ended < e->n && e->last[e->order[e->n_ended]] < n_done; e->n_ended++) {
        pl_request *r = &op->requests[e->request_of[e->order[e->n_ended]]];
        if (--r->n_claims > 0)
            continue;
        if (op->stream)
            pl_request_record_use(op, r, e->number_of ? e->number_of[e->order[e->n_ended]] : 0);
        pl_request_end(r);                    /* STATE: granted -> ended, while its op runs on */
    }
}

void pl_early_end_all(void)
{
    for (pl_op *op = pl_engine.early; op; op = op->early->next)
        pl_early_end(op);
}

void pl_early_report(pl_op *op, int n_done)
{
    atomic_store(&op->early->n_done, n_done);
    if (atomic_load(&pl_engine.n_blocked) == 0)
        return;
    pl_enter();
    pl_early_end(op);
    pl_leave();
}

void pl_early_close(pl_op *op, bool failed)
{
    if (op->early->begun) {
        pl_op **at = &pl_engine.early;
        while (*at != op)
            at = &(*at)->early->next;
        *at = op->early->next;
    }
    if (failed)
        pl_early_end(op);                     /* outputs that were complete before the failure stay valid */
    if (op->early->suspended)
        pl_lane_suspend(op->lane, -1);
}
