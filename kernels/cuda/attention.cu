/* Attention, one tile of scores at a time: neither scores nor probabilities are stored. All matrix products use tensor
 * cores; for float32 three products in TF32 each, which is as exact as float32.
 *
 * A warp owns 16 rows of scores. Forward, rows are queries and columns keys: an online softmax. Backward the same
 * kernel runs twice, on rows of queries for dq, and on rows of keys, columns of queries, for dk and dv; so each result
 * is summed by one warp in one order. Sources: Dao et al. 2022, arXiv:2205.14135; Markidis et al. 2018 (splitting
 * TF32).
 */
#include "array.cuh"
#include "philox.cuh"

enum { MASK_NONE, MASK_ADD, MASK_WHERE, MASK_LENGTH };

/* Rows of a source: steps between batches, heads and rows; the elements of a row are contiguous. */
template<class T> struct View {
    T *p;
    int64_t batch, head, row;
    DEVICE T *at(int b, int h) const { return p + b * batch + h * head; }
};

struct Mask {
    const void *p;
    int64_t batch, head, query, key;
    float value;
};

struct Lengths {
    int heads, n_q, n_k, dim, dim_v;
    float scale;
};

/* ---- matrix products of a warp: fragments from shared memory ----------------------------------------------------- */

/* Elements of a row of a tile of DIM: padded, so that the rows of a fragment begin in different banks. */
template<class T, int DIM> struct Row { static const int step = DIM + 16 / (int)sizeof(T); };

template<class T> struct Pairs {    /* 16-bit types; 16 of k at a time */
    static const int k = 16;
    struct A { uint32_t x[4]; };
    struct B { uint32_t x[2]; };
    DEVICE static uint32_t word(const T *p) { return *(const uint32_t *)p; }
    DEVICE static A rows(const T *tile, int step)
    {
        int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        const T *p = tile + g * step + 2 * t;
        return {{word(p), word(p + 8 * step), word(p + 8), word(p + 8 * step + 8)}};
    }
    /* b(k, n) = tile[n][k] */
    DEVICE static B across(const T *tile, int step)
    {
        int lane = threadIdx.x % 32;
        const T *p = tile + lane / 4 * step + lane % 4 * 2;
        return {{word(p), word(p + 8)}};
    }
    /* b(k, n) = tile[k][n] */
    DEVICE static B down(const T *tile, int step)
    {
        B b;
        load_matrix2_transposed(b.x, tile + (int)threadIdx.x % 16 * step);
        return b;
    }
    DEVICE static uint32_t pack(float x, float y);
    DEVICE static void multiply(float (&c)[4], const A &a, const B &b);
    /* results of 16 columns as the left operand of the next product */
    DEVICE static A again(const float (*c)[4])
    {
        return {{pack(c[0][0], c[0][1]), pack(c[0][2], c[0][3]), pack(c[1][0], c[1][1]), pack(c[1][2], c[1][3])}};
    }
};
template<> DEVICE uint32_t Pairs<float16>::pack(float x, float y) { return half2_of_floats(x, y); }
template<> DEVICE uint32_t Pairs<bfloat16>::pack(float x, float y) { return bfloat162_of_floats(x, y); }
template<> DEVICE void Pairs<float16>::multiply(float (&c)[4], const A &a, const B &b) { mma_half(c, a.x, b.x); }
template<> DEVICE void Pairs<bfloat16>::multiply(float (&c)[4], const A &a, const B &b) { mma_bfloat16(c, a.x, b.x); }

/* float32 as the sum of two numbers of TF32; the product of the small ones is below its last bit. 8 of k at a time,
 * those of a lane adjacent: any order of k will do if both operands have the same. */
