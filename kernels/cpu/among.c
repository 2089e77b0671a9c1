/* Which whole numbers are among others: a table of their range where it is small, else a table of hashes. */
#include <stdlib.h>
#include "dtype.h"
#include "search.h"

enum { LEAST_RANGE = 65536, RANGE_PER_NUMBER = 16 };

static uint64_t place_of(uint64_t v, int shift) { return (v * 0x9e3779b97f4a7c15ULL) >> shift; }

/* whole[i]: a number as 64 bits, at its place or behind it; used[i]: is there one? */
typedef struct { uint64_t *whole; uint8_t *used; uint64_t mask; int shift; } hashes;

static int hashes_make(hashes *h, int64_t n)
{
    int bits = 4;
    while (bits < 62 && (int64_t)1 << bits < 2 * n)
        bits++;
    size_t size = (size_t)1 << bits;
    *h = (hashes){malloc(size * sizeof *h->whole), calloc(size, 1), size - 1, 64 - bits};
    return h->whole && h->used;
}
static uint64_t hashes_find(const hashes *h, uint64_t v)
{
    uint64_t at = place_of(v, h->shift);
    while (h->used[at] && h->whole[at] != v)
        at = (at + 1) & h->mask;
    return at;
}

#define AMONG(T) { \
    const T *x = bufs[0], *tests = bufs[1]; \
    T low = tests[0], high = tests[0]; \
    for (int64_t i = 1; i < p->n_tests; i++) { \
        low = tests[i] < low ? tests[i] : low; \
        high = tests[i] > high ? tests[i] : high; \
    } \
    uint64_t first = (uint64_t)low, range = (uint64_t)high - first; \
    if (range < LEAST_RANGE || range / RANGE_PER_NUMBER < (uint64_t)p->n_tests) { \
        uint8_t *there = calloc((size_t)range + 2, 1);     /* the last one: of numbers outside */ \
        if (!there) \
            return pl_fail(PL_ENOMEM, "_among: no memory for a table"); \
        for (int64_t i = 0; i < p->n_tests; i++) \
            there[(uint64_t)tests[i] - first] = 1; \
        for (int64_t i = 0; i < p->n; i++) { \
            uint64_t at = (uint64_t)x[i] - first; \
            y[i] = there[at <= range ? at : range + 1] ^ inverts; \
        } \
        free(there); \
        return PL_OK; \
    } \
    hashes h; \
    int made = hashes_make(&h, p->n_tests); \
    for (int64_t i = 0; made && i < p->n_tests; i++) { \
        uint64_t at = hashes_find(&h, (uint64_t)tests[i]); \
        h.whole[at] = (uint64_t)tests[i], h.used[at] = 1; \
    } \
    for (int64_t i = 0; made && i < p->n; i++) \
        y[i] = h.used[hashes_find(&h, (uint64_t)x[i])] ^ inverts; \
    free(h.whole); \
    free(h.used); \
    return made ? PL_OK : pl_fail(PL_ENOMEM, "_among: no memory for a table"); }

/* bufs: whole numbers, the others (at least one), 1 where the first are among them, or are not */
PLK_KERNEL(plk_among_run)
{
    const plk_among *p = params;
    uint8_t *restrict y = bufs[2], inverts = p->inverts != 0;
    (void)scalars;
    switch (p->dtype) {
    case PLK_I8: AMONG(int8_t)
    case PLK_U8: AMONG(uint8_t)
    case PLK_I32: AMONG(int32_t)
    default: AMONG(int64_t)
    }
}
