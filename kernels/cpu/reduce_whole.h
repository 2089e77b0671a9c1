/* Reductions of whole numbers and bools, in int64. */
#ifndef PLK_REDUCE_WHOLE_H
#define PLK_REDUCE_WHOLE_H
#include "reduce_methods.h"

#define WHOLE(name, T, START, STEP) \
    RUN(name, T, int64_t, int64_t, LANES, START, STEP, STEP) ROWS(name, T, int64_t, int64_t, STEP, STEP)
#define WHOLE_EXTREME(name, T, START, STEP) \
    RUN_EXTREME(name##_some, T, int64_t, STEP, NO_SUSPECT, NEVER) \
    static int64_t name##_run(const void *x, int64_t n) { return n ? name##_some_run(x, n) : START; } \
    ROWS(name, T, int64_t, T, STEP, STEP)
/* The sum of bytes, in 16 bits as long as these hold it. */
#define SUM_OF_BYTES(name, T, WIDE) \
    static int64_t name##_run(const void *from, int64_t n) \
    { \
        enum { WAYS = 64, MOST = 255 }; \
        const T *x = from; \
        int64_t total = 0; \
        for (int64_t steps; n >= WAYS; n -= steps * WAYS) { \
            WIDE sums[WAYS] = {0}; \
            steps = n / WAYS < MOST ? n / WAYS : MOST; \
            for (int64_t k = 0; k < steps; k++, x += WAYS) \
                for (int i = 0; i < WAYS; i++) \
                    sums[i] = (WIDE)(sums[i] + x[i]); \
            for (int i = 0; i < WAYS; i++) \
                total += sums[i]; \
        } \
        for (int64_t i = 0; i < n; i++) \
            total += x[i]; \
        return total; \
    } \
    ROWS(name, T, int64_t, int64_t, ADD_WHOLE, ADD_WHOLE)
SUM_OF_BYTES(sum_u8, uint8_t, uint16_t)
SUM_OF_BYTES(sum_i8, int8_t, int16_t)
WHOLE(sum_i32, int32_t, 0, ADD_WHOLE)
WHOLE(sum_i64, int64_t, 0, ADD_WHOLE)
#define WHOLE_METHODS(T, s, LOW, HIGH) \
    WHOLE(prod_##s, T, 1, TIMES_WHOLE) \
    WHOLE_EXTREME(max_##s, T, LOW, LARGER_PLAIN) WHOLE_EXTREME(min_##s, T, HIGH, SMALLER_PLAIN) \
    static const whole_method methods_##s[PLK_REDUCE_COUNT] = { \
        [PLK_SUM] = {0, sum_##s##_run, sum_##s##_rows, sum_##s##_merge}, \
        [PLK_NANSUM] = {0, sum_##s##_run, sum_##s##_rows, sum_##s##_merge}, \
        [PLK_PROD] = {1, prod_##s##_run, prod_##s##_rows, prod_##s##_merge}, \
        [PLK_NANPROD] = {1, prod_##s##_run, prod_##s##_rows, prod_##s##_merge}, \
        [PLK_MAX] = {LOW, max_##s##_run, max_##s##_rows, max_##s##_merge}, \
        [PLK_MIN] = {HIGH, min_##s##_run, min_##s##_rows, min_##s##_merge}};
WHOLE_METHODS(uint8_t, u8, 0, UINT8_MAX)
WHOLE_METHODS(int8_t, i8, INT8_MIN, INT8_MAX)
WHOLE_METHODS(int32_t, i32, INT32_MIN, INT32_MAX)
WHOLE_METHODS(int64_t, i64, INT64_MIN, INT64_MAX)

static inline const whole_method *whole_methods_of(int dtype)
{
    return dtype == PLK_I32 ? methods_i32 : dtype == PLK_I64 ? methods_i64 : dtype == PLK_I8 ? methods_i8 : methods_u8;
}
#endif
