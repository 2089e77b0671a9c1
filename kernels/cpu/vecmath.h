/* Math for kernel loops: plk_NAME_f32 is branch-free so that loops vectorise, plk_NAME_f64 is libm's.
 *
 * Every float32 function that is written here is within 4 ulp and right on NaN, infinities, zeros and denormals
 * (tests/kernels/test_native.py checks it). It relies on -fno-math-errno -fno-trapping-math, never on -ffast-math.
 * Rounding to an integer adds 1.5 * 2^23; selections are ?: so that they become blends.
 */
#ifndef PLK_VECMATH_H
#define PLK_VECMATH_H
#include <math.h>
#include <stdint.h>
#include "generated/trig_table.h"
#include "inline.h"

PLK_INLINE int32_t plk_bits(float x) { int32_t i; __builtin_memcpy(&i, &x, 4); return i; }
PLK_INLINE float plk_float(int32_t i) { float x; __builtin_memcpy(&x, &i, 4); return x; }
PLK_INLINE int64_t plk_bits64(double x) { int64_t i; __builtin_memcpy(&i, &x, 8); return i; }
PLK_INLINE double plk_double(int64_t i) { double x; __builtin_memcpy(&x, &i, 8); return x; }

/* a b + c: fused where the machine has it. Explicit, because fused groups are compiled without contraction to round as
 * single operators do. */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
PLK_INLINE float plk_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
PLK_INLINE float plk_fma(float a, float b, float c) { return a * b + c; }
#endif

/* x = n ln2 + r, |r| <= ln2/2; (e^r - 1 - r) / r^2 is the polynomial. */
#define PLK_ROUNDER 12582912.0f
#define PLK_EXP_TAIL(r) \
    plk_fma(r, plk_fma(r, plk_fma(r, plk_fma(r, plk_fma(r, 1.990044380e-04f, 1.393454452e-03f), 8.333297064e-03f), \
            4.166645678e-02f), 1.666666672e-01f), 4.9999999e-01f)

/* e^x 2^shift */
PLK_INLINE float plk_exp_shifted_f32(float x, int32_t shift)
{
    x = x > 90.0f ? 90.0f : x;
    x = x < -105.0f ? -105.0f : x;
    float z = plk_fma(x, 1.44269504f, PLK_ROUNDER), n = z - PLK_ROUNDER;
    int32_t k = plk_bits(z) - plk_bits(PLK_ROUNDER), half = k >> 1;
    float r = plk_fma(n, -0.693359375f, x);
    r = plk_fma(n, 2.12194440e-4f, r);
    float p = 1.0f + plk_fma(r * r, PLK_EXP_TAIL(r), r);
    return p * plk_float((int32_t)((uint32_t)(half + 127) << 23)) *
           plk_float((int32_t)((uint32_t)(k - half + shift + 127) << 23));
}
PLK_INLINE float plk_exp_f32(float x) { return plk_exp_shifted_f32(x, 0); }

PLK_INLINE float plk_exp2_f32(float x)
{
    x = x > 129.0f ? 129.0f : x;
    x = x < -151.0f ? -151.0f : x;
    float z = x + PLK_ROUNDER, n = z - PLK_ROUNDER, f = x - n;
    int32_t k = plk_bits(z) - plk_bits(PLK_ROUNDER), half = k >> 1;
    float p = plk_fma(f, plk_fma(f, 1.547589704e-04f, 1.340028354e-03f), 9.618005414e-03f);
    p = plk_fma(f, plk_fma(f, plk_fma(f, p, 5.550327741e-02f), 2.402265133e-01f), 6.931472063e-01f);
    return plk_fma(f, p, 1.0f) * plk_float((int32_t)((uint32_t)(half + 127) << 23)) *
           plk_float((int32_t)((uint32_t)(k - half + 127) << 23));
}

PLK_INLINE float plk_expm1_f32(float x)
{
    float a = x > 89.0f ? 89.0f : x;
    a = a < -30.0f ? -30.0f : a;
    float z = plk_fma(a, 1.44269504f, PLK_ROUNDER), n = z - PLK_ROUNDER;
    int32_t k = plk_bits(z) - plk_bits(PLK_ROUNDER);
    float r = plk_fma(n, -0.693359375f, a);
    r = plk_fma(n, 2.12194440e-4f, r);
    float p = plk_fma(r * r, PLK_EXP_TAIL(r), r);
    float s = plk_float((int32_t)((uint32_t)(k + 126) << 23));    /* 2^(n-1): n = 128 stays finite */
    float y = 2.0f * plk_fma(s, p, s - 0.5f);
    return n == 0.0f ? (x == 0.0f ? x : p) : y;
}

