/* Constants in a part of an array, and ranges. */
#include "array.cuh"

/* y[out_offset + offset of i] = value */
template<class T, class I, int D>
__global__ void __launch_bounds__(256) fill_strided(I n, Places<I, D, 1> at, T *y, int64_t out_offset, double value)
{
    const I i = (I)blockIdx.x * 256 + (I)threadIdx.x;
    if (i >= n)
        return;
    I offset;
    at.find(i, &offset);
    y[out_offset + offset] = as<T>(value);
}

/* y[i] = first + (i / repeat) step; W: the type of computation */
template<class T, class W>
__global__ void __launch_bounds__(256) arange(int64_t n, int64_t repeat, T *y, W first, W step)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n)
        y[i] = as<T>(first + (W)(i / repeat) * step);
}
