/* Triangular matrices in float64. */
#define PLK_REAL double
#include "simd.h"
#include "triangular_body.h"

PLK_KERNEL(plk_potrf_run_f64) { (void)scalars; return factors(params, bufs); }
PLK_KERNEL(plk_trsm_run_f64)
{
    const plk_triangular *p = params;
    (void)scalars;
    return apply(p, bufs, solve, p->alpha);
}
PLK_KERNEL(plk_trmm_run_f64)
{
    const plk_triangular *p = params;
    (void)scalars;
    return apply(p, bufs, multiply, -p->alpha);
}
