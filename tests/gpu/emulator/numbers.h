/* Numbers in memory of the types that libraries know: 0 float32, 1 float64, 2 float16, any other bfloat16. So cuBLAS
 * (14) and cuDNN (9) number them. */
#ifndef EMU_NUMBERS_H
#define EMU_NUMBERS_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

inline size_t bytes_of(int type) { return type == 1 ? 8 : type == 0 ? 4 : 2; }

inline float from_half(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    float v = exponent == 31 ? (mantissa ? NAN : INFINITY)
            : exponent ? ldexpf(static_cast<float>(mantissa | 1024), exponent - 25)
                       : ldexpf(static_cast<float>(mantissa), -24);
    return h & 0x8000 ? -v : v;
}

inline uint16_t to_half(float v)
{
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    double a = fabs(static_cast<double>(v));
    if (isnan(v))
        return 0x7fff;
    if (a >= 65520)
        return sign | 0x7c00;
    int e;
    frexp(a, &e);
    int scale = e < -13 ? -24 : e - 11; /* the last bit's weight */
    double units = nearbyint(ldexp(a, -scale));
    if (units >= 2048) {
        units /= 2;
        scale++;
    }
    uint16_t n = static_cast<uint16_t>(units);
    return sign | (n < 1024 ? n : static_cast<uint16_t>((scale + 25) << 10 | (n & 1023)));
}

inline double get(const char *p, int type, int64_t i)
{
    if (type == 1)
        return reinterpret_cast<const double *>(p)[i];
    if (type == 0)
        return reinterpret_cast<const float *>(p)[i];
    uint16_t bits = reinterpret_cast<const uint16_t *>(p)[i];
    if (type == 2)
        return from_half(bits);
    uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float v;
    memcpy(&v, &wide, 4);
    return v;
}

inline void put(char *p, int type, int64_t i, double v)
{
    if (type == 1) {
        reinterpret_cast<double *>(p)[i] = v;
    } else if (type == 0) {
        reinterpret_cast<float *>(p)[i] = static_cast<float>(v);
    } else if (type == 2) {
        reinterpret_cast<uint16_t *>(p)[i] = to_half(static_cast<float>(v));
    } else {
        float f = static_cast<float>(v);
        uint32_t bits;
        memcpy(&bits, &f, 4);
        bits = isnan(f) ? 0x7fff0000 : bits + 0x7fff + (bits >> 16 & 1);
        reinterpret_cast<uint16_t *>(p)[i] = static_cast<uint16_t>(bits >> 16);
    }
}
#endif
