/* Batch normalisation, alone or with the sum and the relu that follow it, forward and backward. Statistics are
 * reductions by map_reduce.cuh; a thread subtracts the first element that it reads, which avoids cancellation. */
#include "map_reduce.cuh"

/* The channel of an element of (n, channels, space). */
template<class I> struct Channels {
    Divisor<I> space, channels;
    DEVICE I of(I e) const
    {
        const I row = space(e);
        return row - channels(row) * channels.by;
    }
};

DEVICE float root_of(float x) { return sqrtf(x); }
DEVICE double root_of(double x) { return sqrt(x); }

/* ---- forward ---------------------------------------------------------------------------------------------------- */

/* mean and 1 / sqrt(var + eps) of each channel; updates the moving statistics. */
template<class T, class P, class I> struct Moments {
    typedef computed<T> A;
    struct Sums {
        A shift, sum, square, count;
        DEVICE Sums shuffled(int step) const
        {
            return {shuffle_xor(shift, step), shuffle_xor(sum, step), shuffle_xor(square, step),
                    shuffle_xor(count, step)};
        }
        /* by Chan, Golub and LeVeque 1979 */
        static DEVICE Sums join(const Sums &a, const Sums &b)
        {
            if (a.count == 0 || b.count == 0)
                return a.count == 0 ? b : a;
            const A n = a.count + b.count, mean_a = a.sum / a.count, mean_b = b.sum / b.count;
            const A away = (b.shift - a.shift) + (mean_b - mean_a);
            const A around = a.square - a.sum * mean_a + b.square - b.sum * mean_b +
                away * away * (a.count * b.count / n);
            return {a.shift + mean_a + away * (b.count / n), 0, around, n};
        }
    };
    const T *x;
    P *moving_mean, *moving_var, *mean, *rstd;
    double eps, momentum;

    DEVICE void start(Sums &s) const { s = {0, 0, 0, 0}; }
    DEVICE bool aligned() const { return is_aligned(x); }
    template<int V> DEVICE void add(Sums &s, I e, I) const
    {
        const Vector<T, V> v = load<V>(x + e);
        if (s.count == 0)
            s.shift = value_of(v.at[0]);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const A d = value_of(v.at[k]) - s.shift;
            s.sum += d;
            s.square += d * d;
        }
        s.count += V;
    }
    DEVICE void finish(const Sums &s, int64_t c) const
    {
        const A away = s.sum / s.count, m = s.shift + away, around = s.square / s.count - away * away;
        const A var = around > 0 ? around : around != around ? around : (A)0, keep = (A)momentum;
        mean[c] = as<P>(m);
        rstd[c] = as<P>((A)1 / root_of(var + (A)eps));
        moving_mean[c] = as<P>(value_of(moving_mean[c]) * keep + m * (A)(1 - momentum));
        moving_var[c] = as<P>(value_of(moving_var[c]) * keep + var * (A)(1 - momentum));
    }
};

/* Without batch statistics: mean and rstd from the moving statistics. */
template<class P>
__global__ void moving_stats(int64_t channels, const P *moving_mean, const P *moving_var, P *mean, P *rstd, double eps)
{
    const int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (c < channels) {
        mean[c] = moving_mean[c];
        rstd[c] = as<P>((computed<P>)1 / root_of(value_of(moving_var[c]) + (computed<P>)eps));
    }
}

/* y = relu?((x - mean) * rstd * gamma + beta [+ other]), V elements of one channel (LAST: of V channels) at a time. */
template<class T, class P, class I, int V, bool LAST, bool ADD, bool RELU> struct Apply {
    typedef computed<T> A;
    const T *x, *other;
    const P *gamma, *beta, *mean, *rstd;
    T *y;
    int fix_gamma;

    DEVICE bool aligned() const { return is_aligned(x, y) && (!ADD || is_aligned(other)); }
    template<int N> DEVICE void at(I e, const Channels<I> &channels) const
    {
        const I c = channels.of(e);
        const Vector<T, N> v = load<N>(x + e);
        Vector<T, N> o, r;
        if (ADD)
            o = load<N>(other + e);
        A scale = 0, shift = 0, m = 0;
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (k == 0 || LAST) {
                const I own = LAST ? c + k : c;
                scale = value_of(rstd[own]) * (fix_gamma ? (A)1 : (A)value_of(gamma[own]));
                shift = value_of(beta[own]);
                m = value_of(mean[own]);
            }
            A z = (value_of(v.at[k]) - m) * scale + shift;
            if (ADD)
                z += value_of(o.at[k]);
            r.at[k] = as<T>(RELU && z <= 0 ? (A)0 : z);
        }
        store<N>(y + e, r);
    }
};

