/* Reductions of one array over any axes, and positions of extremes. */
#include "reduce.h"
#include "dtype.h"
#include "parts.h"
#include "reduce_whole.h"
#include "simd.h"

enum { TILE = 512, CHUNK = 32768, MAX_CHUNKS = 256, FEW_RUNS = 64, LINE = 2048 };

static void store_real(const plk_reduce *p, void *y, int64_t at, double v)
{
    v *= p->scale;
    if (p->root)
        v = sqrt(v);
    if (p->dtype == PLK_F32)
        ((float *)y)[at] = (float)v;
    else
        ((double *)y)[at] = v;
}

static void store_whole(const plk_reduce *p, void *y, int64_t at, int64_t v)
{
    switch (p->out_dtype) {
    case PLK_I32: ((int32_t *)y)[at] = (int32_t)v; break;
    case PLK_I64: ((int64_t *)y)[at] = v; break;
    case PLK_I8: ((int8_t *)y)[at] = (int8_t)v; break;
    case PLK_U8: ((uint8_t *)y)[at] = (uint8_t)v; break;
    case PLK_BOOL: ((uint8_t *)y)[at] = v != 0; break;
    }
}

#define ACC double
#define METHOD_OF method
#define OF(name) name##_real
#include "reduce_body.h"
#undef ACC
#undef METHOD_OF
#undef OF
#define ACC int64_t
#define METHOD_OF whole_method
#define OF(name) name##_whole
#include "reduce_body.h"

/* bufs: x, y */
PLK_KERNEL(plk_reduce_run)
{
    const plk_reduce *p = params;
    (void)scalars;
    if (p->n_out == 0)
        return PL_OK;
    if (p->dtype == PLK_F32 || p->dtype == PLK_F64)
        reduce_real(p, (p->dtype == PLK_F32 ? methods_f32 : methods_f64) + p->kind, bufs);
    else
        reduce_whole(p, whole_methods_of(p->dtype) + p->kind, bufs);
    return PL_OK;
}

/* ---- positions of extremes: the first one, or the first NaN ---------------------------------------------------- */

static void store_index(void *y, int dtype, int64_t i, int64_t value)
{
    switch (dtype) {
    case PLK_F32: ((float *)y)[i] = (float)value; break;
    case PLK_F64: ((double *)y)[i] = (double)value; break;
    case PLK_I32: ((int32_t *)y)[i] = (int32_t)value; break;
    case PLK_I64: ((int64_t *)y)[i] = value; break;
    case PLK_I8: ((int8_t *)y)[i] = (int8_t)value; break;
    default: ((uint8_t *)y)[i] = (uint8_t)value;
    }
}

/* line: of n contiguous elements; the extreme of each block is found in vectors, then its place.  columns: of `width`
 * lines beside each other, `inner` apart. */
#define ARGMAX(T, s) \
    static int64_t line_##s(const T *x, int64_t n, int smallest) \
    { \
        T best = x[0]; \
        int64_t in = 0, some; \
        for (int64_t at = 0; at < n && best == best; at += LINE) { \
            some = n - at < LINE ? n - at : LINE; \
            T v = (T)(smallest ? min_##s##_run(x + at, some) : max_##s##_run(x + at, some)); \
            if ((smallest ? v < best : v > best) || v != v) { best = v; in = at; } \
        } \
        for (int any = 0; in + LANES <= n && !any; in += any ? 0 : LANES) \
            PLK_LANES for (int l = 0; l < LANES; l++) any |= (x[in + l] == best) | (x[in + l] != x[in + l]); \
        for (; x[in] != best && x[in] == x[in]; in++) { } \
        return in; \
    } \
    static void columns_##s(const T *x, int64_t n, int64_t inner, int64_t width, int smallest, void *y, int dtype, \
                            int64_t to) \
    { \
        T best[TILE]; \
        int64_t at[TILE]; \
        for (int64_t j = 0; j < width; j++) { best[j] = x[j]; at[j] = 0; } \
        for (int64_t k = 1; k < n; k++) { \
            const T *row = x + k * inner; \
            if (smallest) { \
                for (int64_t j = 0; j < width; j++) { \
                    T v = row[j], b = best[j]; \
                    int better = (v < b) | ((v != v) & (b == b)); \
                    best[j] = better ? v : b; \
                    at[j] = better ? k : at[j]; \
                } \
            } else { \
                for (int64_t j = 0; j < width; j++) { \
                    T v = row[j], b = best[j]; \
                    int better = (v > b) | ((v != v) & (b == b)); \
                    best[j] = better ? v : b; \
                    at[j] = better ? k : at[j]; \
                } \
            } \
        } \
        for (int64_t j = 0; j < width; j++) store_index(y, dtype, to + j, at[j]); \
    } \
    static void argmax_##s(void *arg, int64_t begin, int64_t end) \
    { \
        const plk_call *call = arg; \
        const plk_argmax *p = call->params; \
        const T *x = call->bufs[0]; \
        int64_t tiles = (p->inner + TILE - 1) / TILE; \
        for (int64_t u = begin; u < end; u++) \
            if (p->inner == 1) { \
                store_index(call->bufs[1], p->out_dtype, u, line_##s(x + u * p->n, p->n, p->smallest)); \
            } else { \
                int64_t o = u / tiles, j = u % tiles * TILE, width = p->inner - j < TILE ? p->inner - j : TILE; \
                columns_##s(x + o * p->n * p->inner + j, p->n, p->inner, width, p->smallest, call->bufs[1], \
                            p->out_dtype, o * p->inner + j); \
            } \
    }
ARGMAX(float, f32)
ARGMAX(double, f64)
ARGMAX(uint8_t, u8)
ARGMAX(int8_t, i8)
ARGMAX(int32_t, i32)
ARGMAX(int64_t, i64)

/* bufs: x (outer, n, inner), y (outer, inner) */
PLK_KERNEL(plk_argmax_run)
{
    const plk_argmax *p = params;
    plk_part part = p->dtype == PLK_F32 ? argmax_f32 : p->dtype == PLK_F64 ? argmax_f64
                  : p->dtype == PLK_I32 ? argmax_i32
                  : p->dtype == PLK_I64 ? argmax_i64 : p->dtype == PLK_I8 ? argmax_i8 : argmax_u8;
    int64_t units = p->outer * ((p->inner + TILE - 1) / TILE);
    plk_run_parts(p->outer * p->inner * p->n, units, 1, part, &(plk_call){params, bufs, scalars});
    return PL_OK;
}
