/* The kernel of every plan that consists of CUDA launches: fills in buffers and scalars, then launches. */
#include "launch.h"
#include "gpu.h"
#include "profiler.h"
#include "replay.h"
#include "stream.h"
#include "timing.h"

#include <string.h>

enum { MAX_DATA = 4096, MAX_PARAMS = 256 };

static void scalar_put(char *at, int type, double value)
{
    union { float f; double d; int32_t i; int64_t l; uint64_t u; } v;
    size_t bytes = type == PL_SCALAR_FLOAT32 || type == PL_SCALAR_INT32 ? 4 : 8;
    switch (type) {
    case PL_SCALAR_FLOAT32: v.f = (float)value; break;
    case PL_SCALAR_FLOAT64: v.d = value; break;
    case PL_SCALAR_INT32: v.i = (int32_t)value; break;
    case PL_SCALAR_INT64: v.l = (int64_t)value; break;
    default: v.u = (uint64_t)value; break;
    }
    memcpy(at, &v, bytes);
}

/* Writes the arguments of a launch for this call into data, MAX_DATA bytes. */
static void data_fill(const pl_launches *p, const pl_launch *launch, char *data, void *const *bufs,
                      const double *scalars, char *scratch)
{
    memcpy(data, p->data + launch->data_at, (size_t)launch->data_bytes);
    for (int i = 0; i < launch->n_arguments; i++) {
        const pl_argument *a = &p->arguments[launch->first_argument + i];
        if (a->kind == PL_ARGUMENT_SCALAR) {
            scalar_put(data + a->at, a->type, scalars[a->index]);
        } else {
            char *base = a->kind == PL_ARGUMENT_SCRATCH ? scratch : bufs[a->index];
            base += a->offset_bytes;
            memcpy(data + a->at, &base, sizeof base);
        }
    }
}

static void params_point(const pl_launches *p, const pl_launch *launch, char *data, void **params)
{
    for (int i = 0; i < launch->n_params; i++)
        params[i] = data + p->offsets[launch->first_param + i];
}

static int launch_run(const pl_launches *p, const pl_launch *launch, char *data)
{
    cu_stream stream = pl_gpu_now.handle;
    uint64_t words[3];
    if (launch->kind == PL_LAUNCH_KERNEL || launch->kind == PL_LAUNCH_TOGETHER) {
        void *params[MAX_PARAMS];
        params_point(p, launch, data, params);
        const uint32_t *g = launch->grid, *b = launch->block;
        if (launch->kind == PL_LAUNCH_TOGETHER)
            return pl_gpu_fail(cu.launch_together((cu_function)launch->function, g[0], g[1], g[2], b[0], b[1], b[2],
                                                  (unsigned)launch->shared_bytes, stream, params),
                               "gpu: a cooperative kernel's launch failed");
        return pl_gpu_fail(cu.launch((cu_function)launch->function, g[0], g[1], g[2], b[0], b[1], b[2],
                                     (unsigned)launch->shared_bytes, stream, params, NULL),
                           "gpu: a kernel's launch failed");
    }
    memcpy(words, data, sizeof words);
    if (launch->kind == PL_LAUNCH_FILL)
        return pl_gpu_fail(cu.fill(words[0], (unsigned char)words[1], words[2], stream), "gpu: filling memory failed");
    return pl_gpu_fail(cu.copy(words[0], words[1], words[2], stream), "gpu: copying memory failed");
}

static bool has_scalar(const pl_launches *p, const pl_launch *launch)
{
    for (int i = 0; i < launch->n_arguments; i++)
        if (p->arguments[launch->first_argument + i].kind == PL_ARGUMENT_SCALAR)
            return true;
    return false;
}

int pl_kernel_run_on_gpu(const pl_plan *plan, void *const *bufs, const double *scalars)
{
    /* without the stream's lock: it waits for the GIL, whose owner may wait for that lock */
    if (pl_gpu_now.stream && plan->flags & PL_PLAN_PYTHON)
        return plan->kernel(plan->params, bufs, scalars);
    return pl_kernel_run_locked(plan->kernel, plan->params, bufs, scalars);
}

int pl_kernel_run_locked(pl_kernel kernel, const void *params, void *const *bufs, const double *scalars)
{
    pl_stream *stream = pl_gpu_now.stream;
    if (!stream)
        return pl_fail(PL_EINVAL, "gpu: a kernel of a GPU runs only on a lane of a GPU");
    pl_stream_lock(stream);
    int status = kernel(params, bufs, scalars);
    pl_stream_unlock(stream);
    return status;
}

int pl_kernel_run_timed(const pl_plan *plan, void *const *bufs, const double *scalars, pl_event event)
{
    pl_stream *stream = pl_gpu_now.stream;
    pl_timing *timing = stream ? pl_timing_begin(stream) : NULL;
    int status = pl_kernel_run(plan, bufs, scalars);
    if (timing)
        pl_timing_end(stream, timing, event);
    return status;
}

int pl_kernel_launch(const void *params, void *const *bufs, const double *scalars)
{
    const pl_launches *p = params;
    char *scratch = p->scratch_bytes ? pl_gpu_scratch((size_t)p->scratch_bytes) : NULL;
    int status = p->scratch_bytes && !scratch ? PL_ENOMEM : PL_OK;
    for (int i = 0; i < p->n && status == PL_OK; i++) {
        _Alignas(16) char data[MAX_DATA];
        data_fill(p, &p->launches[i], data, bufs, scalars, scratch);
        status = launch_run(p, &p->launches[i], data);
        if (status == PL_OK && pl_gpu_now.recorder && has_scalar(p, &p->launches[i]))
            pl_recorder_note(pl_gpu_now.recorder, i);
    }
    return status;
}

int pl_launch_update(const pl_launches *p, int at, void *const *bufs, const double *scalars, cu_exec exec, cu_node node)
{
    const pl_launch *launch = &p->launches[at];
    char *scratch = p->scratch_bytes ? pl_gpu_scratch((size_t)p->scratch_bytes) : NULL;
    _Alignas(16) char data[MAX_DATA];
    void *params[MAX_PARAMS];
    data_fill(p, launch, data, bufs, scalars, scratch);
    params_point(p, launch, data, params);
    cu_kernel_node changed = {
        (cu_function)launch->function, launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0],
        launch->block[1], launch->block[2], (unsigned)launch->shared_bytes, params, NULL};
    return pl_gpu_fail(cu.exec_set_kernel(exec, node, &changed), "gpu: a recorded launch cannot be changed");
}
