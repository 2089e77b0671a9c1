/* Reductions within a warp and a block, always in the same order: results do not change from run to run. */
#pragma once
#include "array.cuh"

enum { WARP = 32 };

/* Combines the values of THREADS adjacent threads (a power of 2 up to a block of 1024 in one dimension); all of them
 * get the result. join(a, b) -> the combined value. scratch: shared memory for WARP values, where THREADS > WARP; it
 * may be used again after the call. */
template<int THREADS, class A, class Join> DEVICE A joined(A a, A *scratch, Join join)
{
#pragma unroll
    for (int step = (THREADS < WARP ? THREADS : WARP) / 2; step > 0; step /= 2)
        a = join(a, a.shuffled(step));
    if (THREADS <= WARP)
        return a;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n_warps = THREADS < WARP ? 1 : THREADS / WARP;
    __syncthreads();
    if (lane == 0)
        scratch[warp] = a;
    __syncthreads();
    a = scratch[warp - warp % n_warps + lane % n_warps];
#pragma unroll
    for (int step = n_warps / 2; step > 0; step /= 2)
        a = join(a, a.shuffled(step));
    return a;
}

/* A value with the operations of warps. */
template<class T> struct One {
    T v;
    DEVICE One shuffled(int step) const { return {shuffle_xor(v, step)}; }
};
template<class T> struct Two {
    T v, w;
    DEVICE Two shuffled(int step) const { return {shuffle_xor(v, step), shuffle_xor(w, step)}; }
};

template<class T> DEVICE T larger(T a, T b) { return b > a || b != b ? b : a; }
template<class T> DEVICE T smaller(T a, T b) { return b < a || b != b ? b : a; }

/* scratch: one for each type of value; declared by the kernel as  __shared__ One<float> scratch[WARP]; */
template<int THREADS, class T> DEVICE T sum_of(T v, One<T> *scratch)
{
    return joined<THREADS>(One<T>{v}, scratch, [](One<T> a, One<T> b) { return One<T>{a.v + b.v}; }).v;
}
template<int THREADS, class T> DEVICE T max_of(T v, One<T> *scratch)
{
    return joined<THREADS>(One<T>{v}, scratch, [](One<T> a, One<T> b) { return One<T>{larger(a.v, b.v)}; }).v;
}
template<int THREADS, class T> DEVICE T min_of(T v, One<T> *scratch)
{
    return joined<THREADS>(One<T>{v}, scratch, [](One<T> a, One<T> b) { return One<T>{smaller(a.v, b.v)}; }).v;
}
