/* The kinds of reduction: floats accumulate in double, whole numbers in int64, extremes in their own type, in partial
 * results that the compiler keeps in vectors. */
#ifndef PLK_REDUCE_METHODS_H
#define PLK_REDUCE_METHODS_H
#include <math.h>
#include "reduce.h"
#include "simd.h"

enum { LANES = 16, ROWS_AT_ONCE = 8 };
/* Of a vector register: a loop over so many partial results becomes one instruction, so they stay in a register. */
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64 };
#elif defined(__AVX2__)
enum { VECTOR_BYTES = 32 };
#else
enum { VECTOR_BYTES = 16 };
#endif

/* run: of n contiguous elements.  rows: acc[j] of each column takes x[j] of n rows, `step` elements apart. */
#define METHOD_TYPE(name, ACC) \
    typedef struct { \
        ACC start; \
        ACC (*run)(const void *x, int64_t n); \
        void (*rows)(ACC *acc, const void *x, int64_t n, int64_t step, int64_t width); \
        ACC (*merge)(ACC a, ACC b); \
    } name;
METHOD_TYPE(method, double)
METHOD_TYPE(whole_method, int64_t)

#define ADD(a, v) ((a) + (v))
#define ADD_NUMBER(a, v) ((a) + ((v) == (v) ? (v) : 0))
#define ADD_SQUARE(a, v) ((a) + (v) * (v))
#define ADD_ABS(a, v) ((a) + fabs(v))
#define TIMES(a, v) ((a) * (v))
#define TIMES_NUMBER(a, v) ((a) * ((v) == (v) ? (v) : 1))
#define LARGER_PLAIN(a, v) ((v) > (a) ? (v) : (a))
#define SMALLER_PLAIN(a, v) ((v) < (a) ? (v) : (a))
#define LARGER(a, v) (((v) > (a)) | ((v) != (v)) ? (v) : (a))
#define SMALLER(a, v) (((v) < (a)) | ((v) != (v)) ? (v) : (a))
/* whole numbers wrap */
#define ADD_WHOLE(a, v) ((int64_t)((uint64_t)(a) + (uint64_t)(v)))
#define TIMES_WHOLE(a, v) ((int64_t)((uint64_t)(a) * (uint64_t)(v)))

/* ACC: of results; OWN: in which it is computed */
#define RUN(name, T, ACC, OWN, N_LANES, START, STEP, MERGE) \
    static ACC name##_run(const void *data, int64_t n) \
    { \
        const T *x = data; \
        OWN acc[N_LANES], total; \
        int64_t i = 0; \
        for (int l = 0; l < N_LANES; l++) acc[l] = START; \
        for (; i + N_LANES <= n; i += N_LANES) \
            PLK_LANES for (int l = 0; l < N_LANES; l++) { OWN v = (OWN)x[i + l]; acc[l] = STEP(acc[l], v); } \
        for (int w = N_LANES / 2; w; w /= 2) \
            for (int l = 0; l < w; l++) acc[l] = MERGE(acc[l], acc[l + w]); \
        total = acc[0]; \
        for (; i < n; i++) { OWN v = (OWN)x[i]; total = STEP(total, v); } \
        return (ACC)total; \
    }
#define ROWS(name, T, ACC, OWN, STEP, MERGE) \
    static void name##_rows(ACC *acc, const void *data, int64_t n, int64_t step, int64_t width) \
    { \
        const T *x = data; \
        int64_t r = 0; \
        for (; r + ROWS_AT_ONCE <= n; r += ROWS_AT_ONCE, x += ROWS_AT_ONCE * step) \
            for (int64_t j = 0; j < width; j++) { \
                OWN a = (OWN)acc[j]; \
                _Pragma("GCC unroll 8") for (int k = 0; k < ROWS_AT_ONCE; k++) { \
                    OWN v = (OWN)x[k * step + j]; \
                    a = STEP(a, v); \
                } \
                acc[j] = (ACC)a; \
            } \
        for (; r < n; r++, x += step) \
            for (int64_t j = 0; j < width; j++) { OWN v = (OWN)x[j], a = (OWN)acc[j]; acc[j] = (ACC)STEP(a, v); } \
    } \
    static ACC name##_merge(ACC a, ACC b) { return MERGE(a, b); }