struct Split {
    static const int k = 8;
    struct A { uint32_t x[4], low[4]; };
    struct B { uint32_t x[2], low[2]; };
    template<int N> DEVICE static void split(const float (&v)[N], uint32_t (&x)[N], uint32_t (&low)[N])
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            x[i] = tf32_of_float(v[i]);
            low[i] = tf32_of_float(v[i] - __uint_as_float(x[i]));
        }
    }
    DEVICE static A left(float x, float y, float z, float w)
    {
        A a;
        float v[4] = {x, y, z, w};
        split(v, a.x, a.low);
        return a;
    }
    DEVICE static B right(float x, float y)
    {
        B b;
        float v[2] = {x, y};
        split(v, b.x, b.low);
        return b;
    }
    DEVICE static A rows(const float *tile, int step)
    {
        int lane = threadIdx.x % 32;
        const float *p = tile + lane / 4 * step + lane % 4;
        return left(p[0], p[8 * step], p[4], p[8 * step + 4]);
    }
    DEVICE static B across(const float *tile, int step)
    {
        int lane = threadIdx.x % 32;
        const float *p = tile + lane / 4 * step + lane % 4;
        return right(p[0], p[4]);
    }
    DEVICE static B down(const float *tile, int step)
    {
        int lane = threadIdx.x % 32;
        const float *p = tile + lane % 4 * 2 * step + lane / 4;
        return right(p[0], p[step]);
    }
    DEVICE static A again(const float (*c)[4]) { return left(c[0][0], c[0][2], c[0][1], c[0][3]); }
    DEVICE static void multiply(float (&c)[4], const A &a, const B &b)
    {
        mma_tf32(c, a.low, b.x);
        mma_tf32(c, a.x, b.low);
        mma_tf32(c, a.x, b.x);
    }
};

template<class T> struct Product { typedef Pairs<T> type; };
template<> struct Product<float> { typedef Split type; };

/* c[16][8 N] = x[16][DIM] . y[8 N][DIM]^T */
template<class T, int DIM, int N> DEVICE void scores(float (&c)[N][4], const T *x, const T *y)
{
    typedef typename Product<T>::type P;
    const int step = Row<T, DIM>::step;
#pragma unroll
    for (int j = 0; j < N; j++)
        for (int u = 0; u < 4; u++)
            c[j][u] = 0;
#pragma unroll
    for (int k = 0; k < DIM; k += P::k) {
        typename P::A a = P::rows(x + k, step);
#pragma unroll
        for (int j = 0; j < N; j++)
            P::multiply(c[j], a, P::across(y + 8 * j * step + k, step));
    }
}

/* out[16][DIM] += p[16][8 N] . y[8 N][DIM] */
template<class T, int DIM, int N> DEVICE void gather(float (&out)[DIM / 8][4], const float (&p)[N][4], const T *y)
{
    typedef typename Product<T>::type P;
    const int step = Row<T, DIM>::step;
#pragma unroll
    for (int k = 0; k < 8 * N; k += P::k) {
        typename P::A a = P::again(p + k / 8);
#pragma unroll
        for (int j = 0; j < DIM / 8; j++)
            P::multiply(out[j], a, P::down(y + k * step + 8 * j, step));
    }
}

/* Starts to copy rows [first, first + ROWS) of x (n rows of dim elements) to a tile, padded with zeros. The caller
 * waits with wait() and a barrier. */
template<class T, int DIM, int ROWS, int THREADS>
DEVICE void fetch(T *tile, const T *x, int64_t row, int first, int n, int dim)
{
    const int step = Row<T, DIM>::step, wide = 16 / (int)sizeof(T);
    bool whole = (uintptr_t)x % 16 == 0 && row % wide == 0 && dim % wide == 0;
    if (whole) {
        for (int i = threadIdx.x; i < ROWS * (DIM / wide); i += THREADS) {
            int r = i / (DIM / wide), d = i % (DIM / wide) * wide;
            bool inside = first + r < n && d < dim;
            copy_async16(tile + r * step + d, inside ? x + (first + r) * row + d : x, inside);
        }
    } else {
        for (int i = threadIdx.x; i < ROWS * DIM; i += THREADS) {
            int r = i / DIM, d = i % DIM;
            tile[r * step + d] = first + r < n && d < dim ? x[(first + r) * row + d] : T();
        }
    }
    copy_async_commit();
}

