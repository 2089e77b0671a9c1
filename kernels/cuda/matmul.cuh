/* The main loop of all matrix products: C[m][n] = sum over k of A(m, k) B(k, n), a tile of C for each block.
 *
 *   global memory --loader--> registers --put--> shared words[2][KW][M or N] --unit--> accumulators --Store--> memory
 *
 * An operand is a loader: `Column at(mn)` is the location of a row of A or a column of B, `Row along(k)` the offset of
 * k in it, `get(column, row)` one element (0 outside), quad() four contiguous ones. Dense matrices, windows of an image
 * and their gradients differ only in their loaders. While a tile is multiplied, the next one is loaded into registers.
 *
 * Shared memory holds words: one element, or two of 16 bits with adjacent k, the format of the tensor cores. Word (kw,
 * i) is at kw * N + (i ^ swizzle(kw)), which spreads reads and both kinds of writes over all banks. */
#pragma once
#include "activations.cuh"
#include "array.cuh"

/* Four contiguous elements, in one access. */
template<class T> using Four = Vector<T, 4>;

/* May rows that are `step` elements apart be read as vectors of four? */
template<class T> DEVICE bool is_wide(const T *p, int64_t step)
{
    return (uintptr_t)p % alignof(Four<T>) == 0 && step % 4 == 0;
}

/* A matrix in memory: element (i, k) at p[i * step + k] (ALONG_K) or p[k * step + i]. */
template<class T, bool ALONG_K> struct Matrix {
    typedef T element;
    static const bool along_k = ALONG_K, quads = true;
    typedef int Column;    /* an operand has less than 2^31 elements */
    typedef int Row;
    const T *p;
    int step, n, n_k;
    bool wide;
    DEVICE Matrix(const T *p, int step, int n, int n_k)
        : p(p), step(step), n(n), n_k(n_k), wide(is_wide(p, step)) {}
    DEVICE Column at(int i) const { return i < n ? (ALONG_K ? i * step : i) : -1; }
    DEVICE Row along(int k) const { return k < n_k ? (ALONG_K ? k : k * step) : -1; }
    DEVICE T get(Column c, Row r) const { return c < 0 || r < 0 ? T() : p[c + r]; }
    /* Are the four elements from (c, r) on inside and contiguous? i: their index along the contiguous axis. */
    DEVICE bool whole(int i, Column c, Row r) const { return wide && c >= 0 && r >= 0 && i + 4 <= (ALONG_K ? n_k : n); }
    DEVICE Four<T> quad(Column c, Row r) const { return *(const Four<T> *)(p + c + r); }
};

/* ---- units: how a tile in shared memory is multiplied ------------------------------------------------------------ */

DEVICE int swizzle(int kw) { return 8 * ((kw + (kw >> 2)) & 3); }

/* Ordinary arithmetic: 256 threads, each (BM / 16) x (BN / 16) results. */
template<class T, int BM, int BN> struct Fma {
    typedef T element;
    typedef T word;
    typedef T total;
    static const int threads = 256, per_word = 1, kw = 16, TM = BM / 16, TN = BN / 16;
    static const int m = BM, n = BN, blocks = BM * BN > 8192 ? 1 : 2;    /* on a multiprocessor */
    T sum[TM][TN];
    DEVICE static word pack(T x, T) { return x; }
    DEVICE static int row(int i) { return i / 4 * 64 + (int)threadIdx.x / 16 * 4 + i % 4; }
    DEVICE static int column(int j) { return j / 4 * 64 + (int)threadIdx.x % 16 * 4 + j % 4; }
    DEVICE void clear()
    {
        for (int i = 0; i < TM; i++)
            for (int j = 0; j < TN; j++)
                sum[i][j] = 0;
    }
    DEVICE void step(const word *a, const word *b)
    {
#pragma unroll
        for (int k = 0; k < kw; k++) {
            T x[TM], y[TN];
            int s = swizzle(k);
#pragma unroll
            for (int i = 0; i < TM; i += 4) {
                Four<T> v = *(const Four<T> *)(a + k * BM + (row(i) ^ s));
                for (int u = 0; u < 4; u++)
                    x[i + u] = v.at[u];
            }
#pragma unroll
            for (int j = 0; j < TN; j += 4) {
                Four<T> v = *(const Four<T> *)(b + k * BN + (column(j) ^ s));
                for (int u = 0; u < 4; u++)
                    y[j + u] = v.at[u];
            }
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++)
                    sum[i][j] += x[i] * y[j];
        }
    }
    /* Puts the results of rows [first, first + ROWS) into shared memory, row by row. */
    template<int ROWS> DEVICE void spread(int first, total *to) const
    {
#pragma unroll
        for (int i = 0; i < TM; i++) {
            int r = row(i) - first;
            if (r >= 0 && r < ROWS)
#pragma unroll
                for (int j = 0; j < TN; j += 4) {
                    Four<T> four;
                    for (int u = 0; u < 4; u++)
                        four.at[u] = sum[i][j + u];
                    *(Four<T> *)(to + r * BN + column(j)) = four;
                }
        }
    }
};

