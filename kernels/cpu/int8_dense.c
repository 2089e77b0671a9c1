/* Products of float32 rows with weights of 8 bits, a scale for each column of the result. Memory limits few rows, so
 * the weights become floats in registers; for more rows a strip of them becomes floats in the cache first. */
#include "int8_dense.h"
#include "cache.h"
#include "engine/core/scratch.h"
#include "gemm.h"
#include "parts.h"
#include "simd.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
/* WIDE: the least rows of a strip, STRIPS_EACH: for each thread; long ones are read faster */
enum { DOTS = 4, WIDE = 64, STRIPS_EACH = 4, FEW_ROWS = 4 };
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

PLK_INLINE vector widened(const int8_t *w)
{
#if defined(__AVX512F__)
    return (vector)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)w)));
#elif defined(__AVX2__)
    return (vector)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)w)));
#else
    vector v;
    for (int l = 0; l < LANES; l++)
        v[l] = w[l];
    return v;
#endif
}

PLK_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
PLK_INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

PLK_INLINE float total(vector v)
{
    float sum[4] = {0};
    for (int l = 0; l < LANES; l++)
        sum[l % 4] += v[l];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* out[r * DOTS + c] = row r of x . rows[c] */
PLK_INLINE void dots(const int n_rows, const float *x, const int8_t *const *rows, int64_t k, float *out)
{
    vector acc[FEW_ROWS][DOTS], more[DOTS] = {{0}};
    int64_t d = 0;
    _Pragma("GCC unroll 4") for (int r = 0; r < n_rows; r++)
        _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++)
            acc[r][c] = (vector){0};
    if (n_rows == 1) {    /* DOTS chains of additions would wait for each other */
        _Pragma("GCC unroll 1") for (; d + 2 * LANES <= k; d += 2 * LANES)
            _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++) {
                acc[0][c] += *(const vector *)(x + d) * widened(rows[c] + d);
                more[c] += *(const vector *)(x + d + LANES) * widened(rows[c] + d + LANES);
            }
        _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++)
            acc[0][c] += more[c];
    }
    _Pragma("GCC unroll 1") for (; d + LANES <= k; d += LANES)
        _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++) {
            vector y = widened(rows[c] + d);
            _Pragma("GCC unroll 4") for (int r = 0; r < n_rows; r++)
                acc[r][c] += *(const vector *)(x + r * k + d) * y;
        }
    for (int r = 0; r < n_rows; r++)
        for (int c = 0; c < DOTS; c++) {
            float rest = 0;
            for (int64_t e = d; e < k; e++)
                rest += x[r * k + e] * rows[c][e];
            out[r * DOTS + c] = total(acc[r][c]) + rest;
        }
}

typedef struct { const plk_int8_dense *p; void *const *bufs; int64_t wide; int status; } work;

static void few_rows(void *arg, int64_t task)
{
    const work *t = arg;
    const plk_int8_dense *p = t->p;
    const float *scale = t->bufs[2], *bias = p->bias ? t->bufs[3] : NULL;
    float *y = t->bufs[3 + p->bias], out[FEW_ROWS * DOTS];
    int64_t first = task * t->wide, n = least(p->n - first, t->wide), apart = (n + DOTS - 1) / DOTS;
    for (int64_t j = 0; j < apart; j++) {    /* DOTS rows far apart: each is read on where it ended (gemm_thin.c) */
        const int8_t *rows[DOTS];
        int64_t at[DOTS];
        for (int c = 0; c < DOTS; c++) {
            at[c] = first + least(j + c * apart, n - 1);
            rows[c] = (const int8_t *)t->bufs[1] + at[c] * p->k;
        }
        const float *x = t->bufs[0];
        for (int64_t i = 0, m; i < p->m; i += m, x += m * p->k) {
            m = least(p->m - i, FEW_ROWS);
            if (m == 4)
                dots(4, x, rows, p->k, out);
            else if (m == 3)
                dots(3, x, rows, p->k, out);
            else if (m == 2)
                dots(2, x, rows, p->k, out);
            else
                dots(1, x, rows, p->k, out);
            for (int64_t r = 0; r < m; r++)
                for (int c = 0; c < DOTS; c++)
                    y[(i + r) * p->n + at[c]] = out[r * DOTS + c] * scale[at[c]] + (bias ? bias[at[c]] : 0);
        }
    }
}

static void many_rows(void *arg, int64_t task)
{
    work *t = arg;
    const plk_int8_dense *p = t->p;
    const float *scale = t->bufs[2], *bias = p->bias ? t->bufs[3] : NULL;
    int64_t j = task * t->wide, n = p->n - j < t->wide ? p->n - j : t->wide;
    const int8_t *w = (const int8_t *)t->bufs[1] + j * p->k;
    float *y = (float *)t->bufs[3 + p->bias] + j, *floats = pl_scratch((size_t)(n * p->k) * sizeof *floats);
    int status = floats ? PL_OK : PL_ENOMEM;
    if (floats) {
        for (int64_t i = 0; i < n * p->k; i++)
            floats[i] = w[i];
        status = plk_sgemm(0, 1, p->m, n, p->k, 1, t->bufs[0], p->k, floats, p->k, 0, y, p->n, 1);
    }
    if (status)
        __atomic_store_n(&t->status, status, __ATOMIC_RELAXED);
    for (int64_t i = 0; i < p->m && !status; i++)
        for (int64_t q = 0; q < n; q++)
            y[i * p->n + q] = y[i * p->n + q] * scale[j + q] + (bias ? bias[j + q] : 0);
}

/* bufs: x, weights, scales, bias if any, result */
PLK_KERNEL(plk_int8_dense_run)
{
    const plk_int8_dense *p = params;
    int few = p->m <= 2 * FEW_ROWS, n_threads = plk_gemm_threads(p->m, p->n, p->k);
    int64_t fit = plk_cache_own() / (int64_t)sizeof(float) / (p->k ? p->k : 1) / 16 * 16;
    int64_t each = p->n / (STRIPS_EACH * n_threads);
    work t = {p, bufs, few ? most(WIDE, each) : least(most(fit, 16), 256), PL_OK};
    (void)scalars;
    pl_thread_pool_run(n_threads, (p->n + t.wide - 1) / t.wide, few ? few_rows : many_rows, &t);
    return t.status ? pl_fail(t.status, "out of memory for a matrix product") : PL_OK;
}
