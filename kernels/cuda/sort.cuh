/* Sorting of lines of (key, place) items: tiles in shared memory by Batcher's bitonic network, then merges of
 * longer and longer runs. Keys are unsigned integers; equal ones keep their order, since places differ. */
#pragma once
#include "array.cuh"

/* ---- keys ------------------------------------------------------------------------------------------------------- */

/* An element as an unsigned integer of the same order, with NaN last in ascending and descending order. */
template<class T> struct Key { typedef uint32_t type; };
template<> struct Key<double> { typedef uint64_t type; };
template<> struct Key<int64_t> { typedef uint64_t type; };
template<> struct Key<uint64_t> { typedef uint64_t type; };

template<class U, class F> DEVICE U bits_of(F v)
{
    static_assert(sizeof(U) == sizeof(F), "");
    union { F f; U u; } both;
    both.f = v;
    return both.u;
}
template<class U, class F> DEVICE U float_key(F v, bool ascend)
{
    const U top = (U)1 << (8 * sizeof(U) - 1);
    if (v != v)
        return ~(U)0;
    U key = bits_of<U>(v == 0 ? (F)0 : v);       /* one zero */
    key = key & top ? ~key : key | top;
    return ascend ? key : ~key;
}
DEVICE uint32_t key_of(float v, bool ascend) { return float_key<uint32_t>(v, ascend); }
DEVICE uint64_t key_of(double v, bool ascend) { return float_key<uint64_t>(v, ascend); }
DEVICE uint32_t key_of(int32_t v, bool ascend) { return ((uint32_t)v ^ 0x80000000u) ^ (ascend ? 0u : ~0u); }
DEVICE uint32_t key_of(int8_t v, bool ascend) { return key_of((int32_t)v, ascend); }
DEVICE uint32_t key_of(uint8_t v, bool ascend) { return key_of((int32_t)v, ascend); }
DEVICE uint64_t key_of(int64_t v, bool ascend)
{
    return ((uint64_t)v ^ 0x8000000000000000ull) ^ (ascend ? 0ull : ~0ull);
}

/* ---- tiles ------------------------------------------------------------------------------------------------------ */

enum { NOWHERE = 0x7fffffff };                 /* the place of padding of a tile, which sorts last */

template<class K> DEVICE bool before(K a, int32_t at_a, K b, int32_t at_b) { return a < b || (a == b && at_a < at_b); }

/* Sorts TILE items of shared memory; TILE / 2 threads. */
template<class K, int TILE> DEVICE void sort_tile(K *keys, int32_t *places)
{
    for (int size = 2; size <= TILE; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            const int t = threadIdx.x, i = 2 * t - (t & (step - 1)), j = i + step;
            const bool up = (i & size) == 0;
            const K a = keys[i], b = keys[j];
            const int32_t at_a = places[i], at_b = places[j];
            if (before(b, at_b, a, at_a) == up) {
                keys[i] = b;
                keys[j] = a;
                places[i] = at_b;
                places[j] = at_a;
            }
        }
    __syncthreads();
}

/* A Source has  K key(int64_t line, int64_t i)  and  int32_t place(int64_t line, int64_t i)  for the n items of a line.
 * The first `keep` of each tile go to keys, places: [line][tile][keep].  grid: tiles * lines; blocks of TILE / 2 */
template<class Source, class K, int TILE>
__global__ void __launch_bounds__(TILE / 2)
sort_tiles(Source source, int64_t n, int64_t n_tiles, int keep, K *keys, int32_t *places)
{
    __shared__ K tile_keys[TILE];
    __shared__ int32_t tile_places[TILE];
    const int64_t line = blockIdx.x / n_tiles, tile = blockIdx.x - line * n_tiles;
#pragma unroll
    for (int u = 0; u < 2; u++) {
        const int t = threadIdx.x + u * (TILE / 2);
        const int64_t i = tile * TILE + t;
        tile_keys[t] = i < n ? source.key(line, i) : ~(K)0;
        tile_places[t] = i < n ? source.place(line, i) : NOWHERE;
    }
    sort_tile<K, TILE>(tile_keys, tile_places);
    const int64_t to = (line * n_tiles + tile) * keep;
    for (int t = threadIdx.x; t < keep; t += TILE / 2) {
        keys[to + t] = tile_keys[t];
        places[to + t] = tile_places[t];
    }
}

/* Items of an earlier round. */
template<class K> struct Items {
    const K *keys;
    const int32_t *places;
    int64_t n;
    DEVICE K key(int64_t line, int64_t i) const { return keys[line * n + i]; }
    DEVICE int32_t place(int64_t line, int64_t i) const { return places[line * n + i]; }
};

/* ---- merges ----------------------------------------------------------------------------------------------------- */

/* Pairs of sorted runs of `run` items become one: each item finds its rank in the other run. Lines of n items. */
template<class K>
__global__ void __launch_bounds__(256)
merge_runs(int64_t size, int64_t n, int64_t run, const K *keys, const int32_t *places, K *to_keys, int32_t *to_places)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= size)
        return;
    const int64_t line = i / n, first = line * n, p = i - first, pair = p / (2 * run) * (2 * run);
    const bool left = p - pair < run;
    const int64_t middle = pair + run < n ? pair + run : n, end = pair + 2 * run < n ? pair + 2 * run : n;
    int64_t low = left ? middle : pair, high = left ? end : middle, begin = low;
    const K key = keys[i];
    const int32_t at = places[i];
    while (low < high) {                        /* how many items of the other run sort before this item */
        const int64_t m = (low + high) / 2;
        if (before(keys[first + m], places[first + m], key, at))
            low = m + 1;
        else
            high = m;
    }
    const int64_t to = first + pair + (p - (left ? pair : middle)) + (low - begin);
    to_keys[to] = key;
    to_places[to] = at;
}