struct TF32 {};    /* float32 whose products are rounded to 10 bits */

template<class T> struct Cores;
template<> struct Cores<float16> {
    typedef float16 element;
    static const int per_word = 2;
    DEVICE static uint32_t pack(float16 x, float16 y) { return x.bits | (uint32_t)y.bits << 16; }
    DEVICE static void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_half(c, a, b); }
};
template<> struct Cores<bfloat16> {
    typedef bfloat16 element;
    static const int per_word = 2;
    DEVICE static uint32_t pack(bfloat16 x, bfloat16 y) { return x.bits | (uint32_t)y.bits << 16; }
    DEVICE static void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
    { mma_bfloat16(c, a, b); }
};
template<> struct Cores<TF32> {
    typedef float element;
    static const int per_word = 1;
    DEVICE static uint32_t pack(float x, float) { return tf32_of_float(x); }
    DEVICE static void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_tf32(c, a, b); }
};

/* Tensor cores: eight warps, two by four, each (BM / 2) x (BN / 4) results. */
template<class T, int BM, int BN> struct Mma {
    typedef typename Cores<T>::element element;
    typedef uint32_t word;
    typedef float total;
    static const int threads = 256, per_word = Cores<T>::per_word, kw = 16, NM = BM / 32, NN = BN / 32;
    static const int m = BM, n = BN, blocks = BM * BN > 8192 ? 1 : 2;    /* on a multiprocessor */
    float sum[NM][NN][4];
    DEVICE static word pack(element x, element y) { return Cores<T>::pack(x, y); }
    DEVICE static int row() { return (int)threadIdx.x / 128 * (BM / 2) + (int)threadIdx.x % 32 / 4; }
    DEVICE static int column() { return (int)threadIdx.x / 32 % 4 * (BN / 4); }
    DEVICE void clear()
    {
        for (int i = 0; i < NM; i++)
            for (int j = 0; j < NN; j++)
                for (int u = 0; u < 4; u++)
                    sum[i][j][u] = 0;
    }
    DEVICE void step(const word *a, const word *b)
    {
        int t = threadIdx.x % 4, g = threadIdx.x % 32 / 4, r = row(), c = column() + g;
#pragma unroll
        for (int k = 0; k < kw; k += 8) {
            uint32_t x[NM][4], y[NN][2];
            int low = k + t, high = low + 4, s = swizzle(low), z = swizzle(high);
#pragma unroll
            for (int i = 0; i < NM; i++) {
                x[i][0] = a[low * BM + ((r + 16 * i) ^ s)];
                x[i][1] = a[low * BM + ((r + 16 * i + 8) ^ s)];
                x[i][2] = a[high * BM + ((r + 16 * i) ^ z)];
                x[i][3] = a[high * BM + ((r + 16 * i + 8) ^ z)];
            }
#pragma unroll
            for (int j = 0; j < NN; j++) {
                y[j][0] = b[low * BN + ((c + 8 * j) ^ s)];
                y[j][1] = b[high * BN + ((c + 8 * j) ^ z)];
            }
#pragma unroll
            for (int i = 0; i < NM; i++)
#pragma unroll
                for (int j = 0; j < NN; j++)
                    Cores<T>::multiply(sum[i][j], x[i], y[j]);
        }
    }
    template<int ROWS> DEVICE void spread(int first, total *to) const
    {
        int c = column() + (int)threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < 2 * NM; i++) {
            int r = row() + 8 * i - first;
            if (r >= 0 && r < ROWS)
#pragma unroll
                for (int j = 0; j < NN; j++)
#pragma unroll
                    for (int u = 0; u < 2; u++)
                        to[r * BN + c + 8 * j + u] = sum[i / 2][j][i % 2 * 2 + u];
        }
    }
};

/* ---- from memory to shared words --------------------------------------------------------------------------------- */

