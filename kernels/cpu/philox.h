/* Philox 4x32-10 (Salmon et al. 2011): the key is the seed, the counter is (block of four numbers, call). For files
 * that include "simd.h". */
#ifndef PLK_PHILOX_H
#define PLK_PHILOX_H
#include <math.h>
#include "simd.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { PHILOX_LANES = 16, PHILOX_WORDS = 4 * PHILOX_LANES };

typedef struct { uint32_t key[2], call[2]; } stream;

static inline stream stream_of(const double *scalars)
{
    uint64_t seed = (uint64_t)(int64_t)scalars[0], call = (uint64_t)(int64_t)scalars[1];
    return (stream){{(uint32_t)seed, (uint32_t)(seed >> 32)}, {(uint32_t)call, (uint32_t)(call >> 32)}};
}

/* Words of blocks [block, block + PHILOX_LANES); words[4 l + w] is word w of block `block + l`. */
#if defined(__AVX2__)
/* Counters in the lower halves of 64-bit lanes, where multiplications read and write them; upper halves are never
 * read. */
static inline void philox(const stream *s, uint64_t block, uint32_t *words)
{
    enum { GROUPS = 2, STEP = 4 };
    const __m256i m0 = _mm256_set1_epi64x(0xd2511f53), m2 = _mm256_set1_epi64x(0xcd9e8d57);
    for (int l = 0; l < PHILOX_LANES; l += GROUPS * STEP, words += 4 * GROUPS * STEP) {
        __m256i c0[GROUPS], c1[GROUPS], c2[GROUPS], c3[GROUPS];
        uint32_t k0 = s->key[0], k1 = s->key[1];
        _Pragma("GCC unroll 2") for (int g = 0; g < GROUPS; g++) {
            c0[g] = _mm256_add_epi64(_mm256_set1_epi64x((int64_t)(block + (uint64_t)(l + g * STEP))),
                                     _mm256_set_epi64x(3, 2, 1, 0));
            c1[g] = _mm256_srli_epi64(c0[g], 32);
            c2[g] = _mm256_set1_epi64x(s->call[0]);
            c3[g] = _mm256_set1_epi64x(s->call[1]);
        }
        for (int round = 0; round < 10; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u)
            _Pragma("GCC unroll 2") for (int g = 0; g < GROUPS; g++) {
                __m256i a = _mm256_mul_epu32(c0[g], m0), b = _mm256_mul_epu32(c2[g], m2);
                c0[g] = _mm256_srli_epi64(b, 32) ^ c1[g] ^ _mm256_set1_epi64x(k0);
                c2[g] = _mm256_srli_epi64(a, 32) ^ c3[g] ^ _mm256_set1_epi64x(k1);
                c1[g] = b;
                c3[g] = a;
            }
        _Pragma("GCC unroll 2") for (int g = 0; g < GROUPS; g++) {
            __m256i first = _mm256_blend_epi32(c0[g], _mm256_slli_epi64(c1[g], 32), 0xaa);
            __m256i second = _mm256_blend_epi32(c2[g], _mm256_slli_epi64(c3[g], 32), 0xaa);
            __m256i even = _mm256_unpacklo_epi64(first, second), odd = _mm256_unpackhi_epi64(first, second);
            _mm256_storeu_si256((__m256i *)(words + 4 * g * STEP), _mm256_permute2x128_si256(even, odd, 0x20));
            _mm256_storeu_si256((__m256i *)(words + 4 * g * STEP + 8), _mm256_permute2x128_si256(even, odd, 0x31));
        }
    }
}
#else
static inline void philox(const stream *s, uint64_t block, uint32_t *words)
{
    uint32_t c0[PHILOX_LANES], c1[PHILOX_LANES], c2[PHILOX_LANES], c3[PHILOX_LANES], k0 = s->key[0], k1 = s->key[1];
    for (int l = 0; l < PHILOX_LANES; l++) {
        c0[l] = (uint32_t)(block + (uint64_t)l);
        c1[l] = (uint32_t)((block + (uint64_t)l) >> 32);
        c2[l] = s->call[0];
        c3[l] = s->call[1];
    }
    for (int round = 0; round < 10; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u)
        PLK_LANES for (int l = 0; l < PHILOX_LANES; l++) {
            uint64_t a = (uint64_t)0xd2511f53u * c0[l], b = (uint64_t)0xcd9e8d57u * c2[l];
            c0[l] = (uint32_t)(b >> 32) ^ c1[l] ^ k0;
            c2[l] = (uint32_t)(a >> 32) ^ c3[l] ^ k1;
            c1[l] = (uint32_t)b;
            c3[l] = (uint32_t)a;
        }
    for (int l = 0; l < PHILOX_LANES; l++) {
        words[4 * l] = c0[l];
        words[4 * l + 1] = c1[l];
        words[4 * l + 2] = c2[l];
        words[4 * l + 3] = c3[l];
    }
}
#endif

static inline __attribute__((always_inline)) float unit(uint32_t w) { return (float)(w >> 8) * 0x1p-24f; }

/* Bit i of `bits` (whole words, zeros after n): does a dropout of this stream keep element first + i? words: scratch,
 * n + 2 PHILOX_WORDS. */
static inline void keep_bits(const stream *s, int64_t first, int64_t n, float keep, uint32_t *words, uint32_t *bits)
{
    const int32_t below = (int32_t)ceil((double)keep * 0x1p24);    /* as unit(word) < keep */
    const uint32_t *at = words + first % 4;
    for (int64_t i = 0; i < n + 4; i += PHILOX_WORDS)
        philox(s, (uint64_t)(first + i) / 4, words + i);
    for (int64_t i = 0; i < n; i += 32, at += 32) {
        uint32_t all = 0;
        for (int l = 0; l < 32; l++)
            all |= (uint32_t)((int32_t)(at[l] >> 8) < below) << l;
        *bits++ = n - i < 32 ? all & ((1u << (n - i)) - 1) : all;
    }
}
#endif
