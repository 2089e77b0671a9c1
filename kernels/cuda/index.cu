/* Selection by indices: take, Embedding, pick, one_hot, gather_nd and scatter_nd, sequences. Indices come in any
 * integer or float type. Values of equal indices are summed in the order of the indices, so that results are
 * reproducible. */
#include "sort.cuh"

/* ---- gathers ---------------------------------------------------------------------------------------------------- */

/* y (outer, n_indices, row words) <- x (outer, n, row words) */
template<class W, class E, class K, class I>
__global__ void __launch_bounds__(256)
take(I size, Divisor<I> words, Divisor<I> n_indices, int64_t n, int wrap, const K *indices, const W *x, W *y)
{
#pragma unroll
    for (int u = 0; u < 2; u++) {
        const I i = (I)blockIdx.x * 512 + u * 256 + (I)threadIdx.x;
        if (i >= size)
            return;
        const I row = words(i), w = i - row * words.by, o = n_indices(row), j = row - o * n_indices.by;
        const int64_t k = place_in((int64_t)value_of(indices[j]), n, wrap);
        const W *from = x + (o * n + k) * words.by + w;
        if (((uintptr_t)from | (uintptr_t)(y + i)) % sizeof(W) == 0) {
            y[i] = *from;
        } else {
            for (int b = 0; b < (int)(sizeof(W) / sizeof(E)); b++)
                ((E *)(y + i))[b] = ((const E *)from)[b];
        }
    }
}

/* pick: y (outer, inner) <- x (outer, n, inner); BACK: the elements of x <- y */
template<class W, class K, class I, bool BACK>
__global__ void __launch_bounds__(256)
pick(I size, Divisor<I> inner, int64_t n, int wrap, const K *indices, W *x, W *y)
{
    const I i = (I)blockIdx.x * 256 + (I)threadIdx.x;
    if (i >= size)
        return;
    const I o = inner(i), c = i - o * inner.by;
    W *at = x + (o * n + place_in((int64_t)value_of(indices[i]), n, wrap)) * inner.by + c;
    if (BACK)
        *at = y[i];
    else
        y[i] = *at;
}

template<class T, class K, class I>
__global__ void __launch_bounds__(256)
one_hot(I size, Divisor<I> depth, const K *indices, T *y, double on, double off)
{
    const I i = (I)blockIdx.x * 256 + (I)threadIdx.x;
    if (i >= size)
        return;
    const I row = depth(i);
    y[i] = as<T>((int64_t)value_of(indices[row]) == i - row * depth.by ? on : off);
}

/* The row of a table of this shape for `depth` indices; negative ones count from the end, others are clipped. */
enum { MAX_DEPTH = 8 };
struct Points {
    int64_t n, depth, shape[MAX_DEPTH];
    template<class K> DEVICE int64_t row(const K *indices, int64_t i) const
    {
        int64_t at = 0;
        for (int d = 0; d < depth; d++) {
            int64_t k = (int64_t)value_of(indices[d * n + i]);
            k = k < 0 ? k + shape[d] : k;
            at = at * shape[d] + place_in(k, shape[d], 0);
        }
        return at;
    }
};

template<class W, class E, class K, class I>
__global__ void __launch_bounds__(256)
gather_nd(I size, Divisor<I> words, Points points, const K *indices, const W *table, W *y)
{
    const I i = (I)blockIdx.x * 256 + (I)threadIdx.x;
    if (i >= size)
        return;
    const I p = words(i), w = i - p * words.by;
    const W *from = table + points.row(indices, p) * words.by + w;
    if (((uintptr_t)from | (uintptr_t)(y + i)) % sizeof(W) == 0) {
        y[i] = *from;
    } else {
        for (int b = 0; b < (int)(sizeof(W) / sizeof(E)); b++)
            ((E *)(y + i))[b] = ((const E *)from)[b];
    }
}

/* ---- scatters: indices are sorted by row, a block takes the indices of one row ----------------------------------- */

/* The rows of the indices, as the source of a sort. */
template<class K> struct TakenRows {
    const K *indices;
    int64_t n;
    int32_t wrap;
    DEVICE uint64_t key(int64_t, int64_t i) const { return (uint64_t)place_in((int64_t)value_of(indices[i]), n, wrap); }
    DEVICE int32_t place(int64_t, int64_t i) const { return (int32_t)i; }
};
template<class K> struct PointRows {
    const K *indices;
    Points points;
    DEVICE uint64_t key(int64_t, int64_t i) const { return (uint64_t)points.row(indices, i); }
    DEVICE int32_t place(int64_t, int64_t i) const { return (int32_t)i; }
};

