/* Places in sorted vectors, counts of values. A search compares without branches, and GROUP of them take turns: each
 * waits for memory, not for the other ones. */
#pragma GCC optimize("fp-contract=off")            /* edges are NumPy's, which round products */
#include "search.h"
#include "cast.h"
#include "dtype.h"
#include "parts.h"
#include "simd.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { GROUP = 16, BLOCK = 256 };

/* NaN is above all numbers */
#define FLOAT_BELOW(a, b) (((a) < (b)) | (((b) != (b)) & ((a) == (a))))
#define WHOLE_BELOW(a, b) ((a) < (b))
/* Where GROUP values belong: right 0: in front of equal elements, 1: behind them */
#define SEARCH(name, T, BELOW) \
    PLK_INLINE void search_##name(const T *a, int64_t n, const T *v, int64_t m, const int right, int64_t *y) \
    { \
        for (int64_t at = 0; at < m; at += GROUP) { \
            T key[GROUP]; \
            int64_t low[GROUP] = {0}, some = m - at < GROUP ? m - at : GROUP; \
            for (int64_t j = 0; j < GROUP; j++) \
                key[j] = v[j < some ? at + j : at]; \
            for (int64_t length = n; length > 1; length -= length / 2) { \
                const T *middle = a + length / 2 - 1; \
                PLK_LANES for (int64_t j = 0; j < GROUP; j++) { \
                    T x = middle[low[j]]; \
                    low[j] += -(int64_t)(right ? !BELOW(key[j], x) : BELOW(x, key[j])) & (length / 2); \
                } \
            } \
            for (int64_t j = 0; j < some; j++) { \
                T x = n ? a[low[j]] : key[j]; \
                y[at + j] = low[j] + (n && (right ? !BELOW(key[j], x) : BELOW(x, key[j]))); \
            } \
        } \
    } \
    static void left_##name(const void *a, int64_t n, const void *v, int64_t m, int64_t *y) \
    { \
        search_##name(a, n, v, m, 0, y); \
    } \
    static void right_##name(const void *a, int64_t n, const void *v, int64_t m, int64_t *y) \
    { \
        search_##name(a, n, v, m, 1, y); \
    }
SEARCH(f32, float, FLOAT_BELOW)
SEARCH(f64, double, FLOAT_BELOW)
SEARCH(i32, int32_t, WHOLE_BELOW)
SEARCH(i64, int64_t, WHOLE_BELOW)
SEARCH(i8, int8_t, WHOLE_BELOW)
SEARCH(u8, uint8_t, WHOLE_BELOW)

typedef void (*search_fn)(const void *a, int64_t n, const void *v, int64_t m, int64_t *y);

static search_fn search_of(int dtype, int right)
{
    switch (dtype) {
    case PLK_F32: return right ? right_f32 : left_f32;
    case PLK_F64: return right ? right_f64 : left_f64;
    case PLK_I32: return right ? right_i32 : left_i32;
    case PLK_I64: return right ? right_i64 : left_i64;
    case PLK_I8: return right ? right_i8 : left_i8;
    default: return right ? right_u8 : left_u8;
    }
}

static void search_part(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_search *p = call->params;
    const char *values = (const char *)call->bufs[1] + (size_t)begin * plk_dtype_bytes(p->dtype);
    search_of(p->dtype, p->right)(call->bufs[0], p->n, values, end - begin, (int64_t *)call->bufs[2] + begin);
}

/* bufs: sorted a, values, places */
PLK_KERNEL(plk_search_run)
{
    const plk_search *p = params;
    int64_t steps = 1;
    for (int64_t n = p->n; n > 1; n /= 2)
        steps++;
    plk_run_parts(p->n_values * steps, p->n_values, GROUP, search_part, &(plk_call){params, bufs, scalars});
    return PL_OK;
}

