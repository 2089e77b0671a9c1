/* Is any element not 0, are all? Of elements of any dtype, as whole numbers: the sign of a float does not count, -0 is
 * 0 and NaN is not. A run ends where one element decides. */
#ifndef PLK_REDUCE_TRUTH_H
#define PLK_REDUCE_TRUTH_H
#include "reduce_methods.h"

enum { LOOK_BYTES = 2048 };                          /* are looked at before a run may end */

#define TRUTH_ROWS(name, T, FIND, JOINED) \
    static void name##_rows(int64_t *acc, const void *data, int64_t n, int64_t step, int64_t width) \
    { \
        const T *x = data; \
        int64_t r = 0; \
        for (; r + ROWS_AT_ONCE <= n; r += ROWS_AT_ONCE, x += ROWS_AT_ONCE * step) \
            for (int64_t j = 0; j < width; j++) { \
                T found = 0; \
                _Pragma("GCC unroll 8") for (int k = 0; k < ROWS_AT_ONCE; k++) { T v = x[k * step + j]; FIND; } \
                acc[j] = JOINED; \
            } \
        for (; r < n; r++, x += step) \
            for (int64_t j = 0; j < width; j++) { T found = 0, v = x[j]; FIND; acc[j] = JOINED; } \
    }
/* Is FIND(v) not 0 for any element? Four vectors are looked at together, LOOK_BYTES before a run may end. */
#define LOOK(k, at, T, FIND) \
    PLK_LANES for (int l = 0; l < PER; l++) { T v = x[(at) + l]; found##k[l] |= FIND; }
#define RUN_TRUTH(name, T, FIND, RESULT) \
    static int64_t name##_run(const void *data, int64_t n) \
    { \
        enum { PER = VECTOR_BYTES / sizeof(T), STEP = 4 * PER, STEPS = LOOK_BYTES / VECTOR_BYTES / 4 }; \
        const T *x = data; \
        T any = 0; \
        for (int64_t steps; n >= STEP && !any; n -= steps * STEP) { \
            T found0[PER] = {0}, found1[PER] = {0}, found2[PER] = {0}, found3[PER] = {0}; \
            steps = n / STEP < STEPS ? n / STEP : STEPS; \
            for (int64_t k = 0; k < steps; k++, x += STEP) { \
                LOOK(0, 0, T, FIND) LOOK(1, PER, T, FIND) LOOK(2, 2 * PER, T, FIND) LOOK(3, 3 * PER, T, FIND) \
            } \
            for (int l = 0; l < PER; l++) any |= found0[l] | found1[l] | found2[l] | found3[l]; \
        } \
        T found0[PER] = {0}; \
        for (; n >= PER && !any; n -= PER, x += PER) { LOOK(0, 0, T, FIND) } \
        for (int l = 0; l < PER; l++) any |= found0[l]; \
        for (int64_t i = 0; i < n; i++) { T v = x[i]; any |= FIND; } \
        return RESULT; \
    }
#define TRUTH(s, T, MASK) \
    RUN_TRUTH(any_##s, T, (T)(v & (T)(MASK)), any != 0) RUN_TRUTH(all_##s, T, (T)((v & (T)(MASK)) == 0), any == 0) \
    TRUTH_ROWS(any_##s, T, found |= v & (T)(MASK), acc[j] | (found != 0)) \
    TRUTH_ROWS(all_##s, T, found |= (v & (T)(MASK)) == 0, acc[j] & (found == 0)) \
    static const whole_method truth_##s[] = { \
        {0, any_##s##_run, any_##s##_rows, any_merge}, {1, all_##s##_run, all_##s##_rows, all_merge}};
static int64_t any_merge(int64_t a, int64_t b) { return a | b; }
static int64_t all_merge(int64_t a, int64_t b) { return a & b; }
TRUTH(8, uint8_t, UINT8_MAX)
TRUTH(32, uint32_t, UINT32_MAX)
TRUTH(64, uint64_t, UINT64_MAX)
TRUTH(f16, uint16_t, INT16_MAX)
TRUTH(f32, uint32_t, INT32_MAX)
TRUTH(f64, uint64_t, INT64_MAX)

static inline const whole_method *truth_method(int kind, int dtype)
{
    const whole_method *both = dtype == PLK_F32 ? truth_f32 : dtype == PLK_F64 ? truth_f64
                             : plk_dtype_bytes(dtype) == 2 ? truth_f16
                             : plk_dtype_bytes(dtype) == 4 ? truth_32
                             : plk_dtype_bytes(dtype) == 8 ? truth_64 : truth_8;
    return both + (kind - PLK_ANY);
}
#endif
