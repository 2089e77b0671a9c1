/* Parts keys at a pivot: those up to it first, the larger ones behind them. The order within the two parts is not that
 * of the keys before.
 *
 * A vector of keys is divided in a register and stored at the end of the first part and before the second one. On
 * AVX-512 by compression, the larger keys with a mask; on AVX2 a table has, for each mask of larger keys, the
 * permutation that puts these last, and the vector is stored twice: between the parts is room for it.
 *
 * In place: blocks of vectors are read from the end that has less room between what was read and what was written, so
 * that a block always fits; the first blocks of both ends, which make the room, and what is left over in the middle are
 * divided last, from a buffer. */
#ifndef PLK_PARTITION_H
#define PLK_PARTITION_H
#include <stdint.h>
#include <string.h>
#include "inline.h"
#if defined(__AVX512F__)
#include <immintrin.h>

enum { PARTITION_BYTES = 64, PARTITION_BLOCK = 16 };
#define PIVOT_OF(s, p) _mm512_set1_epi##s(p)
typedef __m512i partition_vector;
#define VECTOR_AT(x) _mm512_loadu_si512(x)
/* Stores the keys of a vector behind `low` and before `high`. */
#define DIVIDE(s, per, v, at, to, low, high) \
    { \
        __m512i v_ = v; \
        unsigned larger_ = _mm512_cmpgt_epi##s##_mask(v_, at), count_ = (unsigned)__builtin_popcount(larger_); \
        _mm512_storeu_si512((to) + low, _mm512_maskz_compress_epi##s(~larger_, v_)); \
        high -= count_; \
        _mm512_mask_storeu_epi##s((to) + high, (1u << count_) - 1, _mm512_maskz_compress_epi##s(larger_, v_)); \
        low += per - count_; \
    }
#elif defined(__AVX2__)
#include <immintrin.h>
#include "generated/partition_table.h"

enum { PARTITION_BYTES = 32, PARTITION_BLOCK = 8 };
#define LARGER_32(v, p) (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(v, p)))
#define LARGER_64(v, p) (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(v, p)))
#define ALL_32(p) _mm256_set1_epi32(p)
#define ALL_64(p) _mm256_set1_epi64x(p)
#define PIVOT_OF(s, p) ALL_##s(p)
typedef __m256i partition_vector;
#define VECTOR_AT(x) _mm256_loadu_si256((const __m256i *)(const void *)(x))
#define DIVIDE(s, per, v, at, to, low, high) \
    { \
        __m256i v_ = v; \
        unsigned larger_ = LARGER_##s(v_, at); \
        __m128i order_ = _mm_loadl_epi64((const __m128i *)(const void *)plk_partition_##s[larger_]); \
        v_ = _mm256_permutevar8x32_epi32(v_, _mm256_cvtepu8_epi32(order_)); \
        _mm256_storeu_si256((__m256i *)(void *)((to) + low), v_); \
        _mm256_storeu_si256((__m256i *)(void *)((to) + high - per), v_); \
        low += per - __builtin_popcount(larger_); \
        high -= __builtin_popcount(larger_); \
    }
#endif

#if defined(__AVX2__)
/* partition_s: n keys; returns how many are not larger than the pivot. */
#define PARTITION(K, s) \
    enum { PER_##s = PARTITION_BYTES / sizeof(K), BLOCK_##s = PARTITION_BLOCK * PER_##s }; \
    /* x -> to, which does not overlap it */ \
    PLK_INLINE int64_t partition_out_##s(const K *x, int64_t n, K pivot, K *to) \
    { \
        int64_t low = 0, high = n, i = 0; \
        for (; i + 2 * PER_##s <= n; i += PER_##s) \
            DIVIDE(s, PER_##s, VECTOR_AT(x + i), PIVOT_OF(s, pivot), to, low, high) \
        for (; i < n; i++) { \
            K key = x[i]; \
            int larger = key > pivot; \
            to[low] = key; \
            to[high - 1] = key; \
            low += !larger; \
            high -= larger; \
        } \
        return low; \
    } \
    static int64_t partition_##s(K *x, int64_t n, K pivot) \
    { \
        K kept[3 * BLOCK_##s]; \
        int64_t low = 0, high = n, left = 0, right = n, at = 0; \
        if (n > 3 * BLOCK_##s) { \
            memcpy(kept, x, sizeof(K) * BLOCK_##s); \
            memcpy(kept + BLOCK_##s, x + n - BLOCK_##s, sizeof(K) * BLOCK_##s); \
            left = at = BLOCK_##s; \
            right = n - left; \
            at *= 2; \
            while (right - left >= BLOCK_##s) { \
                const K *some = x + left; \
                const K *next = some + BLOCK_##s; \
                if (left - low <= high - right) { \
                    left += BLOCK_##s; \
                } else { \
                    some = x + (right -= BLOCK_##s); \
                    next = some - BLOCK_##s; \
                } \
                _Pragma("GCC unroll 16") for (int k = 0; k < PARTITION_BLOCK; k++) \
                    __builtin_prefetch(next + k * PER_##s); \
                partition_vector block[PARTITION_BLOCK]; \
                _Pragma("GCC unroll 16") for (int k = 0; k < PARTITION_BLOCK; k++) \
                    block[k] = VECTOR_AT(some + k * PER_##s); \
                _Pragma("GCC unroll 16") for (int k = 0; k < PARTITION_BLOCK; k++) \
                    DIVIDE(s, PER_##s, block[k], PIVOT_OF(s, pivot), x, low, high) \
            } \
        } \
        memcpy(kept + at, x + left, sizeof(K) * (size_t)(right - left)); \
        return low + partition_out_##s(kept, at + right - left, pivot, x + low); \
    }
#else
#define PARTITION(K, s) \
    static int64_t partition_##s(K *x, int64_t n, K pivot) \
    { \
        int64_t low = 0; \
        for (int64_t i = 0; i < n; i++) { \
            K key = x[i]; \
            x[i] = x[low]; \
            x[low] = key; \
            low += key <= pivot; \
        } \
        return low; \
    }
#endif
PARTITION(int32_t, 32)
PARTITION(int64_t, 64)
#endif
