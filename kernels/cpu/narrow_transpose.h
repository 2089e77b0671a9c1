/* Transposes of matrices of 1- and 2-byte elements, in blocks of 16 bytes squared or 8 x 8 halves. */
#ifndef PLK_NARROW_TRANSPOSE_H
#define PLK_NARROW_TRANSPOSE_H
#include "inline.h"
#include <stdint.h>
#include <string.h>

typedef uint8_t plk_bytes16 __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint16_t plk_halves8 __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint16_t plk_any_half __attribute__((may_alias));

/* One round of a perfect shuffle: after log2(N) of them row r holds what column r was. */
#define PLK_SHUFFLE_ROUND(N, T, to, from, LOW, HIGH) \
    _Pragma("GCC unroll 8") for (int i = 0; i < (N) / 2; i++) { \
        to[2 * i] = __builtin_shuffle(from[i], from[i + (N) / 2], (T)LOW); \
        to[2 * i + 1] = __builtin_shuffle(from[i], from[i + (N) / 2], (T)HIGH); \
    }
#define PLK_LOW16 {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23}
#define PLK_HIGH16 {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31}
#define PLK_LOW8 {0, 8, 1, 9, 2, 10, 3, 11}
#define PLK_HIGH8 {4, 12, 5, 13, 6, 14, 7, 15}

PLK_INLINE void plk_transpose_16_bytes(uint8_t *to, int64_t to_row, const uint8_t *from, int64_t from_row)
{
    plk_bytes16 a[16], b[16];
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++)
        a[i] = *(const plk_bytes16 *)(from + i * from_row);
    PLK_SHUFFLE_ROUND(16, plk_bytes16, b, a, PLK_LOW16, PLK_HIGH16)
    PLK_SHUFFLE_ROUND(16, plk_bytes16, a, b, PLK_LOW16, PLK_HIGH16)
    PLK_SHUFFLE_ROUND(16, plk_bytes16, b, a, PLK_LOW16, PLK_HIGH16)
    PLK_SHUFFLE_ROUND(16, plk_bytes16, a, b, PLK_LOW16, PLK_HIGH16)
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++)
        *(plk_bytes16 *)(to + i * to_row) = a[i];
}

PLK_INLINE void plk_transpose_8_halves(uint16_t *to, int64_t to_row, const uint16_t *from, int64_t from_row)
{
    plk_halves8 a[8], b[8];
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++)
        a[i] = *(const plk_halves8 *)(from + i * from_row);
    PLK_SHUFFLE_ROUND(8, plk_halves8, b, a, PLK_LOW8, PLK_HIGH8)
    PLK_SHUFFLE_ROUND(8, plk_halves8, a, b, PLK_LOW8, PLK_HIGH8)
    PLK_SHUFFLE_ROUND(8, plk_halves8, b, a, PLK_LOW8, PLK_HIGH8)
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++)
        *(plk_halves8 *)(to + i * to_row) = b[i];
}

/* to (columns x rows) = the transpose of from (rows x columns). Of the last columns as many rows are taken in blocks as
 * have whole blocks behind them in the matrix. */
#define PLK_TRANSPOSE(name, T, N, block) \
    __attribute__((unused)) static void name(T *to, int64_t to_row, const T *from, int64_t from_row, int64_t rows, \
                                             int64_t columns) \
    { \
        enum { EDGE = 64 };    /* both sides of a square lie in the L1 cache */ \
        int64_t whole_rows = rows / N * N, whole_columns = columns / N * N, last = 0; \
        for (int64_t c0 = 0; c0 < whole_columns; c0 += EDGE) \
            for (int64_t r0 = 0; r0 < whole_rows; r0 += EDGE) \
                for (int64_t c = c0; c < whole_columns && c < c0 + EDGE; c += N) \
                    for (int64_t r = r0; r < whole_rows && r < r0 + EDGE; r += N) \
                        block(to + c * to_row + r, to_row, from + r * from_row + c, from_row); \
        for (; whole_columns < columns && (last + N - rows) * from_row + whole_columns + N <= columns; last += N) { \
            T square[N * N]; \
            block(square, N, from + last * from_row + whole_columns, from_row); \
            for (int64_t c = whole_columns; c < columns; c++) \
                memcpy(to + c * to_row + last, square + (c - whole_columns) * N, sizeof(T) * N); \
        } \
        for (int64_t c = 0; c < columns; c++) \
            for (int64_t r = c < whole_columns ? whole_rows : last; r < rows; r++) \
                to[c * to_row + r] = from[r * from_row + c]; \
    }
PLK_TRANSPOSE(plk_transpose_bytes, uint8_t, 16, plk_transpose_16_bytes)
PLK_TRANSPOSE(plk_transpose_halves, uint16_t, 8, plk_transpose_8_halves)
#undef PLK_TRANSPOSE
#endif
