/* The activations in the epilogues of matrix products; for files that include "simd.h". */
#ifndef PLK_ACT_H
#define PLK_ACT_H
#include "gemm.h"
#include "simd.h"
#include "vecmath.h"

#define EACH(expression) \
    for (int64_t i = 0; i < n; i++) { \
        float x = v[i]; \
        v[i] = expression; \
    } \
    break;

/* The same functions as the operators' own loops. */
static inline void plk_activate(int act, float *v, int64_t n)
{
    switch (act) {
    case PLK_ACT_RELU: EACH(x > 0 ? x : (x != x ? x : 0))
    case PLK_ACT_SIGMOID: EACH(plk_sigmoid_f32(x))
    case PLK_ACT_TANH: EACH(plk_tanh_f32(x))
    case PLK_ACT_SOFTRELU: EACH(plk_softplus_f32(x))
    case PLK_ACT_SOFTSIGN: EACH(x / (1 + fabsf(x)))
    case PLK_ACT_GELU: EACH(x * 0.5f * (1 + plk_erf_f32(x * 0.70710678f)))
    case PLK_ACT_SILU: EACH(x * plk_sigmoid_f32(x))
    }
}
#undef EACH

/* v *= the derivative of an activation at `at` */
static inline void plk_slope(int act, const float *at, float *v, int64_t n)
{
    if (act == PLK_ACT_RELU)
        for (int64_t i = 0; i < n; i++)
            v[i] *= at[i] > 0 ? 1.0f : 0.0f;
    else
        for (int64_t i = 0; i < n; i++) {
            float x = at[i];
            v[i] *= plk_erf_f32(x * 0.70710678f) * 0.5f + 0.5f + x * plk_exp_f32(x * x * -0.5f) * 0.39894228f;
        }
}
#endif
