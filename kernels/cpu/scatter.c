/* Gathers and scatters rows of a table. A scatter into a new table writes most rows only once: rows without an index
 * are zeroed, the first value of a row is stored, later ones are added or replace it. This happens in the order of the
 * indices for any number of threads: threads share the columns or, if these are few, the rows.
 */
#include <stdio.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#include "index.h"
#include "bytes.h"
#include "dtype.h"
#include "engine/core/scratch.h"
#include "scatter.h"
#include "parts.h"
#include "simd.h"

enum { FEW_COLUMNS = 128, SHORT_BYTES = 256, STREAMED_BYTES = 4096 };

/* The target row of each index, and whether it is the first index of its row. */
typedef struct {
    int64_t n_places, n_rows, inner, *to;
    uint8_t *first, *named;                          /* of each index; of each row: is there an index for it */
} places;

/* Memory for n_places indices into a table of n_rows; named: whether rows are marked. */
static int places_begin(places *p, int64_t n_places, int64_t n_rows, int64_t inner, int named)
{
    char *scratch = pl_scratch((size_t)n_places * 9 + (size_t)(named ? n_rows : 0) + 64);
    if (!scratch)
        return pl_fail(PL_ENOMEM, "out of memory for the indices of a scatter");
    *p = (places){n_places, n_rows, inner, (int64_t *)(void *)scratch, (uint8_t *)scratch + n_places * 8,
                  (uint8_t *)scratch + n_places * 9};
    return PL_OK;
}

/* Marks rows with an index; short rows need no marks. */
static void mark(const places *p, size_t row_bytes)
{
    if (row_bytes < SHORT_BYTES)
        return;
    memset(p->named, 0, (size_t)p->n_rows);
    for (int64_t i = 0; i < p->n_places; i++) {
        p->first[i] = !p->named[p->to[i]];
        p->named[p->to[i]] = 1;
    }
}

/* Zeroes memory with stores that bypass the caches, in which a large table would not fit. */
static void zero(char *at, size_t n)
{
#if defined(__SSE2__)
    if (n >= STREAMED_BYTES) {
        for (; (uintptr_t)at % 16; at++, n--)
            *at = 0;
        for (; n >= 64; at += 64, n -= 64)
            for (int k = 0; k < 64; k += 16)
                _mm_stream_si128((__m128i *)(void *)(at + k), _mm_setzero_si128());
    }
#endif
    memset(at, 0, n);
}

/* Zeroes the rows [begin, end) without an index; of short rows all. */
static void zero_others(const places *p, char *table, int64_t begin, int64_t end, size_t row_bytes)
{
    if (row_bytes < SHORT_BYTES)
        zero(table + (size_t)begin * row_bytes, (size_t)(end - begin) * row_bytes);
    else
    for (int64_t r = begin, stop; r < end; r = stop + 1) {
        for (stop = r; stop < end && !p->named[stop];)
            stop++;
        if (stop > r)
            zero(table + (size_t)r * row_bytes, (size_t)(stop - r) * row_bytes);
    }
}

#define ADD_TO(T) \
    { \
        const T *x = (const T *)(const void *)from; \
        T *y = (T *)(void *)row; \
        for (int64_t c = 0; c < n; c++) \
            y[c] += x[c]; \
    } \
    break;

static void add_row(const char *from, char *row, int64_t n, int dtype)
{
    switch (dtype) {
    case PLK_F32: ADD_TO(float)
    case PLK_F64: ADD_TO(double)
    case PLK_I32: ADD_TO(int32_t)
    case PLK_I64: ADD_TO(int64_t)
    case PLK_I8: ADD_TO(int8_t)
    case PLK_U8: ADD_TO(uint8_t)
    }
}

typedef struct { const places *p; const char *rows; char *table; int what, dtype; int64_t size; } scattered;

