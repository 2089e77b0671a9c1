/* The functions of pointwise expressions, under the names that kernels/statements.py gives them (cpu/vecmath.h has the
 * CPU's): plk_NAME_f32, plk_NAME_f64, plk_NAME_int. */
#pragma once
#include "array.cuh"

#ifndef M_PI
#define M_PI 3.14159265358979323846
#endif

DEVICE float plk_as_float16_f32(float x) { return to_float(to_float16(x)); }
DEVICE float plk_as_bfloat16_f32(float x) { return to_float(to_bfloat16(x)); }

#define BOTH(name) \
    DEVICE float plk_##name##_f32(float x) { return name##f(x); } \
    DEVICE double plk_##name##_f64(double x) { return name(x); }
BOTH(exp) BOTH(exp2) BOTH(expm1) BOTH(log) BOTH(log2) BOTH(log10) BOTH(log1p) BOTH(tanh) BOTH(erf) BOTH(erfc)
BOTH(sin) BOTH(cos) BOTH(tan) BOTH(asin) BOTH(acos) BOTH(atan) BOTH(sinh) BOTH(cosh) BOTH(asinh) BOTH(acosh)
BOTH(atanh) BOTH(cbrt) BOTH(lgamma) BOTH(tgamma) BOTH(floor) BOTH(ceil) BOTH(trunc) BOTH(rint) BOTH(round)
BOTH(sqrt) BOTH(fabs)
#undef BOTH
#define BOTH(name) \
    DEVICE float plk_##name##_f32(float x, float y) { return name##f(x, y); } \
    DEVICE double plk_##name##_f64(double x, double y) { return name(x, y); }
BOTH(pow) BOTH(hypot) BOTH(atan2) BOTH(fmod) BOTH(copysign) BOTH(nextafter)
#undef BOTH

DEVICE float plk_abs_f32(float x) { return fabsf(x); }
DEVICE double plk_abs_f64(double x) { return fabs(x); }
DEVICE float plk_rsqrt_f32(float x) { return 1.0f / sqrtf(x); }
DEVICE double plk_rsqrt_f64(double x) { return 1.0 / sqrt(x); }
DEVICE float plk_div_f32(float x, float y) { return x / y; }
DEVICE double plk_div_f64(double x, double y) { return x / y; }

