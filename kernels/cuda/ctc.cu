/* Connectionist temporal classification (Graves et al. 2006): a block computes the steps of one sequence; a thread
 * computes states of the extended labels (blank, l1, blank, l2, ..., blank). In double, as the reference. */
#include "reduce.cuh"

enum { THREADS = 128 };
#define NEVER (-1e30)

/* log of the sum of exp over the classes of each step of each sequence; a warp each. */
template<class T> __global__ void __launch_bounds__(256) log_sums(int64_t lines, int classes, const T *x, double *lse)
{
    const int64_t line = ((int64_t)blockIdx.x * 256 + threadIdx.x) / WARP;
    const int lane = threadIdx.x % WARP;
    if (line >= lines)
        return;
    const T *row = x + line * classes;
    double top = -(double)INFINITY, sum = 0;
    for (int c = lane; c < classes; c += WARP)
        top = larger(top, (double)value_of(row[c]));
    for (int step = WARP / 2; step > 0; step /= 2)
        top = larger(top, shuffle_xor(top, step));
    for (int c = lane; c < classes; c += WARP)
        sum += exp((double)value_of(row[c]) - top);
    for (int step = WARP / 2; step > 0; step /= 2)
        sum += shuffle_xor(sum, step);
    if (lane == 0)
        lse[line] = top + log(sum);
}

/* lengths may be NULL. first: the blank is class 0, not the last one. */
template<class L, class D, class K> struct Batch {
    const L *label;
    const D *data_length;
    const K *label_length;
    int steps, batch, classes, labels, first;
    DEVICE int blank() const { return first ? 0 : classes - 1; }
    DEVICE int own_steps(int n) const
    {
        const int64_t m = data_length ? (int64_t)value_of(data_length[n]) : steps;
        return m < steps ? (int)m : steps;
    }
    DEVICE int own_labels(int n) const
    {
        if (label_length) {
            const int64_t m = (int64_t)value_of(label_length[n]);
            return m < labels ? (int)m : labels;
        }
        int m = 0;
        while (m < labels && (int64_t)value_of(label[(int64_t)n * labels + m]) != (first ? 0 : -1))
            m++;
        return m;
    }
    DEVICE int state(int n, int s, int count) const
    {
        const int k = s / 2;
        if (s % 2 == 0 || k >= count)
            return blank();
        return (int)place_in((int64_t)value_of(label[(int64_t)n * labels + k]), classes, 0);
    }
};

DEVICE double log_sum(double a, double b, double c)
{
    const double top = max(max(a, b), c);
    return top + log(exp(a - top) + exp(b - top) + exp(c - top));
}

/* alpha: (batch, steps, states), or NULL; totals: log P(labels), or NULL; loss: minus that, or NULL. Shared: two rows
 * of states in double, then their classes. */
template<class T, class L, class D, class K>
__global__ void __launch_bounds__(THREADS)
forward(Batch<L, D, K> of, const T *x, const double *lse, double *alpha, double *totals, T *loss)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const int n = blockIdx.x, S = 2 * of.labels + 1, count = of.own_labels(n), steps = of.own_steps(n);
    const int n_states = 2 * count + 1;
    double *a = (double *)shared, *b = a + S;
    int *classes = (int *)(b + S);
    for (int s = threadIdx.x; s < S; s += THREADS) {
        classes[s] = of.state(n, s, count);
        a[s] = NEVER;
    }
    __syncthreads();
    for (int t = 0; t < of.steps; t++) {
        const int64_t line = (int64_t)t * of.batch + n;
        for (int s = threadIdx.x; s < S; s += THREADS) {
            double v = a[s];
            if (t < steps && s < n_states) {
                const double emit = (double)value_of(x[line * of.classes + classes[s]]) - lse[line];
                const bool skip = s >= 2 && classes[s] != of.blank() && classes[s] != classes[s - 2];
                if (t == 0)
                    v = s < 2 ? emit : NEVER;
                else
                    v = max(log_sum(v, s ? a[s - 1] : NEVER, skip ? a[s - 2] : NEVER) + emit, NEVER);
            }
            b[s] = v;
            if (alpha)
                alpha[((int64_t)n * of.steps + t) * S + s] = v;
        }
        __syncthreads();
        double *other = a;
        a = b;
        b = other;
    }
    if (threadIdx.x == 0) {
        double top = NEVER, sum = 0;
        for (int s = n_states < 2 ? 0 : n_states - 2; s < n_states; s++)
            top = larger(top, a[s]);
        for (int s = 0; s < S; s++)
            sum += exp((s < n_states && s >= n_states - 2 ? a[s] : NEVER) - top);
        if (totals)
            totals[n] = top + log(sum);
        if (loss)
            loss[n] = as<T>(-(top + log(sum)));
    }
}

/* dx: P(class at t) - P(class at t | labels), 0 after the end. Shared: three rows of states in double, then classes,
 * and the next state of the same class. */
template<class T, class L, class D, class K>
__global__ void __launch_bounds__(THREADS)
backward(Batch<L, D, K> of, const T *x, const double *lse, const double *alpha, const double *totals, T *dx)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const int n = blockIdx.x, S = 2 * of.labels + 1, count = of.own_labels(n), steps = of.own_steps(n);
    const int n_states = 2 * count + 1;
    double *a = (double *)shared, *b = a + S, *weight = b + S;
    int *classes = (int *)(weight + S), *next = classes + S, *is_first = next + S;
    for (int s = threadIdx.x; s < S; s += THREADS)
        classes[s] = of.state(n, s, count);
    __syncthreads();
    for (int s = threadIdx.x; s < S; s += THREADS) {
        int k = s + 1, before = s - 1;
        while (k < n_states && classes[k] != classes[s])
            k++;
        while (before >= 0 && classes[before] != classes[s])
            before--;
        next[s] = k;
        is_first[s] = before < 0;
    }
    for (int t = of.steps - 1; t >= 0; t--) {
        const int64_t line = (int64_t)t * of.batch + n;
        const T *row = x + line * of.classes;
        T *to = dx + line * of.classes;
        __syncthreads();
        for (int s = threadIdx.x; s < S && t < steps; s += THREADS) {
            const double emit = (double)value_of(row[classes[s]]) - lse[line];
            double v = s < n_states && s >= n_states - 2 ? emit : NEVER;
            if (t < steps - 1) {
                const bool skip = s + 2 < n_states && classes[s + 2] != of.blank() && classes[s + 2] != classes[s];
                v = max(log_sum(a[s], s + 1 < S ? a[s + 1] : NEVER, skip ? a[s + 2] : NEVER) + emit, NEVER);
            }
            b[s] = v;
            const double log_p = alpha[((int64_t)n * of.steps + t) * S + s] + v - emit - totals[n];
            weight[s] = s < n_states ? exp(log_p < 0 ? log_p : 0.0) : 0;
        }
        for (int c = threadIdx.x; c < of.classes; c += THREADS)
            to[c] = as<T>(t < steps ? exp((double)value_of(row[c]) - lse[line]) : 0.0);
        __syncthreads();
        for (int s = threadIdx.x; s < n_states && t < steps; s += THREADS) {
            if (!is_first[s])
                continue;
            double sum = 0;
            for (int k = s; k < n_states; k = next[k])
                sum += weight[k];
            to[classes[s]] = as<T>(exp((double)value_of(row[classes[s]]) - lse[line]) - sum);
        }
        if (t < steps) {
            double *other = a;
            a = b;
            b = other;
        }
    }
}
