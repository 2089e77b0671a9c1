/* Arrays in kernels: element types and their types of computation, 16-byte vectors, indices without division. */
#pragma once
#include "device.cuh"

/* ---- element types ---------------------------------------------------------------------------------------------- */

template<class T> struct Computed { typedef T type; };
template<> struct Computed<float16> { typedef float type; };
template<> struct Computed<bfloat16> { typedef float type; };
template<> struct Computed<bool> { typedef uint8_t type; };
template<class T> using computed = typename Computed<T>::type;

template<class T> DEVICE T value_of(T x) { return x; }
DEVICE float value_of(float16 x) { return to_float(x); }
DEVICE float value_of(bfloat16 x) { return to_float(x); }
DEVICE uint8_t value_of(bool x) { return x; }

/* A value converted to a type: floats are converted to small integers through the widest one, bools are 0 or 1. */
template<class T> struct As {
    template<class V> static DEVICE T from(V v) { return (T)v; }
};
template<> struct As<float16> {
    template<class V> static DEVICE float16 from(V v) { return to_float16((float)v); }
};
template<> struct As<bfloat16> {
    template<class V> static DEVICE bfloat16 from(V v) { return to_bfloat16((float)v); }
};
template<> struct As<bool> {
    template<class V> static DEVICE bool from(V v) { return v != 0; }
};
template<class T> struct AsSmall {
    template<class V> static DEVICE T from(V v) { return (T)(int64_t)v; }
};
template<> struct As<uint8_t> : AsSmall<uint8_t> {};
template<> struct As<int8_t> : AsSmall<int8_t> {};
template<> struct As<uint16_t> : AsSmall<uint16_t> {};
template<> struct As<int16_t> : AsSmall<int16_t> {};
template<class T, class V> DEVICE T as(V v) { return As<T>::from(v); }
/* between any two element types */
template<class T, class S> DEVICE T convert(S v) { return as<T>(value_of(v)); }

/* A dynamic scalar for integers: truncated and wrapped; beyond int64 it is an end of their range. */
template<class T> DEVICE T number(double v) { return (T)v; }
DEVICE int64_t whole(double v, int64_t low, int64_t high)
{
    return v != v ? 0 : v >= 0x1p63 ? high : v < -0x1p63 ? low : (int64_t)v;
}
template<> DEVICE uint8_t number<uint8_t>(double v) { return (uint8_t)whole(v, 0, 255); }
template<> DEVICE int8_t number<int8_t>(double v) { return (int8_t)whole(v, -128, 127); }
template<> DEVICE int32_t number<int32_t>(double v) { return (int32_t)whole(v, -2147483647 - 1, 2147483647); }
template<> DEVICE int64_t number<int64_t>(double v)
{
    return whole(v, (int64_t)0x8000000000000000ull, (int64_t)0x7fffffffffffffffull);
}

/* ---- vectors ---------------------------------------------------------------------------------------------------- */

constexpr int aligned_to(int bytes) { return bytes < 16 ? bytes : 16; }

template<class T, int N> struct alignas(aligned_to((int)sizeof(T) * N)) Vector { T at[N]; };

template<int N, class T> DEVICE Vector<T, N> load(const T *from) { return *(const Vector<T, N> *)from; }
template<int N, class T> DEVICE void store(T *to, const Vector<T, N> &v) { *(Vector<T, N> *)to = v; }

DEVICE bool is_aligned() { return true; }
template<class T, class... More> DEVICE bool is_aligned(T *p, More... more)
{
    return (uintptr_t)p % 16 == 0 && is_aligned(more...);
}

/* ---- indices ---------------------------------------------------------------------------------------------------- */

/* Division of 0 <= n < 2^31 by a constant of the plan: multiply and shift (Granlund and Montgomery 1994). layout.py
 * computes the factors. */
template<class I> struct Divisor;
template<> struct Divisor<int32_t> {
    int32_t by;
    uint32_t magic, shift;
    DEVICE int32_t operator()(int32_t n) const
    {
        uint32_t high = (uint32_t)((uint64_t)(uint32_t)n * magic >> 32);
        return (int32_t)((high + (uint32_t)n) >> shift);
    }
};
template<> struct Divisor<int64_t> {
    int64_t by;
    DEVICE int64_t operator()(int64_t n) const { return n / by; }
};

/* Strides of N arrays with the same index space of D dimensions, innermost first. */
template<class I, int D, int N> struct Places {
    Divisor<I> size[D < 1 ? 1 : D];
    I stride[D < 1 ? 1 : D][N];

    /* offsets of element i, which counts over all dimensions */
    DEVICE void find(I i, I *offsets) const
    {
#pragma unroll
        for (int k = 0; k < N; k++)
            offsets[k] = 0;
#pragma unroll
        for (int d = 0; d < D; d++) {
            I q = d + 1 < D ? size[d](i) : 0, r = d + 1 < D ? i - q * size[d].by : i;
#pragma unroll
            for (int k = 0; k < N; k++)
                offsets[k] += r * stride[d][k];
            i = q;
        }
    }
};

/* An index into an axis of n elements: clipped, or wrapped. */
DEVICE int64_t place_in(int64_t k, int64_t n, int wrap)
{
    if (!wrap)
        return k < 0 ? 0 : k < n ? k : n - 1;
    k %= n;
    return k < 0 ? k + n : k;
}