DEVICE float plk_sigmoid_f32(float x)
{
    float e = expf(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
DEVICE double plk_sigmoid_f64(double x)
{
    double e = exp(-fabs(x));
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
DEVICE float plk_softplus_f32(float x) { return (x > 0.0f ? x : (x != x ? x : 0.0f)) + log1pf(expf(-fabsf(x))); }
DEVICE double plk_softplus_f64(double x) { return (x > 0.0 ? x : (x != x ? x : 0.0)) + log1p(exp(-fabs(x))); }

/* As in cpu/vecmath.h: recurrence up to 8, then the asymptotic series; Winitzki's start, then Newton and Halley. */
DEVICE double plk_digamma_f64(double x)
{
    double y = 0;
    if (x == 0 || x != x || x == -(double)INFINITY)
        return x == 0 ? copysign((double)INFINITY, -x) : (double)NAN;
    if (x < 0) {
        double f = x - floor(x);
        if (f == 0)
            return (double)NAN;
        y = -M_PI / tan(M_PI * f);
        x = 1 - x;
    }
    for (; x < 8; x += 1)
        y -= 1 / x;
    double u = 1 / (x * x);
    return y + log(x) - 0.5 / x - u * (1.0 / 12 - u * (1.0 / 120 - u * (1.0 / 252 - u * (1.0 / 240
        - u * (1.0 / 132 - u * (691.0 / 32760 - u / 12))))));
}
DEVICE double plk_trigamma_f64(double x)
{
    double y = 0, f = x - floor(x), s = 0;
    const bool reflected = x < 0;
    if (x <= 0 && f == 0)
        return (double)INFINITY;
    if (reflected) {
        s = sin(M_PI * f);
        x = 1 - x;
    }
    for (; x < 8; x += 1)
        y += 1 / (x * x);
    double u = 1 / (x * x);
    y += 1 / x + u / 2 + u / x * (1.0 / 6 - u * (1.0 / 30 - u * (1.0 / 42 - u * (1.0 / 30 - u * 5 / 66))));
    return reflected ? M_PI * M_PI / (s * s) - y : y;
}
DEVICE double plk_erfinv_f64(double x)
{
    if (!(x > -1 && x < 1))
        return x == 1 ? (double)INFINITY : x == -1 ? -(double)INFINITY : (double)NAN;
    double l = log((1 - x) * (1 + x)), t = 4.3307467508 + l / 2;
    double y = copysign(sqrt(sqrt(t * t - l / 0.147) - t), x);
    for (int i = 0; i < 3; i++) {
        double e = x < 0 ? erfc(-y) - (1 + x) : (1 - x) - erfc(y);
        double step = e / (1.1283791670955126 * exp(-y * y));
        y -= step / (1 + y * step);
    }
    return x == 0 ? x : y;
}
DEVICE float plk_digamma_f32(float x) { return (float)plk_digamma_f64((double)x); }
DEVICE float plk_trigamma_f32(float x) { return (float)plk_trigamma_f64((double)x); }
DEVICE float plk_erfinv_f32(float x) { return (float)plk_erfinv_f64((double)x); }

/* The remainder with the divisor's sign; x mod 0 is 0. */
DEVICE float plk_mod_f32(float x, float y)
{
    float r = y == 0.0f ? 0.0f : fmodf(x, y);
    return r != 0.0f ? ((r < 0.0f) != (y < 0.0f) ? r + y : r) : copysignf(0.0f, y);
}
DEVICE double plk_mod_f64(double x, double y)
{
    double r = y == 0 ? 0 : fmod(x, y);
    return r != 0 ? ((r < 0) != (y < 0) ? r + y : r) : copysign(0.0, y);
}
/* As in cpu/vecmath.h. */
DEVICE double plk_floordiv_f64(double x, double y)
{
    double r = fmod(x, y), q = (x - r) / y;
    if (y == 0)
        return x / y;
    q -= r != 0 && (r < 0) != (y < 0) ? 1 : 0;
    return q == 0 ? copysign(0.0, x / y) : rint(q);
}
DEVICE float plk_floordiv_f32(float x, float y)
{
    float r = fmodf(x, y), q = (x - r) / y;
    if (y == 0.0f)
        return x / y;
    q -= r != 0.0f && (r < 0.0f) != (y < 0.0f) ? 1.0f : 0.0f;
    return q == 0.0f ? copysignf(0.0f, x / y) : rintf(q);
}
DEVICE int64_t plk_gcd_int(int64_t x, int64_t y)
{
    uint64_t a = x < 0 ? 0 - (uint64_t)x : (uint64_t)x, b = y < 0 ? 0 - (uint64_t)y : (uint64_t)y;
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return (int64_t)a;
}
DEVICE int64_t plk_shl_int(int64_t x, int64_t y) { return y < 0 || y > 63 ? 0 : (int64_t)((uint64_t)x << y); }
DEVICE int64_t plk_shr_int(int64_t x, int64_t y) { return x >> (y < 0 || y > 63 ? 63 : y); }
DEVICE int64_t plk_mod_int(int64_t x, int64_t y)
{
    if (y == 0 || y == -1)
        return 0;
    int64_t r = x % y;
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
DEVICE int64_t plk_fmod_int(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }
DEVICE int64_t plk_div_int(int64_t x, int64_t y)
{
    return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}
DEVICE int64_t plk_floordiv_int(int64_t x, int64_t y)
{
    int64_t q = plk_div_int(x, y);
    return y != 0 && y != -1 && x % y != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}
DEVICE int64_t plk_pow_int(int64_t x, int64_t y)
{
    uint64_t v = 1, b = (uint64_t)x;
    if (y < 0)
        return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
    for (; y; y >>= 1, b *= b)
        v *= y & 1 ? b : 1;
    return (int64_t)v;
}
DEVICE int64_t plk_abs_int(int64_t x) { return x < 0 ? -x : x; }
