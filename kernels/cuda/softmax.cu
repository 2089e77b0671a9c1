/* The softmax family along one axis of (outer, n, inner). Rows (inner 1) stay in registers if they fit; other axes
 * are computed in blocks of columns. */
#include "rows.cuh"

enum { COLUMNS = 32, COLUMN_ROWS = 8 };        /* of a block of columns */

DEVICE float exp_of(float x) { return expf(x); }
DEVICE double exp_of(double x) { return exp(x); }
DEVICE float log_of(float x) { return logf(x); }
DEVICE double log_of(double x) { return log(x); }
template<class A> DEVICE A lowest() { return -(A)INFINITY; }
template<class A> DEVICE bool is_infinite(A x) { return x == (A)INFINITY || x == -(A)INFINITY; }

template<class L> DEVICE int length_of(const L *lengths, int64_t row, int n)
{
    if (!lengths)
        return n;
    const L v = lengths[row];
    return v < 0 ? 0 : v < n ? (int)v : n;
}

/* The result for an element: e^(z - top) / sum, or z - (top + log sum); 0 for a row of length 0. */
template<bool LOG, class A> struct Finish {
    A top, factor;
    DEVICE Finish(A top_, A sum, bool limited) : top(top_), factor(0)
    {
        factor = LOG ? top_ + log_of(sum) : limited && sum == 0 ? (A)1 : (A)1 / sum;
    }
    DEVICE A operator()(A z) const { return LOG ? z - factor : exp_of(z - top) * factor; }
};
template<bool LOG, class A> DEVICE A centre(A top) { return !LOG && is_infinite(top) ? (A)0 : top; }

/* y = softmax(scale x) of the first lengths[row] elements; 0 after them. lengths may be NULL. */
template<class S, class T, class L, bool LOG, int THREADS, int ITEMS, int V>
__global__ void __launch_bounds__(THREADS < 256 ? 256 : THREADS)
softmax_rows(int64_t n_rows, int n, const S *x, const L *lengths, T *y, double scale_, int limited)
{
    typedef computed<T> A;
    __shared__ One<A> scratch[WARP];
    const int64_t own = own_row<THREADS>(n_rows), at = own < 0 ? 0 : own;
    const A scale = (A)scale_;
    const S *from = x + at * n;
    T *to = y + at * n;
    Row<THREADS, ITEMS, V> row = {own < 0 ? 0 : n, (int)threadIdx.x % THREADS, n % V == 0 && is_aligned(from, to)};
    const int valid = own < 0 ? 0 : length_of(limited ? lengths : (const L *)0, at, n);
    A top = lowest<A>(), sum = 0;
    if (ITEMS) {
        A z[ITEMS ? row.HELD : 1];
        row.load(from, z);
#pragma unroll
        for (int h = 0; h < row.HELD; h++)
            if (row.at(h) < valid) {
                z[h] *= scale;
                top = larger(top, z[h]);
            }
        top = centre<LOG>(max_of<THREADS>(top, scratch));
#pragma unroll
        for (int h = 0; h < row.HELD; h++)
            if (row.at(h) < valid) {
                const A e = exp_of(z[h] - top);
                z[h] = LOG ? z[h] : e;
                sum += e;
            }
        sum = sum_of<THREADS>(sum, scratch);
        const Finish<LOG, A> finish(top, sum, limited);
#pragma unroll
        for (int h = 0; h < row.HELD; h++)
            z[h] = row.at(h) >= valid ? (A)0 : LOG ? z[h] - finish.factor : z[h] * finish.factor;
        if (own >= 0)
            row.store(to, z);
    } else {
        for (int i = row.t; i < valid; i += THREADS)
            top = larger(top, (A)value_of(from[i]) * scale);
        top = centre<LOG>(max_of<THREADS>(top, scratch));
        for (int i = row.t; i < valid; i += THREADS)
            sum += exp_of((A)value_of(from[i]) * scale - top);
        sum = sum_of<THREADS>(sum, scratch);
        const Finish<LOG, A> finish(top, sum, limited);
        for (int i = row.t; i < row.n; i += THREADS)
            to[i] = as<T>(i < valid ? finish((A)value_of(from[i]) * scale) : (A)0);
    }
}

