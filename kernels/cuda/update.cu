/* Updates of optimizers: many weights in one launch. Also sums of squares, and checks for finite values, over many
 * arrays. */
#include "reduce.cuh"
#include "update_rules.cuh"

DEVICE float root_of(float x) { return sqrtf(x); }
DEVICE double root_of(double x) { return sqrt(x); }

/* ---- many arrays, in chunks: a block for each -------------------------------------------------------------------- */

enum { THREADS = 256, RATES = 4 };

/* chunk: of elements; first[k]: the chunk with which array k begins */
template<int N> struct Chunks {
    int64_t size[N];
    int32_t first[N + 1], count;
    DEVICE int of(int32_t chunk) const
    {
        int low = 0, high = count - 1;          /* the last array that begins there or before and is not empty */
        while (low < high) {
            const int middle = (low + high + 1) / 2;
            if (first[middle] <= chunk)
                low = middle;
            else
                high = middle - 1;
        }
        return low;
    }
};

/* T: of weights and gradients; S: of states, and of the float32 copies of 16-bit weights (WIDE). */
template<class T, class S, int STATES, bool WIDE, int N> struct Weights {
    const T *weight[N], *gradient[N];
    T *out[N];
    S *state[STATES ? STATES : 1][N];
    S *wide[WIDE ? N : 1];
    double rate[RATES][N];
    const float *lrs, *wds, *scale;             /* rates in arrays; NULL: they are scalars */
};

template<template<class> class Rule, class T, bool WIDE, int N, int V>
__global__ void __launch_bounds__(THREADS)
    update(const Chunks<N> chunks,
           const Weights<T, typename Computed<T>::type, Rule<typename Computed<T>::type>::STATES, WIDE, N> given,
           int from_arrays, const Rule<typename Computed<T>::type> rule)
{
    typedef computed<T> S;
    enum { STATES = Rule<S>::STATES, UNROLL = 2 };
    const int k = N == 1 ? 0 : chunks.of((int32_t)blockIdx.x);
    const int64_t n = chunks.size[k], first = (int64_t)((int)blockIdx.x - chunks.first[k]) * (THREADS * V * UNROLL);
    const T *w = given.weight[k], *g = given.gradient[k];
    T *out = given.out[k];
    S *wide = WIDE ? given.wide[WIDE ? k : 0] : (S *)0, *state[STATES ? STATES : 1];
    bool aligned = is_aligned(w, g, out) && (!WIDE || is_aligned(wide));
#pragma unroll
    for (int s = 0; s < STATES; s++) {
        state[s] = given.state[s][k];
        aligned = aligned && is_aligned(state[s]);
    }
    double rate[RATES];
#pragma unroll
    for (int i = 0; i < RATES; i++)
        rate[i] = given.rate[i][k];
    if (from_arrays & 1) {
        rate[0] = given.lrs[k];
        rate[1] = given.wds[k];
    }
    if (from_arrays & 2)
        rate[3] = *given.scale;
    if (aligned && n - first >= THREADS * V * UNROLL) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const int64_t i = first + (u * THREADS + (int)threadIdx.x) * V;
            Vector<T, V> narrow = load<V>(w + i), gradient = load<V>(g + i);
            Vector<S, V> full, held[STATES ? STATES : 1];
            if (WIDE)
                full = load<V>(wide + i);
#pragma unroll
            for (int s = 0; s < STATES; s++)
                held[s] = load<V>(state[s] + i);
#pragma unroll
            for (int j = 0; j < V; j++) {
                S value = WIDE ? full.at[j] : (S)value_of(narrow.at[j]), own[STATES ? STATES : 1];
#pragma unroll
                for (int s = 0; s < STATES; s++)
                    own[s] = held[s].at[j];
                rule.step(rate, value, (S)value_of(gradient.at[j]), own);
#pragma unroll
                for (int s = 0; s < STATES; s++)
                    held[s].at[j] = own[s];
                full.at[j] = value;
                narrow.at[j] = as<T>(value);
            }
            store<V>(out + i, narrow);
            if (WIDE)
                store<V>(wide + i, full);
#pragma unroll
            for (int s = 0; s < STATES; s++)
                store<V>(state[s] + i, held[s]);
        }
        return;
    }
    const int64_t end = n - first < THREADS * V * UNROLL ? n : first + THREADS * V * UNROLL;
    for (int64_t i = first + (int)threadIdx.x; i < end; i += THREADS) {
        S value = WIDE ? wide[i] : (S)value_of(w[i]), own[STATES ? STATES : 1];
#pragma unroll
        for (int s = 0; s < STATES; s++)
            own[s] = state[s][i];
        rule.step(rate, value, (S)value_of(g[i]), own);
#pragma unroll
        for (int s = 0; s < STATES; s++)
            state[s][i] = own[s];
        if (WIDE)
            wide[i] = value;
        out[i] = as<T>(value);
    }
}

