/* Runs a generated loop over arrays that broadcast.
 *
 * A loop only knows contiguous arrays. An input that is not (its stride is 0 somewhere), or that is a 16-bit float, is
 * brought block by block into a buffer in the L1 cache first:
 *
 *     direct   the output's own layout: a pointer into the array
 *     fill     innermost stride 0: one value, filled again when the row changes
 *     tile     a short row used by every row: repeated over a block once
 *     gather   anything else: copied element by element
 */
#include <stdlib.h>
#include "pointwise.h"
#include "cast.h"
#include "generated/kernels.h"

enum { BLOCK = 1024, LONG_ROW = 128 };

typedef struct {
    const plk_pointwise *p;
    plk_loop loop;
    void *const *bufs;
    const double *scalars;
    int is_16;
    size_t size;                /* bytes of an element in memory */
} job;

static void fill(void *to, const void *from, int64_t n, size_t size)
{
    switch (size) {
    case 1: memset(to, *(const uint8_t *)from, (size_t)n); break;
    case 2: { uint16_t v = *(const uint16_t *)from, *y = to; for (int64_t i = 0; i < n; i++) y[i] = v; break; }
    case 4: { uint32_t v = *(const uint32_t *)from, *y = to; for (int64_t i = 0; i < n; i++) y[i] = v; break; }
    case 8: { uint64_t v = *(const uint64_t *)from, *y = to; for (int64_t i = 0; i < n; i++) y[i] = v; break; }
    }
}

static int64_t offset_at(const plk_pointwise *p, int in, int64_t at, int64_t *index)
{
    int64_t offset = 0;
    for (int d = p->ndim - 1; d >= 0; d--) {
        index[d] = at % p->shape[d];
        at /= p->shape[d];
        offset += index[d] * p->strides[in][d];
    }
    return offset;
}

/* Elements [at, at + n) of the output's index space, read from an input. */
static void gather(const job *j, int in, int64_t at, int64_t n, char *to)
{
    const plk_pointwise *p = j->p;
    int last = p->ndim - 1;
    int64_t index[PLK_MAX_DIMS], offset = offset_at(p, in, at, index), step = p->strides[in][last];
    size_t size = j->size;
    while (n > 0) {
        int64_t run = p->shape[last] - index[last];
        run = run < n ? run : n;
        const char *from = (const char *)j->bufs[in] + offset * (int64_t)size;
        if (step == 0)
            fill(to, from, run, size);
        else if (size == 4)
            for (int64_t i = 0; i < run; i++)
                ((uint32_t *)(void *)to)[i] = ((const uint32_t *)(const void *)from)[i];
        else
            memcpy(to, from, (size_t)run * size);
        to += (size_t)run * size;
        n -= run;
        offset += run * step;
        index[last] += run;
        for (int d = last; d > 0 && index[d] == p->shape[d]; d--) {
            index[d] = 0;
            offset += p->strides[in][d - 1] - p->shape[d] * p->strides[in][d];
            index[d - 1]++;
        }
    }
}

static void convert(int from, const void *x, int to, void *y, int64_t n)
{
    plk_cast cast = {n, from, to};
    void *bufs[2] = {(void *)(uintptr_t)x, y};
    plk_cast_run(&cast, bufs, NULL);
}

enum { DIRECT, FILL, TILE, GATHER };

static int way(const plk_pointwise *p, int in, int64_t inner)
{
    if (p->in_n[in] == p->n)
        return DIRECT;
    if (p->in_n[in] == 1)
        return FILL;
    if (inner >= LONG_ROW)
        return p->strides[in][p->ndim - 1] ? DIRECT : FILL;
    return p->in_n[in] == inner && p->strides[in][p->ndim - 1] ? TILE : GATHER;
}

