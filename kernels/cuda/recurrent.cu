/* Recurrent layers: all steps of a layer, in both directions, in one launch of persistent blocks. The products with the
 * inputs are computed before (forward) or after (backward) for all steps at once.
 *
 * A warp owns four lines of the recurrent weight: forward the gates of one unit (of an RNN: four units), backward four
 * units. Its lanes hold the lines in registers (HELD words each) for the whole sequence, or read them from the cache
 * (HELD = 0), and sum products with the states of eight sequences at a time; then lane i has the sums of sequence i. A
 * barrier of the grid separates the steps. Source: Diamos et al. 2016, Persistent RNNs.
 */
#include "array.cuh"

enum { RNN_RELU, RNN_TANH, LSTM, GRU };
enum { WARPS = 8, LINES = 4, SEQUENCES = 8, CHUNK = 1024, LANES = 32 };

template<int MODE> struct Cell {
    /* of a warp, forward */
    static const int gates = MODE == LSTM ? 4 : MODE == GRU ? 3 : 1, units = gates == 1 ? LINES : 1;
};

/* The two directions' arrays of one layer. All are float except the arrays of the caller. gates, extra, out:
 * blocks of the reserve; gates and extra may be NULL. */
template<class T> struct Layer {
    const T *pre[2];    /* (step, batch, gates x hidden): the product with the input, with its bias */
    const T *weight[2], *bias[2], *h0[2], *c0[2];
    T *gates[2], *extra[2], *out[2], *hy[2], *cy[2];
    T *y;    /* (step, batch, directions x hidden); may be NULL */
    float *state[2];    /* two of (batch, hidden): the output state before and after a step */
    float *cell[2];    /* (batch, hidden) */
    const void *length;
    unsigned *barrier;
    int steps, batch, hidden, directions, length_kind;    /* 0: none; 1: int32, 2: int64, 3: float, 4: double */
    float clip_low, clip_high, clip_nan;
    int clips;    /* 2: replaces NaN by clip_nan */
};

DEVICE int64_t length_of(const void *length, int kind, int b)
{
    return kind == 1 ? ((const int32_t *)length)[b] : kind == 2 ? ((const int64_t *)length)[b]
         : kind == 3 ? (int64_t)((const float *)length)[b] : (int64_t)((const double *)length)[b];
}

DEVICE float sigmoid(float x) { return 1 / (1 + exp(-x)); }

/* 32 sums over the lanes of a warp at once: lane i gets that of v[i]. */
DEVICE float sums_of(float (&v)[32])
{
    int lane = threadIdx.x % LANES;
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
#pragma unroll
        for (int j = 0; j < step; j++) {
            float keep = lane & step ? v[j + step] : v[j], give = lane & step ? v[j] : v[j + step];
            v[j] = keep + shuffle_xor(give, step);
        }
    return v[0];
}

/* Four lines of a matrix over `depth`: element k of line i at p[i * line + k * step]. */
template<class T, int HELD> struct Lines {
    const T *p;
    int64_t line, step;
    int depth, n;    /* n: lines that exist */
    float held[HELD ? HELD : 1][LINES];

    DEVICE float get(int i, int k) const { return k < depth && i < n ? (float)value_of(p[i * line + k * step]) : 0; }
    DEVICE void hold()
    {
#pragma unroll
        for (int j = 0; j < HELD; j++)
#pragma unroll
            for (int i = 0; i < LINES; i++)
                held[j][i] = get(i, (int)threadIdx.x % LANES + LANES * j);
    }
    /* dot[i] of this lane's sequence = line i . x[sequence], for the 32 sequences from `first` on; x (batch, depth) is
     * in memory that other blocks wrote. All threads of a block call it together. */
    DEVICE void dots(float (&dot)[LINES], const float *x, int first, int batch, float *scratch)
    {
        int lane = threadIdx.x % LANES;
#pragma unroll
        for (int i = 0; i < LINES; i++)
            dot[i] = 0;
#pragma unroll 1
        for (int group = 0; group < LANES / SEQUENCES && first + group * SEQUENCES < batch; group++) {
            int b0 = first + group * SEQUENCES;
            float sum[LANES];
#pragma unroll
            for (int i = 0; i < LANES; i++)
                sum[i] = 0;
#pragma unroll 1
            for (int begin = 0; begin < depth; begin += CHUNK) {
                int n_k = depth - begin < CHUNK ? depth - begin : CHUNK;
                __syncthreads();
                for (int at = threadIdx.x; at < SEQUENCES * CHUNK; at += WARPS * LANES) {
                    int b = b0 + at / CHUNK, k = at % CHUNK;
                    if (k < n_k || k < LANES * (HELD ? HELD : 1))
                        scratch[at] = b < batch && k < n_k ? __ldcg(x + (int64_t)b * depth + begin + k) : 0;
                }
                __syncthreads();
                if (HELD) {
#pragma unroll
                    for (int j = 0; j < HELD; j++)
#pragma unroll
                        for (int s = 0; s < SEQUENCES; s++) {
                            float v = scratch[s * CHUNK + LANES * j + lane];
#pragma unroll
                            for (int i = 0; i < LINES; i++)
                                sum[s * LINES + i] += held[j][i] * v;
                        }
                } else {
#pragma unroll 1
                    for (int k = lane; k < n_k; k += LANES) {
                        float w[LINES];
#pragma unroll
                        for (int i = 0; i < LINES; i++)
                            w[i] = get(i, begin + k);
#pragma unroll
                        for (int s = 0; s < SEQUENCES; s++) {
                            float v = scratch[s * CHUNK + k];
#pragma unroll
                            for (int i = 0; i < LINES; i++)
                                sum[s * LINES + i] += w[i] * v;
                        }
                    }
                }
            }
            float total = sums_of(sum);
#pragma unroll
            for (int i = 0; i < LINES; i++) {
                float v = __shfl_sync(0xffffffffu, total, lane % SEQUENCES * LINES + i);
                if (lane / SEQUENCES == group)
                    dot[i] = v;
            }
        }
    }
};

