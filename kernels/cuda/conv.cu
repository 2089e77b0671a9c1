/* Convolution and its gradients as matrix products whose operands are gathered from the arrays in place, and a direct
 * kernel for depthwise convolutions. Any strides, so both memory layouts; 2 or 3 spatial axes (1: the first has size
 * 1).
 *
 * forward y[f][image, out] = sum over c, tap of     w[f][c, tap]      x[image, c][out * stride - pad + tap * dilate]
 * data    dx[c][image, in] = sum over f, tap of     w[f, tap][c]      dy[image, f][(in + pad - tap * dilate) / stride]
 * weight  dw[f][c, tap]    = sum over image, out of dy[image, f][out] x[image, c][out * stride - pad + tap * dilate]
 */
#include "matmul.cuh"

/* An array of images: steps between images, channels and along each spatial axis, in elements. */
template<int ND> struct Images {
    int64_t image_step;
    int channel_step, step[ND], size[ND];
};

/* Division of an index into coordinates in a box. */
template<int ND> struct Box {
    Divisor<int32_t> volume, inner[ND - 1];    /* all axes; the axes after the first, the last */
    DEVICE int split(int i, int (&at)[ND]) const
    {
        int outer = volume(i);
        i -= outer * volume.by;
#pragma unroll
        for (int d = 0; d < ND - 1; d++) {
            at[d] = inner[d](i);
            i -= at[d] * inner[d].by;
        }
        at[ND - 1] = i;
        return outer;
    }
};

template<int ND> struct Taps {
    int stride[ND], dilate[ND], pad[ND];
    Divisor<int32_t> by[ND];    /* the strides */
};

/* One half of an index: an offset, and a position along each axis. */
template<int ND> struct Spot {
    int64_t offset;
    int at[ND];
    bool inside;
};

/* The elements that windows cover: (image, out) on one side, (channel, tap) on the other. SWAPPED: k counts the
 * windows. */
template<class T, int ND, bool SWAPPED, bool ALONG_K> struct Windows {
    typedef T element;
    static const bool along_k = ALONG_K, quads = false;
    typedef Spot<ND> Column;
    typedef Spot<ND> Row;
    const T *p;
    Images<ND> x;
    Box<ND> out, kernel;
    Taps<ND> taps;
    int n, n_k;

    DEVICE Spot<ND> window(int i, int end) const
    {
        Spot<ND> s;
        s.inside = i >= 0 && i < end;
        int64_t offset = out.split(s.inside ? i : 0, s.at) * x.image_step;
#pragma unroll
        for (int d = 0; d < ND; d++) {
            s.at[d] = s.at[d] * taps.stride[d] - taps.pad[d];
            offset += (int64_t)s.at[d] * x.step[d];
        }
        s.offset = offset;
        return s;
    }
    DEVICE Spot<ND> tap(int i, int end) const
    {
        Spot<ND> s;
        s.inside = i >= 0 && i < end;
        int64_t offset = (int64_t)kernel.split(s.inside ? i : 0, s.at) * x.channel_step;
#pragma unroll
        for (int d = 0; d < ND; d++) {
            s.at[d] *= taps.dilate[d];
            offset += (int64_t)s.at[d] * x.step[d];
        }
        s.offset = offset;
        return s;
    }
    DEVICE Column at(int i) const { return SWAPPED ? tap(i, n) : window(i, n); }
    DEVICE Row along(int k) const { return SWAPPED ? window(k, n_k) : tap(k, n_k); }
    DEVICE T get(const Column &c, const Row &r) const
    {
        bool inside = c.inside && r.inside;
#pragma unroll
        for (int d = 0; d < ND; d++)
            inside = inside && (unsigned)(c.at[d] + r.at[d]) < (unsigned)x.size[d];
        return inside ? p[c.offset + r.offset] : T();
    }
    DEVICE bool whole(int, const Column &, const Row &) const { return false; }
    DEVICE Four<T> quad(const Column &, const Row &) const { return Four<T>(); }
};

