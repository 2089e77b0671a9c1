/* Arrays (views of a var's storage) and plans (one operator call) pushed with them. */
#include "internal.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

typedef struct pl_plan {
    pl_kernel kernel;
    void *params;
    size_t *out_bytes;
    uint8_t *mutates;
    char *name;
    int n_in, n_out, n_scalars, flags, lane, device;
    double cost_us;
} pl_plan;

/* ---- arrays ----------------------------------------------------------------------------------------------- */

static pl_array *array_of(pl_var *var, char *data)
{
    pl_array *array = malloc(sizeof *array);
    if (array) {
        array->var = var;
        array->data = data;
    }
    return array;
}

uintptr_t pl_array_wrap(void *data, size_t bytes, pl_free_fn release, void *owner)
{
    pl_var *var = calloc(1, sizeof *var);
    pl_array *array = var ? array_of(var, data) : NULL;
    if (!array) {
        free(var);
        pl_fail(PL_ENOMEM, "array: out of memory");
        return 0;
    }
    var->refs = 1;
    var->data = data;
    var->bytes = bytes;
    var->release = release;
    var->owner = owner;
    return (uintptr_t)array;
}

uintptr_t pl_array_new(size_t bytes)
{
    void *data = pl_storage_alloc(bytes);
    if (!data) {
        pl_fail(PL_ENOMEM, "array: out of memory");
        return 0;
    }
    uintptr_t array = pl_array_wrap(data, bytes, NULL, NULL);
    if (!array)
        pl_storage_free(data, bytes);
    return array;
}

uintptr_t pl_array_view(uintptr_t base, int64_t offset_bytes)
{
    pl_array *from = (pl_array *)base, *view = array_of(from->var, from->data + offset_bytes);
    if (!view) {
        pl_fail(PL_ENOMEM, "array: out of memory");
        return 0;
    }
    pthread_mutex_lock(&pl_lock);
    view->var->refs++;
    pthread_mutex_unlock(&pl_lock);
    return (uintptr_t)view;
}

void pl_array_free(uintptr_t handle)
{
    pl_array *array = (pl_array *)handle;
    if (!array)
        return;
    pthread_mutex_lock(&pl_lock);
    pl_var_unref(array->var);
    pthread_mutex_unlock(&pl_lock);
    free(array);
}

void *pl_array_data(uintptr_t array) { return ((pl_array *)array)->data; }
int pl_array_shares(uintptr_t a, uintptr_t b) { return ((pl_array *)a)->var == ((pl_array *)b)->var; }
int pl_wait_read(uintptr_t array, int ms) { return pl_wait_var(((pl_array *)array)->var, false, ms); }
int pl_wait_write(uintptr_t array, int ms) { return pl_wait_var(((pl_array *)array)->var, true, ms); }

uint64_t pl_array_version(uintptr_t array)
{
    pthread_mutex_lock(&pl_lock);
    uint64_t version = ((pl_array *)array)->var->version;
    pthread_mutex_unlock(&pl_lock);
    return version;
}

int pl_array_poisoned(uintptr_t array)
{
    pthread_mutex_lock(&pl_lock);
    int poisoned = ((pl_array *)array)->var->error != NULL;
    pthread_mutex_unlock(&pl_lock);
    return poisoned;
}

/* ---- plans ------------------------------------------------------------------------------------------------ */

static void *copy_of(const void *data, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);
    if (copy && bytes)
        memcpy(copy, data, bytes);
    return copy;
}

uintptr_t pl_plan_new(pl_kernel kernel, const void *params, size_t params_bytes, int n_in, int n_out,
                      const size_t *out_bytes, const uint8_t *mutates, int n_scalars, int flags, int lane, int device,
                      double cost_us, const char *name)
{
    pl_plan *plan = calloc(1, sizeof *plan);
    if (!plan) {
        pl_fail(PL_ENOMEM, "plan: out of memory");
        return 0;
    }
    *plan = (pl_plan){.kernel = kernel, .params = copy_of(params, params_bytes), .n_in = n_in, .n_out = n_out,
                      .out_bytes = copy_of(out_bytes, (size_t)n_out * sizeof *out_bytes),
                      .mutates = mutates ? copy_of(mutates, (size_t)n_in) : NULL, .name = strdup(name),
                      .n_scalars = n_scalars, .flags = flags, .lane = lane, .device = device, .cost_us = cost_us};
    if (!plan->params || !plan->out_bytes || (mutates && !plan->mutates) || !plan->name) {
        pl_plan_free((uintptr_t)plan);
        pl_fail(PL_ENOMEM, "plan: out of memory");
        return 0;
    }
    return (uintptr_t)plan;
}

