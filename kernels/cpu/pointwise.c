/* Runs a generated loop, of one operator or of a fused group, over arrays that broadcast. */
#include "blocks.h"
#include "parts.h"
#include "simd.h"

/* A separate function, because its frame is large. */
static __attribute__((noinline)) void run_blocks(const plk_job *j, int64_t begin, int64_t end)
{
    plk_blocks b;
    blocks_begin(&b, j);
    for (int64_t at = begin, n; at < end; at += n) {
        n = blocks_next(&b, at, end);
        blocks_run(&b, at, n);
    }
}

static void run(void *arg, int64_t begin, int64_t end)
{
    const plk_job *j = arg;
    const plk_pointwise *p = j->p;
    int direct = 1;
    for (int k = 0; k < p->n_in; k++)
        direct = direct && p->in_n[k] == p->n && p->in_as[k] == p->in_dtype[k];
    for (int k = 0; k < p->n_out; k++)
        direct = direct && p->out_as[k] == p->out_dtype[k];
    if (direct) {
        void *args[PLK_MAX_ARRAYS + PLK_MAX_RESULTS];
        for (int k = 0; k < p->n_in; k++)
            args[k] = (char *)j->bufs[k] + begin * (int64_t)plk_dtype_bytes(p->in_dtype[k]);
        for (int k = 0; k < p->n_out; k++)
            args[p->n_in + k] = (char *)j->bufs[p->n_in + k] + begin * (int64_t)plk_dtype_bytes(p->out_dtype[k]);
        j->loop(end - begin, args, j->scalars);
    } else {
        run_blocks(j, begin, end);
    }
}

/* bufs: inputs, outputs.  scalars: the expression's. */
PLK_KERNEL(plk_pointwise_run)
{
    const plk_pointwise *p = params;
    plk_job j;
    if (p->n == 0)
        return PL_OK;
    if (job_begin(&j, p, bufs, scalars) != PL_OK)
        return PL_EINVAL;
    plk_apart apart;
    if (apart_begin(&apart, &j, NULL) != PL_OK)
        return PL_ENOMEM;
    int64_t inner = p->ndim ? p->shape[p->ndim - 1] : 1, unit = inner < LONG_ROW ? BLOCK / inner * inner : BLOCK;
    plk_run_parts(p->work, p->n, unit, run, &j);
    apart_end(&apart, p, bufs);
    return PL_OK;
}
