/* Matrix products with few rows: B is read in place, since packing it would cost more than it saves; and small ones. */
#include "parts.h"
#include "simd.h"
#if defined(__AVX__)
#include <immintrin.h>
#endif
#include "act.h"

#if defined(__AVX512F__)
enum { LANES = 16, ROWS = 6 };    /* as many rows as there are registers for */
#elif defined(__AVX__)
enum { LANES = 8, ROWS = 3 };
#else
enum { LANES = 4, ROWS = 3 };
#endif
enum { DOTS = 4, WIDE = 64, SMALL_ROWS = 4, PAIR = 2 * LANES,
       PIECES = WIDE / PAIR < 4 ? WIDE / PAIR : 4, MOST_ROWS = 3, STEPS = 64 };
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The first n < LANES elements of a vector, then zeros. */
static inline vector first(const float *x, int64_t n)
{
#if defined(__AVX512F__)
    return (vector)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), x);
#elif defined(__AVX__)
    static const int32_t ones[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return (vector)_mm256_maskload_ps(x, _mm256_loadu_si256((const __m256i *)(ones + LANES - n)));
#else
    vector v = {0};
    memcpy(&v, x, (size_t)n * sizeof *x);
    return v;
#endif
}

/* The sums of DOTS vectors. */
static inline void totals(const vector *v, float *out)
{
#if defined(__AVX512F__)
    __m256 half[DOTS];
    for (int c = 0; c < DOTS; c++)
        half[c] = _mm256_add_ps(_mm512_castps512_ps256((__m512)v[c]),
                                _mm256_castpd_ps(_mm512_extractf64x4_pd((__m512d)v[c], 1)));
#elif defined(__AVX__)
    const __m256 half[DOTS] = {(__m256)v[0], (__m256)v[1], (__m256)v[2], (__m256)v[3]};
#endif
#if defined(__AVX__)
    __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(half[0], half[1]), _mm256_hadd_ps(half[2], half[3]));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
#else
    for (int c = 0; c < DOTS; c++)
        out[c] = (v[c][0] + v[c][2]) + (v[c][1] + v[c][3]);
#endif
}

/* out[r * WIDE + at[c]] = row r of A . column at[c] of B for n_rows rows, all contiguous along the depth */
static inline __attribute__((always_inline)) void dots(const int n_rows, const float *a, int64_t a_row, const float *b,
                                                       int64_t b_column, const int64_t *at, int64_t k, float *out)
{
    vector acc[ROWS][DOTS];
    const float *columns[DOTS];
    float sums[DOTS];
    int64_t d = 0;
    _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++)
        columns[c] = b + at[c] * b_column;
    _Pragma("GCC unroll 6") for (int r = 0; r < n_rows; r++)
        _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++)
            acc[r][c] = (vector){0};
    if (n_rows == 1) {    /* DOTS chains of additions would wait for each other */
        vector more[DOTS] = {0};
        _Pragma("GCC unroll 1") for (; d + 2 * LANES <= k; d += 2 * LANES) {
            const vector *x = (const vector *)(a + d);
            _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++) {
                const vector *y = (const vector *)(columns[c] + d);
                acc[0][c] += x[0] * y[0];
                more[c] += x[1] * y[1];
            }
        }
        _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++)
            acc[0][c] += more[c];
    }
    /* acc += the products of the vectors at d */
#define ADD(load) \
    { \
        vector x[ROWS]; \
        _Pragma("GCC unroll 6") for (int r = 0; r < n_rows; r++) \
            x[r] = load(a + r * a_row + d); \
        _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++) { \
            vector y = load(columns[c] + d); \
            _Pragma("GCC unroll 6") for (int r = 0; r < n_rows; r++) \
                acc[r][c] += x[r] * y; \
        } \
    }
#define WHOLE(at) *(const vector *)(at)
#define REST(at) first(at, k - d)
    _Pragma("GCC unroll 1") for (; d + LANES <= k; d += LANES)
        ADD(WHOLE)
    if (d < k)
        ADD(REST)