/* dx from dy and y */
template<class S, class T, bool LOG, int THREADS, int ITEMS, int V>
__global__ void __launch_bounds__(THREADS < 256 ? 256 : THREADS)
softmax_rows_backward(int64_t n_rows, int n, const S *dy, const S *y, T *dx)
{
    typedef computed<S> A;
    __shared__ One<A> scratch[WARP];
    const int64_t own = own_row<THREADS>(n_rows), at = own < 0 ? 0 : own;
    const S *d_row = dy + at * n, *y_row = y + at * n;
    T *to = dx + at * n;
    Row<THREADS, ITEMS, V> row = {own < 0 ? 0 : n, (int)threadIdx.x % THREADS,
                                  n % V == 0 && is_aligned(d_row, y_row, to)};
    A sum = 0;
    if (ITEMS) {
        A d[ITEMS ? row.HELD : 1], v[ITEMS ? row.HELD : 1];
        row.load(d_row, d);
        row.load(y_row, v);
#pragma unroll
        for (int h = 0; h < row.HELD; h++)
            if (row.at(h) < row.n)
                sum += LOG ? d[h] : d[h] * v[h];
        sum = sum_of<THREADS>(sum, scratch);
#pragma unroll
        for (int h = 0; h < row.HELD; h++)
            if (row.at(h) < row.n)
                d[h] = LOG ? d[h] - exp_of(v[h]) * sum : v[h] * (d[h] - sum);
        if (own >= 0)
            row.store(to, d);
    } else {
        for (int i = row.t; i < row.n; i += THREADS) {
            const A d = value_of(d_row[i]);
            sum += LOG ? d : d * (A)value_of(y_row[i]);
        }
        sum = sum_of<THREADS>(sum, scratch);
        for (int i = row.t; i < row.n; i += THREADS) {
            const A d = value_of(d_row[i]), v = value_of(y_row[i]);
            to[i] = as<T>(LOG ? d - exp_of(v) * sum : v * (d - sum));
        }
    }
}

/* Combines the values of the threads y of a column. */
template<class A, class Join> DEVICE A column_joined(A v, A (*scratch)[COLUMNS], Join join)
{
    __syncthreads();
    scratch[threadIdx.y][threadIdx.x] = v;
    __syncthreads();
    v = scratch[0][threadIdx.x];
    for (int k = 1; k < COLUMN_ROWS; k++)
        v = join(v, scratch[k][threadIdx.x]);
    return v;
}

/* grid: (columns / COLUMNS) * outer */
template<class S, class T, class L, bool LOG>
__global__ void __launch_bounds__(COLUMNS * COLUMN_ROWS)
softmax_columns(int64_t n, int64_t inner, const S *x, const L *lengths, T *y, double scale_, int limited)
{
    typedef computed<T> A;
    __shared__ A scratch[COLUMN_ROWS][COLUMNS];
    const int64_t tiles = (inner + COLUMNS - 1) / COLUMNS, o = blockIdx.x / tiles;
    const int64_t c = (blockIdx.x - o * tiles) * COLUMNS + threadIdx.x, first = o * n * inner + c;
    const bool inside = c < inner;
    const A scale = (A)scale_;
    const int64_t valid = !inside ? 0 : length_of(limited ? lengths : (const L *)0, o * inner + c, (int)n);
    A top = lowest<A>(), sum = 0;
    for (int64_t k = threadIdx.y; k < valid; k += COLUMN_ROWS)
        top = larger(top, (A)value_of(x[first + k * inner]) * scale);
    top = centre<LOG>(column_joined(top, scratch, [](A a, A b) { return larger(a, b); }));
    for (int64_t k = threadIdx.y; k < valid; k += COLUMN_ROWS)
        sum += exp_of((A)value_of(x[first + k * inner]) * scale - top);
    sum = column_joined(sum, scratch, [](A a, A b) { return a + b; });
    const Finish<LOG, A> finish(top, sum, limited);
    for (int64_t k = threadIdx.y; k < n && inside; k += COLUMN_ROWS) {
        const int64_t i = first + k * inner;
        y[i] = as<T>(k < valid ? finish((A)value_of(x[i]) * scale) : (A)0);
    }
}

