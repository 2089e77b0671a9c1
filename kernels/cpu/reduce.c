/* Reductions of one array over any axes, and positions of extremes. */
#include "reduce.h"
#include "dtype.h"
#include "parts.h"
#include "reduce_truth.h"
#include "reduce_whole.h"
#include "simd.h"

enum { TILE = 512, CHUNK = 32768, MAX_CHUNKS = 256, FEW_RUNS = 64, SHORT_RUN = 16, MANY = 64, PIECE = 2048 };

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

/* `width` rows of n elements -> n rows, MANY apart */
#define TO_COLUMNS(T) \
    for (int64_t k = 0; k < n; k++) \
        for (int64_t j = 0; j < width; j++) ((T *)to)[k * MANY + j] = ((const T *)from)[j * n + k]; \
    break;
static void to_columns(void *to, const void *from, int64_t n, int64_t width, size_t size)
{
    switch (size) {
    case 1: TO_COLUMNS(uint8_t)
    case 2: TO_COLUMNS(uint16_t)
    case 4: TO_COLUMNS(uint32_t)
    case 8: TO_COLUMNS(uint64_t)
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
    if (p->kind >= PLK_ANY)
        reduce_whole(p, truth_method(p->kind, p->dtype), bufs);
    else if (p->dtype == PLK_F32 || p->dtype == PLK_F64)
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

/* The extreme of a long line is found piece by piece, then the first element of the best piece that equals it. A line
 * of one piece keeps places beside extremes, lane by lane: no branch waits for it, so the next line begins meanwhile.
 * columns: of `width` lines beside each other, `inner` apart. */
#define LARGER_THAN(a, b) ((a) > (b))
#define SMALLER_THAN(a, b) ((a) < (b))
enum { LOOK = 256 };                               /* bytes that are looked at together; the last ones overlap */
#define FIRST(T, s) \
    static int64_t first_##s(const T *x, int64_t n, T top) \
    { \
        enum { PER = LOOK / sizeof(T) }; \
        int64_t i = 0; \
        for (; top != top && x[i] == x[i]; i++)            /* the first NaN */ \
            ; \
        for (; top == top && n >= PER; i = i + 2 * PER <= n ? i + PER : n - PER) { \
            int any = 0, at = PER; \
            for (int l = 0; l < PER; l++) any |= x[i + l] == top; \
            if (!any && i < n - PER) \
                continue; \
            for (int l = 0; l < PER; l++) { int k = x[i + l] == top ? l : PER; at = k < at ? k : at; } \
            return i + (at < PER ? at : 0); \
        } \
        for (; top == top && i < n - 1 && x[i] != top; i++) \
            ; \
        return i; \
    }
#define PLACE(T) __typeof__(__builtin_choose_expr(sizeof(T) == 8, (int64_t)0, (int32_t)0))
#define PLACED(T, k, from, BETTER) \
    PLK_LANES for (int l = 0; l < PER; l++) { \
        T v = x[(from) + k * PER + l], b = best[k][l]; \
        int better = BETTER(v, b); \
        best[k][l] = better ? v : b; \
        at[k][l] = better ? (PLACE(T))(from) : at[k][l]; \
        sum[k][l] += v; \
    }
#define LINE(T, s, way, BETTER) \
    static int64_t short_line_##way##_##s(const T *x, int64_t n) \
    { \
        enum { PER = VECTOR_BYTES / sizeof(T) }; \
        typedef T vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(T)), may_alias)); \
        T best[2][PER], sum[2][PER] = {{0}}; \
        PLACE(T) at[2][PER] = {{0}}, place = (PLACE(T))n; \
        int64_t i = 0; \
        *(vector *)best[0] = *(const vector *)x; \
        *(vector *)best[1] = *(const vector *)(x + PER); \
        for (; i + 2 * PER <= n; i += 2 * PER) { PLACED(T, 0, i, BETTER) PLACED(T, 1, i, BETTER) } \
        i = n - 2 * PER; \
        PLACED(T, 0, i, BETTER) PLACED(T, 1, i, BETTER) \
        T top[PER], total[PER]; \
        for (int l = 0; l < PER; l++) { \
            T a = best[0][l], b = best[1][l]; \
            top[l] = BETTER(b, a) ? b : a; \
            total[l] = sum[0][l] + sum[1][l]; \
        } \
        _Pragma("GCC unroll 8") for (int w = PER / 2; w; w /= 2) \
            for (int l = 0; l < w; l++) { \
                T a = top[l], b = top[l + w]; \
                top[l] = BETTER(b, a) ? b : a; \
                total[l] += total[l + w]; \
            } \
        if (total[0] - total[0] != 0)                          /* there may be a NaN */ \
            return first_##s(x, n, (T)way##_##s##_run(x, n)); \
        for (int k = 0; k < 2; k++) \
            for (int l = 0; l < PER; l++) { \
                PLACE(T) here = best[k][l] == top[0] ? at[k][l] + k * PER + l : place; \
                place = here < place ? here : place; \
            } \
        return place; \
    } \
    static int64_t line_##way##_##s(const T *x, int64_t n) \
    { \
        if (sizeof(T) >= 4 && n <= PIECE && n >= (int64_t)(2 * VECTOR_BYTES / sizeof(T))) \
            return short_line_##way##_##s(x, n); \
        int64_t in = 0, some = n < PIECE ? n : PIECE; \
        T best = (T)way##_##s##_run(x, some); \
        for (int64_t at = PIECE; at < n && best == best; at += PIECE) { \
            T v = (T)way##_##s##_run(x + at, n - at < PIECE ? n - at : PIECE); \
            if (BETTER(v, best) || v != v) { best = v; in = at; } \
        } \
        return in + first_##s(x + in, n - in < PIECE ? n - in : PIECE, best); \
    } \
    static void columns_##way##_##s(const T *x, int64_t n, int64_t inner, int64_t width, void *y, int dtype, \
                                    int64_t to) \
    { \
        T best[TILE]; \
        PLACE(T) at[TILE]; \
        for (int64_t j = 0; j < width; j++) { best[j] = x[j]; at[j] = 0; } \
        for (int64_t k = 1; k < n; k++) { \
            const T *row = x + k * inner; \
            for (int64_t j = 0; j < width; j++) { \
                T v = row[j], b = best[j]; \
                int better = BETTER(v, b) | ((v != v) & (b == b)); \
                best[j] = better ? v : b; \
                at[j] = better ? (PLACE(T))k : at[j]; \
            } \
        } \
        for (int64_t j = 0; j < width; j++) store_index(y, dtype, to + j, at[j]); \
    }
