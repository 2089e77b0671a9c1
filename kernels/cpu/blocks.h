/* Evaluates a generated loop block by block over arrays that broadcast.
 *
 * A loop takes only contiguous arrays of its own dtypes. An input that is not contiguous (a stride is 0) is copied
 * block by block into a buffer in the L1 cache, one of another dtype is converted there, as are outputs:
 *
 *     direct   the strides of the output: a pointer into the array
 *     fill     innermost stride 0: one value, filled again when the row changes
 *     tile     a short row used by every row: repeated over a block once
 *     repeat   a short row used by many rows: filled again where another one begins
 *     gather   anything else: copied element by element
 */
#ifndef PLK_BLOCKS_H
#define PLK_BLOCKS_H
#include <stdlib.h>
#include "cast.h"
#include "bytes.h"
#include "dtype.h"
#include "loop.h"
#include "pointwise.h"

enum { BLOCK = 1024, LONG_ROW = 128, PAD = 16 };     /* PAD: adjacent buffers start at different offsets in a page */
enum { DIRECT, FILL, TILE, REPEAT, GATHER };

typedef struct {
    const plk_pointwise *p;
    plk_loop loop;
    void *const *bufs;
    const double *scalars;
} plk_job;

/* The state of one thread. A block of `step` elements starts where a row does, unless rows are long. */
typedef struct {
    plk_job job;
    int64_t inner, step, filled[PLK_MAX_ARRAYS];
    int by_row, ways[PLK_MAX_ARRAYS];
    void *args[PLK_MAX_ARRAYS + PLK_MAX_RESULTS];
    void *apart[PLK_MAX_RESULTS];                    /* where an output goes that is not stored; NULL: it is stored */
    uint64_t raw[PLK_MAX_ARRAYS][BLOCK + PAD];
    uint64_t converted[PLK_MAX_ARRAYS + PLK_MAX_RESULTS][BLOCK + PAD];
} plk_blocks;

static int job_begin(plk_job *j, const plk_pointwise *p, void *const *bufs, const double *scalars)
{
    *j = (plk_job){p, p->loop ? (plk_loop)p->loop : p->op < 0 ? NULL : plk_pointwise_loop(p->op, p->dtype), bufs,
                   p->n_constants ? p->constants : scalars};
    return j->loop ? PL_OK : pl_fail(PL_EINVAL, "a pointwise kernel was not generated for this dtype");
}

/* Outputs that overlap an input, other than element by element, are computed in separate memory. */
typedef struct { void *bufs[PLK_MAX_ARRAYS + PLK_MAX_RESULTS], *memory; size_t bytes[PLK_MAX_RESULTS]; } plk_apart;

static inline int overlaps(const plk_pointwise *p, void *const *bufs, int out, size_t y_bytes, int reduced)
{
    uintptr_t y = (uintptr_t)bufs[p->n_in + out], y_end = y + y_bytes;
    size_t y_size = plk_dtype_bytes(p->out_dtype[out]);
    for (int k = 0; k < p->n_in; k++) {
        size_t size = plk_dtype_bytes(p->in_dtype[k]);
        uintptr_t x = (uintptr_t)bufs[k], x_end = x + (size_t)p->in_n[k] * size;
        if (x < y_end && y < x_end && (reduced || !(x == y && p->in_n[k] == p->n && size == y_size)))
            return 1;
    }
    return 0;
}

/* n_reduced[k]: elements of output k where it is reduced, 0 where it is stored whole; NULL: all are stored. */
static int apart_begin(plk_apart *a, plk_job *j, const int64_t *n_reduced)
{
    const plk_pointwise *p = j->p;
    size_t total = 0;
    for (int k = 0; k < p->n_out; k++) {
        int64_t n = n_reduced && n_reduced[k] ? n_reduced[k] : p->n;
        size_t bytes = (size_t)n * plk_dtype_bytes(p->out_dtype[k]);
        a->bytes[k] = overlaps(p, j->bufs, k, bytes, n_reduced && n_reduced[k]) ? bytes : 0;
        total += (a->bytes[k] + 63) & ~(size_t)63;
    }
    a->memory = NULL;
    if (!total)
        return PL_OK;
    if (!(a->memory = malloc(total)))
        return pl_fail(PL_ENOMEM, "out of memory for an output that overlaps an input");
    memcpy(a->bufs, j->bufs, sizeof *a->bufs * (size_t)(p->n_in + p->n_out));
    char *next = a->memory;
    for (int k = 0; k < p->n_out; k++)
        if (a->bytes[k]) {
            a->bufs[p->n_in + k] = next;
            next += (a->bytes[k] + 63) & ~(size_t)63;
        }
    j->bufs = a->bufs;
    return PL_OK;
}

static void apart_end(const plk_apart *a, const plk_pointwise *p, void *const *bufs)
{
    for (int k = 0; a->memory && k < p->n_out; k++)
        if (a->bytes[k])
            plk_copy_bytes(bufs[p->n_in + k], a->bufs[p->n_in + k], a->bytes[k]);
    free(a->memory);
}

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

/* n rows like the first of them */
static void repeat(char *rows, int64_t n, size_t row_bytes)
{
    size_t done = row_bytes, all = (size_t)n * row_bytes;
    for (size_t some; done < all; done += some) {
        some = done < all - done ? done : all - done;
        plk_copy_bytes(rows + done, rows, some);
    }
}