/* ---- sums of squares, finite numbers ----------------------------------------------------------------------------- */

template<class T, int N> struct Arrays { const T *x[N]; };

/* partial[chunk] = the sum of squares of a chunk, or (FINITE) how many of its elements are not finite */
template<class T, bool FINITE, int N>
__global__ void __launch_bounds__(THREADS)
chunk_sums(const Chunks<N> chunks, const Arrays<T, N> arrays, int64_t chunk_size, computed<T> *partial)
{
    typedef computed<T> A;
    __shared__ One<A> scratch[WARP];
    const int k = N == 1 ? 0 : chunks.of((int32_t)blockIdx.x);
    const int64_t first = (int64_t)((int)blockIdx.x - chunks.first[k]) * chunk_size;
    const int64_t end = chunks.size[k] - first < chunk_size ? chunks.size[k] : first + chunk_size;
    A sum = 0;
#pragma unroll 4
    for (int64_t i = first + (int)threadIdx.x; i < end; i += THREADS) {
        const A v = value_of(arrays.x[k][i]);
        sum += FINITE ? (v - v == 0 ? (A)0 : (A)1) : v * v;
    }
    sum = sum_of<THREADS>(sum, scratch);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

/* LAMB: w -= lr ratio direction, ratio = |w| / |direction| from the sums of their squares (of 0: 1), |w| within bounds
 * where these are not negative. rate: lr. */
template<class T, class A, bool WIDE, int N> struct LambSteps {
    const T *weight[N];
    T *out[N];
    const A *direction[N];
    A *wide[WIDE ? N : 1];
    double rate[N];
    const float *weights, *directions;          /* sums of squares; ROOTS: their roots */
    double lower, upper;
    int32_t roots;
};

template<class T, bool WIDE, int N>
__global__ void __launch_bounds__(THREADS)
lamb_step(const Chunks<N> chunks, const LambSteps<T, computed<T>, WIDE, N> given, int64_t chunk_size)
{
    typedef computed<T> A;
    const int k = N == 1 ? 0 : chunks.of((int32_t)blockIdx.x);
    const int64_t first = (int64_t)((int)blockIdx.x - chunks.first[k]) * chunk_size;
    const int64_t end = chunks.size[k] - first < chunk_size ? chunks.size[k] : first + chunk_size;
    A a = (A)given.weights[k], b = (A)given.directions[k];
    if (!given.roots) {
        a = root_of(a);
        b = root_of(b);
    }
    if (given.lower >= 0 && a < (A)given.lower)
        a = (A)given.lower;
    if (given.upper >= 0 && a > (A)given.upper)
        a = (A)given.upper;
    const A rate = (A)given.rate[k] * (a == 0 || b == 0 ? (A)1 : a / b);
#pragma unroll 4
    for (int64_t i = first + (int)threadIdx.x; i < end; i += THREADS) {
        const A w = WIDE ? given.wide[WIDE ? k : 0][i] : (A)value_of(given.weight[k][i]);
        const A next = w - rate * given.direction[k][i];
        given.out[k][i] = as<T>(next);
        if (WIDE)
            given.wide[WIDE ? k : 0][i] = next;
    }
}

/* y[k] = the sum of array k's chunks */
template<class A, int N> __global__ void __launch_bounds__(THREADS)
finish_squares(const Chunks<N> chunks, const A *partial, float *y)
{
    __shared__ One<A> scratch[WARP];
    const int k = blockIdx.x;
    A sum = 0;
    for (int i = chunks.first[k] + (int)threadIdx.x; i < chunks.first[k + 1]; i += THREADS)
        sum += partial[i];
    sum = sum_of<THREADS>(sum, scratch);
    if (threadIdx.x == 0)
        y[k] = (float)sum;
}

/* y[0] = is the count 0? */
template<class A> __global__ void __launch_bounds__(THREADS) finish_finite(int64_t n, const A *partial, float *y)
{
    __shared__ One<A> scratch[WARP];
    A sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        sum += partial[i];
    sum = sum_of<THREADS>(sum, scratch);
    if (threadIdx.x == 0)
        y[0] = sum == 0 ? 1.0f : 0.0f;
}
