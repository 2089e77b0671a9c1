/* Cumulative sums along an axis of (outer, n, inner), in double or int64. */
#include "array.cuh"

enum { THREADS = 256, ITEMS = 4, WARP = 32 };

/* Lines of contiguous elements (inner 1): a block computes one, THREADS * ITEMS elements at a time. */
template<class S, class T, class A>
__global__ void __launch_bounds__(THREADS) scan_rows(int64_t n, const S *x, T *y)
{
    __shared__ A sums[THREADS / WARP];
    const S *from = x + (int64_t)blockIdx.x * n;
    T *to = y + (int64_t)blockIdx.x * n;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    A before = 0;                               /* the sum of all chunks so far */
    for (int64_t first = 0; first < n; first += THREADS * ITEMS) {
        const int64_t i = first + (int64_t)threadIdx.x * ITEMS;
        A v[ITEMS], total = 0;
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            total += i + k < n ? (A)value_of(from[i + k]) : (A)0;
            v[k] = total;
        }
        A up = total;                           /* the sum of this and all lower lanes */
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            const A other = __shfl_up_sync(0xffffffffu, up, step);
            up += lane >= step ? other : (A)0;
        }
        __syncthreads();
        if (lane == WARP - 1)
            sums[warp] = up;
        __syncthreads();
        A lower = before + (up - total), all = 0;
#pragma unroll
        for (int w = 0; w < THREADS / WARP; w++) {
            lower += w < warp ? sums[w] : (A)0;
            all += sums[w];
        }
#pragma unroll
        for (int k = 0; k < ITEMS; k++)
            if (i + k < n)
                to[i + k] = as<T>(lower + v[k]);
        before += all;
    }
}

/* A thread for each line. */
template<class S, class T, class A>
__global__ void __launch_bounds__(THREADS) scan_columns(int64_t lines, int64_t n, int64_t inner, const S *x, T *y)
{
    const int64_t line = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (line >= lines)
        return;
    const int64_t o = line / inner, first = o * n * inner + (line - o * inner);
    A sum = 0;
#pragma unroll 4
    for (int64_t k = 0; k < n; k++) {
        sum += (A)value_of(x[first + k * inner]);
        y[first + k * inner] = as<T>(sum);
    }
}
