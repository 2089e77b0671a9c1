/* Philox 4x32-10 (Salmon et al. 2011): the key is the seed, the counter is (block of four numbers, call). For files that
 * include "simd.h". */
#ifndef PLK_PHILOX_H
#define PLK_PHILOX_H
#include "simd.h"

enum { PHILOX_LANES = 16, PHILOX_WORDS = 4 * PHILOX_LANES };

typedef struct { uint32_t key[2], call[2]; } stream;

static inline stream stream_of(const double *scalars)
{
    uint64_t seed = (uint64_t)(int64_t)scalars[0], call = (uint64_t)(int64_t)scalars[1];
    return (stream){{(uint32_t)seed, (uint32_t)(seed >> 32)}, {(uint32_t)call, (uint32_t)(call >> 32)}};
}

/* Words of blocks [block, block + PHILOX_LANES); words[4 l + w] is word w of block `block + l`. */
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

static inline __attribute__((always_inline)) float unit(uint32_t w) { return (float)(w >> 8) * 0x1p-24f; }

/* Bit i of `bits` (whole words, zeros behind n): does a dropout of this stream keep element first + i? words: room for
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
