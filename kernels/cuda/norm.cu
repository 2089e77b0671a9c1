/* Normalisations of rows, forward and backward: LayerNorm, GroupNorm, InstanceNorm, L2Normalization. Rows are held in
 * registers where they fit, so that means and variances take two passes over registers and one over memory. */
#include "rows.cuh"

enum { COLUMNS = 32, COLUMN_ROWS = 32 };

DEVICE float root_of(float x) { return sqrtf(x); }
DEVICE double root_of(double x) { return sqrt(x); }

/* Applies f(h, i) to the thread's elements; h: the register if they are held, i: the index in the row. */
template<int THREADS, int ITEMS, int V, class F> DEVICE void each(const Row<THREADS, ITEMS, V> &row, F f)
{
    if (ITEMS) {
#pragma unroll
        for (int h = 0; h < row.HELD; h++)
            if (row.at(h) < row.n)
                f(h, row.at(h));
    } else {
        for (int i = row.t; i < row.n; i += THREADS)
            f(0, i);
    }
}

/* y = (x - mean) / std * gamma + beta.  COLUMN: gamma has an entry for each column, else row r uses
 * gamma[r % n_params] */
template<class T, class P, bool COLUMN, int THREADS, int ITEMS, int V>
__global__ void __launch_bounds__(THREADS < 256 ? 256 : THREADS)
norm_rows(int64_t n_rows, int n, int64_t n_params, const T *x, const P *gamma, const P *beta, T *y, T *means, T *stds,
          double eps)
{
    typedef computed<T> A;
    __shared__ One<A> scratch[WARP];
    const int64_t own = own_row<THREADS>(n_rows), at = own < 0 ? 0 : own;
    const T *from = x + at * n;
    T *to = y + at * n;
    Row<THREADS, ITEMS, V> row = {own < 0 ? 0 : n, (int)threadIdx.x % THREADS, false};
    row.whole = n % V == 0 && is_aligned(from, to) && (!COLUMN || is_aligned(gamma, beta));
    A v[ITEMS ? row.HELD : 1], sum = 0, square = 0;
    row.load(from, v);
    auto value = [&](int h, int i) { return ITEMS ? v[h] : (A)value_of(from[i]); };
    each(row, [&](int h, int i) { sum += value(h, i); });
    const A mean = sum_of<THREADS>(sum, scratch) / (A)n;
    each(row, [&](int h, int i) {
        const A d = value(h, i) - mean;
        square += d * d;
    });
    const A std = root_of(sum_of<THREADS>(square, scratch) / (A)n + (A)eps), scale = (A)1 / std;
    if (own < 0)
        return;
    if (row.t == 0) {
        means[at] = as<T>(mean);
        stds[at] = as<T>(std);
    }
    const A one = COLUMN ? (A)0 : (A)value_of(gamma[at % n_params]),
            shift = COLUMN ? (A)0 : (A)value_of(beta[at % n_params]);
    A g[COLUMN && ITEMS ? row.HELD : 1], b[COLUMN && ITEMS ? row.HELD : 1];
    if (COLUMN) {
        row.load(gamma, g);
        row.load(beta, b);
    }
    each(row, [&](int h, int i) {
        const A f = !COLUMN ? one : ITEMS ? g[COLUMN ? h : 0] : (A)value_of(gamma[i]);
        const A s = !COLUMN ? shift : ITEMS ? b[COLUMN ? h : 0] : (A)value_of(beta[i]);
        const A r = (value(h, i) - mean) * scale * f + s;
        if (ITEMS)
            v[h] = r;
        else
            to[i] = as<T>(r);
    });
    row.store(to, v);
}

/* dx, and the sums that become dgamma and dbeta: for each column those of this block's rows, to sums[block][column] and
 * sums[gridDim.x + block][column]; else those of each row, to sums[row] and sums[n_rows + row]. A block of THREADS. */