/* The extreme of n contiguous elements, in four vectors; n is not 0. Of floats SUSPECT adds them up: if the
 * sum is not finite there may be a NaN, which a plain comparison loses, so again with care. */
#define NO_SUSPECT(z, v)
#define ADD_UP(z, v) z += (v);
#define EXTREME_PART(T, k, at, STEP, SUSPECT) \
    PLK_LANES for (int l = 0; l < PER; l++) { \
        T v = x[(at) + l]; \
        acc##k[l] = STEP(acc##k[l], v); \
        SUSPECT(sum##k[l], v) \
    }
#define RUN_EXTREME(name, T, ACC, STEP, SUSPECT, AGAIN) \
    static ACC name##_run(const void *data, int64_t n) \
    { \
        enum { PER = VECTOR_BYTES / sizeof(T) }; \
        typedef T vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(T)), may_alias)); \
        const T *x = data; \
        T acc0[PER], acc1[PER], acc2[PER], acc3[PER], total; \
        T sum0[PER] = {0}, sum1[PER] = {0}, sum2[PER] = {0}, sum3[PER] = {0}; \
        int64_t i = 0; \
        if (n < PER) { \
            total = x[0]; \
            for (i = 1; i < n; i++) { T v = x[i]; total = STEP(total, v); SUSPECT(sum0[0], v) } \
            SUSPECT(sum0[0], x[0]) \
        } else { \
            /* a loop would store halves of vectors, and loads of whole ones would wait */ \
            *(vector *)acc0 = *(vector *)acc1 = *(vector *)acc2 = *(vector *)acc3 = *(const vector *)x; \
            for (; i + 4 * PER <= n; i += 4 * PER) { \
                EXTREME_PART(T, 0, i, STEP, SUSPECT) EXTREME_PART(T, 1, i + PER, STEP, SUSPECT) \
                EXTREME_PART(T, 2, i + 2 * PER, STEP, SUSPECT) EXTREME_PART(T, 3, i + 3 * PER, STEP, SUSPECT) \
            } \
            for (; i + PER <= n; i += PER) { EXTREME_PART(T, 0, i, STEP, SUSPECT) } \
            EXTREME_PART(T, 1, n - PER, STEP, SUSPECT)                  /* the last ones, some twice */ \
            for (int l = 0; l < PER; l++) { \
                acc0[l] = STEP(acc0[l], acc1[l]); \
                acc2[l] = STEP(acc2[l], acc3[l]); \
                acc0[l] = STEP(acc0[l], acc2[l]); \
                sum0[l] += sum1[l] + sum2[l] + sum3[l]; \
            } \
            _Pragma("GCC unroll 8") for (int w = PER / 2; w; w /= 2) \
                for (int l = 0; l < w; l++) { acc0[l] = STEP(acc0[l], acc0[l + w]); sum0[l] += sum0[l + w]; } \
            total = acc0[0]; \
        } \
        return sum0[0] - sum0[0] == 0 ? (ACC)total : AGAIN(data, n); \
    }
#define NEVER(data, n) 0
/* The sum of squares of n contiguous elements, in 32 partial sums. Of floats blocks of 1024 are added up in float, of
 * which a partial sum takes 16: their errors cancel, and are below that of the result. A block whose sum may be of
 * squares that float does not hold is added up in double. */
typedef double some_f64 __attribute__((vector_size(64), aligned(8), may_alias));
typedef float some_f32 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float many_f32 __attribute__((vector_size(64), aligned(4), may_alias));
enum { SQUARES_BLOCK = 1024 };

