/* One number between float32 and the 16-bit floats, without branches, so that loops vectorise. */
#ifndef PLK_HALF_H
#define PLK_HALF_H
#include "vecmath.h"

PLK_INLINE float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
    uint32_t special = (h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
    float f = plk_float((int32_t)rest) * 5.192296858534828e33f;      /* 2^112 moves the exponent, denormals too */
    return plk_float((int32_t)(sign | ((uint32_t)plk_bits(f) & (special ? 0x7fffffu : 0x7fffffffu)) | special));
}

PLK_INLINE uint16_t float_to_half(float x)
{
    uint32_t b = (uint32_t)plk_bits(x), sign = b >> 16 & 0x8000, a = b & 0x7fffffff;
    uint32_t normal = (a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13;
    float d = plk_float((int32_t)a) + 0.5f;                           /* rounds to a multiple of 2^-24 */
    uint32_t denormal = (uint32_t)plk_bits(d) - 0x3f000000u;
    uint32_t r = a < 0x38800000u ? denormal : normal;
    r = a >= 0x47800000u - 0x1000u ? 0x7c00u : r;
    r = a > 0x7f800000u ? 0x7e00u : r;
    return (uint16_t)(sign | r);
}

PLK_INLINE float brain_to_float(uint16_t h) { return plk_float((int32_t)((uint32_t)h << 16)); }

PLK_INLINE uint16_t float_to_brain(float x)
{
    uint32_t b = (uint32_t)plk_bits(x), r = (b + 0x7fffu + (b >> 16 & 1)) >> 16;
    return (uint16_t)(x != x ? (b >> 16 | 0x40u) : r);
}

/* A float32 rounded to the 16-bit type. Computed in float32, because loops through uint16_t are five times as slow.
 * Adding 2^13 times x's power of two rounds x to 10 bits after the first, and a denormal to 2^-24. */
PLK_INLINE float plk_as_float16_f32(float x)
{
    int32_t b = plk_bits(x), power = b & 0x7f800000;
    float a = plk_float(b & 0x7fffffff), large = plk_float((power > 0x38800000 ? power : 0x38800000) + (13 << 23));
    float r = a >= 65520.0f ? INFINITY : a + large - large;
    return plk_float(plk_bits(r) | (b & INT32_MIN));
}

PLK_INLINE float plk_as_bfloat16_f32(float x)
{
    uint32_t b = (uint32_t)plk_bits(x), r = (b + 0x7fffu + (b >> 16 & 1)) & 0xffff0000u;
    uint32_t nan = (b & 0xffff0000u) | 0x400000u;
    return plk_float((int32_t)((b & 0x7fffffffu) > 0x7f800000u ? nan : r));
}
#endif
