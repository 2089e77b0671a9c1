/* Gradients of convolutions' weights: the sum over shares of the batch, each computed by a oneDNN primitive for one
 * thread. Shares depend on the shapes alone, so the sum is the same on any number of threads. */
#include "onednn.h"
#include "parts.h"

#include <stdlib.h>

/* parts: the results of all shares but the first. */
typedef struct { const plk_dnn_weight *p; void *const *bufs; float *parts; int failed; } job;

static void share_piece(void *arg, int64_t i)
{
    job *j = arg;
    const plk_dnn_weight *p = j->p;
    int64_t first = i * p->per;
    void *bufs[3] = {(float *)j->bufs[0] + first * p->y_size, (float *)j->bufs[1] + first * p->x_size,
                     i ? j->parts + (i - 1) * p->w_size : (float *)j->bufs[2]};
    plk_dnn share = {.primitive = i == p->shares - 1 ? p->last : p->primitive};
    if (plk_dnn_run(&share, bufs, NULL) != PL_OK)
        __atomic_store_n(&j->failed, 1, __ATOMIC_RELAXED);
}

static void add_part(void *arg, int64_t begin, int64_t end)
{
    const job *j = arg;
    float *y = j->bufs[2];
    for (int64_t s = 0; s < j->p->shares - 1; s++) {
        const float *x = j->parts + s * j->p->w_size;
        for (int64_t i = begin; i < end; i++)
            y[i] += x[i];
    }
}

/* bufs: dy, x, dw */
PLK_KERNEL(plk_dnn_weight_run)
{
    const plk_dnn_weight *p = params;
    size_t bytes = sizeof(float) * (size_t)((p->shares - 1) * p->w_size);
    job j = {p, bufs, bytes ? malloc(bytes) : NULL, 0};
    (void)scalars;
    if (bytes && !j.parts)
        return pl_fail(PL_ENOMEM, "out of memory for the shares of a gradient");
    pl_thread_pool_run(pl_threads(p->shares * p->per * (p->x_size + p->y_size)), p->shares, share_piece, &j);
    if (bytes && !j.failed)
        plk_run_parts(p->shares * p->w_size, p->w_size, 64, add_part, &j);
    free(j.parts);
    return j.failed ? pl_fail(PL_FAILED, "oneDNN could not run a primitive") : PL_OK;
}
