/* Borders of a constant, of the edge's values or of a mirror image, and the gradient of the last two. Rows along the
 * last padded axis are copied as a whole. */
#include "pad.h"
#include "bytes.h"
#include "cast.h"
#include "dtype.h"
#include "parts.h"

/* The position in [0, n) that position i of a padded axis copies; -1: the constant. */
static inline int64_t source(const plk_pad *p, int d, int64_t i)
{
    int64_t n = p->shape[d], at = i - p->before[d];
    if (at >= 0 && at < n)
        return at;
    if (p->mode == PLK_PAD_CONSTANT)
        return -1;
    if (p->mode == PLK_PAD_EDGE)
        return at < 0 ? 0 : n - 1;
    return at < 0 ? -at : 2 * (n - 1) - at;
}

/* The offset of the rows of x that a plane of y (its last two axes) copies; or -1. */
static int64_t plane_source(const plk_pad *p, int64_t plane)
{
    int64_t row = 0, step = p->ndim > 1 ? p->shape[p->ndim - 2] : 1;
    for (int d = p->ndim - 3; d >= 0; d--) {
        int64_t at = source(p, d, plane % p->out[d]);
        if (at < 0)
            return -1;
        row += at * step;
        step *= p->shape[d];
        plane /= p->out[d];
    }
    return row;
}

/* The number of the row of x that row i of such a plane copies, or -1. */
static inline int64_t row_source(const plk_pad *p, int64_t first, int64_t i)
{
    int64_t at = first < 0 || p->ndim < 2 ? first : source(p, p->ndim - 2, i);
    return at < 0 || p->ndim < 2 ? at : first + at;
}

static void fill(char *y, uint64_t value, int64_t n, int size)
{
    if (value == 0)
        memset(y, 0, (size_t)(n * size));
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(y + i * size, &value, (size_t)size);
}

static int64_t height_of(const plk_pad *p) { return p->ndim > 1 ? p->out[p->ndim - 2] : 1; }

static int64_t planes_of(const plk_pad *p)
{
    int64_t size = height_of(p) * p->out[p->ndim - 1] * p->inner;
    return size > 0 ? p->n_out / size : 0;
}

static void pad_planes(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_pad *p = call->params;
    void *const *bufs = call->bufs;
    int last = p->ndim - 1;
    int64_t n = p->shape[last], width = p->out[last], before = p->before[last], unit = p->inner * p->size;
    int64_t height = height_of(p);
    double value = call->scalars[0];
    uint64_t number = 0;
    plk_cast one = {1, PLK_F64, p->dtype};
    plk_cast_run(&one, (void *[]){&value, &number}, NULL);
    for (int64_t plane = begin; plane < end; plane++)
    for (int64_t first = plane_source(p, plane), i = 0; i < height; i++) {
        char *y = (char *)bufs[1] + (plane * height + i) * width * unit;
        int64_t row = row_source(p, first, i);
        if (row < 0) {
            fill(y, number, width * p->inner, p->size);
            continue;
        }
        const char *x = (const char *)bufs[0] + row * n * unit;
        plk_copy_bytes(y + before * unit, x, (size_t)(n * unit));
        if (p->mode == PLK_PAD_CONSTANT) {
            fill(y, number, before * p->inner, p->size);
            fill(y + (before + n) * unit, number, (width - before - n) * p->inner, p->size);
            continue;
        }
        for (int64_t j = 0; j < width; j++)
            if (j < before || j >= before + n)
                memcpy(y + j * unit, x + source(p, last, j) * unit, (size_t)unit);
    }
}

/* bufs: x, y.  scalars: the constant */
PLK_KERNEL(plk_pad_run)
{
    const plk_pad *p = params;
    plk_run_parts(p->n_out / 2, planes_of(p), 1, pad_planes, &(plk_call){params, bufs, scalars});
    return PL_OK;
}

#define ADD_ROWS(T) \
    for (int64_t plane = 0; plane < planes; plane++) \
        for (int64_t first = plane_source(p, plane), i = 0; i < height; i++) { \
            const T *dy = (const T *)bufs[0] + (plane * height + i) * width * p->inner; \
            T *dx = (T *)bufs[1] + row_source(p, first, i) * n * p->inner; \
            for (int64_t j = 0; j < width; j++) { \
                int64_t at = source(p, last, j) * p->inner; \
                for (int64_t c = 0; c < p->inner; c++) \
                    dx[at + c] += dy[j * p->inner + c]; \
            } \
        }

/* bufs: dy, dx; float32 or float64; not for a constant border */
PLK_KERNEL(plk_pad_backward)
{
    const plk_pad *p = params;
    int last = p->ndim - 1;
    int64_t n = p->shape[last], width = p->out[last], height = height_of(p), planes = planes_of(p);
    (void)scalars;
    memset(bufs[1], 0, (size_t)(p->n_in * p->size));
    if (p->n_in == 0)
        return PL_OK;
    if (p->dtype == PLK_F32)
        ADD_ROWS(float)
    else
        ADD_ROWS(double)
    return PL_OK;
}
