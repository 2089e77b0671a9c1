/* Register tiles of matrix products and transposed vectors, for kernels that pack their own operands.
 *
 * A tile is ROWS(v) rows of v vectors: c[r][j] += sum over k of a[r][k] * b[k][j]. Rows past the end repeat the last
 * one, in a and c, so a remainder needs no code of its own; columns are padded to whole vectors by the packing.
 */
#ifndef PLK_LANES_H
#define PLK_LANES_H
#include "simd.h"

#if defined(__AVX512F__)
enum { LANES = 16, MAX_ROWS = 14 };
#define ROWS(v) ((v) == 1 ? 14 : (v) == 2 ? 12 : 8)
#elif defined(__aarch64__)    /* 32 registers of 4 */
enum { LANES = 4, MAX_ROWS = 14 };
#define ROWS(v) ((v) == 1 ? 14 : (v) == 2 ? 12 : 8)
#elif defined(__AVX2__)
enum { LANES = 8, MAX_ROWS = 10 };
#define ROWS(v) ((v) == 1 ? 10 : (v) == 2 ? 6 : 4)
#else
enum { LANES = 4, MAX_ROWS = 10 };
#define ROWS(v) ((v) == 1 ? 10 : (v) == 2 ? 6 : 4)
#endif
enum { MAX_VECTORS = 3 };
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

PLK_INLINE vec vec_load(const float *x) { return *(const vec *)x; }
PLK_INLINE void vec_store(float *x, vec v) { *(vec *)x = v; }
PLK_INLINE vec vec_all(float x) { return x - (vec){0}; }

/* rows, to: one pointer for each row of a and of c; element k of a row is at k * step, or at
 * offsets[k] if given.  b: v vectors for each k, b_step floats apart.  add: to the contents of c. */
PLK_INLINE void tile(const int v, int64_t depth, const float *const *rows, int64_t step, const int32_t *offsets,
                     const float *b, int64_t b_step, float *const *to, int add)
{
    const int m = ROWS(v);
    vec acc[MAX_ROWS][MAX_VECTORS];
    const float *a[MAX_ROWS];
    _Pragma("GCC unroll 16") for (int r = 0; r < m; r++) {
        a[r] = rows[r];
        _Pragma("GCC unroll 4") for (int j = 0; j < v; j++)
            acc[r][j] = add ? vec_load(to[r] + j * LANES) : (vec){0};
    }
    for (int64_t k = 0; k < depth; k++, b += b_step) {
        vec y[MAX_VECTORS];
        int64_t at = offsets ? offsets[k] : k * step;
        _Pragma("GCC unroll 4") for (int j = 0; j < v; j++)
            y[j] = vec_load(b + j * LANES);
        _Pragma("GCC unroll 16") for (int r = 0; r < m; r++) {
            vec x = vec_all(a[r][at]);
            _Pragma("GCC unroll 4") for (int j = 0; j < v; j++)
                acc[r][j] += x * y[j];
        }
    }
    _Pragma("GCC unroll 16") for (int r = 0; r < m; r++)
        _Pragma("GCC unroll 4") for (int j = 0; j < v; j++)
            vec_store(to[r] + j * LANES, acc[r][j]);
}

/* ---- transposition: LANES rows of LANES floats ---------------------------------------------------------------- */

typedef int32_t lanes_mask __attribute__((vector_size(4 * LANES)));
#if defined(__AVX512F__)
#define LOW(s) \
    ((lanes_mask){MIX(0, s), MIX(1, s), MIX(2, s), MIX(3, s), MIX(4, s), MIX(5, s), MIX(6, s), MIX(7, s), MIX(8, s), \
                  MIX(9, s), MIX(10, s), MIX(11, s), MIX(12, s), MIX(13, s), MIX(14, s), MIX(15, s)})
#elif defined(__AVX2__)
#define LOW(s) ((lanes_mask){MIX(0, s), MIX(1, s), MIX(2, s), MIX(3, s), MIX(4, s), MIX(5, s), MIX(6, s), MIX(7, s)})
#else
#define LOW(s) ((lanes_mask){MIX(0, s), MIX(1, s), MIX(2, s), MIX(3, s)})
#endif
#define MIX(l, s) ((l) & (s) ? (l) - (s) + LANES : (l))    /* lanes with bit s come from the second vector */
/* One butterfly: exchanges the blocks off the diagonal of each pair of rows s apart. */
#define EXCHANGE(s) \
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) \
        if (!(i & (s))) { \
            vec a = v[i], b = v[i + (s)]; \
            v[i] = __builtin_shuffle(a, b, LOW(s)); \
            v[i + (s)] = __builtin_shuffle(a, b, LOW(s) + (s)); \
        }

PLK_INLINE void vec_transpose(vec *v)
{
#if defined(__AVX512F__)
    EXCHANGE(8)
#endif
#if defined(__AVX2__)
    EXCHANGE(4)
#endif
    EXCHANGE(2)
    EXCHANGE(1)
}

/* Column j of LANES rows, to[j * to_step + lane], from from[lane * lane_step + j]; lanes past n_lanes are zeros. */
PLK_INLINE void to_lanes(const float *from, int64_t lane_step, int64_t n_lanes, int64_t n_columns, float *to,
                         int64_t to_step)
{
    int64_t j = 0;
    if (n_lanes == LANES)
        for (; j + LANES <= n_columns; j += LANES) {
            vec v[LANES];
            _Pragma("GCC unroll 16") for (int l = 0; l < LANES; l++)
                v[l] = vec_load(from + l * lane_step + j);
            vec_transpose(v);
            _Pragma("GCC unroll 16") for (int l = 0; l < LANES; l++)
                vec_store(to + (j + l) * to_step, v[l]);
        }
    for (; j < n_columns; j++)
        for (int64_t l = 0; l < LANES; l++)
            to[j * to_step + l] = l < n_lanes ? from[l * lane_step + j] : 0;
}

/* The inverse: to[lane * lane_step + j] <- from[j * from_step + lane] + shift, n_lanes of them. */
PLK_INLINE void from_lanes(const float *from, int64_t from_step, int64_t n_columns, vec shift, float *to,
                           int64_t lane_step, int64_t n_lanes)
{
    for (int64_t j = 0, n; j < n_columns; j += n) {
        vec v[LANES];
        n = n_columns - j < LANES ? n_columns - j : LANES;
        _Pragma("GCC unroll 16") for (int k = 0; k < LANES; k++)
            v[k] = vec_load(from + (j + (k < n ? k : 0)) * from_step) + shift;
        vec_transpose(v);
        if (n == LANES && n_lanes == LANES)
            _Pragma("GCC unroll 16") for (int l = 0; l < LANES; l++)
                vec_store(to + l * lane_step + j, v[l]);
        else
            for (int64_t l = 0; l < n_lanes; l++)
                memcpy(to + l * lane_step + j, &v[l], (size_t)n * sizeof *to);
    }
}
#endif
