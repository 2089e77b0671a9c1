/* Rows of 16-bit floats for kernels that compute in float32: read into scratch memory, and rounded once when stored. */
#ifndef PLK_HALF_ROWS_H
#define PLK_HALF_ROWS_H
#include "dtype.h"
#include "half.h"

typedef uint16_t plk_half_word __attribute__((may_alias));

static inline void plk_read_row(int dtype, float *to, const void *from, int64_t n)
{
    const plk_half_word *x = from;
    if (dtype == PLK_F16)
        for (int64_t i = 0; i < n; i++)
            to[i] = half_to_float(x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = brain_to_float(x[i]);
}

static inline void plk_store_row(int dtype, void *to, const float *from, int64_t n)
{
    plk_half_word *y = to;
    if (dtype == PLK_F16)
        for (int64_t i = 0; i < n; i++)
            y[i] = float_to_half(from[i]);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = float_to_brain(from[i]);
}
#endif