/* The outputs whose windows cover an element: columns are (image, in), k is (filter, tap). */
template<class T, int ND, bool ALONG_K> struct Seen {
    typedef T element;
    static const bool along_k = ALONG_K, quads = false;
    typedef Spot<ND> Column;
    typedef Spot<ND> Row;
    const T *p;
    Images<ND> y;
    Box<ND> in, kernel;
    Taps<ND> taps;
    int n, n_k;

    DEVICE Column at(int i) const
    {
        Spot<ND> s;
        s.inside = i >= 0 && i < n;
        s.offset = in.split(s.inside ? i : 0, s.at) * y.image_step;
#pragma unroll
        for (int d = 0; d < ND; d++)
            s.at[d] += taps.pad[d];
        return s;
    }
    DEVICE Row along(int k) const
    {
        Spot<ND> s;
        s.inside = k >= 0 && k < n_k;
        s.offset = (int64_t)kernel.split(s.inside ? k : 0, s.at) * y.channel_step;
#pragma unroll
        for (int d = 0; d < ND; d++)
            s.at[d] *= taps.dilate[d];
        return s;
    }
    DEVICE T get(const Column &c, const Row &r) const
    {
        bool inside = c.inside && r.inside;
        int64_t offset = c.offset + r.offset;
#pragma unroll
        for (int d = 0; d < ND; d++) {
            int a = c.at[d] - r.at[d], q = taps.by[d](a < 0 ? 0 : a);
            inside = inside && a >= 0 && q * taps.stride[d] == a && q < y.size[d];
            offset += (int64_t)q * y.step[d];
        }
        return inside ? p[offset] : T();
    }
    DEVICE bool whole(int, const Column &, const Row &) const { return false; }
    DEVICE Four<T> quad(const Column &, const Row &) const { return Four<T>(); }
};

/* A weight (or dy) as a matrix: element (i, k) at i * step + outer(k) * outer_step + the rest of k * inner_step. */
template<class T, bool ALONG_K> struct Folded {
    typedef T element;
    static const bool along_k = ALONG_K, quads = false;
    typedef int64_t Column;
    typedef int64_t Row;
    const T *p;
    int64_t step, outer_step;
    int inner_step, n, n_k;
    Divisor<int32_t> inner;
    DEVICE Column at(int i) const { return i >= 0 && i < n ? i * step : -1; }
    DEVICE Row along(int k) const
    {
        if (k < 0 || k >= n_k)
            return -1;
        int outer = inner(k);
        return outer * outer_step + (int64_t)(k - outer * inner.by) * inner_step;
    }
    DEVICE T get(Column c, Row r) const { return c < 0 || r < 0 ? T() : p[c + r]; }
    DEVICE bool whole(int, Column, Row) const { return false; }
    DEVICE Four<T> quad(Column, Row) const { return Four<T>(); }
};

/* The location of results: row i, column (outer, inner) at i * row_step + outer * outer_step + inner * inner_step; then
 * bias, addend, activation. */
template<class T, class F> struct Placed {
    T *y;
    const T *bias, *addend;
    F *partial;
    int64_t row_step, outer_step;
    int inner_step, act, m, n;
    Divisor<int32_t> inner;
    float low, high;

    DEVICE void put(int i, int j, const F *given) const
    {
        if (i >= m || j >= n)
            return;
        if (partial) {
            for (int u = 0; u < 4; u++)
                if (j + u < n)
                    partial[(int64_t)i * n + j + u] = given[u];
        } else {
            finish(i, j, n - j < 4 ? n - j : 4, given);
        }
    }
    DEVICE void finish(int i, int j, int count, const F *given) const
    {
        int outer = inner(j), rest = j - outer * inner.by;
        int64_t at = i * row_step + outer * outer_step + (int64_t)rest * inner_step, place[4];
        F x[4], b = bias ? (F)value_of(bias[i]) : (F)0;
#pragma unroll
        for (int u = 0; u < 4; u++) {
            place[u] = at;
            x[u] = u < count ? given[u] + b + (addend ? (F)value_of(addend[at]) : (F)0) : (F)0;
            at += inner_step;
            if (++rest == inner.by) {
                rest = 0;
                at += outer_step - (int64_t)inner.by * inner_step;
            }
            if (u + 1 >= count)
                at = place[u];    /* elements outside are not written */
        }
        activate(act, x, (F)low, (F)high);
        if (inner_step == 1 && count == 4 && place[3] - place[0] == 3 && is_wide(y + place[0], 0)) {
            Four<T> four;
            for (int u = 0; u < 4; u++)
                four.at[u] = as<T>(x[u]);
            *(Four<T> *)(y + place[0]) = four;
            return;
        }
#pragma unroll
        for (int u = 0; u < 4; u++)
            if (u < count)
                y[place[u]] = as<T>(x[u]);
    }
};

/* Steps between groups, in elements; slices of k as in gemm.cu. */
struct Groups {
    int64_t a_step, b_step, y_step;
    int channels, slice;    /* channels: results of bias in one group */
};

