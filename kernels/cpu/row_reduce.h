/* Reductions of a row for generated fused row reductions: in double, as partial results that the compiler keeps in
 * vectors. float32 only. */
#ifndef PLK_ROW_REDUCE_H
#define PLK_ROW_REDUCE_H
#include <math.h>
#include <stdint.h>

#define ROW_REDUCE(name, T, START, STEP) \
    static __attribute__((unused)) T plk_row_##name(const float *x, int64_t n) \
    { \
        T acc[16], total = START; \
        int64_t i = 0; \
        for (int l = 0; l < 16; l++) acc[l] = START; \
        for (; i + 16 <= n; i += 16) \
            _Pragma("GCC unroll 1") for (int l = 0; l < 16; l++) { T v = (T)x[i + l]; acc[l] = STEP(acc[l], v); } \
        for (int l = 0; l < 16; l++) total = STEP(total, acc[l]); \
        for (; i < n; i++) { T v = (T)x[i]; total = STEP(total, v); } \
        return total; \
    }
#define ROW_ADD(a, v) ((a) + (v))
#define ROW_LARGER(a, v) (((v) > (a)) | ((v) != (v)) ? (v) : (a))
#define ROW_SMALLER(a, v) (((v) < (a)) | ((v) != (v)) ? (v) : (a))
ROW_REDUCE(sum, double, 0, ROW_ADD)
ROW_REDUCE(max, float, -INFINITY, ROW_LARGER)
ROW_REDUCE(min, float, INFINITY, ROW_SMALLER)
#endif