#undef REST
#undef WHOLE
#undef ADD
    _Pragma("GCC unroll 6") for (int r = 0; r < n_rows; r++) {
        totals(acc[r], sums);
        for (int c = 0; c < DOTS; c++)
            out[r * WIDE + at[c]] = sums[c];
    }
}

/* The product of two vectors. */
static float dot(const float *a, const float *b, int64_t n)
{
    vector acc[DOTS] = {0};
    float part[DOTS], total;
    int64_t d = 0;
    for (; d + DOTS * LANES <= n; d += DOTS * LANES)
        _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++)
            acc[c] += *(const vector *)(a + d + c * LANES) * *(const vector *)(b + d + c * LANES);
    totals(acc, part);
    total = (part[0] + part[1]) + (part[2] + part[3]);
    for (; d < n; d++)
        total += a[d] * b[d];
    return total;
}

/* out[j] = x . (column j of B) for WIDE adjacent columns */
static void rows(const float *x, int64_t x_step, const float *b, int64_t b_depth, int64_t k, float *out)
{
    float acc[WIDE] = {0};
    for (int64_t d = 0; d < k; d++)
        for (int j = 0; j < WIDE; j++)
            acc[j] += x[d * x_step] * b[d * b_depth + j];
    memcpy(out, acc, sizeof acc);
}

/* out[r * WIDE + i * PAIR + q] += row r of A . column q of pieces[i] over k steps; lines of pieces are b_step apart */
static inline __attribute__((always_inline)) void
side_by_side(const int n_rows, const int n_pieces, const float *a, int64_t a_row, int64_t a_depth,
             const float *const *pieces, int64_t b_step, int64_t k, float *out)
{
    vector acc[MOST_ROWS][2 * PIECES];
    _Pragma("GCC unroll 3") for (int r = 0; r < n_rows; r++)
        _Pragma("GCC unroll 8") for (int c = 0; c < 2 * n_pieces; c++)
            acc[r][c] = *(const vector *)(out + r * WIDE + c * LANES);
    _Pragma("GCC unroll 1") for (int64_t d = 0; d < k; d++) {
        vector x[MOST_ROWS];
        _Pragma("GCC unroll 3") for (int r = 0; r < n_rows; r++)
            x[r] = a[r * a_row + d * a_depth] - (vector){0};
        _Pragma("GCC unroll 8") for (int c = 0; c < 2 * n_pieces; c++) {
            vector y = ((const vector *)(pieces[c / 2] + d * b_step))[c % 2];
            _Pragma("GCC unroll 3") for (int r = 0; r < n_rows; r++)
                acc[r][c] += x[r] * y;
        }
    }
    _Pragma("GCC unroll 3") for (int r = 0; r < n_rows; r++)
        _Pragma("GCC unroll 8") for (int c = 0; c < 2 * n_pieces; c++)
            *(vector *)(out + r * WIDE + c * LANES) = acc[r][c];
}

/* As strip, of a B in panels. Pieces of these are read side by side, or some steps of each in turns, as that many
 * streams are faster than one. out: zeros */
static void strip_of_panels(const plk_matmul *p, int64_t n_rows, const float *a, const float *b, int64_t j, int64_t n,
                            float *out)
{
    const int64_t steps = n_rows == 1 ? p->k : STEPS;
    for (int64_t i = 0; i * PAIR < n; i += PIECES, out += PIECES * PAIR) {
        const float *pieces[PIECES];
        for (int c = 0; c < PIECES; c++)
            pieces[c] = plk_column(p, b, j + least(i + c, (n - 1) / PAIR) * PAIR);
        for (int64_t d = 0; d < p->k; d += steps) {
            const float *at = a + d * p->a_depth;
            int64_t some = least(steps, p->k - d);
#define CALL(n, n_pieces, r, c) \
    side_by_side(n, n_pieces, at + r * p->a_row, p->a_row, p->a_depth, pieces + c, p->b_depth, some, \
                 out + r * WIDE + c * PAIR)
            if (n_rows == MOST_ROWS)
                for (int c = 0; c < PIECES; c += 2)
                    CALL(MOST_ROWS, 2, 0, c);
            else if (n_rows == 2 && PIECES == 2)
                CALL(2, 2, 0, 0);
            else
                for (int r = 0; r < n_rows; r++)
                    CALL(1, PIECES, r, 0);
#undef CALL
            for (int c = 0; c < PIECES; c++)
                pieces[c] += some * p->b_depth;
        }
    }
}