/* Waits for all blocks. A grid of one block needs no counter. */
DEVICE void all_blocks(unsigned *count, unsigned &round)
{
    if (gridDim.x * gridDim.y > 1)
        grid_barrier(count, round);
    else
        __syncthreads();
}

/* Grid: (blocks of WARPS, directions). With HELD the grid has a warp for every line; without, warps take several. */
template<class T, int MODE, int HELD> __global__ void __launch_bounds__(WARPS *LANES, 1) recurrent(Layer<T> l)
{
    typedef Cell<MODE> C;
    __shared__ float scratch[SEQUENCES * CHUNK];
    const int d = blockIdx.y, lane = threadIdx.x % LANES, n = l.hidden;
    const int warp = blockIdx.x * WARPS + threadIdx.x / LANES, n_warps = gridDim.x * WARPS;
    const int rows = C::gates * n, rounds = (n + C::units * n_warps - 1) / (C::units * n_warps);
    unsigned round = 0;
    Lines<T, HELD> lines;
    lines.step = 1;
    lines.depth = n;
    lines.line = C::units > 1 ? n : (int64_t)n * n;    /* adjacent units, or a unit's gates */
    lines.n = 0;
    if (HELD) {
        int j = warp * C::units;
        lines.p = l.weight[d] + (int64_t)j * n;
        lines.n = C::units > 1 ? n - j : j < n ? C::gates : 0;
        lines.hold();
    }
    for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < (int64_t)l.batch * n;
         i += (int64_t)gridDim.x * blockDim.x)
        l.state[d][i] = value_of(l.h0[d][i]);
    all_blocks(l.barrier, round);
