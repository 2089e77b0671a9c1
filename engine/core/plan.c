/* Plans: one operator call with everything known but the arrays; running one is one op, often on the caller. */
#include "plan.h"
#include "engine.h"
#include "launch.h"
#include "name.h"
#include "profiler.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

void *pl_copied(const void *data, size_t n, size_t item_bytes)
{
    void *copy = malloc(n ? n * item_bytes : 1);
    if (copy && n)
        memcpy(copy, data, n * item_bytes);
    return copy;
}

static void plan_destroy(pl_object *object)
{
    pl_plan *plan = (pl_plan *)object;
    if (plan->release)
        plan->release(plan->owner);
    free(plan->params);
    free(plan->out_bytes);
    free(plan->mutates);
    free(plan->shapes);
    free(plan);
}

uintptr_t pl_plan_new(pl_kernel kernel, const void *params, size_t params_bytes, int n_in, int n_out,
                      const size_t *out_bytes, const uint8_t *mutates, int n_scalars, int flags, int lane,
                      int device, const char *name, const char *shapes)
{
    pl_plan *plan = calloc(1, sizeof *plan);
    if (plan) {
        *plan = (pl_plan){
            .object = {.refs = 1, .destroy = plan_destroy}, .kernel = kernel,
            .params = pl_copied(params, params_bytes, 1),
            .out_bytes = pl_copied(out_bytes, (size_t)n_out, sizeof *out_bytes),
            .mutates = mutates ? pl_copied(mutates, (size_t)n_in, 1) : NULL, .name = pl_name(name),
            .shapes = shapes ? strdup(shapes) : NULL,
            .n_in = n_in, .n_out = n_out, .n_scalars = n_scalars, .flags = flags, .lane = lane,
            .device = device};
        plan->memory = pl_memory_of(lane, device, flags);
        if (plan->params && plan->out_bytes && (!mutates || plan->mutates) && plan->name &&
            (!shapes || plan->shapes))
            return (uintptr_t)plan;
        plan_destroy(&plan->object);
    }
    pl_fail(PL_ENOMEM, "plan: out of memory");
    return 0;
}

void pl_plan_free(uintptr_t plan)
{
    if (!plan)
        return;
    pl_enter();
    pl_object_unref((pl_object *)plan);
    pl_leave();
}

void pl_plan_own(uintptr_t handle, pl_free_fn release, void *owner)
{
    pl_plan *plan = (pl_plan *)handle;
    plan->release = release;
    plan->owner = owner;
}

const char *pl_plan_label(pl_plan *plan)
{
    const char *label = plan->label;
    if (!label && plan->shapes)
        plan->label = label = pl_name(plan->shapes);
    return label;
}

int pl_memory_of(int lane, int device, int flags)
{
    return flags & PL_PLAN_TO_PINNED ? PL_MEMORY_PINNED
         : !pl_lane_is_gpu(lane) || flags & PL_PLAN_TO_HOST ? PL_MEMORY_HOST : PL_MEMORY_GPU + device;
}

int pl_kernel_run(const pl_plan *plan, void *const *bufs, const double *scalars)
{
    if (pl_lane_is_gpu(plan->lane))
        return pl_kernel_run_on_gpu(plan, bufs, scalars);
    return plan->kernel(plan->params, bufs, scalars);
}

/* The payload of an op that runs a plan; then n_in + n_out buffers, the scalars, the number of each buffer's request,
 * and a byte for each output. */
typedef struct { pl_plan *plan; double *scalars; int32_t *requests; void *bufs[]; } plan_call;

static int plan_run(pl_op *op)
{
    plan_call *call = op->payload;
    if (op->late && pl_op_give(op, call->plan->n_in + call->plan->n_out, (char **)call->bufs, call->requests) != PL_OK)
        return PL_ENOMEM;
    return pl_kernel_run(call->plan, call->bufs, call->scalars);
}

static int invoke_once(uintptr_t handle, const uintptr_t *in, uintptr_t *out, const double *scalars, int32_t location)
{
    pl_plan *plan = (pl_plan *)handle;
    int n_in = plan->n_in, n_out = plan->n_out, random = (plan->flags & PL_PLAN_RANDOM) != 0;
    size_t n = (size_t)n_in + (size_t)n_out, n_scalars = (size_t)plan->n_scalars;
    const char *label = pl_profiler_on() ? pl_plan_label(plan) : NULL;
    pl_op *op;
    int status = pl_op_begin(&op, (int)n, sizeof(plan_call) + n * sizeof(void *) +
                             (n_scalars + 2) * sizeof(double) + n * sizeof(int32_t) + (size_t)n_out);
    if (status != PL_OK)
        return status;
    plan_call *call = op->payload;
    call->plan = plan;
    call->scalars = (double *)(call->bufs + n);
    call->requests = (int32_t *)(call->scalars + n_scalars + 2);
    uint8_t *fresh = (uint8_t *)(call->requests + n);
    if (n_scalars)
        memcpy(call->scalars, scalars, n_scalars * sizeof(double));
    if (random) {
        uint64_t seed, counter = pl_random_claim(1, &seed);
        call->scalars[n_scalars] = (double)seed;
        call->scalars[n_scalars + 1] = (double)counter;
    }
    op->run = plan_run;
    op->brief = (plan->flags & PL_PLAN_BRIEF) != 0;
    op->name = plan->name;
    op->label = label;
    op->location = location;
    op->shared = &plan->object;
    plan->object.refs++;
    for (int i = 0; i < n_in; i++)
        call->bufs[i] = pl_input_claim(op, in[i], plan->mutates && plan->mutates[i] ? PL_READWRITE : PL_READ,
                                       &call->requests[i]);
    status = pl_outputs_claim(op, n_out, out, plan->out_bytes, plan->memory, !(plan->flags & PL_PLAN_INLINE),
                              (char **)call->bufs + n_in, call->requests + n_in, fresh);
    if (status == PL_OK) {
        status = pl_op_submit(op, plan->lane, plan->device, (plan->flags & PL_PLAN_INLINE) != 0);
        if (status == PL_OK)
            return PL_OK;
        pl_outputs_undo(n_out, out, fresh);
    }
    pl_op_abandon(op);
    return status;
}

int pl_invoke(uintptr_t handle, const uintptr_t *in, uintptr_t *out, const double *scalars, int32_t location)
{
    int status = invoke_once(handle, in, out, scalars, location);
    if (status == PL_ENOMEM && pl_memory_wait(((pl_plan *)handle)->memory))
        status = invoke_once(handle, in, out, scalars, location);
    return status;
}

uintptr_t pl_invoke1(uintptr_t plan, uintptr_t a, double scalar)
{
    uintptr_t out = 0;
    return pl_invoke(plan, &a, &out, &scalar, -1) == PL_OK ? out : 0;
}

uintptr_t pl_invoke2(uintptr_t plan, uintptr_t a, uintptr_t b)
{
    uintptr_t in[2] = {a, b}, out = 0;
    return pl_invoke(plan, in, &out, NULL, -1) == PL_OK ? out : 0;
}