/* A score with its scale and mask; p of a masked key is 0. follows: the gradient reaches the score. */
template<class M, int KIND> struct Masked {
    const M *p;
    int64_t query, key;
    float scale, value;
    int n_q, n_k;
    DEVICE Masked(const Mask &m, const Lengths &l, int b, int h)
        : p((const M *)m.p + (KIND == MASK_NONE ? 0 : b * m.batch + h * m.head)), query(m.query), key(m.key),
          scale(l.scale), value(m.value), n_q(l.n_q), n_k(l.n_k) {}
    DEVICE bool operator()(float &s, bool &follows, int i, int j) const
    {
        follows = i < n_q && j < n_k;
        if (!follows)
            return false;
        s *= scale;
        if (KIND == MASK_ADD) {
            s += (float)value_of(p[i * query + j * key]);
        } else if (KIND == MASK_WHERE) {
            follows = value_of(p[i * query + j * key]) != 0;
            s = follows ? s : value;
        } else if (KIND == MASK_LENGTH) {
            follows = j < (int64_t)value_of(p[i * query]);
        }
        return KIND == MASK_LENGTH ? follows : true;
    }
    /* May p of (i, j) be more than 0? base: the maximum of the other scores of its row. exp(-104) is 0 in float32. */
    DEVICE bool counts(int i, int j, float base) const
    {
        if (i >= n_q || j >= n_k)
            return false;
        if (KIND == MASK_ADD)
            return (float)value_of(p[i * query + j * key]) != -INFINITY;
        if (KIND == MASK_WHERE)
            return value_of(p[i * query + j * key]) != 0 || !(base - value > 104);
        return KIND == MASK_LENGTH ? j < (int64_t)value_of(p[i * query]) : true;
    }
};

/* ---- dropout: a bit for each probability, drawn before the tiles ------------------------------------------------ */

/* words: 32 keys of a row each. Element i of (batch, head, query, key) takes word i of the stream, as in Dropout. */
__global__ void __launch_bounds__(256)
    draw_kept(uint32_t *kept, int64_t n_words, int n_k, double p, uint64_t seed, uint64_t call)
{
    const float keep = (float)(1 - p);
    const int words = (n_k + 31) / 32;
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= n_words)
        return;
    const int from = (int)(i % words) * 32, n = min(32, n_k - from);
    const int64_t first = i / words * n_k + from;
    uint32_t bits = 0;
    for (int64_t block = first / 4; block * 4 < first + n; block++) {
        const Words w = philox(seed, call, (uint64_t)block);
#pragma unroll
        for (int u = 0; u < 4; u++) {
            const int64_t at = block * 4 + u - first;
            if (at >= 0 && at < n && unit(w.at[u]) < keep)
                bits |= 1u << at;
        }
    }
    kept[i] = bits;
}

/* The factor of dropout for the probability of (i, j). */
template<bool DROPS> struct Kept {
    const uint32_t *bits;
    int words, n_q;
    float scale;
    DEVICE Kept(const uint32_t *kept, float by, const Lengths &l, int b, int h)
        : words((l.n_k + 31) / 32), n_q(l.n_q), scale(by)
    {
        bits = kept + ((int64_t)b * l.heads + h) * n_q * words;
    }
    DEVICE float operator()(int i, int j) const
    {
        return !DROPS ? 1 : bits[(int64_t)i * words + j / 32] >> j % 32 & 1 ? scale : 0;
    }
};

