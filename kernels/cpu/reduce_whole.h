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
#define WHOLE_METHODS(T, s, LOW, HIGH) \
    WHOLE(sum_##s, T, 0, ADD_WHOLE) WHOLE(prod_##s, T, 1, TIMES_WHOLE) \
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
