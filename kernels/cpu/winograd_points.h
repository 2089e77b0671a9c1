/* The transforms of Winograd's F(4x4, 3x3) along one axis. Included for vectors VEC and function names NAME(name).
 *
 * Interpolation at 0, +-3/4, +-3/2 and infinity. Lavin and Gray's +-1, +-2 double the rounding error (measured).
 * Elements of an argument lie `step` apart, those of a result side by side. */
#ifndef PLK_WINOGRAD_POINTS
#define PLK_WINOGRAD_POINTS
#define PA 0.75f
#define PB 1.5f
#define FA (2 * PA * PA * (PA * PA - PB * PB))
#define FB (2 * PB * PB * (PB * PB - PA * PA))
#endif

/* B^T d: 6 inputs */
PLK_INLINE void NAME(input_transform)(const VEC *d, int64_t step, VEC *t)
{
    VEC even_a = d[4 * step] - (PB * PB) * d[2 * step], odd_a = PA * (d[3 * step] - (PB * PB) * d[step]);
    VEC even_b = d[4 * step] - (PA * PA) * d[2 * step], odd_b = PB * (d[3 * step] - (PA * PA) * d[step]);
    t[0] = (PA * PA * PB * PB) * d[0] - (PA * PA + PB * PB) * d[2 * step] + d[4 * step];
    t[1] = even_a + odd_a;
    t[2] = even_a - odd_a;
    t[3] = even_b + odd_b;
    t[4] = even_b - odd_b;
    t[5] = (PA * PA * PB * PB) * d[step] - (PA * PA + PB * PB) * d[3 * step] + d[5 * step];
}

/* A^T m: 4 outputs */
PLK_INLINE void NAME(output_transform)(const VEC *m, int64_t step, VEC *y)
{
    VEC even_a = m[step] + m[2 * step], odd_a = m[step] - m[2 * step];
    VEC even_b = m[3 * step] + m[4 * step], odd_b = m[3 * step] - m[4 * step];
    y[0] = m[0] * (1 / (PA * PA * PB * PB)) + even_a * (1 / FA) + even_b * (1 / FB);
    y[1] = odd_a * (PA / FA) + odd_b * (PB / FB);
    y[2] = even_a * (PA * PA / FA) + even_b * (PB * PB / FB);
    y[3] = odd_a * (PA * PA * PA / FA) + odd_b * (PB * PB * PB / FB) + m[5 * step];
}

/* G g: 3 weights. The factors of G's rows are in A^T, which is applied less often. */
PLK_INLINE void NAME(weight_transform)(const VEC *g, int64_t step, VEC *t)
{
    VEC even_a = g[0] + g[2 * step] * (PA * PA), even_b = g[0] + g[2 * step] * (PB * PB);
    t[0] = g[0];
    t[1] = even_a + g[step] * PA;
    t[2] = even_a - g[step] * PA;
    t[3] = even_b + g[step] * PB;
    t[4] = even_b - g[step] * PB;
    t[5] = g[2 * step];
}
