/* Philox 4x32-10 by counter, the stream of cpu/random.c: element i of a call is the same on every device. */
#pragma once

struct Words { uint32_t at[4]; };

/* Words of a block of four (Salmon et al. 2011): the key is the seed, the counter is (block, call). */
DEVICE Words philox(uint64_t seed, uint64_t call, uint64_t block)
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)call, c3 = (uint32_t)(call >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
        const uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
    }
    return {{c0, c1, c2, c3}};
}

DEVICE float unit(uint32_t w) { return (float)(w >> 8) * 5.9604644775390625e-8f; }          /* 2^-24 */
DEVICE double unit64(uint32_t a, uint32_t b)
{
    return (double)(((uint64_t)a << 32 | b) >> 11) * 1.1102230246251565e-16;                /* 2^-53 */
}