/* n ln2 + log(1 + f), 1 + f in [sqrt(1/2), sqrt(2)) */
PLK_INLINE float plk_log_near_f32(float n, float f)
{
    float p = plk_fma(f, 7.160174356e-02f, -1.158672585e-01f);
    p = plk_fma(f, plk_fma(f, plk_fma(f, p, 1.166474381e-01f), -1.240918950e-01f), 1.424945852e-01f);
    p = plk_fma(f, plk_fma(f, plk_fma(f, p, -1.666854310e-01f), 2.000072171e-01f), -2.499998850e-01f);
    p = plk_fma(f, p, 3.333333113e-01f);
    float f2 = f * f, t = plk_fma(f * f2, p, n * -2.12194440e-4f);
    return plk_fma(n, 0.693359375f, f + plk_fma(-0.5f, f2, t));
}

/* x = 2^n (1 + f), for x above 0 */
PLK_INLINE float plk_log_rest_f32(float x, float *n)
{
    int tiny = x < 1.17549435e-38f;
    float y = tiny ? x * 8388608.0f : x;
    int32_t b = plk_bits(y), k = (b - 0x3f3504f3) >> 23;
    *n = (float)(k - (tiny ? 23 : 0));
    return plk_float((int32_t)((uint32_t)b - ((uint32_t)k << 23))) - 1.0f;
}
/* A logarithm r of x, right where x is 0, infinite or below 0, too */
PLK_INLINE float plk_log_ends_f32(float x, float r)
{
    r = x == INFINITY ? INFINITY : r;
    r = x == 0.0f ? -INFINITY : r;
    return x >= 0.0f ? r : NAN;
}
PLK_INLINE float plk_log_f32(float x)
{
    float n, f = plk_log_rest_f32(x, &n);
    return plk_log_ends_f32(x, plk_log_near_f32(n, f));
}
PLK_INLINE float plk_log2_f32(float x)
{
    float n, f = plk_log_rest_f32(x, &n);
    return plk_log_ends_f32(x, plk_fma(plk_log_near_f32(0.0f, f), 1.44269504f, n));
}
PLK_INLINE float plk_log10_f32(float x)          /* n times the first 11 bits of log10(2) is exact */
{
    float n, f = plk_log_rest_f32(x, &n);
    float r = plk_fma(n, 4.605038981e-06f, plk_log_near_f32(0.0f, f) * 0.43429448f);
    return plk_log_ends_f32(x, plk_fma(n, 0.301025390625f, r));
}

PLK_INLINE float plk_log1p_f32(float x)
{
    float u = 1.0f + x;
    float lost = x > 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
    float r = plk_log_f32(u) + lost / u;
    r = u == INFINITY || u == 0.0f ? plk_log_f32(u) : r;
    return x > -1e-7f && x < 1e-7f ? x : r;
}

/* With e = exp(-2 |x|) = 2^n (Q - R) / (Q + R), (1 - e) / (1 + e) in one division; where n is 0, that is R / Q. R / Q
 * is tanh(r), |r| <= ln2 / 4, to 1e-9; both times 0.75, since sums just below 1 round better than those just above. The
 * first term of ln2 is enough. From 9.01 on tanh is 1. */
PLK_INLINE float plk_tanh_f32(float x)
{
    float a = fabsf(x);
    a = 9.2f < a ? 9.2f : a;
    float z = plk_fma(a, -2.88539008f, PLK_ROUNDER + 127.0f), n = z - (PLK_ROUNDER + 127.0f);
    float s = plk_float((int32_t)((uint32_t)plk_bits(z) << 23));   /* 2^n */
    float r = plk_fma(n, 0.34657359f, a), u = r * r;
    float R = plk_fma(u, 0.049940266f, 0.75f) * r, Q = plk_fma(u, 0.29994008f, 0.75f);
    float y = plk_fma(1.0f - s, Q, (1.0f + s) * R) / plk_fma(1.0f - s, R, (1.0f + s) * Q);
    return plk_float(plk_bits(y) | (plk_bits(x) & (int32_t)0x80000000));
}

