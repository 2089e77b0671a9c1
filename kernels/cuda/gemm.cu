/* Matrix products without cuBLASLt: row-major, C = act(alpha op(A) op(B) + bias) + residual. */
#include "matmul.cuh"

/* The result and epilogue of a product. kept: gets the input of act; bias, residual, kept, partial may be NULL.
 * partial: gets the sums of a slice of k, without an epilogue. */
template<class T, class F> struct Result {
    T *y, *kept;
    const T *bias, *residual;
    F *partial;
    F alpha;
    int act, m, n, row, wide;    /* row: elements between rows of y; wide: vectors of four may be written */

    DEVICE void put(int i, int j, const F *given) const
    {
        if (i >= m || j >= n)
            return;
        int64_t at = (int64_t)i * row + j;
        if (partial) {
            for (int u = 0; u < 4; u++)
                if (j + u < n)
                    partial[(int64_t)i * n + j + u] = given[u];
        } else {
            finish(j, at, n - j < 4 ? n - j : 4, given);
        }
    }
    /* The epilogue for `count` adjacent elements. */
    DEVICE void finish(int j, int64_t at, int count, const F *given) const
    {
        F x[4];
#pragma unroll
        for (int u = 0; u < 4; u++) {
            x[u] = u < count ? alpha * given[u] + (bias ? (F)value_of(bias[j + u]) : (F)0) : (F)0;
            if (kept && u < count)
                kept[at + u] = as<T>(x[u]);
        }
        activate(act, x, (F)0, (F)0);
        Four<T> four;
#pragma unroll
        for (int u = 0; u < 4; u++)
            four.at[u] = as<T>(x[u] + (residual && u < count ? (F)value_of(residual[at + u]) : (F)0));
        if (wide && count == 4)
            *(Four<T> *)(y + at) = four;
        else
            for (int u = 0; u < 4; u++)
                if (u < count)
                    y[at + u] = four.at[u];
    }
};

struct Sizes {
    int64_t a_step, b_step, y_step;    /* between batches */
    int n_batch, m, n, k, n_slices, slice, a_row, b_row;    /* slice: elements of k in one; rows: in memory */
};

/* Grid: tiles, batches, slices. With more than one slice out.partial holds (slice, batch, m, n). */
template<class Unit, bool TRANSPOSE_A, bool TRANSPOSE_B, class T>
__global__ void __launch_bounds__(Unit::threads, Unit::blocks)
    gemm(const T *a, const T *b, Result<T, typename Unit::total> out, Sizes s)
{
    int tiles = (s.m + Unit::m - 1) / Unit::m;
    int m0 = (int)blockIdx.x % tiles * Unit::m, n0 = (int)blockIdx.x / tiles * Unit::n;
    int begin = (int)blockIdx.z * s.slice, end = begin + s.slice < s.k ? begin + s.slice : s.k;
    T *y = out.y;
    typename Unit::total *partial = out.partial;
#pragma unroll 1
    for (int batch = blockIdx.y; batch < s.n_batch; batch += gridDim.y) {
        Matrix<T, !TRANSPOSE_A> left(a + batch * s.a_step, s.a_row, s.m, s.k);
        Matrix<T, TRANSPOSE_B> right(b + batch * s.b_step, s.b_row, s.n, s.k);
        out.y = y + batch * s.y_step;
        out.wide = is_wide(out.y, out.row);
        if (partial)
            out.partial = partial + ((int64_t)blockIdx.z * s.n_batch + batch) * s.y_step;
        matmul<Unit>(left, right, m0, n0, begin, end, out);
    }
}

/* Adds the sums of the slices and applies the epilogue. One batch. */
template<class T, class F> __global__ void slices_add(Result<T, F> out, int n_slices)
{
    int64_t n = (int64_t)out.m * out.n, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += step) {
        F sum = 0;
        for (int i = 0; i < n_slices; i++)
            sum += out.partial[i * n + at];
        out.finish((int)(at % out.n), at / out.n * out.row + at % out.n, 1, &sum);
    }
}

/* The epilogue of a library's product, which is in y. */
template<class T, class F> __global__ void follow(Result<T, F> out)
{
    int64_t n = (int64_t)out.m * out.n, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += step) {
        F x = value_of(out.y[at]);    /* rows are contiguous */
        out.finish((int)(at % out.n), at, 1, &x);
    }
}

/* y[j] = the sum of column j of a (rows, columns). Blocks of 32 x 8. */
template<class T, class F> __global__ void column_sums(const T *a, T *y, int n_rows, int n_columns)
{
    __shared__ F sums[8][33];
    int j = blockIdx.x * 32 + threadIdx.x;
    F sum = 0;
    if (j < n_columns)
        for (int i = threadIdx.y; i < n_rows; i += 8)
            sum += (F)value_of(a[(int64_t)i * n_columns + j]);
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && j < n_columns) {
        for (int i = 1; i < 8; i++)
            sum += sums[i][threadIdx.x];
        y[j] = as<T>(sum);
    }
}