/* Elements [begin, end), in blocks. */
static void run_blocks(const job *j, int64_t begin, int64_t end)
{
    const plk_pointwise *p = j->p;
    uint64_t raw[PLK_MAX_INPUTS][BLOCK];
    float wide[PLK_MAX_INPUTS + 1][BLOCK];
    void *args[PLK_MAX_INPUTS + 1];
    int ways[PLK_MAX_INPUTS];
    int64_t inner = p->ndim ? p->shape[p->ndim - 1] : 1, filled[PLK_MAX_INPUTS], index[PLK_MAX_DIMS];
    int by_row = inner >= LONG_ROW;
    int64_t block = by_row ? BLOCK : BLOCK / inner * inner;
    for (int k = 0; k < p->n_in; k++) {
        ways[k] = way(p, k, inner);
        filled[k] = -1;
        if (ways[k] == TILE)
            gather(j, k, 0, p->n < block ? p->n : block, (char *)raw[k]);
    }
    for (int64_t at = begin, n; at < end; at += n) {
        n = by_row ? inner - at % inner : block;
        n = n < block ? n : block;
        n = n < end - at ? n : end - at;
        for (int k = 0; k < p->n_in; k++) {
            char *base = j->bufs[k];
            args[k] = raw[k];
            int fresh = 1;
            if (ways[k] == DIRECT) {
                int64_t offset = p->in_n[k] == p->n ? at : offset_at(p, k, at, index);
                args[k] = base + offset * (int64_t)j->size;
            } else if (ways[k] == FILL) {
                int64_t offset = p->in_n[k] == 1 ? 0 : offset_at(p, k, at, index);
                fresh = offset != filled[k];
                if (fresh)
                    fill(raw[k], base + offset * (int64_t)j->size, BLOCK, j->size);
                filled[k] = offset;
            } else if (ways[k] == GATHER) {
                gather(j, k, at, n, (char *)raw[k]);
            } else {
                fresh = filled[k] < 0;
                filled[k] = 0;
            }
            if (j->is_16) {
                if (fresh)
                    convert(p->dtype, args[k], PLK_F32, wide[k], ways[k] == FILL ? BLOCK : ways[k] == TILE ? block : n);
                args[k] = wide[k];
            }
        }
        char *y = (char *)j->bufs[p->n_in] + at * (int64_t)j->size;
        args[p->n_in] = j->is_16 ? (void *)wide[p->n_in] : y;
        j->loop(n, args, j->scalars);
        if (j->is_16)
            convert(PLK_F32, wide[p->n_in], p->dtype, y, n);
    }
}

static void run(const job *j, int64_t begin, int64_t end)
{
    const plk_pointwise *p = j->p;
    int direct = !j->is_16;
    for (int k = 0; k < p->n_in; k++)
        direct = direct && p->in_n[k] == p->n;
    if (direct) {
        void *args[PLK_MAX_INPUTS + 1];
        for (int k = 0; k <= p->n_in; k++)
            args[k] = (char *)j->bufs[k] + begin * (int64_t)j->size;
        j->loop(end - begin, args, j->scalars);
    } else {
        run_blocks(j, begin, end);
    }
    if (p->dtype == PLK_BOOL) {
        uint8_t *y = j->bufs[p->n_in];
        for (int64_t i = begin; i < end; i++)
            y[i] = y[i] != 0;
    }
}

/* 1: the output overlaps an input otherwise than element on element. */
static int overlaps(const plk_pointwise *p, void *const *bufs, size_t size)
{
    uintptr_t y = (uintptr_t)bufs[p->n_in], y_end = y + (size_t)p->n * size;
    for (int k = 0; k < p->n_in; k++) {
        uintptr_t x = (uintptr_t)bufs[k], x_end = x + (size_t)p->in_n[k] * size;
        if (x < y_end && y < x_end && !(x == y && p->in_n[k] == p->n))
            return 1;
    }
    return 0;
}

/* bufs: inputs, output.  scalars: the expression's. */
PLK_KERNEL(plk_pointwise_run)
{
    const plk_pointwise *p = params;
    int is_16 = p->dtype == PLK_F16 || p->dtype == PLK_BF16;
    int dtype = is_16 ? PLK_F32 : p->dtype == PLK_BOOL ? PLK_U8 : p->dtype;
    job j = {p, p->op < 0 ? NULL : plk_pointwise_loop(p->op, dtype), bufs,
             p->n_constants ? p->constants : scalars, is_16, plk_dtype_bytes(p->dtype)};
    if (!j.loop)
        return pl_fail(PL_EINVAL, "a pointwise kernel was asked for a dtype it was not generated for");
    if (p->n == 0)
        return PL_OK;
    void *moved[PLK_MAX_INPUTS + 1], *apart = NULL;
    if (overlaps(p, bufs, j.size)) {
        if (!(apart = malloc((size_t)p->n * j.size)))
            return pl_fail(PL_ENOMEM, "out of memory for an output that overlaps an input");
        memcpy(moved, bufs, sizeof *bufs * (size_t)p->n_in);
        moved[p->n_in] = apart;
        j.bufs = moved;
    }
    int n_threads = pl_threads(p->work);
    if (n_threads == 1) {
        run(&j, 0, p->n);
    } else {
        int64_t inner = p->ndim ? p->shape[p->ndim - 1] : 1, unit = inner < LONG_ROW ? BLOCK / inner * inner : BLOCK;
#pragma omp parallel for num_threads(n_threads)
        for (int i = 0; i < n_threads; i++) {
            int64_t begin, end;
            plk_share(p->n, unit, i, n_threads, &begin, &end);
            run(&j, begin, end);
        }
    }
    if (apart) {
        memcpy(bufs[p->n_in], apart, (size_t)p->n * j.size);
        free(apart);
    }
    return PL_OK;
}
