/* Transposes squares of elements of 4 and 8 bytes in registers. */
#ifndef PLK_TRANSPOSE_H
#define PLK_TRANSPOSE_H
#include "lanes.h"

enum { LANES64 = LANES / 2 };
typedef int64_t lanes64 __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int64_t lanes64_mask __attribute__((vector_size(4 * LANES)));
#define MIX64(l, s) ((l) & (s) ? (l) - (s) + LANES64 : (l))
#if defined(__AVX512F__)
#define LOW64(s) \
    ((lanes64_mask){MIX64(0, s), MIX64(1, s), MIX64(2, s), MIX64(3, s), MIX64(4, s), MIX64(5, s), MIX64(6, s), \
                    MIX64(7, s)})
#elif defined(__AVX2__)
#define LOW64(s) ((lanes64_mask){MIX64(0, s), MIX64(1, s), MIX64(2, s), MIX64(3, s)})
#else
#define LOW64(s) ((lanes64_mask){MIX64(0, s), MIX64(1, s)})
#endif

/* LANES64 rows of as many elements, from_step elements apart -> to, to_step apart */
PLK_INLINE void transpose_lanes_64(int64_t *to, int64_t to_step, const int64_t *from, int64_t from_step)
{
    lanes64 v[LANES64];
    _Pragma("GCC unroll 8") for (int l = 0; l < LANES64; l++)
        v[l] = *(const lanes64 *)(from + l * from_step);
    _Pragma("GCC unroll 3") for (int s = LANES64 / 2; s; s /= 2)
        _Pragma("GCC unroll 8") for (int l = 0; l < LANES64; l++)
            if (!(l & s)) {
                lanes64 a = v[l], b = v[l + s];
                v[l] = __builtin_shuffle(a, b, LOW64(s));
                v[l + s] = __builtin_shuffle(a, b, LOW64(s) + s);
            }
    _Pragma("GCC unroll 8") for (int l = 0; l < LANES64; l++)
        *(lanes64 *)(to + l * to_step) = v[l];
}

PLK_INLINE void transpose_lanes_32(int32_t *to, int64_t to_step, const int32_t *from, int64_t from_step)
{
    vec v[LANES];
    _Pragma("GCC unroll 16") for (int l = 0; l < LANES; l++)
        v[l] = *(const vec *)(from + l * from_step);
    vec_transpose(v);
    _Pragma("GCC unroll 16") for (int l = 0; l < LANES; l++)
        *(vec *)(to + l * to_step) = v[l];
}

/* transpose_blocks_bits: to (n, m), rows to_row apart, = the transpose of from (m, n), rows from_row apart. n, m: not
 * less than a cache line. The unit is a square of cache lines: rows at a distance of a power of two share few cache
 * sets, so all elements of a line are read, and written, at once; where registers are shorter, through a buffer. The
 * last squares overlap the ones before. Squares are taken from parts of both that few pages hold. */
#define TRANSPOSE_BLOCKS(T, bits, WIDE) \
    static void transpose_square_##bits(T *to, int64_t to_row, const T *from, int64_t from_row) \
    { \
        enum { PER = 64 / sizeof(T) }; \
        T scratch[PER * PER], *y = (int)WIDE == (int)PER ? to : scratch; \
        int64_t step = (int)WIDE == (int)PER ? to_row : PER; \
        for (int j = 0; j < PER; j += WIDE) \
            for (int i = 0; i < PER; i += WIDE) \
                transpose_lanes_##bits(y + i * step + j, step, from + j * from_row + i, from_row); \
        if ((int)WIDE != (int)PER) \
            for (int i = 0; i < PER; i++) memcpy(to + i * to_row, scratch + i * PER, 64); \
    } \
    static void transpose_blocks_##bits(T *to, int64_t to_row, const T *from, int64_t from_row, int64_t n, int64_t m) \
    { \
        enum { PER = 64 / sizeof(T), COLUMNS = 4 * PER, ROWS_OF = 256 }; \
        for (int64_t i0 = 0; i0 < n; i0 += COLUMNS) \
            for (int64_t j0 = 0; j0 < m; j0 += ROWS_OF) \
                for (int64_t i1 = i0; i1 < n && i1 < i0 + COLUMNS; i1 += PER) \
                    for (int64_t j1 = j0; j1 < m && j1 < j0 + ROWS_OF; j1 += PER) { \
                        int64_t i = i1 + PER <= n ? i1 : n - PER, j = j1 + PER <= m ? j1 : m - PER; \
                        transpose_square_##bits(to + i * to_row + j, to_row, from + j * from_row + i, from_row); \
                    } \
    }
#endif
