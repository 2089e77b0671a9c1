/* Cumulative sums: floats in double, whole numbers in int64. Along a line the sums of a block do not wait for what came
 * before it, which is added to them at the end. */
#include "scan.h"
#include "generated/kernels.h"

enum { COLUMNS = 256, BLOCK = 8 };

#define SCAN(T, s, ACC) \
    static void line_##s(const T *x, T *y, int64_t n) \
    { \
        ACC before = 0; \
        int64_t k = 0; \
        for (; k + BLOCK <= n; k += BLOCK) { \
            ACC own[BLOCK], sum = 0; \
            for (int l = 0; l < BLOCK; l++) { \
                sum += (ACC)x[k + l]; \
                own[l] = sum; \
            } \
            for (int l = 0; l < BLOCK; l++) \
                y[k + l] = (T)(before + own[l]); \
            before += sum; \
        } \
        for (; k < n; k++) { \
            before += (ACC)x[k]; \
            y[k] = (T)before; \
        } \
    } \
    static void columns_##s(const T *x, T *y, int64_t n, int64_t inner, int64_t width) \
    { \
        ACC total[COLUMNS] = {0}; \
        for (int64_t k = 0; k < n; k++) \
            for (int64_t j = 0; j < width; j++) { \
                total[j] += (ACC)x[k * inner + j]; \
                y[k * inner + j] = (T)total[j]; \
            } \
    } \
    static void scan_##s(const plk_scan *p, const T *x, T *y) \
    { \
        int64_t tiles = (p->inner + COLUMNS - 1) / COLUMNS, units = p->inner == 1 ? p->outer : p->outer * tiles; \
        int n_threads = pl_threads(p->outer * p->n * p->inner); \
        _Pragma("omp parallel for num_threads(n_threads) if (n_threads > 1)") \
        for (int t = 0; t < n_threads; t++) { \
            int64_t begin, end; \
            plk_share(units, 1, t, n_threads, &begin, &end); \
            for (int64_t u = begin; u < end; u++) \
                if (p->inner == 1) { \
                    line_##s(x + u * p->n, y + u * p->n, p->n); \
                } else { \
                    int64_t j = u % tiles * COLUMNS, at = u / tiles * p->n * p->inner + j; \
                    columns_##s(x + at, y + at, p->n, p->inner, p->inner - j < COLUMNS ? p->inner - j : COLUMNS); \
                } \
        } \
    }
SCAN(float, f32, double)
SCAN(double, f64, double)
SCAN(int32_t, i32, int64_t)
SCAN(int64_t, i64, int64_t)

/* bufs: x, y of one dtype */
PLK_KERNEL(plk_scan_run)
{
    const plk_scan *p = params;
    (void)scalars;
    switch (p->dtype) {
    case PLK_F32: scan_f32(p, bufs[0], bufs[1]); break;
    case PLK_F64: scan_f64(p, bufs[0], bufs[1]); break;
    case PLK_I32: scan_i32(p, bufs[0], bufs[1]); break;
    default: scan_i64(p, bufs[0], bufs[1]);
    }
    return PL_OK;
}