/* Grid: tiles, groups, slices. */
template<class Unit, class A, class B, class T>
__global__ void __launch_bounds__(Unit::threads, Unit::blocks) convolve(A a, B b, Placed<T, typename Unit::total> out,
                                                                        Groups g)
{
    int tiles = (out.m + Unit::m - 1) / Unit::m, group = blockIdx.y;
    int m0 = (int)blockIdx.x % tiles * Unit::m, n0 = (int)blockIdx.x / tiles * Unit::n;
    int begin = (int)blockIdx.z * g.slice, end = begin + g.slice < a.n_k ? begin + g.slice : a.n_k;
    a.p += group * g.a_step;
    b.p += group * g.b_step;
    out.y += group * g.y_step;
    if (out.addend)
        out.addend += group * g.y_step;
    if (out.bias)
        out.bias += group * g.channels;
    if (out.partial)
        out.partial += ((int64_t)blockIdx.z * gridDim.y + group) * out.m * out.n;
    matmul<Unit>(a, b, m0, n0, begin, end, out);
}

/* The sums of the slices; grid: (blocks, groups). */
template<class T, class F> __global__ void slices_place(Placed<T, F> out, Groups g, int n_slices)
{
    int n = out.m * out.n, group = blockIdx.y;
    const F *sums = out.partial;
    out.y += group * g.y_step;
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += gridDim.x * blockDim.x) {
        F sum = 0;
        for (int i = 0; i < n_slices; i++)
            sum += sums[((int64_t)i * gridDim.y + group) * n + at];
        out.finish(at / out.n, at % out.n, 1, &sum);
    }
}

/* The epilogue of a library's convolution; element i of y is of channel i / inner % channels. */
template<class T> __global__ void follow(const T *bias, const T *addend, T *y, int64_t n, int inner, int channels,
                                         int act, float low, float high)
{
    typedef computed<T> F;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        F x[4] = {(F)value_of(y[i]) + (bias ? (F)value_of(bias[i / inner % channels]) : (F)0) +
                  (addend ? (F)value_of(addend[i]) : (F)0), 0, 0, 0};
        activate(act, x, (F)low, (F)high);
        y[i] = as<T>(x[0]);
    }
}

/* ---- depthwise convolutions -------------------------------------------------------------------------------------- */

/* Sizes of a convolution in three axes; multiple: filters of a channel. */
struct Depthwise {
    int n, channels, multiple, in[3], out[3], kernel[3], stride[3], dilate[3], pad[3], act;
    int64_t x_image, y_image;
    int x_channel, y_channel, x_step[3], y_step[3], w_filter, w_step[3];
    float low, high;
};

DEVICE int64_t offset_of(const int (&step)[3], int a, int b, int c)
{
    return (int64_t)a * step[0] + (int64_t)b * step[1] + (int64_t)c * step[2];
}

/* A thread for each output. last: channels last. */
template<class T> __global__ void depthwise(const T *x, const T *w, const T *bias, const T *addend, T *y, Depthwise d,
                                            int last)
{
    typedef computed<T> F;
    int filters = d.channels * d.multiple, points = d.out[0] * d.out[1] * d.out[2];
    int64_t n = (int64_t)d.n * filters * points;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        int image = (int)(i / ((int64_t)filters * points)), rest = (int)(i % ((int64_t)filters * points));
        int f = last ? rest % filters : rest / points, p = last ? rest / filters : rest % points;
        int o2 = p % d.out[2], o1 = p / d.out[2] % d.out[1], o0 = p / d.out[2] / d.out[1];
        const T *from = x + image * d.x_image + (int64_t)(f / d.multiple) * d.x_channel,
                *taps = w + (int64_t)f * d.w_filter;
        F sum = 0;
        for (int a = 0; a < d.kernel[0]; a++) {
            int i0 = o0 * d.stride[0] - d.pad[0] + a * d.dilate[0];
            if ((unsigned)i0 >= (unsigned)d.in[0])
                continue;
            for (int b = 0; b < d.kernel[1]; b++) {
                int i1 = o1 * d.stride[1] - d.pad[1] + b * d.dilate[1];
                if ((unsigned)i1 >= (unsigned)d.in[1])
                    continue;
                for (int c = 0; c < d.kernel[2]; c++) {
                    int i2 = o2 * d.stride[2] - d.pad[2] + c * d.dilate[2];
                    if ((unsigned)i2 < (unsigned)d.in[2])
                        sum += (F)value_of(from[offset_of(d.x_step, i0, i1, i2)]) *
                               (F)value_of(taps[offset_of(d.w_step, a, b, c)]);
                }
            }
        }
        int64_t at = image * d.y_image + (int64_t)f * d.y_channel + offset_of(d.y_step, o0, o1, o2);
        F four[4] = {sum + (bias ? (F)value_of(bias[f]) : (F)0) + (addend ? (F)value_of(addend[at]) : (F)0), 0, 0, 0};
        activate(d.act, four, (F)d.low, (F)d.high);
        y[at] = as<T>(four[0]);
    }
}

