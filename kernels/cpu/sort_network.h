/* A network of comparisons that is the same for all lines (Batcher 1968), by the smaller and the larger of two vectors;
 * keys are signed integers in the order of the elements, NaN last in both directions.
 *
 * The network: units of 8 are sorted, then sorted runs of p merged, p = 8, 16, ...: the second one is compared in
 * reverse order (which leaves two halves, of the smaller and of the larger ones), then elements p / 2, p / 4 ... 1
 * apart. Larger keys always move up, so that places past the end need no elements: they would be the largest ones. */
#ifndef PLK_SORT_NETWORK_H
#define PLK_SORT_NETWORK_H
#include <stdint.h>
#include "inline.h"
#include "transpose.h"

enum { UNIT = 8 };
typedef int32_t keys32 __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int64_t keys64 __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#if defined(__AVX512F__)
#include <immintrin.h>
#define LOWER32(a, b) ((keys32)_mm512_min_epi32((__m512i)(a), (__m512i)(b)))
#define HIGHER32(a, b) ((keys32)_mm512_max_epi32((__m512i)(a), (__m512i)(b)))
#define LOWER64(a, b) ((keys64)_mm512_min_epi64((__m512i)(a), (__m512i)(b)))
#define HIGHER64(a, b) ((keys64)_mm512_max_epi64((__m512i)(a), (__m512i)(b)))
#elif defined(__AVX2__)
#include <immintrin.h>
#define LOWER32(a, b) ((keys32)_mm256_min_epi32((__m256i)(a), (__m256i)(b)))
#define HIGHER32(a, b) ((keys32)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))
#else
#define LOWER32(a, b) (((a) & ((a) < (b))) | ((b) & ((a) >= (b))))
#define HIGHER32(a, b) (((b) & ((a) < (b))) | ((a) & ((a) >= (b))))
#endif
#ifndef LOWER64
#define LOWER64(a, b) (((a) & ((a) < (b))) | ((b) & ((a) >= (b))))
#define HIGHER64(a, b) (((b) & ((a) < (b))) | ((a) & ((a) >= (b))))
#endif

#define ORDER(V, LOWER, HIGHER, i, j) \
    { \
        V low_ = LOWER(v[i], v[j]), high_ = HIGHER(v[i], v[j]); \
        v[i] = low_; \
        v[j] = high_; \
    }
