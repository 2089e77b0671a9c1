/* Sorts lines by keys: unsigned integers in the order of the elements, with NaN last in ascending and descending order.
 * Equal elements keep their order. A small k is selected in one pass, else a line is merged from sorted runs. */
#include "sort.h"
#include "cast.h"
#include "dtype.h"
#include "engine/core/scratch.h"
#include "parts.h"

#include <stdlib.h>

enum { RUN = 16, FEW = 64, BLOCK = 16 };
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
    for (int64_t line = begin; line < end; line++) {
        int64_t o = line / p->inner, c = line % p->inner, first = o * p->n * p->inner + c;
        item *items = scratch;
        if (few) {
            select_few(p, x, first, items);
        } else {
            for (int64_t i = 0; i < p->n; i++)
                items[i] = (item){key_of(x, p->dtype, first + i * p->inner, p->ascend), i};
            items = merge_sort(items, items + p->n, p->n);
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