static void to_double(int dtype, const void *x, int64_t n, double *y)
{
    plk_cast cast = {n, dtype, PLK_F64};
    void *ends[2] = {(void *)(uintptr_t)x, y};
    plk_cast_run(&cast, ends, NULL);
}

/* The edges as doubles, of the values that they have in the result. */
static void make_edges(const plk_histogram *p, const void *given, double *edges)
{
    double step = (p->last - p->first) / (double)p->n_bins;
    if (p->given) {
        to_double(p->edge_dtype, given, p->n_bins + 1, edges);
        return;
    }
    for (int64_t i = 0; i < p->n_bins; i++)
        edges[i] = (double)i * step + p->first;
    edges[p->n_bins] = p->last;
    if (p->dtype == PLK_F32)
        for (int64_t i = 0; i <= p->n_bins; i++)
            edges[i] = (double)(float)edges[i];
}

/* -1: edges decrease; 1: they are so even that a division finds a bin or one beside it; 0: neither */
static int kind_of(const double *edges, int64_t n)
{
    double step = (edges[n] - edges[0]) / (double)n;
    int even = step > 0 && step < INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (!(edges[i] <= edges[i + 1]))
            return -1;
        even &= fabs(edges[i] - edges[0] - (double)i * step) < step / 4;
    }
    return even;
}

static void find_bins(const double *edges, int64_t n_bins, int even, const double *x, int64_t n, int64_t *bins)
{
    double first = edges[0], scale = (double)n_bins / (edges[n_bins] - first), most = (double)(n_bins - 1);
    if (!even) {
        right_f64(edges, n_bins + 1, x, n, bins);
        for (int64_t i = 0; i < n; i++)
            bins[i] = bins[i] - 1 < n_bins ? bins[i] - 1 : n_bins - 1;
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        double t = (x[i] - first) * scale;
        t = t > 0 ? t : 0;
        bins[i] = (int64_t)(t < most ? t : most);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t k = bins[i] - (x[i] < edges[bins[i]]);
        k = k < 0 ? 0 : k;
        bins[i] = k + (k < n_bins - 1 && x[i] >= edges[k + 1]);
    }
}

/* bufs: data, edges if they are given, counts, edges */
PLK_KERNEL(plk_histogram_run)
{
    const plk_histogram *p = params;
    int64_t *counts = bufs[1 + p->given], bins[BLOCK];
    double x[BLOCK], *edges = malloc(sizeof(double) * (size_t)(p->n_bins + 1));
    (void)scalars;
    if (!edges)
        return pl_fail(PL_ENOMEM, "out of memory for the edges of a histogram");
    make_edges(p, bufs[1], edges);
    plk_cast back = {p->n_bins + 1, PLK_F64, p->edge_dtype};
    void *ends[2] = {edges, bufs[2 + p->given]};
    if (p->given)
        memmove(bufs[2 + p->given], bufs[1], (size_t)(p->n_bins + 1) * plk_dtype_bytes(p->edge_dtype));
    else
        plk_cast_run(&back, ends, NULL);
    int kind = kind_of(edges, p->n_bins);
    if (kind < 0) {
        free(edges);
        return pl_fail(PL_EINVAL, "_histogram: bins must not decrease");
    }
    memset(counts, 0, sizeof(int64_t) * (size_t)p->n_bins);
    for (int64_t at = 0, n; at < p->n; at += n) {
        n = p->n - at < BLOCK ? p->n - at : BLOCK;
        to_double(p->dtype, (const char *)bufs[0] + (size_t)at * plk_dtype_bytes(p->dtype), n, x);
        find_bins(edges, p->n_bins, kind, x, n, bins);
        for (int64_t i = 0; i < n; i++)
            if (x[i] >= edges[0] && x[i] <= edges[p->n_bins])
                counts[bins[i]]++;
    }
    free(edges);
    return PL_OK;
}

