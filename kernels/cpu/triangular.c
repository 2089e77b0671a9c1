/* Triangular matrices in float32, and one triangle of matrices of any elements. */
#define PLK_REAL float
#include "simd.h"
#include "triangular_body.h"

PLK_KERNEL(plk_potrf_run) { (void)scalars; return factors(params, bufs); }
PLK_KERNEL(plk_trsm_run)
{
    const plk_triangular *p = params;
    (void)scalars;
    return apply(p, bufs, solve, (real)p->alpha);
}
PLK_KERNEL(plk_trmm_run)
{
    const plk_triangular *p = params;
    (void)scalars;
    return apply(p, bufs, multiply, (real)-p->alpha);
}

/* bufs: A, result */
PLK_KERNEL(plk_triangle_run)
{
    const plk_triangle *p = params;
    const char *from = bufs[0];
    char *to = bufs[1];
    size_t bytes = (size_t)p->bytes;
    (void)scalars;
    for (int64_t r = 0; r < p->n_batch * p->rows; r++) {
        int64_t edge = r % p->rows + p->offset + (p->lower ? 1 : 0);
        size_t cut = (size_t)(edge < 0 ? 0 : edge > p->columns ? p->columns : edge) * bytes;
        size_t all = (size_t)p->columns * bytes, at = (size_t)r * all;
        size_t begin = p->lower ? 0 : cut, end = p->lower ? cut : all;
        memset(to + at, 0, begin);
        memmove(to + at + begin, from + at + begin, end - begin);
        memset(to + at + end, 0, all - end);
    }
    return PL_OK;
}
