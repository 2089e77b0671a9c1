/* The activations in the epilogues of matrix products, and their derivatives; for files that include "simd.h". Each has
 * a loop of its own, with the activation as a constant. */
#ifndef PLK_ACT_H
#define PLK_ACT_H
#include "gemm.h"
#include "simd.h"
#include "vecmath.h"
#include "generated/activate.h"

/* v <- act(v) */
static inline void plk_activate(int act, float *v, int64_t n)
{
    switch (act) {
#define APPLY(kind) \
    case kind: \
        for (int64_t i = 0; i < n; i++) \
            v[i] = plk_activated(v[i], kind, 0, 0); \
        break;
    PLK_EACH_ACT(APPLY)
#undef APPLY
    }
}

/* v *= the derivative of an activation at x */
static inline void plk_slope(int act, const float *x, float *v, int64_t n)
{
    switch (act) {
#define APPLY(kind) \
    case kind: \
        for (int64_t i = 0; i < n; i++) \
            v[i] *= plk_activation_slope(x[i], kind, 0, 0); \
        break;
    PLK_EACH_SLOPE(APPLY)
#undef APPLY
    }
}
#endif