#define NUMBERS(RUN) \
    switch (p->dtype) { \
    case PLK_I8: RUN(int8_t) \
    case PLK_U8: RUN(uint8_t) \
    case PLK_I32: RUN(int32_t) \
    default: RUN(int64_t) \
    }

/* bufs: whole numbers, the least and the largest of them (int64) */
PLK_KERNEL(plk_extremes_run)
{
    const plk_numbers *p = params;
    int64_t *ends = bufs[1];
    (void)scalars;
#define EXTREMES(T) { \
        const T *x = bufs[0]; \
        T low = x[0], high = x[0]; \
        for (int64_t i = 1; i < p->n; i++) { \
            low = x[i] < low ? x[i] : low; \
            high = x[i] > high ? x[i] : high; \
        } \
        ends[0] = low, ends[1] = high; \
        break; }
    NUMBERS(EXTREMES)
    return PL_OK;
}

/* bufs: whole numbers, how often each of [0, size) occurs (int64). Where there are few sizes, neighbours are counted in
 * tables of their own: equal ones would wait for each other. */
PLK_KERNEL(plk_counts_run)
{
    enum { TABLES = 4, MOST = 1024 };
    const plk_counts *p = params;
    int64_t *counts = bufs[1], own[(TABLES - 1) * MOST], *table[TABLES] = {counts, counts, counts, counts}, i = 0;
    int64_t size = p->size, wrong = -1;
    (void)scalars;
    memset(counts, 0, sizeof *counts * (size_t)size);
    if (size <= MOST)
        for (int t = 1; t < TABLES; t++)
            table[t] = memset(own + (t - 1) * size, 0, sizeof *counts * (size_t)size);
#define COUNT(T) { \
        const T *x = bufs[0]; \
        for (; i + TABLES <= p->n; i += TABLES) { \
            const uint64_t a = (uint64_t)(int64_t)x[i], b = (uint64_t)(int64_t)x[i + 1]; \
            const uint64_t c = (uint64_t)(int64_t)x[i + 2], d = (uint64_t)(int64_t)x[i + 3]; \
            if ((a >= (uint64_t)size) | (b >= (uint64_t)size) | (c >= (uint64_t)size) | (d >= (uint64_t)size)) \
                break; \
            table[0][a]++, table[1][b]++, table[2][c]++, table[3][d]++; \
        } \
        for (; i < p->n; i++) { \
            if ((uint64_t)(int64_t)x[i] >= (uint64_t)size) { \
                wrong = x[i]; \
                break; \
            } \
            table[i % TABLES][x[i]]++; \
        } \
        break; }
    NUMBERS(COUNT)
    if (i < p->n) {
        char message[120];
        snprintf(message, sizeof message, "_counts: numbers must be in [0, %lld), got %lld", (long long)size,
                 (long long)wrong);
        return pl_fail(PL_EINDEX, message);
    }
    if (size <= MOST)
        for (int t = 1; t < TABLES; t++)
            for (int64_t k = 0; k < size; k++)
                counts[k] += table[t][k];
    return PL_OK;
}

#define STARTS(T) { \
    const T *x = bufs[0]; \
    for (int64_t i = 1; i < p->n; i++) \
        y[i] = (x[i] != x[i - 1]) & ((x[i] == x[i]) | (x[i - 1] == x[i - 1])); \
    break; }

/* bufs: a sorted vector, 1 where an element is not the one before; all NaN are equal */
PLK_KERNEL(plk_sorted_starts)
{
    const plk_sorted *p = params;
    uint8_t *restrict y = bufs[1];
    (void)scalars;
    if (p->n)
        y[0] = 1;
    switch (p->dtype) {
    case PLK_F32: STARTS(float)
    case PLK_F64: STARTS(double)
    default:
        switch (plk_dtype_bytes(p->dtype)) {
        case 1: STARTS(uint8_t)
        case 4: STARTS(uint32_t)
        default: STARTS(uint64_t)
        }
    }
    return PL_OK;
}
