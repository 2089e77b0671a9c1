/* Ranges and diagonals of ones. */
#include "range.h"
#include "cast.h"
#include "dtype.h"
#include "parts.h"

enum { BLOCK = 512 };

static void block_of(const plk_range *p, int64_t at, int64_t n, void *y)
{
    double values[BLOCK], first = (double)at;
    int64_t wholes[BLOCK], start = (int64_t)p->start, step = (int64_t)p->step;
    plk_cast cast = {n, p->whole ? PLK_I64 : PLK_F64, p->dtype};
    if (p->whole)
        for (int64_t i = 0; i < n; i++)
            wholes[i] = start + step * ((at + i) / p->repeat);
    else if (p->repeat == 1 && p->dtype == PLK_F32) {
        for (int i = 0; i < (int)n; i++)
            ((float *)y)[i] = (float)(p->start + p->step * (first + (double)i));
        return;
    } else
        for (int64_t i = 0; i < n; i++)
            values[i] = p->start + p->step * (double)((at + i) / p->repeat);
    plk_cast_run(&cast, (void *[]){p->whole ? (void *)wholes : (void *)values, y}, NULL);
}

static void range_part(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_range *p = call->params;
    char *y = call->bufs[p->out_at];
    for (int64_t at = begin; at < end; at += BLOCK)
        block_of(p, at, end - at < BLOCK ? end - at : BLOCK, y + (size_t)at * plk_dtype_bytes(p->dtype));
}

/* bufs: if out_at is 1 an array that is not read; y */
PLK_KERNEL(plk_range_run)
{
    const plk_range *p = params;
    plk_run_parts(p->n, p->n, BLOCK, range_part, &(plk_call){params, bufs, scalars});
    return PL_OK;
}

/* bufs: y */
PLK_KERNEL(plk_eye_run)
{
    const plk_eye *p = params;
    size_t size = plk_dtype_bytes(p->dtype);
    double value = 1;
    uint64_t one = 0;
    plk_cast cast = {1, PLK_F64, p->dtype};
    (void)scalars;
    plk_cast_run(&cast, (void *[]){&value, &one}, NULL);
    memset(bufs[0], 0, (size_t)(p->rows * p->columns) * size);
    for (int64_t r = p->diagonal < 0 ? -p->diagonal : 0; r < p->rows && r + p->diagonal < p->columns; r++)
        memcpy((char *)bufs[0] + (size_t)(r * p->columns + r + p->diagonal) * size, &one, size);
    return PL_OK;
}