/* Grid: (query tiles x heads x batches). Dynamic shared memory: tiles of ROWS + 2 COLUMNS rows. */
template<class T, class M, int KIND, int DIM, bool DROPS, int ROWS, int COLUMNS>
__global__ void __launch_bounds__(2 * ROWS)
    attention(View<const T> q, View<const T> k, View<const T> v, Mask mask, const uint32_t *bits, float by_kept,
              View<T> y, float *sums, Lengths l)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const int step = Row<T, DIM>::step, threads = 2 * ROWS, N = COLUMNS / 8;
    T *qs = (T *)shared, *ks = qs + ROWS * step, *vs = ks + COLUMNS * step;
    int tiles = (l.n_q + ROWS - 1) / ROWS, first = (int)blockIdx.x % tiles * ROWS;
    int h = (int)blockIdx.x / tiles % l.heads, b = (int)blockIdx.x / tiles / l.heads;
    const T *from_k = k.at(b, h), *from_v = v.at(b, h);
    Masked<M, KIND> masked(mask, l, b, h);
    Kept<DROPS> kept(bits, by_kept, l, b, h);
    int lane = threadIdx.x % 32, r = (int)threadIdx.x / 32 * 16, i0 = first + r + lane / 4, t = lane % 4 * 2;
    float out[DIM / 8][4], s[N][4], top[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < DIM / 8; j++)
        for (int u = 0; u < 4; u++)
            out[j][u] = 0;
    fetch<T, DIM, ROWS, threads>(qs, q.at(b, h), q.row, first, l.n_q, l.dim);
    /* the first tile from `key` on that is not masked: a causal mask skips half of the tiles */
    auto next = [&](int key) {
        for (; KIND != MASK_NONE && key < l.n_k; key += COLUMNS) {
            int any = 0;
            for (int j = 0; j < N; j++)
                for (int u = 0; u < 4; u++)
                    any |= masked.counts(i0 + u / 2 * 8, key + 8 * j + t + u % 2, top[u / 2]);
            if (__syncthreads_or(any))
                break;
        }
        return key;
    };
    int key = next(0);
    if (key < l.n_k)
        fetch<T, DIM, COLUMNS, threads>(ks, from_k, k.row, key, l.n_k, l.dim);
#pragma unroll 1
    while (key < l.n_k) {
        fetch<T, DIM, COLUMNS, threads>(vs, from_v, v.row, key, l.n_k, l.dim_v);
        copy_async_wait<1>();
        __syncthreads();    /* keys have arrived, values not yet */
        scores<T, DIM, N>(s, qs + r * step, ks);
        float high[2] = {top[0], top[1]};
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int u = 0; u < 4; u++) {
                bool follows;
                if (!masked(s[j][u], follows, i0 + u / 2 * 8, key + 8 * j + t + u % 2))
                    s[j][u] = -INFINITY;
                high[u / 2] = max(high[u / 2], s[j][u]);
            }
        float shift[2];
#pragma unroll
        for (int u = 0; u < 2; u++) {
            high[u] = max(high[u], shuffle_xor(high[u], 1));
            high[u] = max(high[u], shuffle_xor(high[u], 2));
            shift[u] = high[u] == -INFINITY ? 0 : high[u];
            float less = exp(top[u] - shift[u]);
            top[u] = high[u];
            total[u] *= less;
#pragma unroll
            for (int j = 0; j < DIM / 8; j++) {
                out[j][2 * u] *= less;
                out[j][2 * u + 1] *= less;
            }
        }
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int u = 0; u < 4; u++) {
                s[j][u] = exp(s[j][u] - shift[u / 2]);
                total[u / 2] += s[j][u];
                int i = i0 + u / 2 * 8, column = key + 8 * j + t + u % 2;
                if (DROPS && i < l.n_q && column < l.n_k)
                    s[j][u] *= kept(i, column);
            }
        copy_async_wait<0>();
        __syncthreads();    /* values have arrived, keys are no longer needed */
        key = next(key + COLUMNS);
        if (key < l.n_k)
            fetch<T, DIM, COLUMNS, threads>(ks, from_k, k.row, key, l.n_k, l.dim);
        gather<T, DIM, N>(out, s, vs);
        __syncthreads();    /* values are no longer needed */
    }
    copy_async_wait<0>();
    T *to = y.at(b, h);