void pl_plan_free(uintptr_t handle)
{
    pl_plan *plan = (pl_plan *)handle;
    if (!plan)
        return;
    free(plan->params);
    free(plan->out_bytes);
    free(plan->mutates);
    free(plan->name);
    free(plan);
}

/* The payload of an op that runs a plan; then n_in + n_out buffers and the scalars. */
typedef struct { const pl_plan *plan; void **bufs; double *scalars; } plan_call;

void pl_plan_counts(uintptr_t handle, int *n_bufs, int *n_scalars, int *flags)
{
    const pl_plan *plan = (const pl_plan *)handle;
    *n_bufs = plan->n_in + plan->n_out;
    *n_scalars = plan->n_scalars;
    *flags = plan->flags;
}

int pl_kernel_run(uintptr_t handle, void *const *bufs, const double *scalars)
{
    const pl_plan *plan = (const pl_plan *)handle;
    if (!(plan->flags & PL_PLAN_OPENMP) || pl_engine_is_lane())
        return plan->kernel(plan->params, bufs, scalars);
    int threads = omp_get_max_threads();      /* only a lane's thread owns a team */
    omp_set_num_threads(1);
    int status = plan->kernel(plan->params, bufs, scalars);
    omp_set_num_threads(threads);
    return status;
}

static int plan_run(pl_op *op)
{
    plan_call *call = op->payload;
    return pl_kernel_run((uintptr_t)call->plan, call->bufs, call->scalars);
}

int pl_invoke(uintptr_t handle, const uintptr_t *in, uintptr_t *out, const double *scalars, int32_t location)
{
    const pl_plan *plan = (const pl_plan *)handle;
    int n = plan->n_in + plan->n_out, n_scalars = plan->n_scalars + (plan->flags & PL_PLAN_RANDOM ? 2 : 0);
    pl_op *op = pl_op_new(n, sizeof(plan_call) + (size_t)n * sizeof(void *) + (size_t)n_scalars * sizeof(double));
    if (!op)
        return pl_fail(PL_ENOMEM, "invoke: out of memory");
    plan_call *call = op->payload;
    call->plan = plan;
    call->bufs = (void **)(call + 1);
    call->scalars = (double *)(call->bufs + n);
    if (plan->n_scalars)
        memcpy(call->scalars, scalars, (size_t)plan->n_scalars * sizeof(double));
    if (plan->flags & PL_PLAN_RANDOM) {
        uint64_t seed, counter = pl_random_claim(1, &seed);
        call->scalars[plan->n_scalars] = (double)seed;
        call->scalars[plan->n_scalars + 1] = (double)counter;
    }
    op->run = plan_run;
    op->name = plan->name;
    op->location = location;
    uint64_t fresh = 0;                       /* outputs made here; there are at most 64 of them or all are given */
    for (int i = 0; i < plan->n_in; i++) {
        pl_array *a = (pl_array *)in[i];
        call->bufs[i] = a->data;
        pl_op_claim(op, a->var, plan->mutates && plan->mutates[i] ? PL_READWRITE : PL_READ);
    }
    for (int i = 0; i < plan->n_out; i++) {
        if (!out[i]) {
            out[i] = pl_array_new(plan->out_bytes[i]);
            if (!out[i]) {
                for (int j = 0; j < i; j++)
                    if (j < 64 && fresh >> j & 1) {
                        pl_array_free(out[j]);
                        out[j] = 0;
                    }
                pl_op_discard(op);
                return PL_ENOMEM;
            }
            if (i < 64)
                fresh |= (uint64_t)1 << i;
            op->held_bytes += plan->out_bytes[i];
        }
        pl_array *a = (pl_array *)out[i];
        call->bufs[plan->n_in + i] = a->data;
        pl_op_claim(op, a->var, PL_WRITE);
    }
    pthread_mutex_lock(&pl_lock);
    op->lane = pl_lane_get(plan->lane, plan->device);
    pthread_mutex_unlock(&pl_lock);
    if (!op->lane) {
        pl_op_discard(op);
        return pl_fail(PL_ENOMEM, "invoke: the lane's worker thread could not be started");
    }
    pl_op_submit(op, (plan->flags & PL_PLAN_INLINE) != 0);
    return PL_OK;
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