/* table (outer, n_rows, inner): rows with an index <- the sum (ADD) or the last of their values (outer, n_places,
 * inner). grid: indices * column blocks, outer */
template<class T, class I, bool ADD, int V>
__global__ void __launch_bounds__(256)
scatter_rows(int64_t n_places, int64_t n_rows, int64_t inner, int64_t column_blocks, const uint64_t *keys,
             const int32_t *places, const T *rows, T *table)
{
    typedef computed<T> A;
    const int64_t p = blockIdx.x / column_blocks;
    const int64_t c = ((blockIdx.x - p * column_blocks) * blockDim.x + threadIdx.x) * V;
    const uint64_t key = keys[p];
    if (places[p] == NOWHERE || (p > 0 && keys[p - 1] == key) || c >= inner)
        return;
    const T *from = rows + (int64_t)blockIdx.y * n_places * inner + c;
    T *to = table + ((int64_t)blockIdx.y * n_rows + (int64_t)key) * inner + c;
    const bool aligned = V > 1 && is_aligned(rows, table);
    A sum[V];
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] = 0;
    int64_t q = p, last = p;
    for (; q < n_places && keys[q] == key && places[q] != NOWHERE; q++) {
        last = q;
        if (!ADD)
            continue;
        const T *row = from + (int64_t)places[q] * inner;
        Vector<T, V> v;
        if (aligned)
            v = load<V>(row);
        else
#pragma unroll
            for (int k = 0; k < V; k++)
                v.at[k] = row[k];
#pragma unroll
        for (int k = 0; k < V; k++)
            sum[k] += value_of(v.at[k]);
    }
#pragma unroll
    for (int k = 0; k < V; k++)
        to[k] = ADD ? as<T>(sum[k]) : from[(int64_t)places[last] * inner + k];
}

/* ---- sequences -------------------------------------------------------------------------------------------------- */

/* x (steps, batch, inner) or, with the batch first, (batch, steps, inner) */
template<class T, class L, class I>
__global__ void __launch_bounds__(256) sequence_mask(I size, Divisor<I> inner, Divisor<I> second, int batch_first,
                                                     const T *x, const L *lengths, T *y, double value)
{
    const I i = (I)blockIdx.x * 256 + (I)threadIdx.x;
    if (i >= size)
        return;
    const I row = inner(i), a = second(row), b = row - a * second.by;
    const double step = (double)(batch_first ? b : a), length = trunc((double)value_of(lengths[batch_first ? a : b]));
    y[i] = step < length ? x[i] : as<T>(value);
}

/* y[step] = x[length - 1 - step] inside a sequence, x[step] after it; (steps, batch, inner) */
template<class W, class L, class I>
__global__ void __launch_bounds__(256)
sequence_reverse(I size, Divisor<I> inner, Divisor<I> batch, I steps, const W *x, const L *lengths, W *y)
{
    const I i = (I)blockIdx.x * 256 + (I)threadIdx.x;
    if (i >= size)
        return;
    const I row = inner(i), step = batch(row), b = row - step * batch.by;
    int64_t length = (int64_t)value_of(lengths[b]);
    length = length < steps ? length : steps;
    const I from = step < length ? (I)(length - 1 - step) : step;
    y[i] = x[(from * batch.by + b) * inner.by + (i - row * inner.by)];
}

/* y (batch, inner) <- the last step of each sequence */
template<class W, class L, class I>
__global__ void __launch_bounds__(256)
sequence_last(I size, Divisor<I> inner, I steps, I batch, int batch_first, const W *x, const L *lengths, W *y)
{
    const I i = (I)blockIdx.x * 256 + (I)threadIdx.x;
    if (i >= size)
        return;
    const I b = inner(i), c = i - b * inner.by;
    int64_t step = (int64_t)value_of(lengths[b]) - 1;
    step = step < 0 ? 0 : step < steps ? step : steps - 1;
    const I row = batch_first ? b * steps + (I)step : (I)step * batch + b;
    y[i] = x[row * inner.by + c];
}
