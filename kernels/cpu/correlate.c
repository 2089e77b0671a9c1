/* y[i] = sum over j of data[i + j - pad] weights[j], where data is 0 outside. Blocks of results stay in the cache while
 * TAPS weights at a time pass over them; few results of many weights are sums of their own, in double. */
#include "correlate.h"
#include "dtype.h"
#include "inline.h"
#include "parts.h"
#include "simd.h"

enum { BLOCK = 1024, TAPS = 4, LANES = 16, FEW = 32 };

#define CORRELATE(T, s) \
    /* y[0, n) += the products with weights [j, j + taps), whose data are all there */ \
    PLK_INLINE void taps_##s(const T *restrict x, const T *restrict w, int taps, int64_t n, T *restrict y) \
    { \
        if (taps == TAPS) \
            for (int64_t i = 0; i < n; i++) \
                y[i] += (w[0] * x[i] + w[1] * x[i + 1]) + (w[2] * x[i + 2] + w[3] * x[i + 3]); \
        else \
            for (int t = 0; t < taps; t++) \
                for (int64_t i = 0; i < n; i++) \
                    y[i] += w[t] * x[i + t]; \
    } \
    /* results [begin, end), begin + BLOCK >= end */ \
    static void block_##s(const plk_correlate *p, const T *x, const T *w, T *y, int64_t begin, int64_t end) \
    { \
        T sums[BLOCK] = {0}; \
        for (int64_t j = 0; j < p->k;) { \
            int64_t first = begin + j - p->pad, last = end + j - p->pad;    /* of the data that weight j meets */ \
            if (p->k - j >= TAPS && first >= 0 && last + TAPS - 1 <= p->n) { \
                taps_##s(x + first, w + j, TAPS, end - begin, sums); \
                j += TAPS; \
                continue; \
            } \
            int64_t low = first < 0 ? 0 : first, high = last < p->n ? last : p->n; \
            if (low < high) \
                taps_##s(x + low, w + j, 1, high - low, sums + (low - first)); \
            j++; \
        } \
        memcpy(y + begin, sums, sizeof *y * (size_t)(end - begin)); \
    } \
    static T sum_##s(const plk_correlate *p, const T *x, const T *w, int64_t i) \
    { \
        double lanes[LANES] = {0}, sum = 0; \
        int64_t at = i - p->pad, j = at < 0 ? -at : 0, end = p->n - at < p->k ? p->n - at : p->k; \
        for (; j + LANES <= end; j += LANES) \
            for (int l = 0; l < LANES; l++) \
                lanes[l] += (double)x[at + j + l] * (double)w[j + l]; \
        for (; j < end; j++) \
            sum += (double)x[at + j] * (double)w[j]; \
        for (int l = 0; l < LANES; l++) \
            sum += lanes[l]; \
        return (T)sum; \
    } \
    static void part_##s(void *arg, int64_t begin, int64_t end) \
    { \
        const plk_call *call = arg; \
        const plk_correlate *p = call->params; \
        const T *x = call->bufs[0], *w = call->bufs[1]; \
        T *y = call->bufs[2]; \
        int few = p->n + 2 * p->pad - p->k + 1 <= FEW; \
        for (int64_t i = begin, next; i < end; i = next) { \
            next = few ? i + 1 : end - i < BLOCK ? end : i + BLOCK; \
            if (few) \
                y[i] = sum_##s(p, x, w, i); \
            else \
                block_##s(p, x, w, y, i, next); \
        } \
    }
CORRELATE(float, f32)
CORRELATE(double, f64)

/* bufs: data, weights, their correlation, of one dtype */
PLK_KERNEL(plk_correlate_run)
{
    const plk_correlate *p = params;
    int64_t n = p->n + 2 * p->pad - p->k + 1;
    plk_run_parts(n * p->k, n, n <= FEW ? 1 : BLOCK, p->dtype == PLK_F32 ? part_f32 : part_f64,
                  &(plk_call){params, bufs, scalars});
    return PL_OK;
}
