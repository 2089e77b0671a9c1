/* Random numbers of loops that are made from references, by counter: number `at` of a call, in double. */
#ifndef PLK_DRAWS_H
#define PLK_DRAWS_H
#include "inline.h"
#include "kernel.h"
/* cffi reads from here on: */
typedef struct { int64_t n, row_bytes; } plk_shuffle;
typedef struct { int64_t batch, n, range; } plk_zipfian;    /* n different classes below range for each of a batch */
/* cffi stops reading here */

/* Words of Philox 4x32-10. seed, call: as kernels get them. Each number has 2^16 blocks of words to reject from. */
PLK_INLINE void plk_draw_words(double seed, double call, uint64_t block, uint32_t *words)
{
    uint64_t s = (uint64_t)(int64_t)seed, c = (uint64_t)(int64_t)call;
    uint32_t k0 = (uint32_t)s, k1 = (uint32_t)(s >> 32), c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32),
             c2 = (uint32_t)c, c3 = (uint32_t)(c >> 32);
    for (int round = 0; round < 10; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
        uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}
PLK_INLINE double plk_draw_unit(uint32_t high, uint32_t low)
{
    return (double)(int64_t)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}
/* In [0, 1). */
PLK_INLINE double plk_draw_uniform(double seed, double call, int64_t at)
{
    uint32_t words[4];
    plk_draw_words(seed, call, (uint64_t)at << 16, words);
    return plk_draw_unit(words[0], words[1]);
}
double plk_draw_normal(double seed, double call, int64_t at);        /* mean 0, deviation 1 */
double plk_draw_exponential(double seed, double call, int64_t at);   /* rate 1 */
double plk_draw_gamma(double seed, double call, int64_t at, double alpha);      /* scale 1; 0 where alpha is not > 0 */
double plk_draw_poisson(double seed, double call, int64_t at, double mean);     /* 0 where mean is not > 0 */
#endif
