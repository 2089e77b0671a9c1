/* Pooling over windows of up to three axes, forward and backward. An array is (planes, points of a box, inner); inner
 * is 1 with channels first. Gradients are gathered, or scattered if windows do not overlap, so sums have a fixed
 * order. */
#include "reduce.cuh"

enum { POOL_MAX, POOL_AVG, POOL_SUM, POOL_LP };

struct Pool {
    int planes, inner, size[3], kernel[3], stride[3], pad[3], out[3], count_pad, power;
};

DEVICE int points(const int (&n)[3]) { return n[0] * n[1] * n[2]; }

/* The coordinates of output number i (of size n). */
DEVICE void place_of(int i, const int (&n)[3], int (&at)[3])
{
    at[2] = i % n[2];
    at[1] = i / n[2] % n[1];
    at[0] = i / n[2] / n[1];
}

/* The divisor of an average. */
DEVICE int count_of(const Pool &p, const int (&out)[3])
{
    int n = 1;
    for (int d = 0; d < 3; d++) {
        int start = out[d] * p.stride[d] - p.pad[d], stop = start + p.kernel[d];
        if (stop > p.size[d] + p.pad[d])
            stop = p.size[d] + p.pad[d];
        if (!p.count_pad) {
            start = start < 0 ? 0 : start;
            stop = stop > p.size[d] ? p.size[d] : stop;
        }
        n *= stop - start;
    }
    return n < 1 ? 1 : n;
}

/* The offset of tap number t of a window in its plane; -1: outside. */
DEVICE int tap_at(const Pool &p, const int (&out)[3], int t)
{
    int tap[3], at = 0;
    place_of(t, p.kernel, tap);
    for (int d = 0; d < 3; d++) {
        int i = out[d] * p.stride[d] - p.pad[d] + tap[d];
        if ((unsigned)i >= (unsigned)p.size[d])
            return -1;
        at = at * p.size[d] + i;
    }
    return at;
}

/* The largest element of a window and the number of its tap: NaN is largest, the first of equals wins. */
template<class F> struct Best {
    F v;
    int tap;
    DEVICE Best shuffled(int step) const { return {shuffle_xor(v, step), shuffle_xor(tap, step)}; }
};
template<class F> DEVICE Best<F> better(Best<F> a, Best<F> b)
{
    bool nan_a = a.v != a.v, nan_b = b.v != b.v, equal = a.v == b.v || (nan_a && nan_b);
    if (equal)
        return a.tap < b.tap ? a : b;
    return nan_a || (!nan_b && a.v > b.v) ? a : b;
}

/* Of the taps lane, lane + LANES, ... and then of all. */
template<int LANES, class T> DEVICE Best<computed<T>> best_of(const Pool &p, const T *x, const int (&out)[3], int lane)
{
    typedef computed<T> F;
    int n = points(p.kernel);
    Best<F> best = {(F)-INFINITY, lane < n ? lane : n - 1};
    for (int t = lane; t < n; t += LANES) {
        int at = tap_at(p, out, t);
        Best<F> next = {at < 0 ? (F)-INFINITY : (F)value_of(x[(int64_t)at * p.inner]), t};
        best = better(best, next);
    }
    return joined<LANES>(best, (Best<F> *)nullptr, [](Best<F> a, Best<F> b) { return better(a, b); });
}

/* LANES adjacent threads for one output; blocks of whole warps. `values` (may be NULL): read at the positions of the
 * maxima, instead of x. */
template<class T, int KIND, int LANES> __global__ void pool(const T *x, const T *values, T *y, Pool p)
{
    typedef computed<T> F;
    int n_out = points(p.out), n_in = points(p.size), lane = threadIdx.x % LANES, taps = points(p.kernel);
    int64_t n = (int64_t)p.planes * n_out * p.inner, step = (int64_t)gridDim.x * blockDim.x / LANES;
    int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    for (int64_t i = first; i - first < n; i += step) {
        int64_t k = i < n ? i : n - 1;    /* all lanes of a warp take part in the shuffles */
        int inner = (int)(k % p.inner), out[3];
        int64_t plane = k / p.inner / n_out;
        place_of((int)(k / p.inner % n_out), p.out, out);
        const T *from = x + plane * n_in * p.inner + inner;
        F result;
        if (KIND == POOL_MAX) {
            Best<F> best = best_of<LANES>(p, from, out, lane);
            int at = values ? tap_at(p, out, best.tap) : 0;
            result = !values ? best.v : at < 0 ? (F)0 : (F)value_of(values[(plane * n_in + at) * p.inner + inner]);
        } else {
            F sum = 0;
            for (int t = lane; t < taps; t += LANES) {
                int at = tap_at(p, out, t);
                F v = at < 0 ? (F)0 : (F)value_of(from[(int64_t)at * p.inner]);
                sum += KIND != POOL_LP || p.power == 1 ? v : p.power == 2 ? v * v : v * v * v;
            }
            sum = joined<LANES>(One<F>{sum}, (One<F> *)nullptr, [](One<F> a, One<F> b) { return One<F>{a.v + b.v}; }).v;
            result = KIND == POOL_AVG ? sum / (F)count_of(p, out)
                   : KIND == POOL_LP && p.power == 2 ? sqrt(sum) : KIND == POOL_LP && p.power == 3 ? cbrt(sum) : sum;
        }
        if (lane == 0 && i < n)
            y[i] = as<T>(result);
    }
}

