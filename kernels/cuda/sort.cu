/* sort, argsort and topk along an axis of (outer, n, inner). */
#include "sort.cuh"

/* Elements of an array; a line is one pair of the other axes. */
template<class T> struct Elements {
    const T *x;
    int64_t n, inner;
    int32_t ascend;
    DEVICE typename Key<computed<T>>::type key(int64_t line, int64_t i) const
    {
        const int64_t o = line / inner, c = line - o * inner;
        return key_of(value_of(x[(o * n + i) * inner + c]), ascend);
    }
    DEVICE int32_t place(int64_t, int64_t i) const { return (int32_t)i; }
};

/* Writes the first k items of each sorted line as values and indices (NULL: not wanted), or as ones in a mask. */
template<class T, class X>
__global__ void __launch_bounds__(256)
sort_finish(int64_t size, int64_t n, int64_t inner, int64_t k, int64_t n_items, const int32_t *places, const T *x,
            T *values, X *indices, int with_values, int with_indices, int with_mask)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;  /* over outer, k, inner */
    if (i >= size)
        return;
    const int64_t row = i / inner, c = i - row * inner, o = row / k, rank = row - o * k;
    const int64_t at = places[(o * inner + c) * n_items + rank], from = (o * n + at) * inner + c;
    if (with_mask)
        values[from] = as<T>(1);
    else if (with_values)
        values[i] = x[from];
    if (with_indices)
        indices[i] = as<X>(at);
}
