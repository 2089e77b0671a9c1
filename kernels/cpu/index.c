/* Selection by indices. */
#include "index.h"
#include "bytes.h"
#include "cast.h"
#include "dtype.h"
#include "parts.h"

#include <math.h>

int64_t plk_index_at(const void *indices, int dtype, int64_t i)
{
    switch (dtype) {
    case PLK_F32: return (int64_t)((const float *)indices)[i];
    case PLK_F64: return (int64_t)((const double *)indices)[i];
    case PLK_I32: return ((const int32_t *)indices)[i];
    case PLK_I64: return ((const int64_t *)indices)[i];
    case PLK_I8: return ((const int8_t *)indices)[i];
    default: return ((const uint8_t *)indices)[i];
    }
}

/* A length, truncated; it may be beyond any index. */
static double length_at(const void *lengths, int dtype, int64_t i)
{
    switch (dtype) {
    case PLK_F32: return trunc((double)((const float *)lengths)[i]);
    case PLK_F64: return trunc(((const double *)lengths)[i]);
    default: return (double)plk_index_at(lengths, dtype, i);
    }
}

static inline int64_t bounded(const plk_take *p, const void *indices, int64_t i)
{
    int64_t k = plk_index_at(indices, p->index_dtype, i);
    if (p->mode == PLK_TAKE_WRAP) {
        k %= p->n;
        return k < 0 ? k + p->n : k;
    }
    k += p->mode == PLK_TAKE_INDEX && k < 0 ? p->n : 0;
    return k < 0 ? 0 : k < p->n ? k : p->n - 1;
}

int64_t plk_take_place(const plk_take *p, const void *indices, int64_t i) { return bounded(p, indices, i); }

/* One element; a copy of known size is one instruction. */
static inline void copy_one(char *to, const char *from, int32_t size)
{
    if (size == 4)
        memcpy(to, from, 4);
    else
        memcpy(to, from, (size_t)size);
}

/* bufs: x, index, y */
PLK_KERNEL(plk_pick_run)
{
    const plk_take *p = params;
    (void)scalars;
    for (int64_t o = 0; o < p->outer; o++)
        for (int64_t i = 0; i < p->inner; i++) {
            int64_t at = o * p->inner + i, from = (o * p->n + bounded(p, bufs[1], at)) * p->inner + i;
            copy_one((char *)bufs[2] + at * p->size, (const char *)bufs[0] + from * p->size, p->size);
        }
    return PL_OK;
}

/* bufs: dy, index, dx */
PLK_KERNEL(plk_pick_backward)
{
    const plk_take *p = params;
    (void)scalars;
    memset(bufs[2], 0, (size_t)(p->outer * p->n * p->inner * p->size));
    for (int64_t o = 0; o < p->outer; o++)
        for (int64_t i = 0; i < p->inner; i++) {
            int64_t at = o * p->inner + i, to = (o * p->n + bounded(p, bufs[1], at)) * p->inner + i;
            copy_one((char *)bufs[2] + to * p->size, (const char *)bufs[0] + at * p->size, p->size);
        }
    return PL_OK;
}

/* Index i as a position in [0, n), or -1; a negative one counts from the end. */
static inline int64_t wrapped(const plk_take *p, const void *indices, int64_t i)
{
    int64_t k = plk_index_at(indices, p->index_dtype, i);
    k = k < 0 ? k + p->n : k;
    return k < p->n ? k : -1;
}

/* bufs: x, index (outer, n_indices, inner), y like it */
PLK_KERNEL(plk_take_along)
{
    const plk_take *p = params;
    int64_t lowest = 0;
    (void)scalars;
    for (int64_t o = 0; o < p->outer; o++)
        for (int64_t k = 0; k < p->n_indices; k++)
            for (int64_t i = 0; i < p->inner; i++) {
                int64_t at = (o * p->n_indices + k) * p->inner + i, from = wrapped(p, bufs[1], at);
                lowest = from < lowest ? from : lowest;
                from = (o * p->n + (from < 0 ? 0 : from)) * p->inner + i;
                copy_one((char *)bufs[2] + at * p->size, (const char *)bufs[0] + from * p->size, p->size);
            }
    return lowest < 0 ? pl_fail(PL_EINDEX, "_take_along_axis: indices must be inside data") : PL_OK;
}

/* bufs: x, index like it (outer, n_indices, inner), y (outer, n, inner): zeros to which x is added; float32 or
 * float64 */
PLK_KERNEL(plk_put_along)
{
    const plk_take *p = params;
    (void)scalars;
    memset(bufs[2], 0, (size_t)(p->outer * p->n * p->inner * p->size));
    for (int64_t o = 0; o < p->outer; o++)
        for (int64_t k = 0; k < p->n_indices; k++)
            for (int64_t i = 0; i < p->inner; i++) {
                int64_t at = (o * p->n_indices + k) * p->inner + i, to = wrapped(p, bufs[1], at);
                if (to < 0)
                    return pl_fail(PL_EINDEX, "_put_along_axis: indices must be inside the result");
                to = (o * p->n + to) * p->inner + i;
                if (p->size == 4)
                    ((float *)bufs[2])[to] += ((const float *)bufs[0])[at];
                else
                    ((double *)bufs[2])[to] += ((const double *)bufs[0])[at];
            }
    return PL_OK;
}

