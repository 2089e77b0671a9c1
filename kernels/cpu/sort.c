/* Sorts lines by keys: unsigned integers in the order of the elements, with NaN last in ascending and descending order.
 * Equal elements keep their order. A small k is selected in one pass; a short line is merged from sorted runs, a longer
 * one sorted digit by digit: its elements alone (-0 before 0), or each with its place. */
#include "sort.h"
#include "cast.h"
#include "dtype.h"
#include "engine/core/scratch.h"
#include "parts.h"

#include <math.h>
#include <stdlib.h>

enum { RUN = 16, FEW = 64, BLOCK = 16, SHORT = 128, LONG = 16384, MOST_DIGITS = 8, VALUES = 2048 };
typedef struct { uint64_t key; int64_t at; } item;

static uint64_t key_of(const void *x, int dtype, int64_t i, int ascend)
{
    uint64_t key;
    switch (dtype) {
    case PLK_F32:
    case PLK_F64: {
        double v = dtype == PLK_F32 ? (double)((const float *)x)[i] : ((const double *)x)[i];
        if (v != v)
            return UINT64_MAX;
        v = v == 0 ? 0 : v;                                 /* one zero */
        memcpy(&key, &v, 8);
        key = key >> 63 ? ~key : key | (uint64_t)1 << 63;
        return ascend ? key : ~key;
    }
    case PLK_I32: key = (uint64_t)(int64_t)((const int32_t *)x)[i]; break;
    case PLK_I64: key = (uint64_t)((const int64_t *)x)[i]; break;
    case PLK_I8: key = (uint64_t)(int64_t)((const int8_t *)x)[i]; break;
    default: key = ((const uint8_t *)x)[i];
    }
    key ^= (uint64_t)1 << 63;
    return ascend ? key : ~key;
}

/* Sorts items by insertion; n is small. */
static void insert(item *a, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        item it = a[i];
        int64_t j = i;
        for (; j > 0 && a[j - 1].key > it.key; j--)
            a[j] = a[j - 1];
        a[j] = it;
    }
}

/* Sorts items; returns the sorted array, which is a or scratch. */
static item *merge_sort(item *a, item *scratch, int64_t n)
{
    for (int64_t i = 0; i < n; i += RUN)
        insert(a + i, n - i < RUN ? n - i : RUN);
    for (int64_t run = RUN; run < n; run *= 2) {
        for (int64_t i = 0; i < n; i += 2 * run) {
            int64_t left = i, middle = i + run < n ? i + run : n, right = middle,
                    end = i + 2 * run < n ? i + 2 * run : n;
            for (int64_t to = i; to < end; to++)
                scratch[to] = left < middle && (right == end || a[left].key <= a[right].key) ? a[left++] : a[right++];
        }
        item *other = a;
        a = scratch;
        scratch = other;
    }
    return a;
}

/* Sorts by the bits of key(e) from the lowest digit on; returns the sorted array, a or scratch. Digits that are
 * equal in all elements cost nothing but their counting. */
#define RADIX(E, name, KEY, KEY_BITS) \
    static E *radix_##name(E *a, E *scratch, int64_t n) \
    { \
        int64_t counts[MOST_DIGITS][VALUES]; \
        int bits = n < LONG ? 8 : 11, digits = (KEY_BITS + bits - 1) / bits, mask = (1 << bits) - 1; \
        for (int d = 0; d < digits; d++) \
            memset(counts[d], 0, sizeof *counts[d] << bits); \
        for (int64_t i = 0; i < n; i++) \
            for (int d = 0; d < digits; d++) \
                counts[d][(KEY(a[i]) >> (d * bits)) & (unsigned)mask]++; \
        for (int d = 0; d < digits; d++) { \
            int64_t *at = counts[d], sum = 0; \
            int shift = d * bits; \
            if (at[(KEY(a[0]) >> shift) & (unsigned)mask] == n) \
                continue; \
            for (int v = 0; v <= mask; v++) { \
                int64_t some = at[v]; \
                at[v] = sum; \
                sum += some; \
            } \
            for (int64_t i = 0; i < n; i++) \
                scratch[at[(KEY(a[i]) >> shift) & (unsigned)mask]++] = a[i]; \
            E *other = a; \
            a = scratch; \
            scratch = other; \
        } \
        return a; \
    }
#define ITSELF(e) (e)
#define HIGH_HALF(e) ((e) >> 32)
#define KEY_OF(e) ((e).key)
RADIX(uint32_t, u32, ITSELF, 32)
RADIX(uint64_t, u64, ITSELF, 64)
RADIX(uint64_t, placed, HIGH_HALF, 32)
RADIX(item, items, KEY_OF, 64)