PLK_INLINE float plk_sigmoid_f32(float x)
{
    float e = plk_exp_f32(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

/* log(1 + e^x) without overflow; 1 + e^-|x| is in [1, 2] */
PLK_INLINE float plk_softplus_f32(float x)
{
    float e = plk_exp_f32(-fabsf(x));
    int upper = e > 0.41421356f;
    float y = plk_log_near_f32(upper ? 1.0f : 0.0f, upper ? 0.5f * e - 0.5f : e);
    return (x > 0.0f ? x : (x != x ? x : 0.0f)) + y;
}

/* |x| < 2: x P(x^2) / Q(x^2), of least relative error; up to 3.95, from where it is 1: 1 - a polynomial. */
PLK_INLINE float plk_erf_f32(float x)
{
    float u = x * x;
    float p = plk_fma(u, plk_fma(u, 2.549155469e-05f, -2.908357450e-04f), 3.467319995e-02f);
    p = plk_fma(u, plk_fma(u, p, 1.020152420e-01f), 1.128379167e+00f);
    float q = plk_fma(u, plk_fma(u, 5.175767471e-03f, 7.197322567e-02f), 4.237422964e-01f);
    float small = x * p / plk_fma(u, q, 1.0f);
    int32_t b = plk_bits(x) & 0x7fffffff;
    float t = plk_float(b) - 2.975f;
    float r = plk_fma(t, plk_fma(t, 7.906642336e-05f, -4.047572716e-04f), 8.649582111e-04f);
    r = plk_fma(t, plk_fma(t, plk_fma(t, r, -1.148900751e-03f), 1.156750767e-03f), -8.950805247e-04f);
    r = plk_fma(t, plk_fma(t, plk_fma(t, r, 4.840307299e-04f), -1.620593632e-04f), 2.577780772e-05f);
    r = b < 0x407ccccd ? r : 0.0f;
    float large = plk_float(plk_bits(1.0f - r) | (plk_bits(x) & (int32_t)0x80000000));
    return fabsf(x) >= 2.0f ? large : small;
}

/* sin, cos and tan in half turns: x / pi is computed in double from the bits of 1/pi that matter, which a table has by
 * exponent (Payne and Hanek 1983). `high` has 29 bits, so x high is exact; x low is below 2^-4. Up to 2^24 one row
 * serves: loops whose elements are all below that read no table, and round as others do. */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
PLK_INLINE double plk_fma64(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
PLK_INLINE double plk_fma64(double a, double b, double c) { return a * b + c; }
#endif
#define PLK_ROUNDER64 6755399441055744.0
PLK_INLINE int64_t plk_trig_row(float x) { return (plk_bits(x) & 0x7fffffff) >> 23; }
PLK_INLINE int plk_trig_is_near(float x) { return (plk_bits(x) & 0x7fffffff) < 0x4b800000; }

/* sin(pi s), |s| <= 9/16 */
PLK_INLINE double plk_sin_half_turns(double s)
{
    double u = s * s;
    double p = plk_fma64(u, plk_fma64(u, -6.929632098643421e-03, 8.198579842532007e-02), -5.992374106980861e-01);
    return s * plk_fma64(u, plk_fma64(u, plk_fma64(u, p, 2.550161938256651), -5.167712719516358), 3.141592653300074);
}
/* x / pi - shift = n + r, |r| <= 9/16; *odd: n's lowest bit as a sign */
PLK_INLINE double plk_trig_rest(float x, int64_t row, double shift, int64_t *odd)
{
    double y = (double)x * plk_trig_high[row], t = y - shift + PLK_ROUNDER64;
    *odd = (int64_t)((uint64_t)plk_bits64(t) << 63);
    return plk_fma64((double)x, plk_trig_low[row], y - (t - PLK_ROUNDER64 + shift));
}
PLK_INLINE float plk_sin_by_row(float x, int64_t row)
{
    int64_t odd;
    double r = plk_trig_rest(x, row, 0.0, &odd);
    return (float)plk_sin_half_turns(plk_double(plk_bits64(r) ^ odd));
}
PLK_INLINE float plk_cos_by_row(float x, int64_t row)    /* -sin(pi (x / pi - 1/2)) */
{
    int64_t odd;
    double r = plk_trig_rest(x, row, 0.5, &odd);
    return (float)plk_sin_half_turns(plk_double(plk_bits64(-r) ^ odd));
}
PLK_INLINE float plk_tan_by_row(float x, int64_t row)
{
    int64_t odd;
    double r = plk_trig_rest(x, row, 0.0, &odd);
    return (float)(plk_sin_half_turns(r) / plk_sin_half_turns(0.5 - fabs(r)));
}
/* plk_NAME_f32 for any x, plk_NAME_near_f32 below 2^24, and the loop of an operator: y may be x. */
#define PLK_TRIG(name) \
    PLK_INLINE float plk_##name##_f32(float x) { return plk_##name##_by_row(x, plk_trig_row(x)); } \
    PLK_INLINE float plk_##name##_near_f32(float x) { return plk_##name##_by_row(x, 0); } \
    PLK_INLINE void plk_##name##_loop_f32(int64_t n, const float *x, float *y) \
    { \
        for (int64_t end, i = 0; i < n; i = end) { \
            int far = 0; \
            end = n - i < 256 ? n : i + 256; \
            for (int64_t j = i; j < end; j++) \
                far |= !plk_trig_is_near(x[j]); \
            if (far) \
                _Pragma("GCC ivdep") for (int64_t j = i; j < end; j++) \
                    y[j] = plk_##name##_f32(x[j]); \
            else \
                _Pragma("GCC ivdep") for (int64_t j = i; j < end; j++) \
                    y[j] = plk_##name##_near_f32(x[j]); \
        } \
    }
PLK_TRIG(sin) PLK_TRIG(cos) PLK_TRIG(tan)

/* m where the mask is -1, v where it is 0. Of a number that is the same for all elements GCC would take a condition out
 * of the loop, which then is no longer one that it vectorises. */
PLK_INLINE int32_t plk_masked(int32_t mask, int32_t m, int32_t v) { return (m & mask) | (v & ~mask); }

/* log2 |x| by the atanh series, times y, then 2^t, in double: so overflow, underflow and denormals are correct. */
PLK_INLINE float plk_pow_f32(float x, float y)
{
    const int32_t infinite = 0x7f800000, one = 0x3f800000, nan = 0x7fc00000;
    int32_t bx = plk_bits(x), by = plk_bits(y), ax = bx & 0x7fffffff, ay = by & 0x7fffffff;
    uint64_t b = (uint64_t)plk_bits64((double)plk_float(ax));
    uint64_t k = (b - 0x3fe6a09e667f3bcdULL + (1023ULL << 52)) >> 52;     /* 1023 and the exponent */
    double m = plk_double((int64_t)(b - (k << 52) + (1023ULL << 52)));
    double s = (m - 1.0) / (m + 1.0), u = s * s;
    double l = plk_fma64(u, plk_fma64(u, 3.40759353825710709e-01, 4.11671135128737598e-01), 5.77083611559486842e-01);
    l = plk_fma64(u, plk_fma64(u, l, 9.61796673200305596e-01), 2.88539008179020051);
    double kd = plk_double((int64_t)(k | 0x4330000000000000ULL)) - (4503599627370496.0 + 1023.0);
    double t = (double)y * plk_fma64(s, l, kd);
    t = t > 1000.0 ? 1000.0 : t;
    t = t < -1000.0 ? -1000.0 : t;
    double z = t + PLK_ROUNDER64, f = t - (z - PLK_ROUNDER64);
    double p = plk_fma64(f, plk_fma64(f, 1.53149468902090530e-05, 1.54671106676385712e-04), 1.33334307872691308e-03);
    p = plk_fma64(f, plk_fma64(f, p, 9.61803690991097290e-03), 5.55041096257046160e-02);
    p = plk_fma64(f, plk_fma64(f, plk_fma64(f, p, 2.40226510758591999e-01), 6.93147180541656360e-01), 1.0);
    int32_t v = plk_bits((float)(p * plk_double((int64_t)((uint64_t)(plk_bits64(z) - plk_bits64(PLK_ROUNDER64) + 1023)
                                                          << 52))));
    float w = truncf(y), h = truncf(y * 0.5f);
    int32_t odd = -(int32_t)((w == y) & (h + h != y) & (ay < 0x4b800000)) & (int32_t)0x80000000;
    v = plk_masked(-(int32_t)(ax == one), one, v);
    v = plk_masked(-(int32_t)((ax == 0) | (ax == infinite)), -(int32_t)((ax != 0) != (by < 0)) & infinite, v);
    v |= -(int32_t)((bx < 0) & (ax != 0) & (ax < infinite) & (w != y)) & nan;
    v ^= bx & odd;
    v |= -(int32_t)((ax > infinite) | (ay > infinite)) & nan;
    return plk_float(plk_masked(-(int32_t)((bx == one) | (ay == 0)), one, v));
}

/* x to the power of 0, 1, 2, 3 or 4, for the same y for all x */
PLK_INLINE int plk_pow_is_small(double y) { return y >= 0 && y <= 4 && y == (int)y; }
PLK_INLINE float plk_pow_factor_f32(float x, int32_t mask)      /* x or 1 */
{
    return plk_float((plk_bits(x) & mask) | (plk_bits(1.0f) & ~mask));
}
PLK_INLINE float plk_pow_small_f32(float x, float y)
{
    int32_t k = (int32_t)y;
    float square = x * x;
    return plk_pow_factor_f32(x, -(k & 1)) * plk_pow_factor_f32(square, -(k >> 1 & 1)) *
           plk_pow_factor_f32(square * square, -(k >> 2));
}
PLK_INLINE double plk_pow_small_f64(double x, double y)
{
    return y == 2 ? x * x : y == 1 ? x : y == 3 ? x * x * x : y == 4 ? x * x * (x * x) : 1;
}

/* x to the power of 1/2, -1/2 or -1, for the same y for all x. A root of -0 is 0 and one of -infinity infinity: so says
 * pow, not sqrt. */
PLK_INLINE int plk_pow_is_root(double y) { return y == 0.5 || y == -0.5 || y == -1; }
PLK_INLINE float plk_pow_root_f32(float x, float y)
{
    int32_t whole = -(int32_t)(y == -1.0f), inverse = -(int32_t)(y < 0.0f);
    float root = sqrtf((x == -INFINITY ? INFINITY : x) + 0.0f);
    float v = plk_float(plk_masked(whole, plk_bits(x), plk_bits(root)));
    return plk_float(plk_masked(inverse, plk_bits(1.0f / v), plk_bits(v)));
}
PLK_INLINE double plk_pow_root_f64(double x, double y)
{
    double root = sqrt((x == -INFINITY ? INFINITY : x) + 0.0);
    return y == -1 ? 1 / x : y < 0 ? 1 / root : root;
}

/* ---- hyperbolic and inverse functions ---- */
PLK_INLINE float plk_with_sign(float v, float of)                /* v is not negative */
{
    return plk_float(plk_bits(v) | (plk_bits(of) & (int32_t)0x80000000));
}
PLK_INLINE float plk_sinh_f32(float x)
{
    float a = fabsf(x), u = a * a, h = plk_exp_shifted_f32(a, -1);
    float p = plk_fma(u, plk_fma(u, 2.037740735e-04f, 8.330211385e-03f), 1.666671825e-01f);
    return plk_with_sign(a < 1.0f ? plk_fma(a * u, p, a) : h - 0.25f / h, x);
}
PLK_INLINE float plk_cosh_f32(float x)
{
    float h = plk_exp_shifted_f32(fabsf(x), -1);
    return h + 0.25f / h;
}
/* Above 2^28 log(2 a) */
PLK_INLINE float plk_asinh_f32(float x)
{
    float a = fabsf(x), u = a * a;
    int large = a > 268435456.0f;
    float r = plk_log1p_f32(large ? a : a + u / (1.0f + sqrtf(1.0f + u)));
    return plk_with_sign(large ? r + 0.69314718f : r, x);
}
PLK_INLINE float plk_acosh_f32(float x)
{
    float t = x - 1.0f;
    int large = x > 268435456.0f;
    float r = plk_log1p_f32(large ? x : t + sqrtf(t * (t + 2.0f)));
    r = large ? r + 0.69314718f : r;
    return x >= 1.0f ? r : NAN;
}
PLK_INLINE float plk_atanh_f32(float x)
{
    float a = fabsf(x);
    return plk_with_sign(0.5f * plk_log1p_f32((a + a) / (1.0f - a)), x);
}
#define PLK_HALF_PI 1.57079633f
#define PLK_HALF_PI_REST (-4.37113900e-08f)
PLK_INLINE float plk_atan_unit_f32(float q)                      /* of [0, 1] */
{
    float u = q * q;
    float p = plk_fma(u, plk_fma(u, 2.920638261e-03f, -1.636771507e-02f), 4.321152004e-02f);
    p = plk_fma(u, plk_fma(u, plk_fma(u, p, -7.552185959e-02f), 1.066599165e-01f), -1.421105210e-01f);
    return plk_fma(q * u, plk_fma(u, plk_fma(u, p, 1.999377246e-01f), -3.333315272e-01f), q);
}
PLK_INLINE float plk_atan_f32(float x)
{
    float a = fabsf(x);
    int steep = a > 1.0f;
    float r = plk_atan_unit_f32((steep ? 1.0f : a) / (steep ? a : 1.0f));
    return plk_with_sign(steep ? PLK_HALF_PI - r + PLK_HALF_PI_REST : r, x);
}
PLK_INLINE float plk_atan2_f32(float y, float x)
{
    float a = fabsf(x), b = fabsf(y);
    int steep = b > a;
    float low = steep ? a : b, high = steep ? b : a, q = low / high;
    q = low == high ? 1.0f : q;
    q = a + b == 0.0f ? 0.0f : q;
    float r = plk_atan_unit_f32(q);
    r = steep ? PLK_HALF_PI - r + PLK_HALF_PI_REST : r;
    r = plk_bits(x) < 0 ? 2.0f * PLK_HALF_PI - r + 2.0f * PLK_HALF_PI_REST : r;
    return plk_with_sign(r, y);
}
/* asin(a) for a <= 1/2, else pi / 2 - 2 asin(sqrt((1 - a) / 2)): *far says which, the value is that of the smaller */
PLK_INLINE float plk_asin_near_f32(float a, int *far)
{
    *far = a > 0.5f;
    float h = 0.5f * (1.0f - a), u = *far ? h : a * a, s = *far ? sqrtf(h) : a;
    float p = plk_fma(u, plk_fma(u, 4.223057968e-02f, 2.414097048e-02f), 4.547834691e-02f);
    return plk_fma(s * u, plk_fma(u, plk_fma(u, p, 7.495232634e-02f), 1.666675413e-01f), s);
}
PLK_INLINE float plk_asin_f32(float x)
{
    int far;
    float r = plk_asin_near_f32(fabsf(x), &far);
    return plk_with_sign(far ? PLK_HALF_PI - 2.0f * r + PLK_HALF_PI_REST : r, x);
}
PLK_INLINE float plk_acos_f32(float x)
{
    int far;
    float r = plk_asin_near_f32(fabsf(x), &far);
    float below = x < 0.0f ? 2.0f * PLK_HALF_PI - 2.0f * r + 2.0f * PLK_HALF_PI_REST : 2.0f * r;
    return far ? below : PLK_HALF_PI - (plk_with_sign(r, x) - PLK_HALF_PI_REST);
}
/* A third of the exponent, then two of Halley's steps */
PLK_INLINE float plk_cbrt_f32(float x)
{
    float v = fabsf(x);
    float up = v < 1e-30f ? 281474976710656.0f : v > 1e30f ? 3.5527136788005009e-15f : 1.0f;
    float down = v < 1e-30f ? 1.52587890625e-05f : v > 1e30f ? 65536.0f : 1.0f;
    float a = v * up, y = plk_float((int32_t)((float)plk_bits(a) * 0.333333333f) + 0x2a5119f2);
    for (int i = 0; i < 2; i++) {
        float cube = y * y * y;
        y -= y * ((cube - a) / (cube + cube + a));
    }
    y *= down;
    return v > 0.0f && v < INFINITY ? plk_with_sign(y, x) : x;
}

PLK_INLINE float plk_sqrt_f32(float x) { return sqrtf(x); }
PLK_INLINE float plk_rsqrt_f32(float x) { return 1.0f / sqrtf(x); }
PLK_INLINE float plk_fabs_f32(float x) { return fabsf(x); }
PLK_INLINE float plk_abs_f32(float x) { return fabsf(x); }

/* Rounds half away from zero; the addend is the largest float below 1/2, so that 0.49999997 becomes 0. */
PLK_INLINE float plk_round_f32(float x) { return truncf(x + copysignf(0.49999997f, x)); }

/* Digamma and trigamma are rare: in double, by recurrence up to 6, then the asymptotic series. */
PLK_INLINE double plk_digamma_f64(double x)
{
    double y = 0;
    if (x == 0 || x != x || x == -INFINITY)
        return x == 0 ? copysign(INFINITY, -x) : NAN;
    if (x < 0) {
        double f = x - floor(x);
        if (f == 0)
            return NAN;
        y = -3.14159265358979323846 / tan(3.14159265358979323846 * f);
        x = 1 - x;
    }
    while (x < 8) {
        y -= 1 / x;
        x += 1;
    }
    double u = 1 / (x * x);
    return y + log(x) - 0.5 / x - u * (1.0 / 12 - u * (1.0 / 120 - u * (1.0 / 252 - u * (1.0 / 240
        - u * (1.0 / 132 - u * (691.0 / 32760 - u / 12))))));
}
PLK_INLINE double plk_trigamma_f64(double x)
{
    double y = 0;
    if (x <= 0 && x == floor(x))
        return INFINITY;
    if (x < 0) {
        double s = sin(3.14159265358979323846 * (x - floor(x)));
        double rest = 0, z = 1 - x;
        for (; z < 8; z += 1)
            rest += 1 / (z * z);
        double w = 1 / (z * z);
        rest += 1 / z + w / 2 + w / z * (1.0 / 6 - w * (1.0 / 30 - w * (1.0 / 42 - w * (1.0 / 30 - w * 5 / 66))));
        return 9.8696044010893586 / (s * s) - rest;
    }
    for (; x < 8; x += 1)
        y += 1 / (x * x);
    double u = 1 / (x * x);
    return y + 1 / x + u / 2 + u / x * (1.0 / 6 - u * (1.0 / 30 - u * (1.0 / 42 - u * (1.0 / 30 - u * 5 / 66))));
}

/* A start from Winitzki's formula, then two Newton-Halley steps. */
PLK_INLINE double plk_erfinv_f64(double x)
{
    if (!(x > -1 && x < 1))
        return x == 1 ? INFINITY : x == -1 ? -INFINITY : NAN;
    double l = log((1 - x) * (1 + x)), t = 4.3307467508 + l / 2;
    double y = copysign(sqrt(sqrt(t * t - l / 0.147) - t), x);
    for (int i = 0; i < 3; i++) {
        double e = x < 0 ? erfc(-y) - (1 + x) : (1 - x) - erfc(y);
        double step = e / (1.1283791670955126 * exp(-y * y));
        y -= step / (1 + y * step);
    }
    return x == 0 ? x : y;
}
PLK_INLINE double plk_sigmoid_f64(double x)
{
    double e = exp(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}
PLK_INLINE double plk_softplus_f64(double x)
{
    return (x > 0 ? x : (x != x ? x : 0)) + log1p(exp(-fabs(x)));
}
PLK_INLINE double plk_rsqrt_f64(double x) { return 1 / sqrt(x); }
PLK_INLINE double plk_abs_f64(double x) { return fabs(x); }

/* libm serves both types */
#define PLK_LIBM1(name) \
    PLK_INLINE float plk_##name##_f32(float x) { return name##f(x); } \
    PLK_INLINE double plk_##name##_f64(double x) { return name(x); }
#define PLK_LIBM1_F64(name) PLK_INLINE double plk_##name##_f64(double x) { return name(x); }
#define PLK_BY_DOUBLE(name) \
    PLK_INLINE float plk_##name##_f32(float x) { return (float)plk_##name##_f64((double)x); }
PLK_LIBM1(lgamma) PLK_LIBM1(tgamma) PLK_LIBM1(floor) PLK_LIBM1(ceil) PLK_LIBM1(trunc) PLK_LIBM1(rint) PLK_LIBM1(erfc)
PLK_LIBM1_F64(asin) PLK_LIBM1_F64(acos) PLK_LIBM1_F64(atan) PLK_LIBM1_F64(sinh) PLK_LIBM1_F64(cosh)
PLK_LIBM1_F64(asinh) PLK_LIBM1_F64(acosh) PLK_LIBM1_F64(atanh) PLK_LIBM1_F64(cbrt) PLK_LIBM1_F64(exp2)
PLK_LIBM1_F64(exp) PLK_LIBM1_F64(expm1) PLK_LIBM1_F64(log) PLK_LIBM1_F64(log2) PLK_LIBM1_F64(log10)
PLK_LIBM1_F64(log1p) PLK_LIBM1_F64(tanh) PLK_LIBM1_F64(erf) PLK_LIBM1_F64(sin) PLK_LIBM1_F64(cos) PLK_LIBM1_F64(tan)
PLK_LIBM1_F64(sqrt) PLK_LIBM1_F64(fabs) PLK_LIBM1_F64(round)
PLK_BY_DOUBLE(digamma) PLK_BY_DOUBLE(trigamma) PLK_BY_DOUBLE(erfinv)

PLK_INLINE double plk_pow_f64(double x, double y) { return pow(x, y); }
PLK_INLINE float plk_hypot_f32(float x, float y) { return hypotf(x, y); }
PLK_INLINE double plk_hypot_f64(double x, double y) { return hypot(x, y); }
PLK_INLINE double plk_atan2_f64(double x, double y) { return atan2(x, y); }
PLK_INLINE float plk_copysign_f32(float x, float y) { return copysignf(x, y); }
PLK_INLINE double plk_copysign_f64(double x, double y) { return copysign(x, y); }
PLK_INLINE float plk_nextafter_f32(float x, float y) { return nextafterf(x, y); }
PLK_INLINE double plk_nextafter_f64(double x, double y) { return nextafter(x, y); }
PLK_INLINE float plk_div_f32(float x, float y) { return x / y; }
PLK_INLINE double plk_div_f64(double x, double y) { return x / y; }
/* In double the whole part q of x / y has no rounding error below 2^28, nor has q y. */
PLK_INLINE float plk_fmod_f32(float x, float y)
{
    double q = (double)x / (double)y;
    if (!(fabs(q) < 0x1p28 && fabsf(y) < INFINITY))
        return fmodf(x, y);
    return copysignf((float)((double)x - trunc(q) * (double)y), x);
}
PLK_INLINE double plk_fmod_f64(double x, double y) { return fmod(x, y); }

/* The remainder with the divisor's sign, as Python's %; x mod 0 is 0, as in MXNet. */
PLK_INLINE float plk_mod_f32(float x, float y)
{
    float r = y == 0.0f ? 0.0f : plk_fmod_f32(x, y);
    return r != 0.0f ? ((r < 0.0f) != (y < 0.0f) ? r + y : r) : copysignf(0.0f, y);
}
PLK_INLINE double plk_mod_f64(double x, double y)
{
    double r = y == 0 ? 0 : fmod(x, y);
    return r != 0 ? ((r < 0) != (y < 0) ? r + y : r) : copysign(0, y);
}
/* The largest whole number not above x / y. Not floor(x / y), whose division rounds up: 1 // 0.1 is 9. */
PLK_INLINE double plk_floordiv_f64(double x, double y)
{
    double r = fmod(x, y), q = (x - r) / y;
    if (y == 0)
        return x / y;
    q -= r != 0 && (r < 0) != (y < 0) ? 1 : 0;
    return q == 0 ? copysign(0, x / y) : rint(q);
}
PLK_INLINE float plk_floordiv_f32(float x, float y)
{
    double whole = (double)x / (double)y;
    if (fabs(whole) < 0x1p28 && fabsf(y) < INFINITY)              /* no rounding error reaches a whole number */
        return copysignf((float)floor(whole), (float)whole);
    float r = fmodf(x, y), q = (x - r) / y;
    if (y == 0.0f)
        return x / y;
    q -= r != 0.0f && (r < 0.0f) != (y < 0.0f) ? 1.0f : 0.0f;
    return q == 0.0f ? copysignf(0.0f, x / y) : rintf(q);
}
/* Division of integers that loops vectorise: of up to 32 bits in a float or double, whose quotient times 1 and a little
 * is on the right side of every whole number; of 64 bits an estimate that is corrected twice. div and fmod: towards
 * zero, as C; floordiv and mod: downwards. By zero all are 0; the least number by -1 wraps.
 *
 * Quotients of 32 bits downwards: x / y + 1 / (2 |y|) is at least 1 / (2 |y|) away from every whole number, more than
 * the double is wrong by, so that the nearest one to that - 1/2 is the quotient, in the low bits of the sum with
 * PLK_ROUNDER64. */
PLK_INLINE float plk_whole8(float t, int down)
{
    return down ? floorf(t + fabsf(t) * 0x1p-18f) : truncf(t + t * 0x1p-18f);
}
PLK_INLINE int32_t plk_quotient8(int32_t x, int32_t y, int down)
{
    int32_t q = (int32_t)plk_whole8((float)x * (1.0f / (float)(y == 0 ? 1 : y)), down);
    return y == 0 ? 0 : q;
}
PLK_INLINE int32_t plk_rest8(int32_t x, int32_t y, int down)
{
    return y == 0 ? 0 : x - plk_quotient8(x, y, down) * y;
}
PLK_INLINE double plk_whole32(int32_t x, int32_t y, int down)
{
    double t = (double)x * (1.0 / (double)(y == 0 ? 1 : y));
    return down ? floor(t + fabs(t) * 0x1p-44) : trunc(t + t * 0x1p-44);
}
PLK_INLINE int32_t plk_quotient32(int32_t x, int32_t y, int down)
{
    double inverse = 1.0 / (double)(y == 0 ? 1 : y), q = down ? 0 : plk_whole32(x, y, 0);
    double rounded = (double)x * inverse + (fabs(0.5 * inverse) - 0.5) + PLK_ROUNDER64;
    int32_t whole = (int32_t)(q > 2147483647.0 ? -2147483648.0 : q);
    return y == 0 ? 0 : down ? (int32_t)plk_bits64(rounded) : whole;
}
PLK_INLINE int32_t plk_rest32(int32_t x, int32_t y, int down)
{
    int32_t rest = (int32_t)((double)x - plk_whole32(x, y, down) * (double)y);
    return y == 0 ? 0 : rest;
}
#ifdef __AVX512DQ__                                    /* which converts and multiplies 64-bit integers */
PLK_INLINE int64_t plk_divided64(int64_t x, int64_t y, int down, int64_t *rest)
{
    double inverse = 1.0 / (double)y, t = (double)x * inverse;
    int64_t q = (int64_t)(t < 0x1p63 ? t : 0x1.fffffffffffffp62);
    int64_t r = (int64_t)((uint64_t)x - (uint64_t)q * (uint64_t)y);
    double u = (double)r * inverse;
    int64_t more = (int64_t)(u + copysign(0.5, u));                /* so that |r| <= |y| / 2 is left */
    q += more;
    r = (int64_t)((uint64_t)r - (uint64_t)more * (uint64_t)y);
    int64_t step = (r ^ y) < 0 ? -1 : 1;
    step = (r != 0) & ((r ^ (down ? y : x)) < 0) ? step : 0;
    *rest = (int64_t)((uint64_t)r - (uint64_t)step * (uint64_t)y);
    return q + step;
}
#else
PLK_INLINE int64_t plk_divided64(int64_t x, int64_t y, int down, int64_t *rest)
{
    int64_t q = x / y, r = x - q * y;
    int below = down && r != 0 && (r ^ y) < 0;
    *rest = below ? r + y : r;
    return q - below;
}
#endif
PLK_INLINE int64_t plk_quotient64(int64_t x, int64_t y, int down)
{
    int64_t rest, q = plk_divided64(x, y == 0 || y == -1 ? 1 : y, down, &rest);
    q = y == -1 ? (int64_t)(0 - (uint64_t)x) : q;
    return y == 0 ? 0 : q;
}
PLK_INLINE int64_t plk_rest64(int64_t x, int64_t y, int down)
{
    int64_t rest;
    plk_divided64(x, y == 0 || y == -1 ? 1 : y, down, &rest);
    return rest;
}
#define PLK_BY_WIDTH(name, x, y, down) \
    _Generic((x), int8_t: _Generic((y), int8_t: name##8, default: name##32), \
                  uint8_t: _Generic((y), uint8_t: name##8, default: name##32), \
                  default: _Generic((x) + (y), int: name##32, default: name##64))(x, y, down)
#define plk_div_int(x, y) PLK_BY_WIDTH(plk_quotient, x, y, 0)
#define plk_fmod_int(x, y) PLK_BY_WIDTH(plk_rest, x, y, 0)
#define plk_floordiv_int(x, y) PLK_BY_WIDTH(plk_quotient, x, y, 1)
#define plk_mod_int(x, y) PLK_BY_WIDTH(plk_rest, x, y, 1)
/* Of the absolute values; of 0 and 0 it is 0. */
PLK_INLINE int64_t plk_gcd_int(int64_t x, int64_t y)
{
    uint64_t a = x < 0 ? 0 - (uint64_t)x : (uint64_t)x, b = y < 0 ? 0 - (uint64_t)y : (uint64_t)y;
    while (b) {
        uint64_t rest = a % b;
        a = b, b = rest;
    }
    return (int64_t)a;
}
/* Shifts by 64 or more, or by a negative number: all bits leave. */
PLK_INLINE int64_t plk_shl_int(int64_t x, int64_t y) { return y < 0 || y > 63 ? 0 : (int64_t)((uint64_t)x << y); }
PLK_INLINE int64_t plk_shr_int(int64_t x, int64_t y) { return x >> (y < 0 || y > 63 ? 63 : y); }
PLK_INLINE int64_t plk_pow_int(int64_t x, int64_t y)
{
    uint64_t v = 1, b = (uint64_t)x;
    if (y < 0)
        return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
    for (; y; y >>= 1, b *= b)
        v *= y & 1 ? b : 1;
    return (int64_t)v;
}
/* A scalar for integers of a range: truncated, and wrapped by the cast that follows; beyond int64 it is an end of the
 * range. */
PLK_INLINE int64_t plk_whole(double v, int64_t low, int64_t high)
{
    return v != v ? 0 : v >= 0x1p63 ? high : v < -0x1p63 ? low : (int64_t)v;
}
PLK_INLINE int64_t plk_abs_int(int64_t x) { return x < 0 ? -x : x; }
#endif
