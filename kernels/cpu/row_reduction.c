/* Runs a generated fused row reduction over float32 arrays that broadcast. */
#include "row_reduction.h"
#include "engine/core/scratch.h"
#include "parts.h"
#include "simd.h"

#include <stdlib.h>

typedef struct { const plk_row_reduction *p; void *const *bufs; const double *scalars; } job;

/* Does an output overlap an input other than element by element? */
static int overlaps(const plk_row_reduction *p, void *const *bufs, int k)
{
    int64_t n = p->n_rows * p->out_step[k];
    const float *y = bufs[p->n_in + k];
    for (int i = 0; i < p->n_in; i++) {
        const float *x = bufs[i];
        if (x < y + n && y < x + p->in_n[i] && !(x == y && p->in_n[i] == n && p->out_step[k] == p->n))
            return 1;
    }
    return 0;
}

static void run(const job *j, int64_t begin, int64_t end, float *scratch)
{
    const plk_row_reduction *p = j->p;
    void *args[PLK_MAX_ARRAYS + 2 * PLK_MAX_RESULTS + PLK_MAX_ARRAYS];
    for (int k = 0; k < p->n_scratch; k++)
        args[p->n_in + p->n_out + k] = scratch + k * ((p->n + 31) & ~(int64_t)15);
    for (int64_t r = begin; r < end; r++) {
        for (int i = 0; i < p->n_in; i++) {
            int64_t at = r, offset = 0;
            for (int d = p->ndim - 1; d > 0; d--) {
                offset += at % p->shape[d] * p->strides[i][d];
                at /= p->shape[d];
            }
            args[i] = (float *)j->bufs[i] + offset + at * p->strides[i][0];
        }
        for (int k = 0; k < p->n_out; k++)
            args[p->n_in + k] = (float *)j->bufs[p->n_in + k] + r * p->out_step[k];
        ((plk_loop)p->loop)(p->n, args, j->scalars);
    }
}

typedef struct { const job *j; size_t scratch_bytes; int failed; } shared_rows;

static void run_part(void *arg, int64_t begin, int64_t end)
{
    shared_rows *s = arg;
    float *scratch = pl_scratch(s->scratch_bytes);
    if (scratch)
        run(s->j, begin, end, scratch);
    else
        __atomic_store_n(&s->failed, 1, __ATOMIC_RELAXED);
}

/* bufs: inputs, outputs.  scalars: the expressions'. */
PLK_KERNEL(plk_row_reduction_run)
{
    const plk_row_reduction *p = params;
    void *own[PLK_MAX_ARRAYS + PLK_MAX_RESULTS], *apart[PLK_MAX_RESULTS] = {0};
    int failed = 0;
    memcpy(own, bufs, sizeof *own * (size_t)(p->n_in + p->n_out));
    for (int k = 0; k < p->n_out; k++)
        if (overlaps(p, bufs, k)) {
            own[p->n_in + k] = apart[k] = malloc(sizeof(float) * (size_t)(p->n_rows * p->out_step[k]));
            failed |= !apart[k];
        }
    job j = {p, own, scalars};
    size_t scratch_bytes = sizeof(float) * (size_t)(p->n_scratch * (p->n + 31) + 16);
    shared_rows s = {&j, scratch_bytes, failed};
    if (!failed)
        plk_run_parts(p->work, p->n_rows, 1, run_part, &s);
    for (int k = 0; k < p->n_out; k++)
        if (apart[k]) {
            memcpy(bufs[p->n_in + k], apart[k], sizeof(float) * (size_t)(p->n_rows * p->out_step[k]));
            free(apart[k]);
        }
    return s.failed ? pl_fail(PL_ENOMEM, "out of memory for the rows of a fused kernel") : PL_OK;
}