/* Elements [at, at + n) of the output's index space, read from an input. */
static void gather(const plk_job *j, int in, int64_t at, int64_t n, char *to)
{
    const plk_pointwise *p = j->p;
    int last = p->ndim - 1;
    int64_t index[PLK_MAX_DIMS], offset = offset_at(p, in, at, index), step = p->strides[in][last];
    size_t size = plk_dtype_bytes(p->in_dtype[in]);
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
            plk_copy_bytes(to, from, (size_t)run * size);
        int d = last;
        if (last > 0 && run == p->shape[last] && p->strides[in][last - 1] == 0) {
            int64_t rows = p->shape[last - 1] - index[last - 1];
            rows = rows < n / run ? rows : n / run;
            repeat(to, rows, (size_t)run * size);
            to += (size_t)(rows * run) * size;
            n -= rows * run;
            index[--d] += rows;
        } else {
            to += (size_t)run * size;
            n -= run;
            offset += run * step;
            index[last] += run;
        }
        for (; d > 0 && index[d] == p->shape[d]; d--) {
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

static int way(const plk_pointwise *p, int in, int64_t inner)
{
    if (p->in_n[in] == p->n)
        return DIRECT;
    if (p->in_n[in] == 1)
        return FILL;
    if (inner >= LONG_ROW)
        return p->strides[in][p->ndim - 1] ? DIRECT : FILL;
    if (p->in_n[in] == inner && p->strides[in][p->ndim - 1])
        return TILE;
    return p->ndim > 1 && p->strides[in][p->ndim - 2] == 0 && inner <= BLOCK / 8 ? REPEAT : GATHER;
}

static void blocks_begin(plk_blocks *b, const plk_job *j)
{
    const plk_pointwise *p = j->p;
    b->job = *j;
    b->inner = p->ndim ? p->shape[p->ndim - 1] : 1;
    b->by_row = b->inner >= LONG_ROW;
    b->step = b->by_row ? BLOCK : BLOCK / b->inner * b->inner;
    for (int k = 0; k < p->n_in; k++) {
        b->ways[k] = way(p, k, b->inner);
        b->filled[k] = -1;
        if (b->ways[k] == TILE)
            gather(j, k, 0, p->n < b->step ? p->n : b->step, (char *)b->raw[k]);
    }
    for (int k = 0; k < p->n_out; k++)
        b->apart[k] = NULL;
}

/* How many of the elements [at, end) the next evaluation may take. */
static inline int64_t blocks_next(const plk_blocks *b, int64_t at, int64_t end)
{
    int64_t n = b->by_row ? b->inner - at % b->inner : b->step;
    n = n < b->step ? n : b->step;
    return n < end - at ? n : end - at;
}

/* Elements [at, at + n), as many as blocks_next allows. */
static void blocks_run(plk_blocks *b, int64_t at, int64_t n)
{
    const plk_job *j = &b->job;
    const plk_pointwise *p = j->p;
    int64_t index[PLK_MAX_DIMS];
    for (int k = 0; k < p->n_in; k++) {
        size_t size = plk_dtype_bytes(p->in_dtype[k]);
        char *base = j->bufs[k];
        void *arg = b->raw[k];
        int fresh = 1;
        int64_t n_wide = n;
        if (b->ways[k] == DIRECT) {
            int64_t offset = p->in_n[k] == p->n ? at : offset_at(p, k, at, index);
            arg = base + offset * (int64_t)size;
        } else if (b->ways[k] == FILL) {
            int64_t offset = p->in_n[k] == 1 ? 0 : offset_at(p, k, at, index);
            n_wide = b->by_row && b->inner < BLOCK ? b->inner : BLOCK;
            fresh = offset != b->filled[k];
            if (fresh)
                fill(arg, base + offset * (int64_t)size, n_wide, size);
            b->filled[k] = offset;
        } else if (b->ways[k] == REPEAT) {
            int64_t offset = offset_at(p, k, at, index), last = p->ndim - 1;
            /* does the block end within this row? */
            if (index[last] == 0 && n <= (p->shape[last - 1] - index[last - 1]) * b->inner) {
                n_wide = b->step;
                fresh = offset != b->filled[k];
                if (fresh) {
                    gather(j, k, at, b->inner, arg);
                    repeat(arg, b->step / b->inner, (size_t)b->inner * size);
                }
                b->filled[k] = offset;
            } else {
                gather(j, k, at, n, arg);
                b->filled[k] = -1;
            }
        } else if (b->ways[k] == GATHER) {
            gather(j, k, at, n, arg);
        } else {
            fresh = b->filled[k] < 0;
            b->filled[k] = 0;
            n_wide = p->n < b->step ? p->n : b->step;
        }
        if (p->in_as[k] != p->in_dtype[k]) {
            if (fresh)
                convert(p->in_dtype[k], arg, p->in_as[k], b->converted[k], n_wide);
            arg = b->converted[k];
        }
        b->args[k] = arg;
    }
    void **outs = b->args + p->n_in;
    for (int k = 0; k < p->n_out; k++) {
        char *y = (char *)j->bufs[p->n_in + k] + at * (int64_t)plk_dtype_bytes(p->out_dtype[k]);
        outs[k] = b->apart[k] ? b->apart[k] : p->out_as[k] != p->out_dtype[k] ? (void *)b->converted[p->n_in + k] : y;
    }
    j->loop(n, b->args, j->scalars);
    for (int k = 0; k < p->n_out; k++)
        if (!b->apart[k] && p->out_as[k] != p->out_dtype[k])
            convert(p->out_as[k], outs[k], p->out_dtype[k],
                    (char *)j->bufs[p->n_in + k] + at * (int64_t)plk_dtype_bytes(p->out_dtype[k]), n);
}
#endif