/* a: n vectors, n a multiple of UNIT */
#define NETWORK(V, name, LOWER, HIGHER) \
    /* each UNIT: 19 comparisons */ \
    static void sort_units_##name(V *a, int64_t n) \
    { \
        for (int64_t at = 0; at < n; at += UNIT) { \
            V v[UNIT]; \
            _Pragma("GCC unroll 8") for (int i = 0; i < UNIT; i++) v[i] = a[at + i]; \
            ORDER(V, LOWER, HIGHER, 0, 2) ORDER(V, LOWER, HIGHER, 1, 3) ORDER(V, LOWER, HIGHER, 4, 6) \
            ORDER(V, LOWER, HIGHER, 5, 7) ORDER(V, LOWER, HIGHER, 0, 4) ORDER(V, LOWER, HIGHER, 1, 5) \
            ORDER(V, LOWER, HIGHER, 2, 6) ORDER(V, LOWER, HIGHER, 3, 7) ORDER(V, LOWER, HIGHER, 0, 1) \
            ORDER(V, LOWER, HIGHER, 2, 3) ORDER(V, LOWER, HIGHER, 4, 5) ORDER(V, LOWER, HIGHER, 6, 7) \
            ORDER(V, LOWER, HIGHER, 2, 4) ORDER(V, LOWER, HIGHER, 3, 5) ORDER(V, LOWER, HIGHER, 1, 4) \
            ORDER(V, LOWER, HIGHER, 3, 6) ORDER(V, LOWER, HIGHER, 1, 2) ORDER(V, LOWER, HIGHER, 3, 4) \
            ORDER(V, LOWER, HIGHER, 5, 6) \
            _Pragma("GCC unroll 8") for (int i = 0; i < UNIT; i++) a[at + i] = v[i]; \
        } \
    } \
    /* compares elements 4, 2 and 1 apart in each UNIT */ \
    static void merge_units_##name(V *a, int64_t n) \
    { \
        for (int64_t at = 0; at < n; at += UNIT) { \
            V v[UNIT]; \
            _Pragma("GCC unroll 8") for (int i = 0; i < UNIT; i++) v[i] = a[at + i]; \
            ORDER(V, LOWER, HIGHER, 0, 4) ORDER(V, LOWER, HIGHER, 1, 5) ORDER(V, LOWER, HIGHER, 2, 6) \
            ORDER(V, LOWER, HIGHER, 3, 7) ORDER(V, LOWER, HIGHER, 0, 2) ORDER(V, LOWER, HIGHER, 1, 3) \
            ORDER(V, LOWER, HIGHER, 4, 6) ORDER(V, LOWER, HIGHER, 5, 7) ORDER(V, LOWER, HIGHER, 0, 1) \
            ORDER(V, LOWER, HIGHER, 2, 3) ORDER(V, LOWER, HIGHER, 4, 5) ORDER(V, LOWER, HIGHER, 6, 7) \
            _Pragma("GCC unroll 8") for (int i = 0; i < UNIT; i++) a[at + i] = v[i]; \
        } \
    } \
    /* compares elements `apart` apart in each 2 * apart; two such steps at once where all four elements exist */ \
    static void halve_##name(V *a, int64_t n, int64_t apart, int twice) \
    { \
        int64_t half = apart / 2; \
        for (int64_t at = 0; at + (twice ? half : apart) < n; at += 2 * apart) { \
            int64_t i = 0, left = n - at; \
            if (twice) \
                for (; i < half; i++) { \
                    V v[4], *x = a + at + i; \
                    if (i + apart + half < left) { \
                        v[0] = x[0], v[1] = x[half], v[2] = x[apart], v[3] = x[apart + half]; \
                        ORDER(V, LOWER, HIGHER, 0, 2) ORDER(V, LOWER, HIGHER, 1, 3) \
                        ORDER(V, LOWER, HIGHER, 0, 1) ORDER(V, LOWER, HIGHER, 2, 3) \
                        x[0] = v[0], x[half] = v[1], x[apart] = v[2], x[apart + half] = v[3]; \
                    } else { \
                        if (i + half >= left) \
                            break; \
                        v[0] = x[0], v[1] = x[half]; \
                        if (i + apart < left) { \
                            v[2] = x[apart]; \
                            ORDER(V, LOWER, HIGHER, 0, 2) \
                            x[apart] = v[2]; \
                        } \
                        ORDER(V, LOWER, HIGHER, 0, 1) \
                        x[0] = v[0], x[half] = v[1]; \
                    } \
                } \
            else \
                for (; i < apart && i + apart < left; i++) { \
                    V v[2] = {a[at + i], a[at + i + apart]}; \
                    ORDER(V, LOWER, HIGHER, 0, 1) \
                    a[at + i] = v[0], a[at + i + apart] = v[1]; \
                } \
        } \
    } \
    /* runs of p, sorted -> runs of 2 p */ \
    static void merge_##name(V *a, int64_t n, int64_t p) \
    { \
        for (int64_t at = 0; at + p < n; at += 2 * p) \
            for (int64_t i = n - at < 2 * p ? 2 * p - (n - at) : 0; i < p; i++) { \
                V v[2] = {a[at + i], a[at + 2 * p - 1 - i]}; \
                ORDER(V, LOWER, HIGHER, 0, 1) \
                a[at + i] = v[0], a[at + 2 * p - 1 - i] = v[1]; \
            } \
        int64_t apart = p / 2; \
        for (; apart >= 2 * UNIT; apart /= 4) \
            halve_##name(a, n, apart, 1); \
        if (apart == UNIT) \
            halve_##name(a, n, apart, 0); \
        merge_units_##name(a, n); \
    } \
    /* first the parts that fit into the L1 cache */ \
    static void sort_##name(V *a, int64_t n) \
    { \
        int64_t part = IN_CACHE / (int64_t)sizeof(V); \
        for (int64_t at = 0; at < n; at += part) { \
            int64_t some = n - at < part ? n - at : part; \
            sort_units_##name(a + at, some); \
            for (int64_t p = UNIT; p < some; p *= 2) \
                merge_##name(a + at, some, p); \
        } \
        for (int64_t p = part; p < n; p *= 2) \
            merge_##name(a, n, p); \
    }
enum { IN_CACHE = 16384 };                           /* bytes; a power of two */
NETWORK(keys32, 32, LOWER32, HIGHER32)
NETWORK(keys64, 64, LOWER64, HIGHER64)

/* ---- elements as keys and back ---------------------------------------------------------------------------------- */

#define KEYS_OF_FLOATS(T, K, s, NOT_A_NUMBER, LAST) \
    PLK_INLINE K key_##s(K bits, K turn) \
    { \
        K key = (bits ^ ((bits >> (8 * sizeof(K) - 1)) & LAST)) ^ turn; \
        return (bits & LAST) > NOT_A_NUMBER ? LAST : key; \
    } \
    PLK_INLINE K bits_##s(K key, K turn) \
    { \
        K bits = key ^ turn; \
        bits ^= (bits >> (8 * sizeof(K) - 1)) & LAST; \
        return key == LAST ? NOT_A_NUMBER | (NOT_A_NUMBER >> 1) : bits; \
    }
KEYS_OF_FLOATS(float, int32_t, f32, (int32_t)0x7f800000, INT32_MAX)
KEYS_OF_FLOATS(double, int64_t, f64, (int64_t)0x7ff0000000000000, INT64_MAX)

PLK_INLINE int32_t key_i32(int32_t v, int32_t turn) { return v ^ turn; }
PLK_INLINE int32_t bits_i32(int32_t key, int32_t turn) { return key ^ turn; }
PLK_INLINE int64_t key_i64(int64_t v, int64_t turn) { return v ^ turn; }
PLK_INLINE int64_t bits_i64(int64_t key, int64_t turn) { return key ^ turn; }
#endif