/* out (n_rows x n, WIDE apart) = columns [j, j + n) of a few rows of the product */
static void strip(const plk_matmul *p, int64_t n_rows, const float *a, const float *b, int64_t j, int64_t n,
                  float *out)
{
    int64_t done = 0, apart = (n + DOTS - 1) / DOTS;
    if (p->panel && p->panel % PAIR == 0) {
        strip_of_panels(p, n_rows, a, b, j, n, out);
        return;
    }
    if (p->panel) {                               /* made while the process kept to lesser instructions */
        for (int64_t r = 0; r < n_rows; r++)
            for (int64_t i = 0; i < n; i++) {
                const float *x = a + r * p->a_row, *column = plk_column(p, b, j + i);
                for (int64_t d = 0; d < p->k; d++)
                    out[r * WIDE + i] += x[d * p->a_depth] * column[d * p->b_depth];
            }
        return;
    }
    b += j * p->b_column;
    if (p->b_depth == 1 && p->a_depth == 1 && n >= DOTS) {
        /* DOTS columns that are far apart: each is read on where it ended, as processors expect of a reader */
        for (int64_t i = 0; i < apart; i++) {
            const int64_t at[DOTS] = {i, i + apart, least(i + 2 * apart, n - 1), least(i + 3 * apart, n - 1)};
            switch (n_rows) {
#define CASE(n) case n: dots(n, a, p->a_row, b, p->b_column, at, p->k, out); break;
                CASE(1) CASE(2) CASE(3)
#if defined(__AVX512F__)
                CASE(4) CASE(5) CASE(6)
#endif
#undef CASE
            }
        }
        done = n;
    }
    for (int64_t r = 0; r < n_rows; r++) {
        const float *x = a + r * p->a_row;
        int64_t i = done;
        if (p->b_column == 1 && p->b_depth != 1)
            for (; i + WIDE <= n; i += WIDE)
                rows(x, p->a_depth, b + i, p->b_depth, p->k, out + r * WIDE + i);
        for (; i < n; i++) {
            float total = 0;
            if (p->a_depth == 1 && p->b_depth == 1)
                total = dot(x, b + i * p->b_column, p->k);
            else for (int64_t d = 0; d < p->k; d++)
                total += x[d * p->a_depth] * b[d * p->b_depth + i * p->b_column];
            out[r * WIDE + i] = total;
        }
    }
}

/* The epilogue for n columns of one row. */
static void finish(const plk_matmul *p, const float *result, int64_t at, int64_t j, int64_t n, const float *bias,
                   const float *residual, float *c, float *pre)
{
    float v[WIDE] = {0}, *to = c + at;
    if (!bias && !residual && !pre && p->beta == 0 && p->act == PLK_ACT_NONE) {
        for (int64_t q = 0; q < n; q++)
            to[q] = p->alpha * result[q];
        return;
    }
    static const float none[WIDE];
    const float *add = bias ? bias + j : none; /* not a choice for each element: masked loads at NULL are slow */
    for (int64_t q = 0; q < n; q++)
        v[q] = p->alpha * result[q] + (p->beta != 0 ? p->beta * to[q] : 0) + add[q];
    if (pre)
        memcpy(pre + at, v, (size_t)n * sizeof *v);
    plk_activate(p->act, v, WIDE);
    if (p->slope)
        plk_slope(p->slope, residual + at, v, n);
    for (int64_t q = 0; q < n; q++)
        to[q] = v[q] + (residual && !p->slope ? residual[at + q] : 0);
}

typedef struct { const plk_matmul *p; void *const *bufs; } thin;