template<class T, class P, class M, bool COLUMN, int THREADS, int ITEMS, int V>
__global__ void __launch_bounds__(THREADS)
norm_rows_backward(int64_t n_rows, int n, int64_t n_params, const T *dy, const T *x, const P *gamma, const M *means,
                   const M *rstds, T *dx, computed<T> *sums)
{
    typedef computed<T> A;
    enum { HELD = ITEMS ? ITEMS * V : 1, COLUMNS_HELD = COLUMN ? HELD : 1 };
    __shared__ One<A> scratch[WARP];
    Row<THREADS, ITEMS, V> row = {n, (int)threadIdx.x, false};
    A g[COLUMNS_HELD], sum_gamma[COLUMNS_HELD], sum_beta[COLUMNS_HELD];
    row.whole = n % V == 0 && is_aligned(dy, x, dx) && (!COLUMN || is_aligned(gamma));
    if (COLUMN) {
        row.load(gamma, g);
#pragma unroll
        for (int h = 0; h < COLUMNS_HELD; h++)
            sum_gamma[h] = sum_beta[h] = 0;
    }
    for (int64_t r = blockIdx.x; r < n_rows; r += gridDim.x) {
        const T *d_row = dy + r * n, *x_row = x + r * n;
        const A mean = value_of(means[r]), rstd = value_of(rstds[r]);
        const A factor = COLUMN ? (A)1 : (A)value_of(gamma[r % n_params]);
        A d[HELD], v[HELD], sum = 0, along = 0;
        row.load(d_row, d);
        row.load(x_row, v);
        each(row, [&](int h, int i) {
            const A dv = ITEMS ? d[h] : (A)value_of(d_row[i]), xv = (ITEMS ? v[h] : (A)value_of(x_row[i])) - mean;
            const A scaled = COLUMN ? dv * g[COLUMN ? h : 0] : dv;
            if (COLUMN) {
                sum_gamma[COLUMN ? h : 0] += dv * xv * rstd;
                sum_beta[COLUMN ? h : 0] += dv;
            }
            sum += scaled;
            along += scaled * xv;
            if (ITEMS) {
                d[h] = scaled;
                v[h] = xv;
            }
        });
        sum = sum_of<THREADS>(sum, scratch);
        along = sum_of<THREADS>(along, scratch);
        if (!COLUMN && threadIdx.x == 0) {
            sums[r] = along * rstd;
            sums[n_rows + r] = sum;
        }
        const A m = factor * sum / (A)n, a = factor * along * rstd / (A)n * rstd;
        each(row, [&](int h, int i) {
            const A scaled = factor * (ITEMS ? d[h] : (A)value_of(d_row[i]));
            const A xv = ITEMS ? v[h] : (A)value_of(x_row[i]) - mean;
            const A result = rstd * (scaled - m - xv * a);
            if (ITEMS)
                d[h] = result;
            else
                dx[r * n + i] = as<T>(result);
        });
        row.store(dx + r * n, d);
    }
    if (COLUMN) {
        row.whole = row.whole && is_aligned(sums);
        row.store(sums + (int64_t)blockIdx.x * n, sum_gamma);
        row.store(sums + ((int64_t)gridDim.x + blockIdx.x) * n, sum_beta);
    }
}

/* Sums over the rows of two (n_rows, n) matrices, one after the other.  grid: columns / COLUMNS, 2 */
template<class A, class P>
__global__ void __launch_bounds__(COLUMNS * COLUMN_ROWS)
sum_columns(int64_t n_rows, int64_t n, const A *sums, P *first, P *second)
{
    __shared__ A scratch[COLUMN_ROWS][COLUMNS + 1];
    const int64_t c = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    const A *from = sums + (int64_t)blockIdx.y * n_rows * n;
    A sum = 0;
    if (c < n) {
#pragma unroll 4
        for (int64_t r = threadIdx.y; r < n_rows; r += COLUMN_ROWS)
            sum += from[r * n + c];
    }
    scratch[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || c >= n)
        return;
    for (int k = 1; k < COLUMN_ROWS; k++)
        sum += scratch[k][threadIdx.x];
    (blockIdx.y ? second : first)[c] = as<P>(sum);
}

/* y = x / sqrt(sum x^2 + eps) */
template<class T, int THREADS, int ITEMS, int V>
__global__ void __launch_bounds__(THREADS < 256 ? 256 : THREADS)
l2_rows(int64_t n_rows, int n, const T *x, T *y, double eps)
{
    typedef computed<T> A;
    __shared__ One<A> scratch[WARP];
    const int64_t own = own_row<THREADS>(n_rows), at = own < 0 ? 0 : own;
    const T *from = x + at * n;
    T *to = y + at * n;
    Row<THREADS, ITEMS, V> row = {own < 0 ? 0 : n, (int)threadIdx.x % THREADS, n % V == 0 && is_aligned(from, to)};
    A v[ITEMS ? row.HELD : 1], sum = 0;
    row.load(from, v);
    auto value = [&](int h, int i) { return ITEMS ? v[h] : (A)value_of(from[i]); };
    each(row, [&](int h, int i) { sum += value(h, i) * value(h, i); });
    const A root = root_of(sum_of<THREADS>(sum, scratch) + (A)eps);
    each(row, [&](int h, int i) {
        const A r = value(h, i) / root;
        if (ITEMS)
            v[h] = r;
        else
            to[i] = as<T>(r);
    });
    if (own >= 0)
        row.store(to, v);
}