/* A thread for each element of dx, over the windows that cover it. */
template<class T, int KIND> __global__ void pool_gather(const T *dy, const T *x, T *dx, Pool p)
{
    typedef computed<T> F;
    int n_out = points(p.out), n_in = points(p.size);
    int64_t n = (int64_t)p.planes * n_in * p.inner;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        int inner = (int)(i % p.inner), at[3], low[3], high[3];
        int64_t plane = i / p.inner / n_in;
        place_of((int)(i / p.inner % n_in), p.size, at);
        for (int d = 0; d < 3; d++) {    /* the windows [low, high) */
            int begin = at[d] + p.pad[d] - p.kernel[d] + 1, end = (at[d] + p.pad[d]) / p.stride[d] + 1;
            low[d] = begin <= 0 ? 0 : (begin + p.stride[d] - 1) / p.stride[d];
            high[d] = end > p.out[d] ? p.out[d] : end;
        }
        F sum = 0;
        int out[3];
        for (out[0] = low[0]; out[0] < high[0]; out[0]++)
            for (out[1] = low[1]; out[1] < high[1]; out[1]++)
                for (out[2] = low[2]; out[2] < high[2]; out[2]++) {
                    int o = (out[0] * p.out[1] + out[1]) * p.out[2] + out[2];
                    F g = value_of(dy[(plane * n_out + o) * p.inner + inner]);
                    if (KIND == POOL_MAX) {
                        Best<F> best = best_of<1>(p, x + plane * n_in * p.inner + inner, out, 0);
                        int tap = 0;
                        for (int d = 0; d < 3; d++)
                            tap = tap * p.kernel[d] + at[d] + p.pad[d] - out[d] * p.stride[d];
                        sum += best.tap == tap ? g : (F)0;
                    } else {
                        sum += KIND == POOL_AVG ? g / (F)count_of(p, out) : g;
                    }
                }
        dx[i] = as<T>(sum);
    }
}

/* Windows that do not overlap: LANES threads find the maximum of one and write there; dx was zeroed. */
template<class T, int LANES> __global__ void pool_scatter(const T *dy, const T *x, T *dx, Pool p)
{
    int n_out = points(p.out), n_in = points(p.size), lane = threadIdx.x % LANES;
    int64_t n = (int64_t)p.planes * n_out * p.inner, step = (int64_t)gridDim.x * blockDim.x / LANES;
    int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    for (int64_t i = first; i - first < n; i += step) {
        int64_t k = i < n ? i : n - 1;
        int inner = (int)(k % p.inner), out[3];
        int64_t plane = k / p.inner / n_out;
        place_of((int)(k / p.inner % n_out), p.out, out);
        int at = tap_at(p, out, best_of<LANES>(p, x + plane * n_in * p.inner + inner, out, lane).tap);
        if (lane == 0 && i < n && at >= 0)
            dx[(plane * n_in + at) * p.inner + inner] = dy[i];
    }
}

/* Averages of windows of nearly equal size; window o of n_out is [o n_in / n_out, ceil((o + 1) n_in / n_out)). */
DEVICE int window_start(int o, int n_in, int n_out) { return (int)((int64_t)o * n_in / n_out); }
DEVICE int window_stop(int o, int n_in, int n_out) { return (int)(((int64_t)(o + 1) * n_in + n_out - 1) / n_out); }

template<class T> __global__ void adaptive(const T *x, T *y, int64_t planes, int h, int w, int out_h, int out_w)
{
    typedef computed<T> F;
    int64_t n = planes * out_h * out_w;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        int v = (int)(i % out_w), u = (int)(i / out_w % out_h);
        const T *from = x + i / out_w / out_h * h * w;
        int top = window_start(u, h, out_h), bottom = window_stop(u, h, out_h);
        int left = window_start(v, w, out_w), right = window_stop(v, w, out_w);
        F sum = 0;
        for (int a = top; a < bottom; a++)
            for (int b = left; b < right; b++)
                sum += (F)value_of(from[a * w + b]);
        y[i] = as<T>(sum / (F)((bottom - top) * (right - left)));
    }
}

template<class T> __global__ void adaptive_backward(const T *dy, T *dx, int64_t planes, int h, int w, int out_h,
                                                    int out_w)
{
    typedef computed<T> F;
    int64_t n = planes * h * w;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        int b = (int)(i % w), a = (int)(i / w % h);
        const T *from = dy + i / w / h * out_h * out_w;
        F sum = 0;
        for (int u = (int)((int64_t)a * out_h / h); u < out_h && window_start(u, h, out_h) <= a; u++)
            for (int v = (int)((int64_t)b * out_w / w); v < out_w && window_start(v, w, out_w) <= b; v++) {
                int rows = window_stop(u, h, out_h) - window_start(u, h, out_h);
                int columns = window_stop(v, w, out_w) - window_start(v, w, out_w);
                if (a < window_stop(u, h, out_h) && b < window_stop(v, w, out_w))
                    sum += (F)value_of(from[u * out_w + v]) / (F)(rows * columns);
            }
        dx[i] = as<T>(sum);
    }
}
