/* Reductions of an array over any axes, and positions of extremes. */
#include "map_reduce.cuh"

/* y = root?(scale * method of x) */
template<class T, class I, template<class> class Method> struct Reduce {
    typedef typename Wide<computed<T>>::type A;
    struct Sums {
        A v;
        DEVICE Sums shuffled(int step) const { return {shuffle_xor(v, step)}; }
        static DEVICE Sums join(const Sums &a, const Sums &b) { return {Method<A>::join(a.v, b.v)}; }
    };
    const T *x;
    T *y;
    double scale;
    int32_t scaled, root;

    DEVICE void start(Sums &s) const { s.v = Method<A>::start(); }
    DEVICE bool aligned() const { return is_aligned(x); }
    template<int V> DEVICE void add(Sums &s, I e, I) const
    {
        const Vector<T, V> v = load<V>(x + e);
#pragma unroll
        for (int k = 0; k < V; k++)
            s.v = Method<A>::step(s.v, (A)value_of(v.at[k]));
    }
    DEVICE void finish(const Sums &s, int64_t o) const
    {
        A v = s.v;
        if (scaled)
            v = (A)(v * (A)scale);
        if (root)
            v = (A)sqrt((double)v);
        y[o] = as<T>(v);
    }
};

/* y = the first place of the largest (smallest) element, or of the first NaN. */
template<class T, class I, bool SMALLEST> struct Extreme {
    typedef computed<T> A;
    struct Sums {
        A v;
        int64_t at;
        DEVICE Sums shuffled(int step) const { return {shuffle_xor(v, step), shuffle_xor(at, step)}; }
        static DEVICE Sums join(const Sums &a, const Sums &b)
        {
            if (a.at < 0 || b.at < 0)
                return a.at < 0 ? b : a;
            const bool nan_a = a.v != a.v, nan_b = b.v != b.v;
            if (nan_a || nan_b)
                return nan_a && nan_b ? (a.at < b.at ? a : b) : nan_a ? a : b;
            if (a.v == b.v)
                return a.at < b.at ? a : b;
            return (SMALLEST ? a.v < b.v : a.v > b.v) ? a : b;
        }
    };
    const T *x;
    T *y;

    DEVICE void start(Sums &s) const { s = {0, -1}; }
    DEVICE bool aligned() const { return is_aligned(x); }
    template<int V> DEVICE void add(Sums &s, I e, I r) const
    {
        const Vector<T, V> v = load<V>(x + e);
#pragma unroll
        for (int k = 0; k < V; k++)
            s = Sums::join(s, Sums{value_of(v.at[k]), (int64_t)(r + k)});
    }
    DEVICE void finish(const Sums &s, int64_t o) const { y[o] = as<T>((double)s.at); }
};
