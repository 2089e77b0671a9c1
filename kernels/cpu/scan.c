/* Cumulative sums and products: floats in double, integers in 64 bits, which wrap. Along a line the results of a block
 * are computed on their own; the total of the blocks before joins at the end. Not so for products of doubles: those of
 * a block may overflow where all of them do not. */
#include "dtype.h"
#include "generated/kernels.h"
#include "kernel.h"
#include "parts.h"

/* cffi reads from here on: */
/* x (outer, n, inner) */
typedef struct { int64_t outer, n, inner; int32_t dtype, multiplies; } plk_scan;
/* cffi stops reading here */

enum { COLUMNS = 256 };

static int64_t tiles_of(const plk_scan *p) { return (p->inner + COLUMNS - 1) / COLUMNS; }

/* s: suffix; ACC: type of totals; OP: + or *; FIRST: what changes nothing; BLOCK: elements along a line */
#define SCAN(T, s, ACC, OP, FIRST, BLOCK) \
    static void line_##s(const T *x, T *y, int64_t n) \
    { \
        ACC before = FIRST; \
        int64_t k = 0; \
        for (; k + BLOCK <= n; k += BLOCK) { \
            ACC own[BLOCK], total = FIRST; \
            for (int l = 0; l < BLOCK; l++) { \
                total = total OP (ACC)x[k + l]; \
                own[l] = total; \
            } \
            for (int l = 0; l < BLOCK; l++) \
                y[k + l] = (T)(before OP own[l]); \
            before = before OP total; \
        } \
        for (; k < n; k++) { \
            before = before OP (ACC)x[k]; \
            y[k] = (T)before; \
        } \
    } \
    static void columns_##s(const T *x, T *y, int64_t n, int64_t inner, int64_t width) \
    { \
        ACC total[COLUMNS]; \
        for (int j = 0; j < COLUMNS; j++) \
            total[j] = FIRST; \
        for (int64_t k = 0; k < n; k++) \
            for (int64_t j = 0; j < width; j++) { \
                total[j] = total[j] OP (ACC)x[k * inner + j]; \
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
SCAN(float, sums_f32, double, +, 0, 8)
SCAN(double, sums_f64, double, +, 0, 8)
SCAN(int32_t, sums_i32, uint64_t, +, 0, 8)
SCAN(int64_t, sums_i64, uint64_t, +, 0, 8)
SCAN(float, products_f32, double, *, 1, 8)
SCAN(double, products_f64, double, *, 1, 1)
SCAN(int32_t, products_i32, uint64_t, *, 1, 8)
SCAN(int64_t, products_i64, uint64_t, *, 1, 8)

/* bufs: x, y of one dtype */
PLK_KERNEL(plk_scan_run)
{
    static const plk_part parts[2][4] = {{scan_sums_f32, scan_sums_f64, scan_sums_i32, scan_sums_i64},
                                         {scan_products_f32, scan_products_f64, scan_products_i32, scan_products_i64}};
    const plk_scan *p = params;
    int kind = p->dtype == PLK_F32 ? 0 : p->dtype == PLK_F64 ? 1 : p->dtype == PLK_I32 ? 2 : 3;
    plk_run_parts(p->outer * p->n * p->inner, p->outer * tiles_of(p), 1, parts[p->multiplies != 0][kind],
                  &(plk_call){params, bufs, scalars});
    return PL_OK;
}
