/* Where arrays are not 0. Blocks of 64 elements become a mask of bits, whose bits are the places. */
#include "dtype.h"
#include "index.h"
#include "simd.h"

enum { SOME = 64, ROWS = 64, MANY = 8 };

#define IS_NOT_0(v) ((v) != 0)
#define IS_NOT_0_HALF(v) (((v) & 0x7fff) != 0)
#define FLAGS(T, IS) { \
    const T *v = (const T *)x + at; \
    for (int64_t i = 0; i < n; i++) \
        flags[i] = IS(v[i]); \
    break; }

/* flags[i]: is x[at + i] not 0? For n elements */
PLK_INLINE void flag_some(const void *x, int dtype, int64_t at, int64_t n, uint8_t *restrict flags)
{
    switch (dtype) {
    case PLK_F32: FLAGS(float, IS_NOT_0)
    case PLK_F64: FLAGS(double, IS_NOT_0)
    case PLK_F16: case PLK_BF16: FLAGS(uint16_t, IS_NOT_0_HALF)
    default:
        switch (plk_dtype_bytes(dtype)) {
        case 1: FLAGS(uint8_t, IS_NOT_0)
        case 2: FLAGS(uint16_t, IS_NOT_0)
        case 4: FLAGS(uint32_t, IS_NOT_0)
        case 8: FLAGS(uint64_t, IS_NOT_0)
        }
    }
}

static uint64_t bits_of(const uint8_t *flags)
{
    uint64_t bits = 0;
    for (int k = 0; k < 8; k++) {
        uint64_t eight = 0;
        for (int i = 7; i >= 0; i--)                       /* the same on machines of either byte order */
            eight = eight << 8 | flags[8 * k + i];
        bits |= (eight * 0x0102040810204080ULL >> 56) << 8 * k;
    }
    return bits;
}

/* bufs: x, how many elements are not 0 */
PLK_KERNEL(plk_places_count)
{
    const plk_places *p = params;
    int64_t n = p->rows * p->columns, count = 0;
    uint8_t flags[ROWS * SOME];
    (void)scalars;
    for (int64_t at = 0, some; at < n; at += some) {
        uint8_t sums[SOME] = {0};                          /* at most ROWS each */
        some = n - at < ROWS * SOME ? n - at : ROWS * SOME;
        if (some < ROWS * SOME)
            memset(flags, 0, sizeof flags);
        flag_some(bufs[0], p->dtype, at, some, flags);
        for (int r = 0; r < ROWS; r++)
            PLK_LANES for (int i = 0; i < SOME; i++)
                sums[i] = (uint8_t)(sums[i] + flags[r * SOME + i]);
        int32_t part = 0;
        PLK_LANES for (int i = 0; i < SOME; i++)
            part += sums[i];
        count += part;
    }
    *(int64_t *)bufs[1] = count;
    return PL_OK;
}

#if defined(__AVX2__)
#include <immintrin.h>
#include "generated/partition_table.h"

/* Stores the places of bits, from i on, eight bits at a time: as many numbers, of which the first ones count. A table
 * has the numbers of the bits that are not set in front. There is room for 8 more. */
PLK_INLINE void store_places(uint64_t bits, int64_t i, int64_t *at)
{
    for (int k = 0; k < 8; k++, i += 8, bits >>= 8) {
        __m128i order = _mm_loadl_epi64((const __m128i *)(const void *)plk_partition_32[~bits & 0xff]);
        __m256i first = _mm256_set1_epi64x(i);
        _mm256_storeu_si256((__m256i *)(void *)at, _mm256_add_epi64(_mm256_cvtepu8_epi64(order), first));
        _mm256_storeu_si256((__m256i *)(void *)(at + 4),
                            _mm256_add_epi64(_mm256_cvtepu8_epi64(_mm_srli_si128(order, 4)), first));
        at += __builtin_popcountll(bits & 0xff);
    }
}
#endif

/* The places in one row, at most `room`; returns how many there are. */
static int64_t places_of_row(const plk_places *p, const void *x, int64_t row, int64_t room, int64_t *at)
{
    int64_t found = 0;
    for (int64_t i = 0; i < p->columns && found < room; i += SOME) {
        uint8_t flags[SOME] = {0};
        int64_t n = p->columns - i < SOME ? p->columns - i : SOME;
        flag_some(x, p->dtype, row * p->columns + i, n, flags);
        uint64_t bits = bits_of(flags);
        int some = __builtin_popcountll(bits);
        if (some > room - found) {                         /* x has changed since it was counted */
            for (; found < room; bits &= bits - 1)
                at[found++] = i + __builtin_ctzll(bits);
            break;
        }
#if defined(__AVX2__)
        if (some > MANY && some + 8 <= room - found) {
            store_places(bits, i, at + found);
            found += some;
            continue;
        }
#endif
        for (int k = 0; k < some; k++, bits &= bits - 1)
            at[found + k] = i + __builtin_ctzll(bits);
        found += some;
    }
    return found;
}

/* bufs: x, the indices of what is not 0 along each axis (ndim, count) */
PLK_KERNEL(plk_places_run)
{
    const plk_places *p = params;
    int64_t *y = bufs[1], *last = y + (p->ndim - 1) * p->count, index[PLK_MAX_DIMS] = {0}, n = 0;
    (void)scalars;
    for (int64_t row = 0; row < p->rows && n < p->count; row++) {
        int64_t found = places_of_row(p, bufs[0], row, p->count - n, last + n);
        for (int d = 0; d < p->ndim - 1; d++)
            for (int64_t i = 0; i < found; i++)
                y[d * p->count + n + i] = index[d];
        n += found;
        for (int d = p->ndim - 2; d >= 0 && ++index[d] == p->shape[d]; d--)
            index[d] = 0;
    }
    for (int d = 0; d < p->ndim; d++)
        memset(y + d * p->count + n, 0, (size_t)(p->count - n) * sizeof *y);
    return PL_OK;
}