#define RUN_SQUARES(name, T, s) \
    static double name##_wide(const T *x, int64_t n) \
    { \
        some_f64 acc[4] = {{0}}; \
        int64_t i = 0; \
        for (; i + 32 <= n; i += 32) \
            _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++) { \
                some_f64 v = __builtin_convertvector(*(const some_##s *)(x + i + 8 * k), some_f64); \
                acc[k] += v * v; \
            } \
        double total = 0; \
        for (; i < n; i++) { double v = x[i]; total += v * v; } \
        acc[0] = (acc[0] + acc[1]) + (acc[2] + acc[3]); \
        for (int l = 0; l < 8; l++) total += acc[0][l]; \
        return total; \
    }
RUN_SQUARES(square_f32, float, f32)
RUN_SQUARES(square_f64, double, f64)

static double square_f32_block(const float *x)
{
    many_f32 acc[4] = {{0}};
    for (int i = 0; i < SQUARES_BLOCK; i += 64)
        _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++) {
            many_f32 v = *(const many_f32 *)(x + i + 16 * k);
            acc[k] += v * v;
        }
    acc[0] = (acc[0] + acc[1]) + (acc[2] + acc[3]);
    const some_f32 *halves = (const some_f32 *)acc;
    some_f64 sums = __builtin_convertvector(halves[0], some_f64) + __builtin_convertvector(halves[1], some_f64);
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

static double square_f32_run(const void *data, int64_t n)
{
    const float *x = data;
    double total = 0;
    for (; n >= SQUARES_BLOCK; n -= SQUARES_BLOCK, x += SQUARES_BLOCK) {
        double some = square_f32_block(x);
        total += some > 1e-25 && some < 1e37 ? some : square_f32_wide(x, SQUARES_BLOCK);
    }
    return total + square_f32_wide(x, n);
}
static double square_f64_run(const void *data, int64_t n) { return square_f64_wide(data, n); }
#define METHOD(name, T, START, STEP, MERGE) \
    RUN(name, T, double, double, LANES, START, STEP, MERGE) ROWS(name, T, double, double, STEP, MERGE)
#define EXTREME(name, T, START, STEP, PLAIN) \
    RUN(name##_careful, T, double, T, LANES, START, STEP, STEP) \
    RUN_EXTREME(name##_some, T, double, PLAIN, ADD_UP, name##_careful_run) \
    static double name##_run(const void *x, int64_t n) { return n ? name##_some_run(x, n) : START; } \
    ROWS(name, T, double, T, STEP, STEP)
#define METHODS(T, s) \
    METHOD(sum_##s, T, 0, ADD, ADD) METHOD(nansum_##s, T, 0, ADD_NUMBER, ADD) \
    ROWS(square_##s, T, double, double, ADD_SQUARE, ADD) \
    METHOD(abs_##s, T, 0, ADD_ABS, ADD) METHOD(prod_##s, T, 1, TIMES, TIMES) \
    METHOD(nanprod_##s, T, 1, TIMES_NUMBER, TIMES) \
    EXTREME(max_##s, T, -INFINITY, LARGER, LARGER_PLAIN) EXTREME(min_##s, T, INFINITY, SMALLER, SMALLER_PLAIN) \
    static const method methods_##s[] = { \
        {0, sum_##s##_run, sum_##s##_rows, sum_##s##_merge}, \
        {0, nansum_##s##_run, nansum_##s##_rows, nansum_##s##_merge}, \
        {0, square_##s##_run, square_##s##_rows, square_##s##_merge}, \
        {0, abs_##s##_run, abs_##s##_rows, abs_##s##_merge}, \
        {1, prod_##s##_run, prod_##s##_rows, prod_##s##_merge}, \
        {1, nanprod_##s##_run, nanprod_##s##_rows, nanprod_##s##_merge}, \
        {-INFINITY, max_##s##_run, max_##s##_rows, max_##s##_merge}, \
        {INFINITY, min_##s##_run, min_##s##_rows, min_##s##_merge}}; \
    _Static_assert(sizeof methods_##s / sizeof *methods_##s == PLK_REDUCE_COUNT, "one method for each kind");
METHODS(float, f32)
METHODS(double, f64)

static inline int64_t offset_of(int64_t at, int n, const int64_t *shape, const int64_t *strides)
{
    int64_t offset = 0;
    for (int d = n - 1; d >= 0; d--) {
        offset += at % shape[d] * strides[d];
        at /= shape[d];
    }
    return offset;
}
#endif
