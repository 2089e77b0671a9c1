/* The register tile of matrix products and the packing of its operands; for files that include "simd.h".
 *
 * There are three tiles, which differ in what is packed. This one: both operands, if many tiles read them. lanes.h:
 * only B; A is read by pointers to rows or by offsets (convolutions, where A is an image whose rows overlap). panel.h:
 * a matrix that is used for many products, in float or double, summed in an order that does not depend on the rows
 * (RNNs). Unnecessary packing would cost another pass over memory.
 *
 * Element (i, d) of A is a[i * a_row + d * a_depth], (d, j) of B is b[d * b_depth + j * b_column]. */
#ifndef PLK_TILE_H
#define PLK_TILE_H
#include "simd.h"
#if defined(__AVX__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { WIDTH = 16, ROWS = 14, DEPTH = 256 };
#elif defined(__AVX2__)
enum { WIDTH = 8, ROWS = 6, DEPTH = 256 };
#elif defined(__aarch64__)
enum { WIDTH = 4, ROWS = 8, DEPTH = 256 };
#else
enum { WIDTH = 4, ROWS = 6, DEPTH = 256 };
#endif
enum { FEW_ROWS = ROWS / 2 + 1, COLUMNS = 2 * WIDTH, CHUNK = 8, UNROLL = 4, AHEAD = 16, LINE = 16 };
typedef float vector __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

/* Stores the four columns of HEIGHT x 4 elements. */
#if defined(__AVX__)
enum { HEIGHT = 8 };
typedef float tall __attribute__((vector_size(32), aligned(4), may_alias));

static inline tall two_rows(const float *row, const float *row4)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(row)), _mm_loadu_ps(row4), 1);
}

static inline void transpose_block(float *to, int64_t to_step, const float *from, int64_t from_step)
{
    const float *from4 = from + 4 * from_step;
    tall a = two_rows(from, from4), b = two_rows(from + from_step, from4 + from_step);
    tall c = two_rows(from + 2 * from_step, from4 + 2 * from_step);
    tall d = two_rows(from + 3 * from_step, from4 + 3 * from_step);
    tall ab = _mm256_unpacklo_ps(a, b), AB = _mm256_unpackhi_ps(a, b);
    tall cd = _mm256_unpacklo_ps(c, d), CD = _mm256_unpackhi_ps(c, d);
    *(tall *)to = _mm256_shuffle_ps(ab, cd, 0x44);
    *(tall *)(to + to_step) = _mm256_shuffle_ps(ab, cd, 0xee);
    *(tall *)(to + 2 * to_step) = _mm256_shuffle_ps(AB, CD, 0x44);
    *(tall *)(to + 3 * to_step) = _mm256_shuffle_ps(AB, CD, 0xee);
}
#else
enum { HEIGHT = 4 };
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t quad_index __attribute__((vector_size(16)));

static inline void transpose_block(float *to, int64_t to_step, const float *from, int64_t from_step)
{
    quad a = *(const quad *)from, b = *(const quad *)(from + from_step), c = *(const quad *)(from + 2 * from_step),
         d = *(const quad *)(from + 3 * from_step);
    quad ab = __builtin_shuffle(a, b, (quad_index){0, 4, 1, 5}), AB = __builtin_shuffle(a, b, (quad_index){2, 6, 3, 7});
    quad cd = __builtin_shuffle(c, d, (quad_index){0, 4, 1, 5}), CD = __builtin_shuffle(c, d, (quad_index){2, 6, 3, 7});
    *(quad *)to = __builtin_shuffle(ab, cd, (quad_index){0, 1, 4, 5});
    *(quad *)(to + to_step) = __builtin_shuffle(ab, cd, (quad_index){2, 3, 6, 7});
    *(quad *)(to + 2 * to_step) = __builtin_shuffle(AB, CD, (quad_index){0, 1, 4, 5});
    *(quad *)(to + 3 * to_step) = __builtin_shuffle(AB, CD, (quad_index){2, 3, 6, 7});
}
#endif

