/* Sorts many short lines at once: each lane of a vector has a line, and a network of comparisons (sort_network.h) sorts
 * them. With places a key has 64 bits: the element's 32, then its place, so equal elements keep their order. */
#include "sort.h"
#include "dtype.h"
#include "engine/core/scratch.h"
#include "parts.h"
#include "simd.h"
#include "sort_network.h"

/* Elements of `some` lines -> (n, LANES); lanes without a line have any value. Lines are beside each other, or one
 * after the other. */
static void load(const plk_sort *p, const void *data, int64_t some, int32_t *to)
{
    int64_t step = p->inner > 1 ? p->inner : 1, apart = p->inner > 1 ? 1 : p->n;
    if (p->dtype == PLK_I8 || p->dtype == PLK_U8 || p->dtype == PLK_BOOL) {
        for (int64_t l = 0; l < some; l++)
            for (int64_t i = 0; i < p->n; i++) {
                int64_t at = l * apart + i * step;
                to[i * LANES + l] = p->dtype == PLK_I8 ? ((const int8_t *)data)[at] : ((const uint8_t *)data)[at];
            }
    } else if (p->inner == 1) {
        to_lanes(data, p->n, some, p->n, (float *)to, LANES);
    } else {
        for (int64_t i = 0; i < p->n; i++)
            memcpy(to + i * LANES, (const int32_t *)data + i * step, sizeof *to * (size_t)some);
    }
}

/* The inverse, of the first k. */
static void store(const plk_sort *p, const int32_t *from, int64_t some, int32_t *y)
{
    int64_t i = 0;
    if (p->inner > 1) {
        for (; i < p->k; i++)
            memcpy(y + i * p->inner, from + i * LANES, sizeof *y * (size_t)some);
        return;
    }
    for (; some == LANES && i + LANES <= p->k; i += LANES) {
        vec v[LANES];
        _Pragma("GCC unroll 16") for (int l = 0; l < LANES; l++)
            v[l] = vec_load((const float *)from + (i + l) * LANES);
        vec_transpose(v);
        _Pragma("GCC unroll 16") for (int l = 0; l < LANES; l++)
            vec_store((float *)y + l * p->k + i, v[l]);
    }
    for (; i < p->k; i++)
        for (int64_t l = 0; l < some; l++)
            y[l * p->k + i] = from[i * LANES + l];
}

/* Sorted elements: up to LANES lines of 4 bytes, half as many of 8. to, from: of the first line. */
#define VALUES32(s) \
    static void values_##s(const plk_sort *p, const void *from, int64_t some, void *to, int32_t *keys, int64_t n) \
    { \
        const int32_t turn = p->ascend ? 0 : -1; \
        load(p, from, some, keys); \
        for (int64_t i = 0; i < p->n * LANES; i++) keys[i] = key_##s(keys[i], turn); \
        for (int64_t i = p->n * LANES; i < n * LANES; i++) keys[i] = INT32_MAX; \
        sort_32((keys32 *)keys, n); \
        for (int64_t i = 0; i < p->k * LANES; i++) keys[i] = bits_##s(keys[i], turn); \
        store(p, keys, some, to); \
    }
#define VALUES64(s) \
    static void values_##s(const plk_sort *p, const void *from, int64_t some, void *to, int64_t *keys, int64_t n) \
    { \
        const int64_t turn = p->ascend ? 0 : -1, *x = from; \
        int64_t *y = to, step = p->inner, apart = p->inner > 1 ? 1 : p->n, apart_to = p->inner > 1 ? 1 : p->k; \
        for (int64_t i = 0; i < p->n; i++) \
            for (int64_t l = 0; l < some; l++) keys[i * LANES64 + l] = x[l * apart + i * step]; \
        for (int64_t i = 0; i < p->n * LANES64; i++) keys[i] = key_##s(keys[i], turn); \
        for (int64_t i = p->n * LANES64; i < n * LANES64; i++) keys[i] = INT64_MAX; \
        sort_64((keys64 *)keys, n); \
        for (int64_t i = 0; i < p->k * LANES64; i++) keys[i] = bits_##s(keys[i], turn); \
        for (int64_t i = 0; i < p->k; i++) \
            for (int64_t l = 0; l < some; l++) y[l * apart_to + i * step] = keys[i * LANES64 + l]; \
    }
VALUES32(f32) VALUES32(i32) VALUES64(f64) VALUES64(i64)

#define STORE_PLACES(T) \
    for (int64_t i = 0; i < p->k; i++) \
        for (int64_t l = 0; l < some; l++) \
            ((T *)indices)[to + l * apart_to + i * p->inner] = (T)places[i * LANES + l]; \
    break;
#define STORE_VALUES(T) \
    for (int64_t i = 0; i < p->k; i++) \
        for (int64_t l = 0; l < some; l++) \
            ((T *)values)[to + l * apart_to + i * p->inner] = \
                ((const T *)x)[from + l * apart + places[i * LANES + l] * p->inner]; \
    break;

