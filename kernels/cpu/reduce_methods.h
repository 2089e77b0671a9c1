/* The kinds of reduction: each accumulates in double, extremes in their own type, in LANES partial results that the
 * compiler keeps in vectors. */
#ifndef PLK_REDUCE_METHODS_H
#define PLK_REDUCE_METHODS_H
#include <math.h>
#include "reduce.h"
#include "simd.h"

enum { LANES = 16 };

typedef struct {
    double start;
    double (*run)(const void *x, int64_t n);                     /* of n contiguous elements */
    void (*rows)(double *acc, const void *x, int64_t width);     /* acc[j] of each column takes x[j] */
    double (*merge)(double a, double b);
} method;

#define ADD(a, v) ((a) + (v))
#define ADD_NUMBER(a, v) ((a) + ((v) == (v) ? (v) : 0))
#define ADD_SQUARE(a, v) ((a) + (v) * (v))
#define ADD_ABS(a, v) ((a) + fabs(v))
#define TIMES(a, v) ((a) * (v))
#define TIMES_NUMBER(a, v) ((a) * ((v) == (v) ? (v) : 1))
#define LARGER(a, v) (((v) > (a)) | ((v) != (v)) ? (v) : (a))
#define SMALLER(a, v) (((v) < (a)) | ((v) != (v)) ? (v) : (a))

#define RUN(name, T, ACC, START, STEP, MERGE) \
    static double name##_run(const void *data, int64_t n) \
    { \
        const T *x = data; \
        ACC acc[LANES], total; \
        int64_t i = 0; \
        for (int l = 0; l < LANES; l++) acc[l] = START; \
        for (; i + LANES <= n; i += LANES) \
            PLK_LANES for (int l = 0; l < LANES; l++) { ACC v = (ACC)x[i + l]; acc[l] = STEP(acc[l], v); } \
        for (int w = LANES / 2; w; w /= 2) \
            for (int l = 0; l < w; l++) acc[l] = MERGE(acc[l], acc[l + w]); \
        total = acc[0]; \
        for (; i < n; i++) { ACC v = (ACC)x[i]; total = STEP(total, v); } \
        return (double)total; \
    }
#define ROWS(name, T, STEP, MERGE) \
    static void name##_rows(double *acc, const void *data, int64_t width) \
    { \
        const T *x = data; \
        for (int64_t j = 0; j < width; j++) { double v = (double)x[j]; acc[j] = STEP(acc[j], v); } \
    } \
    static double name##_merge(double a, double b) { return MERGE(a, b); }
#define METHOD(name, T, START, STEP, MERGE) \
    RUN(name, T, double, START, STEP, MERGE) ROWS(name, T, STEP, MERGE)
#define EXTREME(name, T, START, STEP) RUN(name, T, T, START, STEP, STEP) ROWS(name, T, STEP, STEP)
#define METHODS(T, s) \
    METHOD(sum_##s, T, 0, ADD, ADD) METHOD(nansum_##s, T, 0, ADD_NUMBER, ADD) \
    METHOD(square_##s, T, 0, ADD_SQUARE, ADD) \
    METHOD(abs_##s, T, 0, ADD_ABS, ADD) METHOD(prod_##s, T, 1, TIMES, TIMES) \
    METHOD(nanprod_##s, T, 1, TIMES_NUMBER, TIMES) \
    EXTREME(max_##s, T, -INFINITY, LARGER) EXTREME(min_##s, T, INFINITY, SMALLER) \
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