static void as_dtype(double value, int dtype, void *out)
{
    plk_cast cast = {1, PLK_F64, dtype};
    void *ends[2] = {&value, out};
    plk_cast_run(&cast, ends, NULL);
}

static void fill_row(char *y, uint64_t value, int64_t n, int32_t size)
{
    uint32_t word = (uint32_t)value;
    if (value == 0)
        memset(y, 0, (size_t)(n * size));
    else if (size == 4)
        for (int64_t i = 0; i < n; i++)
            memcpy(y + 4 * i, &word, 4);
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(y + i * size, &value, (size_t)size);
}

/* bufs: indices, y (n_indices, depth) */
PLK_KERNEL(plk_one_hot_run)
{
    const plk_one_hot *p = params;
    uint64_t on = 0, off = 0;
    (void)scalars;
    as_dtype(p->on, p->dtype, &on);
    as_dtype(p->off, p->dtype, &off);
    char *y = bufs[1];
    for (int64_t r = 0; r < p->n_indices; r++, y += p->depth * p->size) {
        int64_t k = plk_index_at(bufs[0], p->index_dtype, r);
        fill_row(y, off, p->depth, p->size);
        if (k >= 0 && k < p->depth)
            memcpy(y + k * p->size, &on, (size_t)p->size);
    }
    return PL_OK;
}

static void reverse_rows(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_sequence_mask *p = call->params;
    void *const *bufs = call->bufs;
    int64_t row_bytes = p->inner * p->size;
    int given = p->length_dtype >= 0;
    for (int64_t r = begin; r < end; r++) {
        int64_t step = r / p->batch, b = r % p->batch;
        int64_t n = given ? plk_index_at(bufs[1], p->length_dtype, b) : p->steps;
        n = n < p->steps ? n : p->steps;
        int64_t from = (step < n ? n - 1 - step : step) * p->batch + b;
        plk_copy_bytes((char *)bufs[1 + given] + r * row_bytes, (const char *)bufs[0] + from * row_bytes,
                       (size_t)row_bytes);
    }
}

/* bufs: x, lengths if given, y: the steps of each sequence reversed */
PLK_KERNEL(plk_sequence_reverse_run)
{
    const plk_sequence_mask *p = params;
    int64_t rows = p->steps * p->batch;
    plk_run_parts(rows * p->inner * p->size / 8, rows, 1, reverse_rows, &(plk_call){params, bufs, scalars});
    return PL_OK;
}

/* bufs: x, lengths if given, y (batch, inner): the last step of each sequence */
PLK_KERNEL(plk_sequence_last_run)
{
    const plk_sequence_mask *p = params;
    int64_t row_bytes = p->inner * p->size;
    int given = p->length_dtype >= 0;
    (void)scalars;
    for (int64_t b = 0; b < p->batch; b++) {
        int64_t n = given ? plk_index_at(bufs[1], p->length_dtype, b) : p->steps;
        n = n < 1 ? 1 : n;
        if (n > p->steps)
            return pl_fail(PL_EINVAL, "SequenceLast: sequence_length must not be more than the steps of data");
        int64_t from = p->batch_first ? b * p->steps + n - 1 : (n - 1) * p->batch + b;
        plk_copy_bytes((char *)bufs[1 + given] + b * row_bytes, (const char *)bufs[0] + from * row_bytes,
                       (size_t)row_bytes);
    }
    return PL_OK;
}

static void mask_rows(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_sequence_mask *p = call->params;
    void *const *bufs = call->bufs;
    int64_t row_bytes = p->inner * p->size;
    uint64_t value = 0;
    as_dtype(p->value, p->dtype, &value);
    for (int64_t r = begin; r < end; r++) {
        int64_t step = p->batch_first ? r % p->steps : r / p->batch, b = p->batch_first ? r / p->steps : r % p->batch;
        const char *x = (const char *)bufs[0] + r * row_bytes;
        char *y = (char *)bufs[2] + r * row_bytes;
        if ((double)step >= length_at(bufs[1], p->length_dtype, b))
            for (int64_t i = 0; i < p->inner; i++)
                memcpy(y + i * p->size, &value, (size_t)p->size);
        else if (x != y)
            plk_copy_bytes(y, x, (size_t)row_bytes);
    }
}

/* bufs: x, lengths, y */
PLK_KERNEL(plk_sequence_mask_run)
{
    const plk_sequence_mask *p = params;
    int64_t rows = p->steps * p->batch;
    plk_run_parts(rows * p->inner * p->size / 8, rows, 1, mask_rows, &(plk_call){params, bufs, scalars});
    return PL_OK;
}