/* Elements as keys and back; of floats NaN is the last key in both orders. */
#define KEYS_OF_FLOATS(T, K, s) \
    static K key_##s(T v, K turn) \
    { \
        const K top = (K)1 << (8 * sizeof(K) - 1); \
        K key; \
        memcpy(&key, &v, sizeof key); \
        return v != v ? ~(K)0 : (key & top ? ~key : key | top) ^ turn; \
    } \
    static T value_##s(K key, K turn) \
    { \
        const K top = (K)1 << (8 * sizeof(K) - 1); \
        T v; \
        if (key == ~(K)0) \
            return (T)NAN; \
        key ^= turn; \
        key = key & top ? key ^ top : ~key; \
        memcpy(&v, &key, sizeof v); \
        return v; \
    }
#define KEYS_OF_WHOLE(T, K, s, LOWEST) \
    static K key_##s(T v, K turn) { return ((K)v - (K)LOWEST) ^ turn; } \
    static T value_##s(K key, K turn) { return (T)((key ^ turn) + (K)LOWEST); }
#define SORT_VALUES(T, K, s, radix) \
    static void sort_values_##s(const plk_sort *p, const void *from, void *to, void *scratch) \
    { \
        const T *x = from; \
        T *y = to; \
        K *keys = scratch, turn = p->ascend ? 0 : ~(K)0; \
        for (int64_t i = 0; i < p->n; i++) \
            keys[i] = key_##s(x[i * p->inner], turn); \
        keys = radix_##radix(keys, keys + p->n, p->n); \
        for (int64_t i = 0; i < p->k; i++) \
            y[i * p->inner] = value_##s(keys[i], turn); \
    }
KEYS_OF_FLOATS(float, uint32_t, f32) SORT_VALUES(float, uint32_t, f32, u32)
KEYS_OF_FLOATS(double, uint64_t, f64) SORT_VALUES(double, uint64_t, f64, u64)
KEYS_OF_WHOLE(int32_t, uint32_t, i32, INT32_MIN) SORT_VALUES(int32_t, uint32_t, i32, u32)
KEYS_OF_WHOLE(int64_t, uint64_t, i64, INT64_MIN) SORT_VALUES(int64_t, uint64_t, i64, u64)
KEYS_OF_WHOLE(int8_t, uint32_t, i8, INT8_MIN) SORT_VALUES(int8_t, uint32_t, i8, u32)
KEYS_OF_WHOLE(uint8_t, uint32_t, u8, 0) SORT_VALUES(uint8_t, uint32_t, u8, u32)

static void sort_values(const plk_sort *p, const void *x, void *y, void *scratch)
{
    switch (p->dtype) {
    case PLK_F32: sort_values_f32(p, x, y, scratch); break;
    case PLK_F64: sort_values_f64(p, x, y, scratch); break;
    case PLK_I32: sort_values_i32(p, x, y, scratch); break;
    case PLK_I64: sort_values_i64(p, x, y, scratch); break;
    case PLK_I8: sort_values_i8(p, x, y, scratch); break;
    default: sort_values_u8(p, x, y, scratch);
    }
}

/* Sorts a long line of 4-byte elements with their places: both in 8 bytes. */
static item *sort_placed(const plk_sort *p, const char *x, int64_t first, item *items)
{
    uint64_t *both = (uint64_t *)(void *)(items + p->n), turn = p->ascend ? 0 : UINT32_MAX;
    for (int64_t i = 0; i < p->n; i++) {
        int64_t at = first + i * p->inner;
        uint32_t key;
        if (p->dtype == PLK_F32) {
            float v = ((const float *)(const void *)x)[at];
            key = key_f32(v == 0 ? 0 : v, (uint32_t)turn);
        } else {
            key = key_i32(((const int32_t *)(const void *)x)[at], (uint32_t)turn);
        }
        both[i] = (uint64_t)key << 32 | (uint64_t)i;
    }
    both = radix_placed(both, both + p->n, p->n);
    for (int64_t i = 0; i < p->k; i++)
        items[i].at = (int64_t)(both[i] & UINT32_MAX);
    return items;
}

/* Does any of BLOCK adjacent floats sort before `worst`? NaN never does; everything sorts before NaN. */
static int any_before(const float *x, float worst, int ascend)
{
    int any = worst != worst;
    if (ascend)
        for (int i = 0; i < BLOCK; i++)
            any |= x[i] < worst;
    else
        for (int i = 0; i < BLOCK; i++)
            any |= x[i] > worst;
    return any;
}

