/* The register tile of products and the packing of its operands; for files that include "simd.h".
 *
 * One of three, by what is packed: here both operands (products that are used once); lanes.h packs B alone and takes A by
 * pointers to rows or offsets (convolutions: A is an image, its rows overlap); panel.h packs a matrix that stays for many
 * products, in float or double, and sums in an order that does not depend on the rows (RNNs). Packing what need not be
 * is a pass over memory more.
 *
 * Element (i, d) of A lies at a[i * a_row + d * a_depth], (d, j) of B at b[d * b_depth + j * b_column].
 */
#ifndef PLK_TILE_H
#define PLK_TILE_H
#include "simd.h"

#if defined(__AVX512F__)
enum { WIDTH = 16, ROWS = 14, DEPTH = 256 };
#elif defined(__AVX2__)
enum { WIDTH = 8, ROWS = 6, DEPTH = 256 };
#elif defined(__aarch64__)
enum { WIDTH = 4, ROWS = 8, DEPTH = 256 };
#else
enum { WIDTH = 4, ROWS = 6, DEPTH = 256 };
#endif
enum { COLUMNS = 2 * WIDTH, CHUNK = 16 };
typedef float vector __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t quad_index __attribute__((vector_size(16)));

/* The columns of 4 x 4 elements to four places. */
static inline void transpose4(float *to0, float *to1, float *to2, float *to3, const float *from, int64_t from_step)
{
    quad a = *(const quad *)from, b = *(const quad *)(from + from_step), c = *(const quad *)(from + 2 * from_step),
         d = *(const quad *)(from + 3 * from_step);
    quad ab = __builtin_shuffle(a, b, (quad_index){0, 4, 1, 5}), AB = __builtin_shuffle(a, b, (quad_index){2, 6, 3, 7});
    quad cd = __builtin_shuffle(c, d, (quad_index){0, 4, 1, 5}), CD = __builtin_shuffle(c, d, (quad_index){2, 6, 3, 7});
    *(quad *)to0 = __builtin_shuffle(ab, cd, (quad_index){0, 1, 4, 5});
    *(quad *)to1 = __builtin_shuffle(ab, cd, (quad_index){2, 3, 6, 7});
    *(quad *)to2 = __builtin_shuffle(AB, CD, (quad_index){0, 1, 4, 5});
    *(quad *)to3 = __builtin_shuffle(AB, CD, (quad_index){2, 3, 6, 7});
}

/* to[c * to_step + r] = from[r * from_step + c] for rows x columns elements */
static void transpose(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t rows, int64_t columns)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        int64_t c = 0;
        for (; c + 4 <= columns; c += 4)
            transpose4(to + c * to_step + r, to + (c + 1) * to_step + r, to + (c + 2) * to_step + r,
                       to + (c + 3) * to_step + r, from + r * from_step + c, from_step);
        for (; c < columns; c++)
            for (int64_t i = r; i < r + 4; i++)
                to[c * to_step + i] = from[i * from_step + c];
    }
    for (; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            to[c * to_step + r] = from[r * from_step + c];
}

/* Where row i of a block of A goes: panels of ROWS rows, in them chunks of CHUNK steps, in these the rows. */
static inline int64_t row_place(int64_t i) { return i / ROWS * ROWS * DEPTH + i % ROWS * CHUNK; }
static inline int64_t step_place(int64_t d) { return d / CHUNK * ROWS * CHUNK + d % CHUNK; }

/* A block of A, with zeros for missing rows of the last panel. */
static void pack_a(float *to, const float *a, int64_t a_row, int64_t a_depth, int64_t rows, int64_t depth)
{
    int64_t d = 0;
    if (a_depth == 1)
        for (int64_t i = 0; i < rows; i++) {
            const float *from = a + i * a_row;
            float *row = to + row_place(i);
            for (d = 0; d + CHUNK <= depth; d += CHUNK, from += CHUNK, row += ROWS * CHUNK)
                memcpy(row, from, CHUNK * sizeof *row);
            memcpy(row, from, (size_t)(depth - d) * sizeof *row);
        }
    else {
        for (; d + 4 <= depth && a_row == 1; d += 4) {
            const float *from = a + d * a_depth;
            int64_t i = 0;
            for (; i + 4 <= rows; i += 4) {
                float *t = to + step_place(d);
                transpose4(t + row_place(i), t + row_place(i + 1), t + row_place(i + 2), t + row_place(i + 3), from + i,
                           a_depth);
            }
            for (; i < rows; i++)
                for (int64_t s = d; s < d + 4; s++)
                    to[row_place(i) + step_place(s)] = a[i + s * a_depth];
        }
        for (; d < depth; d++)
            for (int64_t i = 0; i < rows; i++)
                to[row_place(i) + step_place(d)] = a[i * a_row + d * a_depth];
    }
    for (int64_t i = rows; i % ROWS; i++)
        for (d = 0; d < depth; d += CHUNK)
            memset(to + row_place(i) + step_place(d), 0, CHUNK * sizeof *to);
}

/* One panel of B: `depth` steps of COLUMNS; missing columns are zeros. */
static void pack_b(float *to, const float *b, int64_t b_depth, int64_t b_column, int64_t columns, int64_t depth)
{
    if (columns < COLUMNS)
        memset(to, 0, (size_t)(depth * COLUMNS) * sizeof *to);
    if (b_column == 1 && columns == COLUMNS)
        for (int64_t d = 0; d < depth; d++, to += COLUMNS)
            memcpy(to, b + d * b_depth, COLUMNS * sizeof *to);
    else if (b_depth == 1)
        transpose(to, COLUMNS, b, b_column, columns, depth);
    else
        for (int64_t d = 0; d < depth; d++)
            for (int64_t j = 0; j < columns; j++)
                to[d * COLUMNS + j] = b[d * b_depth + j * b_column];
}

/* out (ROWS x COLUMNS) = alpha * a panel of A times one of B + beta * out + bias.  Neither inlined nor unrolled: then compilers keep the sums in
 * registers. */
__attribute__((noinline)) static void tile(int64_t depth, const float *a, const float *b, float alpha, float beta,
                                           const float *bias, float *out, int64_t out_step)
{
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        __builtin_prefetch(out + r * out_step, 1);
    vector acc[ROWS][2];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        acc[r][0] = acc[r][1] = (vector){0};
    for (int64_t d = 0; d < depth; d += CHUNK, a += (ROWS - 1) * CHUNK) {
        const float *end = a + (depth - d < CHUNK ? depth - d : CHUNK);
#pragma GCC unroll 1
        for (; a < end; a++, b += COLUMNS) {
            vector b0 = *(const vector *)b, b1 = *(const vector *)(b + WIDTH);
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; r++) {
                acc[r][0] += a[r * CHUNK] * b0;
                acc[r][1] += a[r * CHUNK] * b1;
            }
        }
    }
    vector b0 = *(const vector *)bias, b1 = *(const vector *)(bias + WIDTH);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++, out += out_step) {
        vector *to = (vector *)out, *next = (vector *)(out + WIDTH);
        vector x = alpha * acc[r][0] + b0, y = alpha * acc[r][1] + b1;
        if (beta != 0) {
            x += beta * *to;
            y += beta * *next;
        }
        *to = x;
        *next = y;
    }
}

static const float no_bias[COLUMNS];

static inline int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
#endif
