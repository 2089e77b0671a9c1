/* Float32 arrays into blocks and back, where the last block of an axis is not full. */
#include "kernel.h"
#include "parts.h"

/* cffi reads from here on: */
/* The blocked array has `ndim` dimensions in the order of memory, the last one a block. Dimension d counts unit[d]
 * elements of axis[d], which has limit[d]; in the row-major array they are step[d] apart. back: from blocks. */
typedef struct {
    int32_t back, ndim, axis[8];
    int64_t shape[8], unit[8], limit[8], step[8];
} plk_block;
/* cffi stops reading here */

typedef struct { const plk_block *p; float *plain, *blocked; int64_t size; } job;

static void rows(void *arg, int64_t begin, int64_t end)
{
    const job *j = arg;
    const plk_block *p = j->p;
    int last = p->ndim - 1;
    for (int64_t row = begin; row < end; row++) {
        int64_t at[PLK_MAX_DIMS] = {0}, rest = row, from = 0, valid = j->size;
        for (int d = last - 1; d >= 0; d--) {
            int64_t i = rest % p->shape[d];
            rest /= p->shape[d];
            at[p->axis[d]] += i * p->unit[d];
            from += i * p->step[d];
        }
        for (int d = 0; d < last; d++)
            if (p->axis[d] != p->axis[last] && at[p->axis[d]] >= p->limit[d])
                valid = 0;
        int64_t left = p->limit[last] - at[p->axis[last]], step = p->step[last];
        valid = left < valid ? left : valid;
        float *plain = j->plain + from, *blocked = j->blocked + row * j->size;
        if (p->back)
            for (int64_t i = 0; i < valid; i++)
                plain[i * step] = blocked[i];
        else
            for (int64_t i = 0; i < j->size; i++)
                blocked[i] = i < valid ? plain[i * step] : 0;
    }
}

/* bufs: the array, the result */
PLK_KERNEL(plk_block_run)
{
    const plk_block *p = params;
    job j = {p, bufs[p->back], bufs[!p->back], p->shape[p->ndim - 1]};
    int64_t n = 1;
    (void)scalars;
    for (int d = 0; d < p->ndim - 1; d++)
        n *= p->shape[d];
    plk_run_parts(2 * n * j.size, n, 1, rows, &j);
    return PL_OK;
}