#pragma unroll
    for (int u = 0; u < 2; u++) {
        int i = i0 + 8 * u;
        total[u] += shuffle_xor(total[u], 1);
        total[u] += shuffle_xor(total[u], 2);
        bool none = KIND == MASK_LENGTH && total[u] == 0;
        float by = none ? 0 : 1 / total[u];
        if (i < l.n_q) {
#pragma unroll
            for (int j = 0; j < DIM / 8; j++)
                for (int w = 0; w < 2; w++)
                    if (8 * j + t + w < l.dim_v)
                        to[i * y.row + 8 * j + t + w] = as<T>(out[j][2 * u + w] * by);
            if (t == 0) {
                float *own = sums + 2 * (((int64_t)b * l.heads + h) * l.n_q + i);
                own[0] = none ? 0 : top[u];
                own[1] = none ? 0 : log(total[u]);
            }
        }
    }
}

/* dot[i] = dy . y of query i; one warp for each. */
template<class T> __global__ void attention_dot(View<const T> dy, View<const T> y, float *dot, Lengths l, int64_t n)
{
    int lane = threadIdx.x % 32;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; i < n;
         i += (int64_t)gridDim.x * blockDim.x / 32) {
        int query = (int)(i % l.n_q), h = (int)(i / l.n_q % l.heads), b = (int)(i / l.n_q / l.heads);
        const T *g = dy.at(b, h) + query * dy.row, *v = y.at(b, h) + query * y.row;
        float sum = 0;
        for (int d = lane; d < l.dim_v; d += 32)
            sum += (float)value_of(g[d]) * (float)value_of(v[d]);
#pragma unroll
        for (int step = 16; step > 0; step /= 2)
            sum += shuffle_xor(sum, step);
        if (lane == 0)
            dot[i] = sum;
    }
}

enum { WANT_QUERIES = 1, WANT_KEYS = 2, WANT_VALUES = 4 };

/* Rows x (score operand) and x2 (value operand), columns y and y2: ds = p (f x2 . y2 - dot) scale; out += ds . y, and
 * for values out2 += f p . y2; f: what dropout multiplies p by. WANT_QUERIES: x, x2, y, y2 = q, dy, k, v; else k, v, q,
 * dy. Shared: 2 (ROWS + COLUMNS) rows. */
template<class T, class M, int KIND, int DIM, bool DROPS, int ROWS, int COLUMNS, int WANT>
__global__ void __launch_bounds__(2 * ROWS) attention_backward(View<const T> x, View<const T> x2, View<const T> y,
                                                               View<const T> y2, Mask mask, const uint32_t *bits,
                                                               float by_kept, const float *sums, const float *dot,
                                                               View<T> dx, View<T> dx2, Lengths l)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const bool queries = WANT == WANT_QUERIES;
    const int step = Row<T, DIM>::step, threads = 2 * ROWS, N = COLUMNS / 8;
    T *xs = (T *)shared, *xs2 = xs + ROWS * step, *ys = xs2 + ROWS * step, *ys2 = ys + COLUMNS * step;
    int n_rows = queries ? l.n_q : l.n_k, n_columns = queries ? l.n_k : l.n_q;
    int tiles = (n_rows + ROWS - 1) / ROWS, first = (int)blockIdx.x % tiles * ROWS;
    int h = (int)blockIdx.x / tiles % l.heads, b = (int)blockIdx.x / tiles / l.heads;
    Masked<M, KIND> masked(mask, l, b, h);
    Kept<DROPS> kept(bits, by_kept, l, b, h);
    sums += 2 * ((int64_t)b * l.heads + h) * l.n_q;
    dot += ((int64_t)b * l.heads + h) * l.n_q;
    int lane = threadIdx.x % 32, r = (int)threadIdx.x / 32 * 16, i0 = first + r + lane / 4, t = lane % 4 * 2;
    const int n_out = WANT & (WANT_QUERIES | WANT_KEYS) ? DIM / 8 : 1, n_out2 = WANT & WANT_VALUES ? DIM / 8 : 1;
    float out[n_out][4], out2[n_out2][4], s[N][4], g[N][4];