static void run_strip(void *arg, int64_t strip_at)
{
    const thin *t = arg;
    const plk_matmul *p = t->p;
    const float *a = t->bufs[0], *b = t->bufs[1], *bias = t->bufs[2], *residual = t->bufs[3];
    float *c = t->bufs[4], *pre = t->bufs[5];
    int64_t n_parts = (p->m + ROWS - 1) / ROWS, j = strip_at * WIDE, n = p->n - j < WIDE ? p->n - j : WIDE, i, end;
    for (int64_t part = 0; part < n_parts; part++) {
        plk_share(p->m, 1, (int)part, (int)n_parts, &i, &end);
        float v[ROWS * WIDE] = {0};
        strip(p, end - i, a + i * p->a_row, b, j, n, v);
        for (const float *line = v; i < end; i++, line += WIDE)
            finish(p, line, i * p->c_row + j, j, n, bias, residual, c, pre);
    }
}

/* As plk_matmul_run, for few rows. */
PLK_KERNEL(plk_matmul_thin)
{
    const plk_matmul *p = params;
    const float *a = bufs[0];
    float *sums = bufs[6];
    (void)scalars;
    pl_thread_pool_run(p->n_threads, (p->n + WIDE - 1) / WIDE, run_strip, &(thin){p, bufs});
    for (int64_t i = 0; i < p->m && sums; i++) {
        sums[i] = 0;
        for (int64_t d = 0; d < p->k; d++)
            sums[i] += a[i * p->a_row + d * p->a_depth];
    }
    return PL_OK;
}

/* out[r * WIDE + q] = row r of A . column q of B for n_rows rows and PAIR columns, adjacent in B */
static inline __attribute__((always_inline)) void small_tile(const plk_matmul *p, const int n_rows, const float *a,
                                                             const float *b, int64_t b_depth, float *out)
{
    vector acc[SMALL_ROWS][2];
    _Pragma("GCC unroll 4") for (int r = 0; r < n_rows; r++)
        acc[r][0] = acc[r][1] = (vector){0};
    _Pragma("GCC unroll 1") for (int64_t d = 0; d < p->k; d++) {
        const vector *y = (const vector *)(b + d * b_depth);
        _Pragma("GCC unroll 4") for (int r = 0; r < n_rows; r++) {
            float x = a[r * p->a_row + d * p->a_depth];
            acc[r][0] += x * y[0];
            acc[r][1] += x * y[1];
        }
    }
    _Pragma("GCC unroll 4") for (int r = 0; r < n_rows; r++)
        memcpy(out + r * WIDE, acc[r], sizeof acc[r]);
}

/* As plk_matmul_run, for at most WIDE columns and PLK_SMALL elements of B: no thread, no packing of A. */
PLK_KERNEL(plk_matmul_small)
{
    const plk_matmul *p = params;
    const float *a = bufs[0], *b = bufs[1], *bias = bufs[2], *residual = bufs[3];
    float packed[PLK_SMALL], v[SMALL_ROWS * WIDE];
    int64_t width = (p->n + PAIR - 1) / PAIR * PAIR, step = p->b_depth;
    (void)scalars;
    if (p->b_column != 1 || p->n != width) {
        for (int64_t d = 0; d < p->k; d++)
            for (int64_t q = 0; q < width; q++)
                packed[d * width + q] = q < p->n ? b[d * p->b_depth + q * p->b_column] : 0;
        b = packed, step = width;
    }
    for (int64_t i = 0; i < p->m; i += SMALL_ROWS) {
        int64_t rows = p->m - i < SMALL_ROWS ? p->m - i : SMALL_ROWS;
        const float *from = a + i * p->a_row;
        for (int64_t q = 0; q < width; q += PAIR)
            if (rows == SMALL_ROWS)
                small_tile(p, SMALL_ROWS, from, b + q, step, v + q);
            else
                for (int64_t r = 0; r < rows; r++)
                    small_tile(p, 1, from + r * p->a_row, b + q, step, v + r * WIDE + q);
        for (int64_t r = 0; r < rows; r++)
            finish(p, v + r * WIDE, (i + r) * p->c_row, 0, p->n, bias, residual, bufs[4], bufs[5]);
    }
    return PL_OK;
}
