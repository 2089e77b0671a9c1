/* Cumulative sums: floats in double, integers in int64. Along a line the sums of a block are computed on their own; the
 * total of the blocks before is added at the end. */
#include "kernel.h"
#include "dtype.h"
#include "parts.h"

/* cffi reads from here on: */
/* x (outer, n, inner) */
typedef struct { int64_t outer, n, inner; int32_t dtype; } plk_scan;
/* cffi stops reading here */

enum { COLUMNS = 256, BLOCK = 8 };

static int64_t tiles_of(const plk_scan *p) { return (p->inner + COLUMNS - 1) / COLUMNS; }

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
    static void scan_##s(void *arg, int64_t begin, int64_t end) \
    { \
        const plk_call *call = arg; \
        const plk_scan *p = call->params; \
        const T *x = call->bufs[0]; \
        T *y = call->bufs[1]; \
        int64_t tiles = tiles_of(p); \
        for (int64_t u = begin; u < end; u++) \
            if (p->inner == 1) { \
                line_##s(x + u * p->n, y + u * p->n, p->n); \
            } else { \
                int64_t j = u % tiles * COLUMNS, at = u / tiles * p->n * p->inner + j; \
                columns_##s(x + at, y + at, p->n, p->inner, p->inner - j < COLUMNS ? p->inner - j : COLUMNS); \
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
    plk_part part = p->dtype == PLK_F32 ? scan_f32 : p->dtype == PLK_F64 ? scan_f64
                  : p->dtype == PLK_I32 ? scan_i32 : scan_i64;
    plk_run_parts(p->outer * p->n * p->inner, p->outer * tiles_of(p), 1, part, &(plk_call){params, bufs, scalars});
    return PL_OK;
}