#pragma unroll
    for (int u = 0; u < 4; u++) {
#pragma unroll
        for (int j = 0; j < n_out; j++)
            out[j][u] = 0;
#pragma unroll
        for (int j = 0; j < n_out2; j++)
            out2[j][u] = 0;
    }
    fetch<T, DIM, ROWS, threads>(xs, x.at(b, h), x.row, first, n_rows, l.dim);
    fetch<T, DIM, ROWS, threads>(xs2, x2.at(b, h), x2.row, first, n_rows, l.dim_v);
    auto next = [&](int c) {    /* as forward */
        for (; KIND != MASK_NONE && c < n_columns; c += COLUMNS) {
            int any = 0;
            for (int j = 0; j < N; j++)
                for (int u = 0; u < 4; u++) {
                    int row = i0 + u / 2 * 8, column = c + 8 * j + t + u % 2;
                    int query = queries ? row : column, key = queries ? column : row;
                    any |= masked.counts(query, key, query < l.n_q ? sums[2 * query] + sums[2 * query + 1] : 0);
                }
            if (__syncthreads_or(any))
                break;
        }
        return c;
    };
#pragma unroll 1
    for (int c = next(0); c < n_columns; c = next(c + COLUMNS)) {
        fetch<T, DIM, COLUMNS, threads>(ys, y.at(b, h), y.row, c, n_columns, l.dim);
        fetch<T, DIM, COLUMNS, threads>(ys2, y2.at(b, h), y2.row, c, n_columns, l.dim_v);
        copy_async_wait<1>();
        __syncthreads();
        scores<T, DIM, N>(s, xs + r * step, ys);
        copy_async_wait<0>();
        __syncthreads();
        scores<T, DIM, N>(g, xs2 + r * step, ys2);
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int u = 0; u < 4; u++) {
                int row = i0 + u / 2 * 8, column = c + 8 * j + t + u % 2;
                int query = queries ? row : column, key = queries ? column : row;
                bool follows, counts = masked(s[j][u], follows, query, key);
                float p = counts ? exp(s[j][u] - sums[2 * query] - sums[2 * query + 1]) : 0;
                float factor = counts ? kept(query, key) : 0;
                s[j][u] = p * factor;
                g[j][u] = follows ? p * (g[j][u] * factor - dot[query]) * l.scale : 0;
            }
        if constexpr (WANT & (WANT_QUERIES | WANT_KEYS))
            gather<T, DIM, N>(out, g, ys);
        if constexpr (WANT & WANT_VALUES)
            gather<T, DIM, N>(out2, s, ys2);
        __syncthreads();
    }
    copy_async_wait<0>();
#pragma unroll
    for (int u = 0; u < 2; u++) {
        int i = i0 + 8 * u;
        if (i >= n_rows)
            continue;
        if constexpr (WANT & (WANT_QUERIES | WANT_KEYS)) {
#pragma unroll
            for (int j = 0; j < DIM / 8; j++)
                for (int w = 0; w < 2; w++)
                    if (8 * j + t + w < l.dim)
                        dx.at(b, h)[i * dx.row + 8 * j + t + w] = as<T>(out[j][2 * u + w]);
        }
        if constexpr (WANT & WANT_VALUES) {
#pragma unroll
            for (int j = 0; j < DIM / 8; j++)
                for (int w = 0; w < 2; w++)
                    if (8 * j + t + w < l.dim_v)
                        dx2.at(b, h)[i * dx2.row + 8 * j + t + w] = as<T>(out2[j][2 * u + w]);
        }
    }
}