/* Lines that are short are taken several at once, as columns. */
#define ARGMAX(T, s) \
    FIRST(T, s) LINE(T, s, max, LARGER_THAN) LINE(T, s, min, SMALLER_THAN) \
    static void short_lines_##s(const plk_argmax *p, const T *x, int64_t begin, int64_t end, void *y) \
    { \
        T columns[SHORT_RUN * MANY]; \
        for (int64_t u = begin, width; u < end; u += width) { \
            width = end - u < MANY ? end - u : MANY; \
            for (int64_t k = 0; k < p->n; k++) \
                for (int64_t j = 0; j < width; j++) columns[k * MANY + j] = x[(u + j) * p->n + k]; \
            (p->smallest ? columns_min_##s : columns_max_##s)(columns, p->n, MANY, width, y, p->out_dtype, u); \
        } \
    } \
    static void argmax_##s(void *arg, int64_t begin, int64_t end) \
    { \
        const plk_call *call = arg; \
        const plk_argmax *p = call->params; \
        const T *x = call->bufs[0]; \
        int64_t tiles = (p->inner + TILE - 1) / TILE; \
        if (p->inner == 1 && p->n < SHORT_RUN) { \
            short_lines_##s(p, x, begin, end, call->bufs[1]); \
            return; \
        } \
        for (int64_t u = begin; u < end; u++) \
            if (p->inner == 1) { \
                const T *line = x + u * p->n; \
                store_index(call->bufs[1], p->out_dtype, u, (p->smallest ? line_min_##s : line_max_##s)(line, p->n)); \
            } else { \
                int64_t o = u / tiles, j = u % tiles * TILE, width = p->inner - j < TILE ? p->inner - j : TILE; \
                (p->smallest ? columns_min_##s : columns_max_##s)(x + o * p->n * p->inner + j, p->n, p->inner, width, \
                                                                  call->bufs[1], p->out_dtype, o * p->inner + j); \
            } \
    }
/* The first of n bools that is 1, or 0 for smallest; else the first one. */
static int64_t first_bool(const uint8_t *x, int64_t n, int smallest)
{
    enum { AT_ONCE = 64 };
    int64_t i = 0;
    uint8_t found = 0;
    for (; i + AT_ONCE <= n; i += AT_ONCE) {
        for (int l = 0; l < AT_ONCE; l++) found |= (x[i + l] != 0) ^ smallest;
        if (found)
            break;
    }
    for (; i < n && ((x[i] != 0) ^ smallest) == 0; i++)
        ;
    return i < n ? i : 0;
}
static void argmax_bool(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_argmax *p = call->params;
    for (int64_t u = begin; u < end; u++)
        store_index(call->bufs[1], p->out_dtype, u,
                    first_bool((const uint8_t *)call->bufs[0] + u * p->n, p->n, p->smallest));
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
                  : p->dtype == PLK_BOOL && p->inner == 1 ? argmax_bool
                  : p->dtype == PLK_I64 ? argmax_i64 : p->dtype == PLK_I8 ? argmax_i8 : argmax_u8;
    int64_t units = p->outer * ((p->inner + TILE - 1) / TILE);
    plk_run_parts(p->outer * p->inner * p->n, units, 1, part, &(plk_call){params, bufs, scalars});
    return PL_OK;
}
