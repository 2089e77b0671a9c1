/* Non-maximum suppression: one block for the boxes of each batch. Compiled without contraction, so that decisions are
 * those of the reference. */
#include "array.cuh"

enum { THREADS = 1024 };

struct Boxes {
    /* at: of a box in its row; id: of its class, or -1 */
    int n, width, at, score, id, topk, centre, out_centre, force;
    double overlap, valid, background;
};

template<class A> struct Box {
    A low[2], high[2], area;
    template<class T> DEVICE static Box of(const T *p, bool centre)
    {
        Box b;
        A size[2];
        for (int d = 0; d < 2; d++) {
            const A first = value_of(p[d]), second = value_of(p[2 + d]);
            size[d] = centre ? second : second - first;
            b.low[d] = centre ? first - second / 2 : first;
            b.high[d] = centre ? first + second / 2 : second;
        }
        b.area = size[0] < 0 || size[1] < 0 ? 0 : size[0] * size[1];
        return b;
    }
    DEVICE A common(const Box &o) const
    {
        A sides[2];
        for (int d = 0; d < 2; d++) {
            const A first = low[d] > o.low[d] ? low[d] : o.low[d], last = high[d] < o.high[d] ? high[d] : o.high[d];
            sides[d] = last - first > 0 ? last - first : 0;
        }
        return sides[0] * sides[1];
    }
};

/* order, keep: n elements for each batch. */
template<class T>
__global__ void __launch_bounds__(THREADS)
suppress(const Boxes of, const T *x, int *order, int *keep, T *y, int32_t *index)
{
    typedef computed<T> A;
    __shared__ int count;
    const int64_t first = (int64_t)blockIdx.x * of.n;
    const T *rows = x + first * of.width;
    order += first;
    keep += first;
    if (threadIdx.x == 0)
        count = 0;
    __syncthreads();
    auto score = [&](int i) { return (A)value_of(rows[(int64_t)i * of.width + of.score]); };
    auto kind = [&](int i) { return (A)value_of(rows[(int64_t)i * of.width + of.id]); };
    auto valid = [&](int i) { return score(i) > (A)of.valid && (of.id < 0 || kind(i) != (A)of.background); };
    for (int i = threadIdx.x; i < of.n; i += THREADS) {
        if (!valid(i))
            continue;
        const A own = score(i);
        int rank = 0;
        for (int j = 0; j < of.n; j++) {
            const A other = score(j);
            rank += (other > own || (other == own && j < i)) && valid(j);
        }
        order[rank] = i;
        atomicAdd(&count, 1);
    }
    __syncthreads();
    const int m = of.topk > 0 && of.topk < count ? of.topk : count;
    for (int k = threadIdx.x; k < m; k += THREADS)
        keep[k] = 1;
    __syncthreads();
    for (int k = 0; k + 1 < m; k++) {
        if (!keep[k])
            /* all threads read the same: a barrier follows the last write */
            continue;
        const Box<A> best = Box<A>::of(rows + (int64_t)order[k] * of.width + of.at, of.centre);
        for (int l = k + 1 + (int)threadIdx.x; l < m; l += THREADS) {
            const Box<A> box = Box<A>::of(rows + (int64_t)order[l] * of.width + of.at, of.centre);
            const A common = best.common(box);
            const bool rivals = of.force || of.id < 0 || kind(order[l]) == kind(order[k]);
            if (rivals && common / (best.area + box.area - common) > (A)of.overlap)
                keep[l] = 0;
        }
        __syncthreads();
    }
    __syncthreads();
    if (threadIdx.x == 0) {                     /* boxes that are kept come first */
        count = 0;
        for (int k = 0; k < m; k++)
            if (keep[k])
                order[count++] = order[k];
    }
    __syncthreads();
    for (int k = threadIdx.x; k < of.n; k += THREADS) {
        const int i = k < count ? order[k] : -1;
        index[first + k] = i;
        T *to = y + (first + k) * of.width;
        const T *from = rows + (int64_t)(i < 0 ? 0 : i) * of.width;
        for (int c = 0; c < of.width; c++)
            to[c] = i < 0 ? as<T>((A)-1) : from[c];
        if (i >= 0 && of.centre != of.out_centre)
            for (int d = 0; d < 2; d++) {
                const A p = value_of(from[of.at + d]), q = value_of(from[of.at + 2 + d]);
                to[of.at + d] = as<T>(of.centre ? p - q / 2 : p + (q - p) / 2);
                to[of.at + 2 + d] = as<T>(of.centre ? p + q / 2 : q - p);
            }
    }
}