template<class S, class T, bool LOG>
__global__ void __launch_bounds__(COLUMNS * COLUMN_ROWS)
softmax_columns_backward(int64_t n, int64_t inner, const S *dy, const S *y, T *dx)
{
    typedef computed<S> A;
    __shared__ A scratch[COLUMN_ROWS][COLUMNS];
    const int64_t tiles = (inner + COLUMNS - 1) / COLUMNS, o = blockIdx.x / tiles;
    const int64_t c = (blockIdx.x - o * tiles) * COLUMNS + threadIdx.x, first = o * n * inner + c;
    const int64_t end = c < inner ? n : 0;
    A sum = 0;
    for (int64_t k = threadIdx.y; k < end; k += COLUMN_ROWS) {
        const A d = value_of(dy[first + k * inner]);
        sum += LOG ? d : d * (A)value_of(y[first + k * inner]);
    }
    sum = column_joined(sum, scratch, [](A a, A b) { return a + b; });
    for (int64_t k = threadIdx.y; k < end; k += COLUMN_ROWS) {
        const int64_t i = first + k * inner;
        const A d = value_of(dy[i]), v = value_of(y[i]);
        dx[i] = as<T>(LOG ? d - exp_of(v) * sum : v * (d - sum));
    }
}

/* The gradient of pick(log_softmax): dx = picked dy - e^y dy. An index is clipped, or wrapped, into [0, n). */
template<class T, class K, class I>
__global__ void __launch_bounds__(256)
pick_log_softmax_backward(I size, Divisor<I> n, const T *dy, const K *places, const T *y, T *dx, int wrap)
{
    typedef computed<T> A;
    const I i = (I)blockIdx.x * 256 + threadIdx.x;
    if (i >= size)
        return;
    const I row = n(i);
    const int64_t k = place_in((int64_t)value_of(places[row]), (int64_t)n.by, wrap);
    const A d = value_of(dy[row]);
    dx[i] = as<T>((i - row * n.by == k ? d : (A)0) - exp_of((A)value_of(y[i])) * d);
}

/* ---- SoftmaxOutput's gradient ----------------------------------------------------------------------------------- */

/* count[0] = the number of labels that are not ignored, at least 1. One block. */
template<class L> __global__ void __launch_bounds__(1024)
    count_valid(int64_t n, const L *label, int64_t ignored, float *count)
{
    __shared__ One<float> scratch[WARP];
    float valid = 0;
    for (int64_t i = threadIdx.x; i < n; i += 1024)
        valid += value_of(label[i]) != (computed<L>)ignored ? 1.0f : 0.0f;
    valid = sum_of<1024>(valid, scratch);
    if (threadIdx.x == 0)
        *count = valid < 1 ? 1.0f : valid;
}

/* g = (y - target) * scale / count over (examples, classes, positions); target: `on` at the label's class, else `off`;
 * an ignored label gives 0. count may be NULL. */
template<class T, class L, class I>
__global__ void __launch_bounds__(256)
softmax_output_backward(I size, Divisor<I> positions, Divisor<I> classes, const T *y, const L *label, T *g, double on,
                        double off, double scale, int ignores, int64_t ignored, const float *count, int counted)
{
    typedef computed<T> A;
    const I i = (I)blockIdx.x * 256 + (I)threadIdx.x;
    if (i >= size)
        return;
    const I row = positions(i), n = classes(row), c = row - n * classes.by, p = i - row * positions.by;
    const computed<L> given = value_of(label[n * positions.by + p]);
    const A target = (int64_t)given == (int64_t)c ? (A)on : (A)off;
    A v = ((A)value_of(y[i]) - target) * (A)scale;
    if (counted)
        v /= (A)*count;
    g[i] = as<T>(ignores && given == (computed<L>)ignored ? (A)0 : v);
}