/* Up to LANES lines of at most 4 bytes with their places. from, to: of the first line. */
static void with_places(const plk_sort *p, const void *x, int64_t from, int64_t some, void *values, void *indices,
                        int64_t to, int32_t *keys, int64_t n)
{
    int64_t apart = p->inner > 1 ? 1 : p->n, apart_to = p->inner > 1 ? 1 : p->k;
    int64_t *both = (int64_t *)(void *)(keys + n * LANES);
    int32_t turn = p->ascend ? 0 : -1, *places = keys;
    size_t size = plk_dtype_bytes(p->dtype);
    load(p, (const char *)x + (size_t)from * size, some, keys);
    if (p->dtype == PLK_F32)
        for (int64_t i = 0; i < p->n * LANES; i++)
            keys[i] = key_f32(keys[i] == INT32_MIN ? 0 : keys[i], turn);        /* one zero */
    else
        for (int64_t i = 0; i < p->n * LANES; i++)
            keys[i] = keys[i] ^ turn;
    for (int half = 0; half < 2 && half * LANES64 < some; half++) {
        for (int64_t i = 0; i < p->n; i++)
            for (int l = 0; l < LANES64; l++)
                both[i * LANES64 + l] = (int64_t)keys[i * LANES + half * LANES64 + l] * ((int64_t)1 << 32) + i;
        for (int64_t i = p->n * LANES64; i < n * LANES64; i++)
            both[i] = INT64_MAX;
        sort_64((keys64 *)both, n);
        for (int64_t i = 0; i < p->k; i++)
            for (int l = 0; l < LANES64; l++)
                places[i * LANES + half * LANES64 + l] = (int32_t)both[i * LANES64 + l];
    }
    if (values)
        switch (size) {
        case 1: STORE_VALUES(uint8_t)
        case 4: STORE_VALUES(uint32_t)
        }
    switch (p->index_dtype) {
    case PLK_F32: STORE_PLACES(float)
    case PLK_F64: STORE_PLACES(double)
    case PLK_I32: STORE_PLACES(int32_t)
    case PLK_I64: STORE_PLACES(int64_t)
    default: STORE_PLACES(uint8_t)
    }
}

typedef struct { const plk_sort *p; void *const *bufs; int failed; } job;

/* Groups of lines: of p->inner beside each other, or of all that lie one after the other. */
static int64_t groups(const plk_sort *p, int64_t *beside)
{
    *beside = p->inner > 1 ? p->inner : p->outer;
    return (*beside + LANES - 1) / LANES * (p->inner > 1 ? p->outer : 1);
}

static void sort_groups(void *arg, int64_t begin, int64_t end)
{
    job *j = arg;
    const plk_sort *p = j->p;
    int64_t n = (p->n + UNIT - 1) / UNIT * UNIT, beside;
    size_t size = plk_dtype_bytes(p->dtype);
    groups(p, &beside);
    int32_t *keys = pl_scratch(sizeof(int32_t) * LANES * 2 * (size_t)n);
    if (!keys) {
        __atomic_store_n(&j->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t g = begin; g < end; g++) {
        int64_t per = (beside + LANES - 1) / LANES, o = g / per, first = g % per * LANES;
        int64_t some = beside - first < LANES ? beside - first : LANES, half = some < LANES64 ? some : LANES64;
        int64_t from = o * p->n * p->inner + first * (p->inner > 1 ? 1 : p->n);
        int64_t to = o * p->k * p->inner + first * (p->inner > 1 ? 1 : p->k);
        const char *x = (const char *)j->bufs[0] + (size_t)from * size;
        char *y = (char *)j->bufs[1] + (size_t)to * size;
        size_t next = (size_t)(half * (p->inner > 1 ? 1 : p->n)) * size;
        size_t next_to = (size_t)(half * (p->inner > 1 ? 1 : p->k)) * size;
        if (p->give & PLK_SORT_INDICES) {
            int both = p->give & PLK_SORT_VALUES;
            with_places(p, j->bufs[0], from, some, both ? j->bufs[1] : NULL, j->bufs[both ? 2 : 1], to, keys, n);
        } else if (p->dtype == PLK_F32) {
            values_f32(p, x, some, y, keys, n);
        } else if (p->dtype == PLK_I32) {
            values_i32(p, x, some, y, keys, n);
        } else {
            void (*values)(const plk_sort *, const void *, int64_t, void *, int64_t *, int64_t) =
                p->dtype == PLK_F64 ? values_f64 : values_i64;
            values(p, x, half, y, (int64_t *)(void *)keys, n);
            if (some > half)
                values(p, x + next, some - half, y + next_to, (int64_t *)(void *)keys, n);
        }
    }
}

/* As plk_sort_run, for many lines; not a mask, and places only of elements of at most 4 bytes. */
PLK_KERNEL(plk_sort_lines)
{
    const plk_sort *p = params;
    job j = {p, bufs, 0};
    int64_t beside, n = groups(p, &beside);
    (void)scalars;
    plk_run_parts(p->outer * p->inner * p->n * 4, n, 1, sort_groups, &j);
    return j.failed ? pl_fail(PL_ENOMEM, "out of memory for sorting") : PL_OK;
}
