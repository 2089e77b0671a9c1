/* Functions as operations. */
#include "push.h"
#include "flight.h"

typedef struct { pl_fn fn; void *arg; pl_free_fn free_arg; } function_call;
typedef struct { function_call call; pl_fn cancel; pl_flight flight; } polled_call;

static int function_run(pl_op *op)
{
    function_call *call = op->payload;
    return call->fn(call->arg);
}

static int function_cancel(pl_op *op)
{
    polled_call *polled = op->payload;
    return polled->cancel(polled->call.arg);
}

static void function_dispose(pl_op *op)
{
    function_call *call = op->payload;
    if (call->free_arg)
        call->free_arg(call->arg);
}

int pl_noop(void *arg)
{
    (void)arg;
    return PL_OK;
}

static int function_submit(pl_op *op, const uintptr_t *reads, int n_reads, const uintptr_t *writes, int n_writes,
                           int lane, int device, int priority, const char *name, int32_t location)
{
    op->run = function_run;
    op->dispose = function_dispose;
    op->priority = priority;
    op->name = name;
    op->location = location;
    int status = PL_OK;                       /* the function looks up addresses itself: they are known from now on */
    for (int i = 0; i < n_reads && status == PL_OK; i++) {
        pl_var *var = ((pl_array *)reads[i])->var;
        status = pl_var_give(var);
        pl_op_claim(op, var, PL_READ);
    }
    for (int i = 0; i < n_writes && status == PL_OK; i++) {
        pl_array *a = (pl_array *)writes[i];  /* a write to a view keeps the rest */
        status = pl_var_give(a->var);
        pl_op_claim(op, a->var, a->data == a->var->data ? PL_WRITE : PL_READWRITE);
    }
    if (status == PL_OK)
        status = pl_op_submit(op, lane, device, false);
    if (status != PL_OK)
        pl_op_abandon(op);
    return status;
}

int pl_push(pl_fn fn, void *arg, pl_free_fn free_arg, const uintptr_t *reads, int n_reads,
            const uintptr_t *writes, int n_writes, int lane, int device, int priority, const char *name,
            int32_t location)
{
    pl_op *op;
    int status = pl_op_begin(&op, n_reads + n_writes, sizeof(function_call));
    if (status != PL_OK)
        return status;
    *(function_call *)op->payload = (function_call){fn, arg, free_arg};
    return function_submit(op, reads, n_reads, writes, n_writes, lane, device, priority, name, location);
}

int pl_push_polled(pl_fn fn, pl_fn cancel, void *arg, pl_free_fn free_arg, const uintptr_t *reads, int n_reads,
                   const uintptr_t *writes, int n_writes, uintptr_t order, int lane, int device, int priority,
                   double deadline_s, const char *name, int32_t location)
{
    pl_op *op;
    int status = pl_op_begin(&op, n_reads + n_writes + (order != 0), sizeof(polled_call));
    if (status != PL_OK)
        return status;
    polled_call *polled = op->payload;
    *polled = (polled_call){{fn, arg, free_arg}, cancel,
                            {.cancel = cancel ? function_cancel : NULL, .deadline_s = deadline_s}};
    op->flight = &polled->flight;
    if (order) {
        polled->flight.order = &op->requests[0];
        pl_op_claim(op, ((pl_array *)order)->var, PL_WRITE);
    }
    return function_submit(op, reads, n_reads, writes, n_writes, lane, device, priority, name, location);
}