static void zero_rows(void *arg, int64_t begin, int64_t end)
{
    const scattered *s = arg;
    zero_others(s->p, s->table, begin, end, (size_t)(s->p->inner * s->size));
}

#define SET_ELEMENTS(T) { \
    const T *x = (const T *)(const void *)s->rows; \
    T *y = (T *)(void *)s->table; \
    for (int64_t i = 0; i < p->n_places; i++) \
        if (p->to[i] >= low && p->to[i] < high) \
            y[p->to[i]] = x[i]; \
    return; }

/* Rows of one element. */
static void set_elements(const scattered *s, int64_t low, int64_t high)
{
    const places *p = s->p;
    switch (s->size) {
    case 1: SET_ELEMENTS(uint8_t)
    case 2: SET_ELEMENTS(uint16_t)
    case 4: SET_ELEMENTS(uint32_t)
    default: SET_ELEMENTS(uint64_t)
    }
}

/* Columns [begin, end) of the rows [low, high). */
static void scatter_into(const scattered *s, int64_t low, int64_t high, int64_t begin, int64_t end)
{
    const places *p = s->p;
    size_t row_bytes = (size_t)(p->inner * s->size);
    int zeroed = row_bytes < SHORT_BYTES;
    for (int64_t i = 0; i < p->n_places; i++) {
        if (p->to[i] < low || p->to[i] >= high || begin == end)
            continue;
        const char *from = s->rows + (size_t)i * row_bytes + (size_t)(begin * s->size);
        char *to = s->table + (size_t)p->to[i] * row_bytes + (size_t)(begin * s->size);
        if (s->what == PLK_ADD && (zeroed || !p->first[i]))
            add_row(from, to, end - begin, s->dtype);
        else if ((end - begin) * s->size == 4)    /* a copy of known size is one instruction */
            memcpy(to, from, 4);
        else
            plk_copy_bytes(to, from, (size_t)((end - begin) * s->size));
    }
}

static void scatter_columns(void *arg, int64_t begin, int64_t end)
{
    const scattered *s = arg;
    scatter_into(s, 0, s->p->n_rows, begin, end);
}

static void scatter_rows(void *arg, int64_t begin, int64_t end)
{
    const scattered *s = arg;
    if (s->p->inner == 1 && s->what != PLK_ADD)
        set_elements(s, begin, end);
    else
        scatter_into(s, begin, end, 0, s->p->inner);
}

/* table[index] <- rows. what: PLK_SET, PLK_SET_IN or PLK_ADD; dtype: of added elements. */
static void scatter(const places *p, const char *rows, char *table, int what, int dtype, int64_t size)
{
    int n_threads = pl_threads((p->n_places + (what == PLK_SET_IN ? 0 : p->n_rows / 4)) * p->inner);
    scattered s = {p, rows, table, what, dtype, size};
    if (what != PLK_SET_IN)
        plk_run_shares(n_threads, p->n_rows, 1, zero_rows, &s);
    if (p->inner >= FEW_COLUMNS)
        plk_run_shares(n_threads, p->inner, 16, scatter_columns, &s);
    else
        plk_run_shares(n_threads, p->n_rows, 1, scatter_rows, &s);
}

/* bufs: dy, indices, da; float32 or float64 by size */
PLK_KERNEL(plk_take_backward)
{
    const plk_take *p = params;
    places at;
    (void)scalars;
    if (places_begin(&at, p->n_indices, p->n, p->inner, 1) != PL_OK)
        return PL_ENOMEM;
    for (int64_t i = 0; i < p->n_indices; i++)
        at.to[i] = plk_take_place(p, bufs[1], i);
    mark(&at, (size_t)(p->inner * p->size));
    for (int64_t o = 0; o < p->outer; o++)
        scatter(&at, (const char *)bufs[0] + o * p->n_indices * p->inner * p->size,
                (char *)bufs[2] + o * p->n * p->inner * p->size, PLK_ADD, p->size == 4 ? PLK_F32 : PLK_F64, p->size);
    return PL_OK;
}