#pragma unroll 1
    for (int k = 0; k < l.steps; k++) {
        int t = d ? l.steps - 1 - k : k;
        const float *before = l.state[d] + (int64_t)(k % 2) * l.batch * n;
        float *after = l.state[d] + (int64_t)(1 - k % 2) * l.batch * n;
#pragma unroll 1
        for (int turn = 0; turn < rounds; turn++) {
            int j0 = (turn * n_warps + warp) * C::units;
            if (!HELD) {
                lines.p = l.weight[d] + (int64_t)j0 * n;
                lines.n = C::units > 1 ? n - j0 : j0 < n ? C::gates : 0;
            }
#pragma unroll 1
            for (int first = 0; first < l.batch; first += LANES) {
                float z[LINES];
                lines.dots(z, before, first, l.batch, scratch);
                int b = first + lane;
                if (b >= l.batch)
                    continue;
                const T *pre = l.pre[d] + ((int64_t)t * l.batch + b) * rows;
                T *gates = l.gates[d] ? l.gates[d] + ((int64_t)t * l.batch + b) * rows : nullptr;
                bool on = !l.length_kind || t < length_of(l.length, l.length_kind, b);
#pragma unroll
                for (int u = 0; u < C::units; u++) {
                    int j = j0 + u;
                    if (j >= n)
                        break;
                    int64_t at = (int64_t)b * n + j, step_at = (int64_t)t * l.batch * n + at;
                    float h = __ldcg(before + at), next, c = 0;
                    if (MODE == LSTM) {
                        float i = sigmoid(z[0] + (float)value_of(pre[j]) + (float)value_of(l.bias[d][j]));
                        float f = sigmoid(z[1] + (float)value_of(pre[n + j]) + (float)value_of(l.bias[d][n + j]));
                        float g = tanh(z[2] + (float)value_of(pre[2 * n + j]) + (float)value_of(l.bias[d][2 * n + j]));
                        float o =
                            sigmoid(z[3] + (float)value_of(pre[3 * n + j]) + (float)value_of(l.bias[d][3 * n + j]));
                        float old = k ? l.cell[d][at] : (float)value_of(l.c0[d][at]);
                        c = f * old + i * g;
                        if (l.clips)
                            c = c != c ? (l.clips > 1 ? l.clip_nan : c) : min(max(c, l.clip_low), l.clip_high);
                        next = o * tanh(c);
                        if (gates) {
                            gates[j] = as<T>(i);
                            gates[n + j] = as<T>(f);
                            gates[2 * n + j] = as<T>(g);
                            gates[3 * n + j] = as<T>(o);
                        }
                        c = on ? c : old;
                        l.cell[d][at] = c;
                        if (l.extra[d])
                            l.extra[d][step_at] = as<T>(c);
                        if (k == l.steps - 1 && l.cy[d])
                            l.cy[d][at] = as<T>(c);
                    } else if (MODE == GRU) {
                        float r = sigmoid(z[0] + (float)value_of(pre[j]) + (float)value_of(l.bias[d][j]));
                        float update = sigmoid(z[1] + (float)value_of(pre[n + j]) + (float)value_of(l.bias[d][n + j]));
                        float other = z[2] + (float)value_of(l.bias[d][2 * n + j]);
                        float fresh = tanh((float)value_of(pre[2 * n + j]) + r * other);
                        next = (1 - update) * fresh + update * h;
                        if (gates) {
                            gates[j] = as<T>(r);
                            gates[n + j] = as<T>(update);
                            gates[2 * n + j] = as<T>(fresh);
                        }
                        if (l.extra[d])
                            l.extra[d][step_at] = as<T>(other);
                    } else {
                        float v = z[u] + (float)value_of(pre[j]) + (float)value_of(l.bias[d][j]);
                        next = MODE == RNN_TANH ? tanh(v) : v > 0 || v != v ? v : 0;
                        if (gates)
                            gates[j] = as<T>(next);
                    }
                    T shown = as<T>(on ? next : 0);
                    if (l.out[d])
                        l.out[d][step_at] = shown;
                    if (l.y)
                        l.y[(((int64_t)t * l.batch + b) * l.directions + d) * n + j] = shown;
                    next = on ? next : h;
                    __stcg(after + at, next);
                    if (k == l.steps - 1 && l.hy[d])
                        l.hy[d][at] = as<T>(next);
                }
            }
        }
        all_blocks(l.barrier, round);
    }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

template<class T> struct Back {
    const T *weight[2], *h0[2], *c0[2], *gates[2], *extra[2], *out[2], *dhy[2], *dcy[2];
    const T *dy;    /* (step, batch, directions x hidden) */
    float *dz[2], *dzu[2];    /* (step, batch, gates x hidden): of the pre-activations; the same but for a GRU's h2h */
    float *before[2];    /* (step, batch, hidden): the state that each step started from */
    float *dh[2], *dc[2];    /* (batch, hidden) */
    T *dh0[2], *dc0[2];
    const void *length;
    unsigned *barrier;
    int steps, batch, hidden, directions, length_kind;
    float clip_low, clip_high;
    int clips;
};

