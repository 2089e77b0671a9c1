/* Random numbers and dropout. */
#include "array.cuh"
#include "philox.cuh"

/* N random numbers of a block, computed in A: uniform in [a, b), normal with mean a and deviation b, exponential
 * with rate a. */
enum Kind { UNIFORM, NORMAL, EXPONENTIAL };
template<class A, Kind K> struct Draw;
template<> struct Draw<float, UNIFORM> {
    enum { N = 4 };
    static DEVICE void of(const Words &w, double a, double b, float *to)
    {
        const float low = (float)a, width = (float)(b - a);
#pragma unroll
        for (int k = 0; k < N; k++)
            to[k] = low + width * unit(w.at[k]);
    }
};
template<> struct Draw<double, UNIFORM> {
    enum { N = 2 };
    static DEVICE void of(const Words &w, double a, double b, double *to)
    {
        to[0] = a + (b - a) * unit64(w.at[0], w.at[1]);
        to[1] = a + (b - a) * unit64(w.at[2], w.at[3]);
    }
};
template<> struct Draw<float, NORMAL> {          /* by Box and Muller */
    enum { N = 4 };
    static DEVICE void of(const Words &w, double mean, double deviation, float *to)
    {
#pragma unroll
        for (int k = 0; k < N; k += 2) {
            const float r = sqrtf(-2.0f * logf((float)((w.at[k] >> 8) + 1) * 5.9604644775390625e-8f));
            const float angle = unit(w.at[k + 1]) * 6.28318530718f;
            to[k] = (float)mean + (float)deviation * (r * cosf(angle));
            to[k + 1] = (float)mean + (float)deviation * (r * sinf(angle));
        }
    }
};
template<> struct Draw<double, NORMAL> {
    enum { N = 2 };
    static DEVICE void of(const Words &w, double mean, double deviation, double *to)
    {
        const double r = sqrt(-2 * log(1 - unit64(w.at[0], w.at[1])));
        const double angle = unit64(w.at[2], w.at[3]) * 6.283185307179586;
        to[0] = mean + deviation * r * cos(angle);
        to[1] = mean + deviation * r * sin(angle);
    }
};

template<> struct Draw<float, EXPONENTIAL> {
    enum { N = 4 };
    static DEVICE void of(const Words &w, double rate, double, float *to)
    {
        const float scale = (float)(-1 / rate);
#pragma unroll
        for (int k = 0; k < N; k++)
            to[k] = scale * logf((float)((w.at[k] >> 8) + 1) * 5.9604644775390625e-8f);
    }
};
template<> struct Draw<double, EXPONENTIAL> {
    enum { N = 2 };
    static DEVICE void of(const Words &w, double rate, double, double *to)
    {
        to[0] = -log(1 - unit64(w.at[0], w.at[1])) / rate;
        to[1] = -log(1 - unit64(w.at[2], w.at[3])) / rate;
    }
};

/* y: n numbers; a block of four words for each thread */
template<class T, Kind K>
__global__ void __launch_bounds__(256) fill_random(int64_t n, T *y, double a, double b, uint64_t seed, uint64_t call)
{
    typedef computed<T> A;
    typedef Draw<A, K> D;
    const int64_t block = (int64_t)blockIdx.x * 256 + threadIdx.x, first = block * D::N;
    if (first >= n)
        return;
    A drawn[D::N];
    D::of(philox(seed, call, (uint64_t)block), a, b, drawn);
    if (n - first >= D::N && is_aligned(y)) {
        Vector<T, D::N> v;
#pragma unroll
        for (int k = 0; k < D::N; k++)
            v.at[k] = as<T>(drawn[k]);
        store<D::N>(y + first, v);
        return;
    }
#pragma unroll
    for (int k = 0; k < D::N; k++)
        if (first + k < n)
            y[first + k] = as<T>(drawn[k]);
}

/* y: n integers of [low, low + width). NARROW: one word for each, enough for widths up to 2^16; else two. */
template<class T, bool NARROW>
__global__ void __launch_bounds__(256)
    fill_whole(int64_t n, T *y, int64_t low, uint64_t width, uint64_t seed, uint64_t call)
{
    enum { N = NARROW ? 4 : 2 };
    const int64_t block = (int64_t)blockIdx.x * 256 + threadIdx.x;
    const Words w = philox(seed, call, (uint64_t)block);
#pragma unroll
    for (int k = 0; k < N; k++) {
        const uint64_t at = NARROW ? w.at[k] * width >> 32
                                   : __umul64hi((uint64_t)w.at[2 * k % 4] << 32 | w.at[(2 * k + 1) % 4], width);
        if (block * N + k < n)
            y[block * N + k] = (T)((uint64_t)low + at);
    }
}

/* mask: keep ? scale : 0 for each of n elements, y = x mask (WITH: x has the mask's shape). The four
 * vectors of a thread are a warp apart, so that it needs only its own words. */
template<class T, bool WITH>
__global__ void __launch_bounds__(256)
dropout(int64_t n, const T *x, T *y, T *mask, double p, uint64_t seed, uint64_t call)
{
    typedef computed<T> A;
    const float keep = (float)(1 - p);
    const A scale = p < 1 ? (A)(1 / (1 - p)) : (A)0;
    const int64_t block = (int64_t)blockIdx.x * 256 + threadIdx.x, first = block * 4;
    if (first >= n)
        return;
    const bool whole = n - first >= 4 && is_aligned(mask) && (!WITH || is_aligned(x, y));
    Vector<T, 4> v, m, r;
    if (WITH && whole)
        v = load<4>(x + first);
    const Words w = philox(seed, call, (uint64_t)block);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const A f = unit(w.at[k]) < keep ? scale : (A)0;
        m.at[k] = as<T>(f);
        if (WITH && (whole || first + k < n))
            r.at[k] = as<T>((whole ? value_of(v.at[k]) : value_of(x[first + k])) * f);
    }
    if (whole) {
        store<4>(mask + first, m);
        if (WITH)
            store<4>(y + first, r);
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (first + k < n) {
            mask[first + k] = m.at[k];
            if (WITH)
                y[first + k] = r.at[k];
        }
}

/* y = x mask, with a mask that is broadcast. */
template<class T, class I, int D>
__global__ void __launch_bounds__(256) apply_mask(I n, Places<I, D, 1> at, const T *x, const T *mask, T *y)
{
    const I i = (I)blockIdx.x * 256 + (I)threadIdx.x;
    if (i >= n)
        return;
    I offset;
    at.find(i, &offset);
    y[i] = as<T>(value_of(x[i]) * value_of(mask[offset]));
}

/* The dropout mask before layer `layer` of an RNN: 1 / (1 - p) with probability 1 - p; each layer has its own stream */
template<class T>
__global__ void __launch_bounds__(256) draw_mask(T *mask, int64_t n, double p, uint64_t seed, uint64_t call, int layer)
{
    const int64_t step = (int64_t)gridDim.x * 256;
    for (int64_t block = (int64_t)blockIdx.x * 256 + threadIdx.x; block * 4 < n; block += step) {
        float drawn[4];
        Draw<float, UNIFORM>::of(philox(seed, call + ((uint64_t)(layer + 1) << 40), (uint64_t)block), 0, 1, drawn);
        for (int k = 0; k < 4; k++)
            if (block * 4 + k < n)
                mask[block * 4 + k] = as<T>(drawn[k] >= (float)p ? (float)(1 / (1 - p)) : 0.0f);
    }
}