#define FIND_AXIS(T) { \
    const T *index = (const T *)indices + d * p->n_places; \
    for (int64_t i = 0; i < p->n_places; i++) { \
        int64_t k = (int64_t)index[i], before = d ? to[i] * n : 0; \
        low = k < low ? k : low; \
        high = k > high ? k : high; \
        to[i] = before + (k < 0 ? k + n : k); \
    } \
    break; }

/* The rows of indices (depth, n_places); a negative index counts from the end. */
static int find(const plk_points *p, const void *indices, places *at, const char *name)
{
    int64_t *restrict to = at->to;
    for (int64_t i = 0; i < p->n_places && !p->depth; i++)
        to[i] = 0;
    for (int64_t d = 0; d < p->depth; d++) {
        int64_t n = p->shape[d], low = INT64_MAX, high = INT64_MIN;
        switch (p->index_dtype) {
        case PLK_F32: FIND_AXIS(float)
        case PLK_F64: FIND_AXIS(double)
        case PLK_I32: FIND_AXIS(int32_t)
        case PLK_I64: FIND_AXIS(int64_t)
        case PLK_I8: FIND_AXIS(int8_t)
        default: FIND_AXIS(uint8_t)
        }
        if (p->n_places && (low < -n || high >= n)) {
            char message[200];
            snprintf(message, sizeof message, "%s: indices must be in [%lld, %lld), got a range of %lld to %lld", name,
                     (long long)-n, (long long)n, (long long)low, (long long)high);
            return pl_fail(PL_EINDEX, message);
        }
    }
    return PL_OK;
}

typedef struct { const places *at; const char *table; char *rows; size_t row_bytes; } gathered;

static void gather_part(void *arg, int64_t begin, int64_t end)
{
    const gathered *g = arg;
    for (int64_t i = begin; i < end; i++) {
        const char *from = g->table + (size_t)g->at->to[i] * g->row_bytes;
        char *to = g->rows + (size_t)i * g->row_bytes;
        if (g->row_bytes == 4)                     /* a copy of known size is one instruction */
            memcpy(to, from, 4);
        else
            plk_copy_bytes(to, from, g->row_bytes);
    }
}

/* bufs: table, indices, rows */
PLK_KERNEL(plk_gather_nd_run)
{
    const plk_points *p = params;
    places at;
    size_t row_bytes = (size_t)(p->inner * p->size);
    (void)scalars;
    if (places_begin(&at, p->n_places, p->n_rows, p->inner, 0) != PL_OK)
        return PL_ENOMEM;
    if (find(p, bufs[1], &at, "gather_nd") != PL_OK)
        return PL_EINDEX;
    gathered g = {&at, bufs[0], bufs[2], row_bytes};
    plk_run_parts(p->n_places * (int64_t)row_bytes / 8, p->n_places, 1, gather_part, &g);
    return PL_OK;
}

/* bufs: rows, indices, table; PLK_SET_IN: given table, rows, indices, table */
PLK_KERNEL(plk_scatter_nd_run)
{
    const plk_points *p = params;
    int in = p->what == PLK_SET_IN;
    char *table = bufs[2 + in];
    places at;
    (void)scalars;
    if (places_begin(&at, p->n_places, p->n_rows, p->inner, 1) != PL_OK)
        return PL_ENOMEM;
    if (find(p, bufs[1 + in], &at, in ? "_scatter_set_nd" : p->what == PLK_ADD ? "_backward_gather_nd" : "scatter_nd"))
        return PL_EINDEX;
    if (in && table != bufs[0])
        plk_copy_bytes(table, bufs[0], (size_t)(p->n_rows * p->inner * p->size));
    if (!in)
        mark(&at, (size_t)(p->inner * p->size));
    scatter(&at, bufs[in], table, p->what, p->dtype, p->size);
    return PL_OK;
}