template<class T, int MODE, int HELD> __global__ void __launch_bounds__(WARPS *LANES, 1) recurrent_backward(Back<T> l)
{
    typedef Cell<MODE> C;
    __shared__ float scratch[SEQUENCES * CHUNK];
    const int d = blockIdx.y, lane = threadIdx.x % LANES, n = l.hidden, rows = C::gates * n;
    const int warp = blockIdx.x * WARPS + threadIdx.x / LANES, n_warps = gridDim.x * WARPS;
    const int rounds = (n + LINES * n_warps - 1) / (LINES * n_warps);
    unsigned round = 0;
    Lines<T, HELD> lines;
    lines.step = n;
    lines.line = 1;
    lines.depth = rows;
    if (HELD) {
        lines.p = l.weight[d] + warp * LINES;
        lines.n = n - warp * LINES;
        lines.hold();
    }
#pragma unroll 1
    for (int k = l.steps - 1; k >= -1; k--) {
        int t = d ? l.steps - 1 - k : k, later = d ? t - 1 : t + 1;
#pragma unroll 1
        for (int turn = 0; turn < rounds; turn++) {
            int j0 = (turn * n_warps + warp) * LINES;
            if (!HELD) {
                lines.p = l.weight[d] + j0;
                lines.n = n - j0;
            }
#pragma unroll 1
            for (int first = 0; first < l.batch; first += LANES) {
                int b = first + lane;
                float dot[LINES] = {0, 0, 0, 0};
                if (k < l.steps - 1)
                    lines.dots(dot, l.dzu[d] + (int64_t)later * l.batch * rows, first, l.batch, scratch);
                if (b >= l.batch)
                    continue;
                int64_t length = l.length_kind ? length_of(l.length, l.length_kind, b) : l.steps;
                bool on = t < length;
#pragma unroll
                for (int u = 0; u < LINES; u++) {
                    int j = j0 + u;
                    if (j >= n)
                        break;
                    int64_t at = (int64_t)b * n + j;
                    /* dh[at]: the part of the state's gradient that does not go through the product */
                    float dh = k == l.steps - 1 ? (float)value_of(l.dhy[d][at]) : l.dh[d][at] + dot[u];
                    float dc = 0;
                    if (MODE == LSTM)
                        dc = k == l.steps - 1 ? (float)value_of(l.dcy[d][at]) : l.dc[d][at];
                    if (k < 0) {
                        l.dh0[d][at] = as<T>(dh);
                        if (MODE == LSTM)
                            l.dc0[d][at] = as<T>(dc);
                        continue;
                    }
                    int64_t step_at = (int64_t)t * l.batch * n + at, row = ((int64_t)t * l.batch + b) * rows;
                    /* the last step before this one that ran */
                    int64_t from = d ? t + 1 : t - 1;
                    if (!d && from >= length)
                        from = length - 1;
                    bool start = from < 0 || from >= (d ? length : l.steps);
                    float h = start ? (float)value_of(l.h0[d][at]) : (float)value_of(l.out[d][from * l.batch * n + at]);
                    l.before[d][step_at] = h;
                    float step =
                        on ? dh + (float)value_of(l.dy[(((int64_t)t * l.batch + b) * l.directions + d) * n + j]) : 0;
                    const T *gates = l.gates[d] + row;
                    float *dz = l.dz[d] + row, *dzu = l.dzu[d] + row, pass = on ? 0 : dh;
                    if (MODE == LSTM) {
                        float i = value_of(gates[j]), f = value_of(gates[n + j]), g = value_of(gates[2 * n + j]);
                        float o = value_of(gates[3 * n + j]), tc = tanh((float)value_of(l.extra[d][step_at]));
                        int64_t back = (int64_t)(d ? t + 1 : t - 1) * l.batch * n + at;
                        float old = k ? (float)value_of(l.extra[d][back]) : (float)value_of(l.c0[d][at]);
                        float dcell = step * o * (1 - tc * tc) + (on ? dc : 0);
                        if (l.clips) {
                            float raw = f * old + i * g;
                            dcell = raw >= l.clip_low && raw <= l.clip_high ? dcell : 0;
                        }
                        dz[j] = dcell * g * i * (1 - i);
                        dz[n + j] = dcell * old * f * (1 - f);
                        dz[2 * n + j] = dcell * i * (1 - g * g);
                        dz[3 * n + j] = step * tc * o * (1 - o);
                        l.dc[d][at] = dcell * f + (on ? 0 : dc);
                    } else if (MODE == GRU) {
                        float r = value_of(gates[j]), update = value_of(gates[n + j]),
                              fresh = value_of(gates[2 * n + j]);
                        float dfresh = step * (1 - update) * (1 - fresh * fresh);
                        float dr = dfresh * (float)value_of(l.extra[d][step_at]) * r * (1 - r);
                        float dupdate = step * (h - fresh) * update * (1 - update);
                        dz[j] = dzu[j] = dr;
                        dz[n + j] = dzu[n + j] = dupdate;
                        dz[2 * n + j] = dfresh;
                        dzu[2 * n + j] = dfresh * r;
                        pass += step * update;
                    } else {
                        float v = value_of(gates[j]);
                        dz[j] = step * (MODE == RNN_TANH ? 1 - v * v : v > 0 ? 1.0f : 0.0f);
                    }
                    l.dh[d][at] = pass;
                }
            }
        }
        if (k >= 0)
            all_blocks(l.barrier, round);
    }
}

/* ---- around the steps -------------------------------------------------------------------------------------------- */

/* Input of a layer: the outputs of the one below, times a mask (NULL: none). */
template<class T> __global__ void masked(const T *x, const T *mask, T *y, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        y[i] = as<T>((float)value_of(x[i]) * (float)value_of(mask[i]));
}

/* y = x, in another type. */
template<class T, class S> __global__ void cast(const S *x, T *y, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        y[i] = convert<T>(x[i]);
}

/* The outputs of one direction, out (lines, n), into y (lines, directions n) from column `at` on, times a mask. */
template<class T> __global__ void beside(const T *out, const T *mask, T *y, int n, int width, int at, int64_t lines)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < lines * n;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t to = i / n * width + at + i % n;
        y[to] = as<T>((float)value_of(out[i]) * (mask ? (float)value_of(mask[to]) : 1.0f));
    }
}