/* The first k of n items, sorted, at the front of `best`. */
static void select_few(const plk_sort *p, const void *x, int64_t first, item *best)
{
    int64_t held = 0, seen = 0, blocks = p->dtype == PLK_F32 && p->inner == 1;
    for (int64_t i = 0; i < p->n; i++) {
        const float *line = (const float *)x + first;
        while (blocks && held == p->k && i >= seen && i + BLOCK <= p->n) {
            if (any_before(line + i, line[best[held - 1].at], p->ascend))
                seen = i + BLOCK;
            else
                i += BLOCK;
        }
        if (i == p->n)
            break;
        if (blocks && held == p->k) {
            float v = line[i], worst = line[best[held - 1].at];
            if (worst == worst && !(p->ascend ? v < worst : v > worst))
                continue;
        }
        item it = {key_of(x, p->dtype, first + i * p->inner, p->ascend), i};
        if (held == p->k && it.key >= best[held - 1].key)
            continue;
        int64_t j = held < p->k ? held++ : held - 1;
        for (; j > 0 && best[j - 1].key > it.key; j--)
            best[j] = best[j - 1];
        best[j] = it;
    }
}

static void store_index(void *y, int dtype, int64_t i, int64_t value)
{
    switch (dtype) {
    case PLK_F32: ((float *)y)[i] = (float)value; break;
    case PLK_F64: ((double *)y)[i] = (double)value; break;
    case PLK_I32: ((int32_t *)y)[i] = (int32_t)value; break;
    case PLK_I64: ((int64_t *)y)[i] = value; break;
    default: ((uint8_t *)y)[i] = (uint8_t)value;
    }
}

typedef struct { const plk_sort *p; void *const *bufs; int failed; } job;

static void sort_lines(void *arg, int64_t begin, int64_t end)
{
    job *j = arg;
    const plk_sort *p = j->p;
    void *const *bufs = j->bufs;
    const char *x = bufs[0];
    char *values = p->give & (PLK_SORT_VALUES | PLK_SORT_MASK) ? bufs[1] : NULL;
    void *indices = p->give & PLK_SORT_INDICES ? bufs[p->give & PLK_SORT_VALUES ? 2 : 1] : NULL;
    int few = p->k <= FEW && p->k * 4 < p->n;
    size_t size = plk_dtype_bytes(p->dtype);
    item *scratch = pl_scratch(sizeof(item) * (size_t)(2 * p->n + FEW));
    if (!scratch) {
        __atomic_store_n(&j->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    int values_alone = p->give == PLK_SORT_VALUES && !few && p->n > SHORT / 2;
    int placed = (p->dtype == PLK_F32 || p->dtype == PLK_I32) && p->n > SHORT && p->n < UINT32_MAX;
    for (int64_t line = begin; line < end; line++) {
        int64_t o = line / p->inner, c = line % p->inner, first = o * p->n * p->inner + c;
        item *items = scratch;
        if (values_alone) {
            sort_values(p, x + (size_t)first * size, values + (size_t)(o * p->k * p->inner + c) * size, scratch);
            continue;
        }
        if (few) {
            select_few(p, x, first, items);
        } else if (placed) {
            items = sort_placed(p, x, first, items);
        } else {
            for (int64_t i = 0; i < p->n; i++)
                items[i] = (item){key_of(x, p->dtype, first + i * p->inner, p->ascend), i};
            items = (p->n > SHORT ? radix_items : merge_sort)(items, items + p->n, p->n);
        }
        for (int64_t i = 0; i < p->k; i++) {
            int64_t to = (o * p->k + i) * p->inner + c, from = first + items[i].at * p->inner;
            if (p->give & PLK_SORT_MASK) {
                plk_cast one = {1, PLK_F64, p->dtype};
                double on = 1;
                void *ends[2] = {&on, values + (size_t)from * size};
                plk_cast_run(&one, ends, NULL);
            } else if (values) {
                memcpy(values + (size_t)to * size, x + (size_t)from * size, size);
            }
            if (indices)
                store_index(indices, p->index_dtype, to, items[i].at);
        }
    }
}

/* bufs: x, values if given, indices if given | x, mask */
PLK_KERNEL(plk_sort_run)
{
    const plk_sort *p = params;
    job j = {p, bufs, 0};
    (void)scalars;
    if (p->give & PLK_SORT_MASK)
        memset(bufs[1], 0, (size_t)(p->outer * p->n * p->inner) * plk_dtype_bytes(p->dtype));
    plk_run_parts(p->outer * p->inner * p->n * 8, p->outer * p->inner, 1, sort_lines, &j);
    return j.failed ? pl_fail(PL_ENOMEM, "out of memory for sorting") : PL_OK;
}