/* The part of an operand's tiles that one thread loads: chunks of four words, contiguous along k or along N. */
template<class Unit, class Operand, int N> struct Carrier {
    typedef typename Operand::element T;
    typedef typename Unit::word word;
    static const int per_line = Operand::along_k ? Unit::kw / 4 : N / 4;    /* adjacent chunks */
    static const int n_chunks = N * Unit::kw / 4 / Unit::threads;
    static const bool across = !Operand::along_k;
    static const int kept = across ? 4 : n_chunks;    /* a thread's columns stay the same */
    typename Operand::Column column[kept];
    word words[n_chunks][4];
    int first;

    DEVICE static int place(int i) { return (int)threadIdx.x + i * Unit::threads; }

    DEVICE Carrier(const Operand &x, int first) : first(first)
    {
#pragma unroll
        for (int i = 0; i < kept; i++)
            column[i] = x.at(first + (across ? place(0) % per_line * 4 + i : place(i) / per_line));
    }
    DEVICE void load(const Operand &x, int k0, int k_end)
    {
#pragma unroll
        for (int i = 0; i < n_chunks; i++) {
            if (across)
                load_across(x, k0 + place(i) / per_line * Unit::per_word, k_end, words[i]);
            else
                load_along(x, column[i], k0 + place(i) % per_line * 4 * Unit::per_word, k_end, words[i]);
        }
    }
    DEVICE void load_across(const Operand &x, int k, int k_end, word (&w)[4])
    {
        T v[2][4];
#pragma unroll
        for (int u = 0; u < Unit::per_word; u++) {
            typename Operand::Row row = x.along(k + u < k_end ? k + u : -1);
            int i = first + place(0) % per_line * 4;
            if (Operand::quads && x.whole(i, column[0], row)) {
                Four<T> four = x.quad(column[0], row);
                for (int j = 0; j < 4; j++)
                    v[u][j] = four.at[j];
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    v[u][j] = x.get(column[j], row);
            }
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            w[j] = Unit::pack(v[0][j], v[Unit::per_word - 1][j]);
    }
    DEVICE void load_along(const Operand &x, const typename Operand::Column &c, int k, int k_end, word (&w)[4])
    {
        T v[4 * Unit::per_word];
#pragma unroll
        for (int u = 0; u < Unit::per_word; u++) {
            typename Operand::Row row = x.along(k + 4 * u < k_end ? k + 4 * u : -1);
            if (Operand::quads && k + 4 * u + 4 <= k_end && x.whole(k + 4 * u, c, row)) {
                Four<T> four = x.quad(c, row);
                for (int j = 0; j < 4; j++)
                    v[4 * u + j] = four.at[j];
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    v[4 * u + j] = x.get(c, x.along(k + 4 * u + j < k_end ? k + 4 * u + j : -1));
            }
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            w[j] = Unit::pack(v[j * Unit::per_word], v[(j + 1) * Unit::per_word - 1]);
    }
    DEVICE void put(word *tile) const
    {
#pragma unroll
        for (int i = 0; i < n_chunks; i++) {
            int c = place(i);
            if (across) {
                int kw = c / per_line;
                Four<word> four;
                for (int j = 0; j < 4; j++)
                    four.at[j] = words[i][j];
                *(Four<word> *)(tile + kw * N + ((c % per_line * 4) ^ swizzle(kw))) = four;
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int kw = c % per_line * 4 + j;
                    tile[kw * N + ((c / per_line) ^ swizzle(kw))] = words[i][j];
                }
            }
        }
    }
};

/* One tile of C from k_begin to k_end, at (m0, n0); all threads of a block of Unit::threads call it; the
 * source of a kernel calls it once. out.put(i, j, x[4]) takes results (i, j) to (i, j + 3); some may be outside. */
template<class Unit, class A, class B, class Store>
DEVICE void matmul(const A &a, const B &b, int m0, int n0, int k_begin, int k_end, const Store &out)
{
    typedef typename Unit::word word;
    typedef typename Unit::total total;
    const int depth = Unit::kw * Unit::per_word, n_words = Unit::kw * (Unit::m + Unit::n);
    const int rows = 32;
    static_assert(rows * Unit::n * sizeof(total) <= 2 * n_words * sizeof(word), "results are stored through the tiles");
    alignas(16) __shared__ word tiles[2][n_words];
    Unit unit;
    unit.clear();
    {
        Carrier<Unit, A, Unit::m> left(a, m0);
        Carrier<Unit, B, Unit::n> right(b, n0);
        if (k_begin < k_end) {
            left.load(a, k_begin, k_end);
            right.load(b, k_begin, k_end);
            left.put(tiles[0]);
            right.put(tiles[0] + Unit::kw * Unit::m);
        }
        __syncthreads();
#pragma unroll 1
        for (int k = k_begin, turn = 0; k < k_end; k += depth, turn ^= 1) {
            bool more = k + depth < k_end;
            if (more) {
                left.load(a, k + depth, k_end);
                right.load(b, k + depth, k_end);
            }
            unit.step(tiles[turn], tiles[turn] + Unit::kw * Unit::m);
            if (more) {
                left.put(tiles[turn ^ 1]);
                right.put(tiles[turn ^ 1] + Unit::kw * Unit::m);
            }
            __syncthreads();
        }
    }
    total *results = (total *)tiles;
#pragma unroll 1
    for (int first = 0; first < Unit::m; first += rows) {
        unit.template spread<rows>(first, results);
        __syncthreads();
#pragma unroll 1
        for (int at = 4 * threadIdx.x; at < rows * Unit::n; at += 4 * Unit::threads) {
            Four<total> x = *(const Four<total> *)(results + at);
            out.put(m0 + first + at / Unit::n, n0 + at % Unit::n, x.at);
        }
        __syncthreads();
    }
}

/* ---- epilogues --------------------------------------------------------------------------------------------------- */

/* x = act(x) for four numbers; p, q: the two numbers of some activations. */
template<class F> DEVICE void activate(int act, F (&x)[4], F p, F q)
{
    for (int u = 0; u < 4; u++)
        x[u] = activated(act, x[u], p, q);
}
