/* Copies: strided copies, transposes through shared memory, joins and splits, conversions. Elements are words
 * of 1, 2, 4 or 8 bytes. */
#include "array.cuh"

/* ---- strided ---------------------------------------------------------------------------------------------------- */

enum { TILE = 32, TILE_ROWS = 8, UNROLL = 4 };

/* V elements are contiguous in both arrays; offsets are in elements. at: of input and output. */
template<class T, class I, int D, int V>
__global__ void __launch_bounds__(256) copy_strided(I n, Places<I, D, 2> at, const T *x, int64_t in_offset, T *y,
                                                    int64_t out_offset)
{
    const bool aligned = V == 1 || is_aligned(x + in_offset, y + out_offset);
    const I first = (I)blockIdx.x * (256 * V * UNROLL) + (I)threadIdx.x * V;
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const I i = first + u * 256 * V;
        if (i >= n)
            return;
        I offsets[2];
        at.find(i, offsets);
        const T *from = x + in_offset + offsets[0];
        T *to = y + out_offset + offsets[1];
        if (aligned) {
            store<V>(to, load<V>(from));
        } else {
#pragma unroll
            for (int k = 0; k < V; k++)
                to[k] = from[k];
        }
    }
}

/* y (..., columns, ..., rows) <- x, where rows are contiguous in x and columns in y: tiles go through shared memory,
 * for each of the n_others indices of the D other dimensions. */
template<class T, class I, int D>
__global__ void __launch_bounds__(TILE * TILE_ROWS)
copy_transposed(I n_rows, I n_columns, Divisor<I> row_tiles, Divisor<I> column_tiles, I in_step, I out_step,
                Places<I, D, 2> others, const T *x, int64_t in_offset, T *y, int64_t out_offset)
{
    __shared__ T tile[TILE][TILE + 1];
    const I b = (I)blockIdx.x, q = row_tiles(b), o = column_tiles(q);
    const I r0 = (b - q * row_tiles.by) * TILE, c0 = (q - o * column_tiles.by) * TILE;
    I offsets[2];
    others.find(o, offsets);
    const T *from = x + in_offset + offsets[0];
    T *to = y + out_offset + offsets[1];
    const I r = r0 + (I)threadIdx.x, c = c0 + (I)threadIdx.x;
#pragma unroll
    for (int k = threadIdx.y; k < TILE; k += TILE_ROWS)
        if (r < n_rows && c0 + k < n_columns)
            tile[k][threadIdx.x] = from[r + (c0 + k) * in_step];
    __syncthreads();
#pragma unroll
    for (int k = threadIdx.y; k < TILE; k += TILE_ROWS)
        if (c < n_columns && r0 + k < n_rows)
            to[c + (r0 + k) * out_step] = tile[threadIdx.x][k];
}

/* ---- joins ------------------------------------------------------------------------------------------------------ */

/* The whole array is (outer, total) words, part k (outer, start[k + 1] - start[k]). */
template<class W, class I, int PARTS> struct Join {
    W *part[PARTS];
    I start[PARTS + 1];
    int32_t n_parts;
};

/* Copies in elements of `size` bytes if an array is not aligned to words. */
template<class W, class E, class I, int PARTS, bool SPLIT>
__global__ void __launch_bounds__(256) join(I n, Divisor<I> total, W *whole, Join<W, I, PARTS> parts)
{
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const I i = (I)blockIdx.x * (256 * UNROLL) + u * 256 + (I)threadIdx.x;
        if (i >= n)
            return;
        const I row = total(i), c = i - row * total.by;
        int low = 0, high = parts.n_parts - 1;  /* the last part that begins at c or before and is not empty */
        while (low < high) {
            const int middle = (low + high + 1) / 2;
            if (parts.start[middle] <= c)
                low = middle;
            else
                high = middle - 1;
        }
        const I length = parts.start[low + 1] - parts.start[low];
        W *a = whole + i, *b = parts.part[low] + row * length + (c - parts.start[low]);
        W *from = SPLIT ? a : b, *to = SPLIT ? b : a;
        if (((uintptr_t)from | (uintptr_t)to) % sizeof(W) == 0) {
            *to = *from;
        } else {
#pragma unroll
            for (int k = 0; k < (int)(sizeof(W) / sizeof(E)); k++)
                ((E *)to)[k] = ((const E *)from)[k];
        }
    }
}

/* ---- conversions ------------------------------------------------------------------------------------------------ */

template<class S, class T, class I, int V> __global__ void __launch_bounds__(256) cast(I n, const S *x, T *y)
{
    const I size = 256 * V * 2, first = (I)blockIdx.x * size;
    if (n - first >= size && is_aligned(x, y)) {
        Vector<S, V> v[2];
#pragma unroll
        for (int u = 0; u < 2; u++)
            v[u] = load<V>(x + first + (u * 256 + (I)threadIdx.x) * V);
#pragma unroll
        for (int u = 0; u < 2; u++) {
            Vector<T, V> r;
#pragma unroll
            for (int k = 0; k < V; k++)
                r.at[k] = convert<T>(v[u].at[k]);
            store<V>(y + first + (u * 256 + (I)threadIdx.x) * V, r);
        }
        return;
    }
    const I end = n - first < size ? n : first + size;
    for (I i = first + (I)threadIdx.x; i < end; i += 256)
        y[i] = convert<T>(x[i]);
}