/* to[c * to_step + r] = from[r * from_step + c] for rows x columns elements */
static void transpose(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t rows, int64_t columns)
{
    int64_t r = 0;
    for (; r + HEIGHT <= rows; r += HEIGHT) {
        int64_t c = 0;
        for (; c + 4 <= columns; c += 4)
            transpose_block(to + c * to_step + r, to_step, from + r * from_step + c, from_step);
        for (; c < columns; c++)
            for (int64_t i = r; i < r + HEIGHT; i++)
                to[c * to_step + i] = from[i * from_step + c];
    }
    for (; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            to[c * to_step + r] = from[r * from_step + c];
}

/* A block of A in panels of ROWS rows and DEPTH steps, with zeros for missing rows of the last one. If the steps of a
 * row are contiguous, a panel is (chunk, row, CHUNK steps), else (step, row): nothing is transposed. */
__attribute__((unused)) static void pack_a(float *to, const float *a, int64_t a_row, int64_t a_depth, int64_t rows,
                                           int64_t depth)
{
    for (int64_t i = 0; i < rows; i += ROWS, to += ROWS * DEPTH, a += ROWS * a_row) {
        int64_t some = rows - i < ROWS ? rows - i : ROWS;
        float *at = to;
        if (some < ROWS && some != FEW_ROWS)
            memset(to, 0, sizeof(float) * (size_t)(ROWS * (depth + CHUNK - 1) / CHUNK * CHUNK));
        if (a_depth == 1) {
            for (int64_t r = 0; r < some; r++) {
                const float *from = a + r * a_row;
                int64_t d = 0;
                at = to + r * CHUNK;
                for (; d + CHUNK <= depth; d += CHUNK, at += ROWS * CHUNK)
                    memcpy(at, from + d, CHUNK * sizeof *at);
                for (; d < depth; d++)
                    *at++ = from[d];
            }
        } else if (a_row == 1 && some == ROWS) {
            for (int64_t d = 0; d < depth; d++, at += ROWS)
                memcpy(at, a + d * a_depth, ROWS * sizeof *at);
        } else {
            for (int64_t d = 0; d < depth; d++, at += ROWS)
                for (int64_t r = 0; r < some; r++)
                    at[r] = a[r * a_row + d * a_depth];
        }
    }
}

/* One panel of B: `depth` steps of COLUMNS; missing columns are zeros. */
__attribute__((unused)) static void pack_b(float *to, const float *b, int64_t b_depth, int64_t b_column,
                                           int64_t columns, int64_t depth)
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

static const float no_bias[COLUMNS];

/* to += x * y.  As an instruction: left to themselves compilers change which operand is overwritten, and spill. */
#if defined(__FMA__)
#define ADD_PRODUCT(to, x, y) __asm__("vfmadd231ps %2, %1, %0" : "+v"(to) : "v"(x), "v"(y))
#else
#define ADD_PRODUCT(to, x, y) to += x * y
#endif
/* Step s of a tile. The fence stops the compiler from moving loads of later steps here: no register is free. */
#define STEP(s, n_rows, row, step, keep) \
    { \
        const float *line = s < 2 ? b + s * b_step : below + (s - 2) * b_step; \
        vector b0 = *(const vector *)line, b1 = *(const vector *)(line + WIDTH); \
        keep(s) \
        _Pragma("GCC unroll 16") for (int r = 0; r < n_rows; r++) { \
            vector x = (r < ROWS / 2 ? a[r * row + s * step] : low[(r - ROWS / 2) * row + s * step]) - (vector){0}; \
            ADD_PRODUCT(acc[r][0], x, b0); \
            ADD_PRODUCT(acc[r][1], x, b1); \
        } \
        __asm__ volatile("" ::: "memory"); \
    }
/* What a line AHEAD has that its neighbour on the left has not brought along, wherever it begins. */
#define FETCH(s) \
    if ((int)COLUMNS > LINE) \
        __builtin_prefetch(line + AHEAD * b_step + LINE - 1); \
    __builtin_prefetch(line + AHEAD * b_step + COLUMNS - 1);
#define KEEP(s) \
    FETCH(s) \
    *(vector *)(panel + s * COLUMNS) = b0; \
    *(vector *)(panel + s * COLUMNS + WIDTH) = b1;
#define SOON(s) \
    if ((int)COLUMNS > LINE) \
        __builtin_prefetch(soon + s * b_step + LINE, 0, 2); \
    __builtin_prefetch(soon + s * b_step, 0, 2);
#define NO(s)
#define KEPT(n) panel += n * COLUMNS;
#define WENT(n) soon += n * b_step;
/* out (n_rows x COLUMNS) = alpha * rows of A times columns of B + beta * out + bias.  Lines of B are b_step apart;
 * step d of row r of A is at d / chunk * next + d * step + r * row.  more: parameters; keep, kept: whether lines of B
 * are fetched ahead, and also written to a `panel`.  noinline: it needs all registers. */
#define COMMA ,
#define TILE(name, n_rows, more, chunk, next, row, step, keep, kept) \
    __attribute__((noinline, unused)) static void name(int64_t depth, const float *a, more const float *b, \
                                                       int64_t b_step, float alpha, float beta, const float *bias, \
                                                       float *out, int64_t out_step) \
    { \
        vector acc[n_rows][2]; \
        _Pragma("GCC unroll 16") for (int r = 0; r < n_rows; r++) { \
            __builtin_prefetch(out + r * out_step, 1); \
            acc[r][0] = acc[r][1] = (vector){0}; \
        } \
        for (int64_t left = depth; left > 0; left -= chunk, a += next) { \
            int64_t n = left < chunk ? left : chunk; \
            for (; n >= UNROLL; n -= UNROLL, a += UNROLL * step, b += UNROLL * b_step) { \
                const float *low = a + ROWS / 2 * row, *below = b + 2 * b_step; \
                STEP(0, n_rows, row, step, keep) STEP(1, n_rows, row, step, keep) \
                STEP(2, n_rows, row, step, keep) STEP(3, n_rows, row, step, keep) \
                kept(UNROLL) \
            } \
            _Pragma("GCC unroll 1") for (; n > 0; n--, a += step, b += b_step) { \
                const float *low = a + ROWS / 2 * row, *below = b + 2 * b_step; \
                STEP(0, n_rows, row, step, keep) \
                kept(1) \
            } \
        } \
        vector b0 = *(const vector *)bias, b1 = *(const vector *)(bias + WIDTH); \
        _Pragma("GCC unroll 16") for (int r = 0; r < n_rows; r++, out += out_step) { \
            vector *to = (vector *)out, *right = (vector *)(out + WIDTH); \
            vector x = alpha * acc[r][0] + b0, y = alpha * acc[r][1] + b1; \
            if (beta != 0) { \
                x += beta * *to; \
                y += beta * *right; \
            } \
            *to = x; \
            *right = y; \
        } \
    }
TILE(tile_rows, ROWS, , CHUNK, (ROWS - 1) * CHUNK, CHUNK, 1, NO, NO)           /* as pack_a leaves them */
TILE(tile_steps, ROWS, , DEPTH, 0, 1, ROWS, NO, NO)
TILE(few_rows, FEW_ROWS, , CHUNK, (ROWS - 1) * CHUNK, CHUNK, 1, FETCH, NO)     /* for few rows */
TILE(few_steps, FEW_ROWS, , DEPTH, 0, 1, ROWS, FETCH, NO)
TILE(tile_rows_keep, ROWS, float *panel COMMA, CHUNK, (ROWS - 1) * CHUNK, CHUNK, 1, KEEP, KEPT)
TILE(tile_steps_keep, ROWS, float *panel COMMA, DEPTH, 0, 1, ROWS, KEEP, KEPT)
TILE(few_rows_keep, FEW_ROWS, float *panel COMMA, CHUNK, (ROWS - 1) * CHUNK, CHUNK, 1, KEEP, KEPT)
TILE(few_steps_keep, FEW_ROWS, float *panel COMMA, DEPTH, 0, 1, ROWS, KEEP, KEPT)
TILE(tile_rows_soon, ROWS, const float *soon COMMA, CHUNK, (ROWS - 1) * CHUNK, CHUNK, 1, SOON, WENT)
TILE(few_rows_soon, FEW_ROWS, const float *soon COMMA, CHUNK, (ROWS - 1) * CHUNK, CHUNK, 1, SOON, WENT)
TILE(tile_rows_apart, ROWS, int64_t apart COMMA, DEPTH, 0, apart, 1, NO, NO)   /* in place, in a matrix */
TILE(tile_steps_apart, ROWS, int64_t apart COMMA, DEPTH, 0, 1, apart, NO, NO)
#undef TILE
#undef WENT
#undef KEPT
#undef NO
#undef SOON
#undef KEEP
#undef FETCH
#undef STEP

static inline int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
#endif