/* A thread for each element of dx, the sum over the outputs whose windows cover it. */
template<class T> __global__ void depthwise_data(const T *dy, const T *w, const T *bias, T *dx, Depthwise d, int last)
{
    typedef computed<T> F;
    int points = d.in[0] * d.in[1] * d.in[2];
    int64_t n = (int64_t)d.n * d.channels * points;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        int image = (int)(i / ((int64_t)d.channels * points)), rest = (int)(i % ((int64_t)d.channels * points));
        int ch = last ? rest % d.channels : rest / points, p = last ? rest / d.channels : rest % points;
        int at[3] = {p / d.in[2] / d.in[1], p / d.in[2] % d.in[1], p % d.in[2]};
        F sum = bias ? (F)value_of(bias[ch]) : (F)0;
        for (int m = 0; m < d.multiple; m++) {
            int f = ch * d.multiple + m;
            const T *from = dy + image * d.y_image + (int64_t)f * d.y_channel, *taps = w + (int64_t)f * d.w_filter;
            for (int a = 0; a < d.kernel[0]; a++) {
                int q0 = at[0] + d.pad[0] - a * d.dilate[0], o0 = q0 / d.stride[0];
                if (q0 < 0 || o0 * d.stride[0] != q0 || o0 >= d.out[0])
                    continue;
                for (int b = 0; b < d.kernel[1]; b++) {
                    int q1 = at[1] + d.pad[1] - b * d.dilate[1], o1 = q1 / d.stride[1];
                    if (q1 < 0 || o1 * d.stride[1] != q1 || o1 >= d.out[1])
                        continue;
                    for (int c = 0; c < d.kernel[2]; c++) {
                        int q2 = at[2] + d.pad[2] - c * d.dilate[2], o2 = q2 / d.stride[2];
                        if (q2 >= 0 && o2 * d.stride[2] == q2 && o2 < d.out[2])
                            sum += (F)value_of(from[offset_of(d.y_step, o0, o1, o2)]) *
                                   (F)value_of(taps[offset_of(d.w_step, a, b, c)]);
                    }
                }
            }
        }
        dx[image * d.x_image + (int64_t)ch * d.x_channel + offset_of(d.x_step, at[0], at[1], at[2])] = as<T>(sum);
    }
}

/* Block of 256 threads: one element of dw, summed in a fixed order. Grid: filters, taps. */
template<class T> __global__ void depthwise_weight(const T *dy, const T *x, T *dw, Depthwise d)
{
    typedef computed<T> F;
    __shared__ F sums[256];
    int f = blockIdx.x, tap = blockIdx.y;
    int c = tap % d.kernel[2], b = tap / d.kernel[2] % d.kernel[1], a = tap / d.kernel[2] / d.kernel[1];
    int points = d.out[0] * d.out[1] * d.out[2];
    int64_t n = (int64_t)d.n * points;
    F sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += 256) {
        int image = (int)(i / points), p = (int)(i % points);
        int o2 = p % d.out[2], o1 = p / d.out[2] % d.out[1], o0 = p / d.out[2] / d.out[1];
        int i0 = o0 * d.stride[0] - d.pad[0] + a * d.dilate[0], i1 = o1 * d.stride[1] - d.pad[1] + b * d.dilate[1];
        int i2 = o2 * d.stride[2] - d.pad[2] + c * d.dilate[2];
        if ((unsigned)i0 < (unsigned)d.in[0] && (unsigned)i1 < (unsigned)d.in[1] && (unsigned)i2 < (unsigned)d.in[2])
            sum += (F)value_of(dy[image * d.y_image + (int64_t)f * d.y_channel + offset_of(d.y_step, o0, o1, o2)]) *
                   (F)value_of(x[image * d.x_image + (int64_t)(f / d.multiple) * d.x_channel +
                                 offset_of(d.x_step, i0, i1, i2)]);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if ((int)threadIdx.x < step)
            sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        dw[(int64_t)f * d.w_filter + offset_of(d.w_step, a, b, c)] = as<T>(sums[0]);
}
