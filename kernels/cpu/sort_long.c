/* Sorts long lines of elements of 4 or 8 bytes, or finds those of some ranks alone, by quicksort: a part is divided at
 * a pivot (partition.h); small parts are sorted side by side, one in each lane (sort_network.h). A pivot is the median
 * of some elements. Where nothing is above it, or after many levels, it is the middle of the part's range: so equal
 * keys are found, and no data take longer than their bits. */
#include "sort.h"
#include "dtype.h"
#include "engine/core/scratch.h"
#include "parts.h"
#include "partition.h"
#include "simd.h"
#include "sort_network.h"

/* Keys of a part that is sorted in a lane, a multiple of LANES; of 64 bits there are fewer lanes. */
enum { LEAF32 = 512, LEAF64 = 256 };

/* One line. ranks: ascending; NULL: all of them, of which the first k are wanted. */
#define LINE(K, s, N_LANES, LEAF) \
    typedef struct { const K *x; int64_t n, at; } leaf_##s; \
    typedef struct { \
        const plk_sort *p; \
        K *y, *padded, *beside; \
        int levels, n_leaves; \
        leaf_##s leaves[N_LANES]; \
    } line_##s; \
    static int wanted_##s(const line_##s *line, int64_t at, int64_t n) \
    { \
        const plk_sort *p = line->p; \
        int found = !p->n_ranks && at < p->k; \
        for (int r = 0; r < p->n_ranks; r++) \
            found |= p->ranks[r] >= at && p->ranks[r] < at + n; \
        return found; \
    } \
    /* n sorted keys, the first of rank `at` */ \
    static void give_##s(const line_##s *line, const K *keys, int64_t n, int64_t at) \
    { \
        const plk_sort *p = line->p; \
        const K turn = p->ascend ? 0 : -1; \
        const int is_float = p->dtype == PLK_F32 || p->dtype == PLK_F64; \
        for (int r = 0; r < p->n_ranks; r++) \
            if (p->ranks[r] >= at && p->ranks[r] < at + n) { \
                K key = keys[p->ranks[r] - at]; \
                line->y[r * p->inner] = is_float ? bits_f##s(key, turn) : bits_i##s(key, turn); \
            } \
        if (p->n_ranks || at >= p->k) \
            return; \
        n = n < p->k - at ? n : p->k - at; \
        const int64_t step = p->inner; \
        K *y = line->y + at * step; \
        if (is_float && step == 1) \
            for (int64_t i = 0; i < n; i++) y[i] = bits_f##s(keys[i], turn); \
        else if (is_float) \
            for (int64_t i = 0; i < n; i++) y[i * step] = bits_f##s(keys[i], turn); \
        else if (step == 1) \
            for (int64_t i = 0; i < n; i++) y[i] = bits_i##s(keys[i], turn); \
        else \
            for (int64_t i = 0; i < n; i++) y[i * step] = bits_i##s(keys[i], turn); \
    } \
    /* Sorts the leaves that have been found, side by side. */ \
    static void flush_##s(line_##s *line) \
    { \
        int64_t most = 0; \
        for (int l = 0; l < line->n_leaves; l++) \
            most = line->leaves[l].n > most ? line->leaves[l].n : most; \
        most = (most + LANES - 1) / LANES * LANES; \
        most = (most + UNIT - 1) / UNIT * UNIT; \
        for (int l = 0; l < N_LANES; l++) { \
            int64_t n = l < line->n_leaves ? line->leaves[l].n : 0; \
            K *row = line->padded + l * most; \
            if (n) \
                memcpy(row, line->leaves[l].x, sizeof *row * (size_t)n); \
            for (int64_t i = n; i < most; i++) row[i] = INT##s##_MAX; \
        } \
        to_columns_##s(line->padded, most, line->beside); \
        sort_##s((keys##s *)line->beside, most); \
        to_rows_##s(line->beside, most, line->padded); \
        for (int l = 0; l < line->n_leaves; l++) \
            give_##s(line, line->padded + l * most, line->leaves[l].n, line->leaves[l].at); \
        line->n_leaves = 0; \
    } \
    static void give_equal_##s(const line_##s *line, K key, int64_t n, int64_t at) \
    { \
        K keys[LEAF]; \
        for (int i = 0; i < LEAF; i++) keys[i] = key; \
        for (int64_t i = 0; i < n; i += LEAF) \
            give_##s(line, keys, n - i < LEAF ? n - i : LEAF, at + i); \
    } \
    /* The median of 3 ** depth elements, about. */ \
    static K middle_##s(const K *x, int64_t n, int depth) \
    { \
        if (!depth) \
            return x[n / 2]; \
        int64_t third = n / 3; \
        K a = middle_##s(x, third, depth - 1), b = middle_##s(x + third, third, depth - 1); \
        K c = middle_##s(x + 2 * third, third, depth - 1), low = a < b ? a : b, high = a < b ? b : a; \
        c = c < high ? c : high; \
        return c > low ? c : low; \
    } \
    static void quick_##s(line_##s *line, K *x, int64_t n, int64_t at, int level) \
    { \
        while (wanted_##s(line, at, n)) { \
            if (n <= LEAF) { \
                line->leaves[line->n_leaves++] = (leaf_##s){x, n, at}; \
                if (line->n_leaves == N_LANES) \
                    flush_##s(line); \
                return; \
            } \
            int64_t low = n; \
            if (level < line->levels) \
                low = partition_##s(x, n, middle_##s(x, n, n > 4096 ? 4 : n > 256 ? 3 : 2)); \
            if (low == n) { \
                K least = x[0], most = x[0]; \
                for (int64_t i = 1; i < n; i++) { \
                    least = x[i] < least ? x[i] : least; \
                    most = x[i] > most ? x[i] : most; \
                } \
                if (least == most) { \
                    give_equal_##s(line, least, n, at); \
                    return; \
                } \
                low = partition_##s(x, n, (K)(least + (K)(((uint##s##_t)most - (uint##s##_t)least) / 2))); \
            } \
            quick_##s(line, x, low, at, ++level); \
            x += low; \
            at += low; \
            n -= low; \
        } \
    } \
    static void sort_line_##s(const plk_sort *p, const void *from, void *to, void *scratch) \
    { \
        const K *x = from, turn = p->ascend ? 0 : -1; \
        const int64_t step = p->inner; \
        K *padded = scratch, *keys = padded + 2 * N_LANES * LEAF; \
        line_##s line = {.p = p, .y = to, .padded = padded, .beside = padded + N_LANES * LEAF}; \
        if (step == 1 && !p->n_ranks && p->k == p->n)      /* a leaf is sorted where it is */ \
            keys = to; \
        for (int64_t n = p->n; n; n /= 2) \
            line.levels += 2; \
        const int is_float = p->dtype == PLK_F32 || p->dtype == PLK_F64; \
        if (is_float && step == 1) \
            for (int64_t i = 0; i < p->n; i++) keys[i] = key_f##s(x[i], turn); \
        else if (is_float) \
            for (int64_t i = 0; i < p->n; i++) keys[i] = key_f##s(x[i * step], turn); \
        else \
            for (int64_t i = 0; i < p->n; i++) keys[i] = key_i##s(x[i * step], turn); \
        quick_##s(&line, keys, p->n, 0, 0); \
        if (line.n_leaves) \
            flush_##s(&line); \
    }

/* LANES rows of n keys -> columns; back */
static void to_columns_32(const int32_t *rows, int64_t n, int32_t *columns)
{
    to_lanes((const float *)(const void *)rows, n, LANES, n, (float *)(void *)columns, LANES);
}
static void to_rows_32(const int32_t *columns, int64_t n, int32_t *rows)
{
    for (int64_t i = 0; i < n; i += LANES)
        transpose_lanes_32(rows + i, n, columns + i * LANES, LANES);
}
static void to_columns_64(const int64_t *rows, int64_t n, int64_t *columns)
{
    for (int64_t i = 0; i < n; i += LANES64)
        transpose_lanes_64(columns + i * LANES64, LANES64, rows + i, n);
}
static void to_rows_64(const int64_t *columns, int64_t n, int64_t *rows)
{
    for (int64_t i = 0; i < n; i += LANES64)
        transpose_lanes_64(rows + i, n, columns + i * LANES64, LANES64);
}
LINE(int32_t, 32, LANES, LEAF32)
LINE(int64_t, 64, LANES64, LEAF64)

typedef struct { const plk_sort *p; void *const *bufs; int failed; } job;

static void sort_lines(void *arg, int64_t begin, int64_t end)
{
    job *j = arg;
    const plk_sort *p = j->p;
    size_t size = plk_dtype_bytes(p->dtype);
    char *scratch = pl_scratch(size * (size_t)(p->n + 2 * LANES * LEAF32));
    if (!scratch) {
        __atomic_store_n(&j->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    int64_t n_given = p->n_ranks ? p->n_ranks : p->k;
    for (int64_t line = begin; line < end; line++) {
        int64_t o = line / p->inner, c = line % p->inner;
        const char *x = (const char *)j->bufs[0] + (size_t)(o * p->n * p->inner + c) * size;
        char *y = (char *)j->bufs[1] + (size_t)(o * n_given * p->inner + c) * size;
        (size == 4 ? sort_line_32 : sort_line_64)(p, x, y, scratch);
    }
}

/* bufs: x, the first k elements of each sorted line, or those of the ranks */
PLK_KERNEL(plk_sort_long)
{
    const plk_sort *p = params;
    job j = {p, bufs, 0};
    (void)scalars;
    plk_run_parts(p->outer * p->inner * p->n * 8, p->outer * p->inner, 1, sort_lines, &j);
    return j.failed ? pl_fail(PL_ENOMEM, "out of memory for sorting") : PL_OK;
}