/* map.at of all n elements; a block takes 256 * V * UNROLL of them */
enum { UNROLL = 2 };
template<class M, class I, int V> __global__ void __launch_bounds__(256) by_channel(I n, Channels<I> channels, M map)
{
    const I size = 256 * V * UNROLL, first = (I)blockIdx.x * size, end = n - first < size ? n : first + size;
    if (V > 1 && map.aligned()) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const I i = first + (u * 256 + (I)threadIdx.x) * V;
            if (i < end)
                map.template at<V>(i, channels);
        }
    } else {
        for (I i = first + (I)threadIdx.x; i < end; i += 256)
            map.template at<1>(i, channels);
    }
}

/* ---- backward --------------------------------------------------------------------------------------------------- */

/* The gradient of relu for dy [+ more], given its result y. */
template<class A> DEVICE A masked(A d, A y) { return d * (y > 0 ? (A)1 : (A)0); }

/* sums[c] = sum of dz, sums[channels + c] = sum of dz (x - mean); and dgamma, dbeta of them */
template<class T, class P, class I, bool MORE, bool RELU> struct Products {
    typedef computed<T> A;
    struct Sums {
        A shift, sum, along, count;
        DEVICE Sums shuffled(int step) const
        {
            return {shuffle_xor(shift, step), shuffle_xor(sum, step), shuffle_xor(along, step),
                    shuffle_xor(count, step)};
        }
        static DEVICE Sums join(const Sums &a, const Sums &b)
        {
            if (a.count == 0 || b.count == 0)
                return a.count == 0 ? b : a;
            return {a.shift, a.sum + b.sum, a.along + b.along + (b.shift - a.shift) * b.sum, a.count + b.count};
        }
    };
    const T *dy, *more, *y, *x;
    const P *mean, *rstd;
    P *dgamma, *dbeta;
    A *sums;
    int64_t channels;

    DEVICE void start(Sums &s) const { s = {0, 0, 0, 0}; }
    DEVICE bool aligned() const
    {
        return is_aligned(dy, x) && (!MORE || is_aligned(more)) && (!RELU || is_aligned(y));
    }
    template<int V> DEVICE void add(Sums &s, I e, I) const
    {
        const Vector<T, V> d = load<V>(dy + e), v = load<V>(x + e);
        Vector<T, V> m, z;
        if (MORE)
            m = load<V>(more + e);
        if (RELU)
            z = load<V>(y + e);
        if (s.count == 0)
            s.shift = value_of(v.at[0]);
#pragma unroll
        for (int k = 0; k < V; k++) {
            A own = value_of(d.at[k]);
            if (MORE)
                own += value_of(m.at[k]);
            if (RELU)
                own = masked(own, (A)value_of(z.at[k]));
            s.sum += own;
            s.along += own * (value_of(v.at[k]) - s.shift);
        }
        s.count += V;
    }
    DEVICE void finish(const Sums &s, int64_t c) const
    {
        const A along = s.along - (value_of(mean[c]) - s.shift) * s.sum;
        dgamma[c] = as<P>(along * value_of(rstd[c]));
        dbeta[c] = as<P>(s.sum);
        sums[c] = s.sum;
        sums[channels + c] = along;
    }
};

/* dx = rstd (g - mean of g - xhat mean of (g xhat)), g = dz gamma; dz too where it is given out */
template<class T, class P, class I, bool LAST, bool MORE, bool RELU, bool GIVE> struct ApplyBackward {
    typedef computed<T> A;
    const T *dy, *more, *y, *x;
    const P *gamma, *mean, *rstd;
    T *dx, *dz;
    const A *sums;
    int64_t channels;
    double share;                               /* 1 / elements of a channel */

    DEVICE bool aligned() const
    {
        return is_aligned(dy, x, dx) && (!MORE || is_aligned(more)) && (!RELU || is_aligned(y)) &&
            (!GIVE || is_aligned(dz));
    }
    template<int N> DEVICE void at(I e, const Channels<I> &of) const
    {
        const I c = of.of(e);
        const Vector<T, N> d = load<N>(dy + e), v = load<N>(x + e);
        Vector<T, N> m, z, r, given;
        if (MORE)
            m = load<N>(more + e);
        if (RELU)
            z = load<N>(y + e);
        A scale = 0, centre = 0, level = 0, slope = 0;
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (k == 0 || LAST) {
                const I own = LAST ? c + k : c;
                const A inverse = value_of(rstd[own]);
                scale = inverse * value_of(gamma[own]);
                centre = value_of(mean[own]);
                level = sums[own] * (A)share;
                slope = sums[channels + own] * (A)share * inverse * inverse;
            }
            A g = value_of(d.at[k]);
            if (MORE)
                g += value_of(m.at[k]);
            if (RELU)
                g = masked(g, (A)value_of(z.at[k]));
            if (GIVE)
                given.at[k] = as<T>(g);
            r.at[k] = as<T>(scale * (g - level - (value_of(v.at[k]) - centre) * slope));
        }
        if (GIVE)
            store<N>(dz + e, given);
        store<N>(dx + e, r);
    }
};
