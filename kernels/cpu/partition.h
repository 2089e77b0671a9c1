/* Parts keys at a pivot, out of place: those up to it first, the larger ones behind them. The order within the two
 * parts is not that of the keys before.
 *
 * In vectors: a table has, for each mask of larger keys, the permutation that puts these last. The permuted vector is
 * stored twice, at the end of the first part and before the second one: between them is room for all keys that are
 * still to come, at least two vectors, which do not overlap. */
#ifndef PLK_PARTITION_H
#define PLK_PARTITION_H
#include <stdint.h>
#include "inline.h"
#if defined(__AVX2__)
#include <immintrin.h>
#include "generated/partition_table.h"

#define LARGER_32(v, p) (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(v, p)))
#define LARGER_64(v, p) (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(v, p)))
#define ALL_32(p) _mm256_set1_epi32(p)
#define ALL_64(p) _mm256_set1_epi64x(p)
#define IN_VECTORS(s) \
    enum { PER = 32 / sizeof *x }; \
    const __m256i at = ALL_##s(pivot); \
    for (; i + 2 * PER <= n; i += PER) { \
        __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(x + i)); \
        unsigned larger = LARGER_##s(v, at); \
        __m128i order = _mm_loadl_epi64((const __m128i *)(const void *)plk_partition_##s[larger]); \
        v = _mm256_permutevar8x32_epi32(v, _mm256_cvtepu8_epi32(order)); \
        _mm256_storeu_si256((__m256i *)(void *)(to + low), v); \
        _mm256_storeu_si256((__m256i *)(void *)(to + high - PER), v); \
        low += PER - __builtin_popcount(larger); \
        high -= __builtin_popcount(larger); \
    }
#else
#define IN_VECTORS(s)
#endif

/* x, n keys -> to, which does not overlap it; returns how many are not larger than the pivot. */
#define PARTITION(K, s) \
    static int64_t partition_##s(const K *x, int64_t n, K pivot, K *to) \
    { \
        int64_t low = 0, high = n, i = 0; \
        IN_VECTORS(s) \
        for (; i < n; i++) { \
            K key = x[i]; \
            int larger = key > pivot; \
            to[low] = key; \
            to[high - 1] = key; \
            low += !larger; \
            high -= larger; \
        } \
        return low; \
    }
PARTITION(int32_t, 32)
PARTITION(int64_t, 64)
#endif
