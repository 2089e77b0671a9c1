/* Reductions of the values that a Map computes for each element of a row-major index space, over any of its dimensions.
 * In reduce.cu a Map loads an element; in fused groups it computes expressions.
 *
 * A Map has
 *     Sums                      the accumulators: a struct with  join(a, b),  shuffled(step);
 *     void start(Sums &)        sets the neutral values;
 *     bool aligned()            may V elements be loaded at once?
 *     void add<V>(Sums &, I e, I r)   takes elements e ... e + V - 1 of the space, r of the reduced ones;
 *     void finish(const Sums &, I o)  stores the results with number o.
 * With n_split > 1 several blocks share a result: their sums go to `partial`, and reduce_partials combines them.
 */
#pragma once
#include "reduce.cuh"

/* ---- methods ---------------------------------------------------------------------------------------------------- */

template<class T> struct Wide { typedef int64_t type; };       /* the accumulator of a type of computation */
template<> struct Wide<float> { typedef float type; };
template<> struct Wide<double> { typedef double type; };

#define METHOD(name, START, STEP, JOIN) \
    template<class A> struct name { \
        static DEVICE A start() { return START; } \
        static DEVICE A step(A a, A v) { return STEP; } \
        static DEVICE A join(A a, A v) { return JOIN; } \
    };
METHOD(Sum, 0, a + v, a + v)
METHOD(NanSum, 0, a + (v == v ? v : 0), a + v)
METHOD(SumSquare, 0, a + v * v, a + v)
METHOD(SumAbs, 0, a + (v < 0 ? -v : v), a + v)
METHOD(Prod, 1, a * v, a * v)
METHOD(NanProd, 1, a * (v == v ? v : 1), a * v)
template<class A> DEVICE A lowest() { return (A)-INFINITY; }
template<class A> DEVICE A highest() { return (A)INFINITY; }
template<> DEVICE int64_t lowest<int64_t>() { return (int64_t)0x8000000000000000ull; }
template<> DEVICE int64_t highest<int64_t>() { return (int64_t)0x7fffffffffffffffull; }
METHOD(Max, lowest<A>(), larger(a, v), larger(a, v))
METHOD(Min, highest<A>(), smaller(a, v), smaller(a, v))

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

/* Element o of the kept dimensions, r of the reduced ones -> element of the space. */
template<class I, int KEPT, int REDUCED> struct Space {
    Places<I, KEPT, 1> kept;
    Places<I, REDUCED, 1> reduced;
    I n_out, n_reduced, chunk;                  /* chunk: reduced elements of one split */
    int32_t n_split;

    DEVICE I at_kept(I o) const { I e; kept.find(o, &e); return e; }
    DEVICE I at_reduced(I r) const { I e; reduced.find(r, &e); return e; }
};

template<class M> struct Joined {
    typename M::Sums s;
    DEVICE Joined shuffled(int step) const { return {s.shuffled(step)}; }
};

template<class M> DEVICE void give(M &map, const typename M::Sums &s, int64_t o, int split, int n_split,
                                   typename M::Sums *partial)
{
    if (n_split == 1)
        map.finish(s, o);
    else
        partial[o * n_split + split] = s;
}

/* The innermost dimension is reduced. THREADS threads share a result; V divides the number of contiguous elements. */
template<class M, class I, int KEPT, int REDUCED, int THREADS, int V>
__global__ void __launch_bounds__(THREADS < 256 ? 256 : THREADS)
reduce_rows(M map, Space<I, KEPT, REDUCED> space, typename M::Sums *partial)
{
    typedef typename M::Sums Sums;
    __shared__ Sums scratch[WARP];
    const int t = threadIdx.x % THREADS;
    const int64_t unit = (int64_t)blockIdx.x * (blockDim.x / THREADS) + threadIdx.x / THREADS;
    const bool inside = unit < (int64_t)space.n_out * space.n_split;
    const I o = inside ? (I)(unit / space.n_split) : 0, split = inside ? (I)(unit - (int64_t)o * space.n_split) : 0;
    const I first = space.at_kept(o), begin = split * space.chunk;
    const I end = !inside ? begin : space.n_reduced - begin < space.chunk ? space.n_reduced : begin + space.chunk;
    Sums s;
    map.start(s);
    if (V > 1 && map.aligned()) {
#pragma unroll 4
        for (I r = begin + t * V; r < end; r += THREADS * V)
            map.template add<V>(s, first + space.at_reduced(r), r);
    } else {
#pragma unroll 4
        for (I r = begin + t; r < end; r += THREADS)
            map.template add<1>(s, first + space.at_reduced(r), r);
    }
    s = joined<THREADS>(s, scratch, [](const Sums &a, const Sums &b) { return Sums::join(a, b); });
    if (inside && t == 0)
        give(map, s, o, (int)split, space.n_split, partial);
}

enum { COLUMNS = 32, COLUMN_ROWS = 8 };        /* of a block of reduce_columns */

/* The innermost dimension is kept: threads x cover it, threads y share a result. grid: columns, splits. */
template<class M, class I, int KEPT, int REDUCED>
__global__ void __launch_bounds__(COLUMNS * COLUMN_ROWS)
reduce_columns(M map, Space<I, KEPT, REDUCED> space, typename M::Sums *partial)
{
    typedef typename M::Sums Sums;
    __shared__ Sums scratch[COLUMN_ROWS][COLUMNS];
    const I o = (I)blockIdx.x * COLUMNS + threadIdx.x, begin = (I)blockIdx.y * space.chunk;
    const bool inside = o < space.n_out;
    const I first = space.at_kept(inside ? o : 0);
    const I end = !inside ? begin : space.n_reduced - begin < space.chunk ? space.n_reduced : begin + space.chunk;
    Sums s;
    map.start(s);
#pragma unroll 4
    for (I r = begin + threadIdx.y; r < end; r += COLUMN_ROWS)
        map.template add<1>(s, first + space.at_reduced(r), r);
    scratch[threadIdx.y][threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.y != 0 || !inside)
        return;
#pragma unroll
    for (int k = 1; k < COLUMN_ROWS; k++)
        s = Sums::join(s, scratch[k][threadIdx.x]);
    give(map, s, o, blockIdx.y, space.n_split, partial);
}

/* A warp for each result. */
template<class M> __global__ void reduce_partials(M map, int64_t n_out, int32_t n_split, typename M::Sums *partial)
{
    typedef typename M::Sums Sums;
    __shared__ Sums scratch[WARP];
    const int lane = threadIdx.x % WARP;
    const int64_t o = (int64_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    Sums s;
    map.start(s);
    for (int k = lane; k < n_split && o < n_out; k += WARP)
        s = Sums::join(s, partial[o * n_split + k]);
    s = joined<WARP>(s, scratch, [](const Sums &a, const Sums &b) { return Sums::join(a, b); });
    if (lane == 0 && o < n_out)
        map.finish(s, o);
}
