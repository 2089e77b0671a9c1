/* The kinds of reduction: floats accumulate in double, whole numbers in int64, extremes in their own type, in partial
 * results that the compiler keeps in vectors. */
#ifndef PLK_REDUCE_METHODS_H
#define PLK_REDUCE_METHODS_H
#include <math.h>
#include "reduce.h"
#include "simd.h"

enum { LANES = 16, LANES_OF_EXTREMES = 64, ROWS_AT_ONCE = 8 };

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
/* Of floats: the plain comparison, which loses NaN; if a sum of zeros says that there may be one (or an infinity),
 * again with care. */
#define RUN_EXTREME(name, T, START, STEP, PLAIN) \
    RUN(name##_careful, T, double, T, LANES_OF_EXTREMES, START, STEP, STEP) \
    static double name##_run(const void *data, int64_t n) \
    { \
        const T *x = data; \
        T acc[LANES_OF_EXTREMES], zero[LANES_OF_EXTREMES] = {0}; \
        if (n < LANES_OF_EXTREMES) \
            return name##_careful_run(data, n); \
        for (int l = 0; l < LANES_OF_EXTREMES; l++) acc[l] = START; \
        for (int64_t i = 0; i < n; i += LANES_OF_EXTREMES) { \
            const T *some = x + (i + LANES_OF_EXTREMES <= n ? i : n - LANES_OF_EXTREMES);   /* the last ones twice */ \
            PLK_LANES for (int l = 0; l < LANES_OF_EXTREMES; l++) { \
                T v = some[l]; \
                zero[l] += v * 0; \
                acc[l] = PLAIN(acc[l], v); \
            } \
        } \
        for (int w = LANES_OF_EXTREMES / 2; w; w /= 2) \
            for (int l = 0; l < w; l++) { acc[l] = PLAIN(acc[l], acc[l + w]); zero[l] += zero[l + w]; } \
        return zero[0] == 0 ? (double)acc[0] : name##_careful_run(data, n); \
    }
#define METHOD(name, T, START, STEP, MERGE) \
    RUN(name, T, double, double, LANES, START, STEP, MERGE) ROWS(name, T, double, double, STEP, MERGE)
#define EXTREME(name, T, START, STEP, PLAIN) \
    RUN_EXTREME(name, T, START, STEP, PLAIN) ROWS(name, T, double, T, STEP, STEP)
#define METHODS(T, s) \
    METHOD(sum_##s, T, 0, ADD, ADD) METHOD(nansum_##s, T, 0, ADD_NUMBER, ADD) \
    METHOD(square_##s, T, 0, ADD_SQUARE, ADD) \
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
