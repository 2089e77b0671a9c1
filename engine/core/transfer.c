/* Copies between memories: the host's, page-locked or not, and those of GPUs. */
#include "transfer.h"
#include "gpu.h"

int pl_kernel_transfer(const void *params, void *const *bufs, const double *scalars)
{
    const pl_transfer *p = params;
    (void)scalars;
    pl_gpu_now.staged = p->staged;
    if (p->bytes == 0)
        return PL_OK;
    return pl_gpu_fail(cu.copy((cu_pointer)(uintptr_t)bufs[1], (cu_pointer)(uintptr_t)bufs[0], p->bytes,
                               pl_gpu_now.handle), "gpu: a copy between memories failed");
}

/* Inside a kernel: copies after all that was enqueued on its stream, and waits for it. */
static int copy_now(cu_pointer to, cu_pointer from, size_t bytes)
{
    pl_stream *stream = pl_gpu_now.stream;
    if (!stream)
        return pl_fail(PL_EINVAL, "gpu: this copy is possible only inside a kernel");
    if (bytes == 0)
        return PL_OK;
    int code = cu.copy(to, from, bytes, stream->handle);
    if (code == 0)
        code = cu.stream_sync(stream->handle);
    return pl_gpu_fail(code, "gpu: a copy between memories failed");
}

int pl_gpu_read(void *to, const void *from, size_t bytes)
{
    return copy_now((cu_pointer)(uintptr_t)to, (cu_pointer)(uintptr_t)from, bytes);
}

int pl_gpu_write(void *to, const void *from, size_t bytes)
{
    return copy_now((cu_pointer)(uintptr_t)to, (cu_pointer)(uintptr_t)from, bytes);
}

int pl_gpu_copy(void *to, const void *from, size_t bytes)
{
    int code = bytes ? cu.copy((cu_pointer)(uintptr_t)to, (cu_pointer)(uintptr_t)from, bytes, pl_gpu_now.handle) : 0;
    return pl_gpu_fail(code, "gpu: copying memory failed");
}

int pl_gpu_zero(void *to, size_t bytes)
{
    int code = bytes ? cu.fill((cu_pointer)(uintptr_t)to, 0, bytes, pl_gpu_now.handle) : 0;
    return pl_gpu_fail(code, "gpu: filling memory failed");
}
