/* The threshold of a symmetric histogram within which `levels` levels represent it best: the least Kullback-Leibler
 * divergence (Migacz 2017, 8-bit Inference with TensorRT; MXNet's details). Bins without elements all count the same,
 * so each candidate visits the others only. */
#include "calibrate.h"
#include "engine/core/scratch.h"
#include "parts.h"
#include <math.h>

typedef struct {
    const plk_entropy *p;
    const float *hist;
    const double *total;    /* of the bins before each */
    const int64_t *filled;  /* the bins that have elements */
    int64_t n_filled;
    double *divergence;     /* of each candidate */
} search;

enum { AT_ONCE = 16 };
static const double LITTLE = 1e-4;    /* stands for no elements */

/* p: the counts of one bin smoothed, as a part of all; q: of its level */
static double term(double p, double q) { return p * log(p / q); }

static double divergence(const search *s, int64_t half)
{
    int64_t middle = s->p->bins / 2, start = middle - half, stop = middle + half + 1, size = stop - start;
    int64_t levels = s->p->levels, width = size / levels, n_p = 0, n_q = 0, first = 0, last = s->n_filled;
    double left = s->total[start + 1], right = s->total[s->p->bins] - s->total[stop - 1], sum_p = 0, sum_q = 0, sum = 0;
    while (first < last && s->filled[first] <= start)
        first++;
    while (last > first && s->filled[last - 1] >= stop)
        last--;
    for (int pass = 0; pass < 2; pass++) {
        double eps_p = 0, eps_q = 0;
        if (pass) {    /* now it is known how many bins p and q fill */
            if (n_p == 0 || n_q == 0)
                return INFINITY;
            eps_p = LITTLE * (double)(size - n_p) / (double)n_p, eps_q = LITTLE * (double)(size - n_q) / (double)n_q;
            if (eps_p >= 1 || eps_q >= 1)
                return INFINITY;
            sum_p += LITTLE * (double)(size - n_p) - eps_p * (double)n_p;
            sum_q += LITTLE * (double)(size - n_q) - eps_q * (double)n_q;
        }
        /* the first bin stands for what is cut off there, and is in no level; the last for both */
        int has_left = left > 0, has_right = right > 0, seen_last = 0;
        int64_t counted = 0;
        double both = 0;
        for (int64_t i = first; i < last || (i == first && first == last);) {
            int64_t level = 0, end = i, bin_end;
            double mass = 0;
            if (i < last) {
                level = (s->filled[i] - start) / width;
                level = level < levels - 1 ? level : levels - 1;
            } else {
                level = -1;
            }
            bin_end = level == levels - 1 ? stop : start + (level + 1) * width;
            for (; end < last && s->filled[end] < bin_end; end++)
                mass += s->hist[s->filled[end]];
            double mean = end > i ? mass / (double)(end - i) : 0;
            for (int64_t b = i; b < end; b++) {
                int is_last = s->filled[b] == stop - 1;
                double p = is_last ? right : s->hist[s->filled[b]];
                seen_last |= is_last;
                if (!pass)
                    n_p++, n_q++, sum_p += p, sum_q += mean;
                else
                    sum += term((p - eps_p) / sum_p, (mean - eps_q) / sum_q), both++;
            }
            if (has_left && level == 0 && end > i) {    /* its level has elements, so q has it too */
                counted = 1;
                if (!pass)
                    n_p++, n_q++, sum_p += left, sum_q += mean;
                else
                    sum += term((left - eps_p) / sum_p, (mean - eps_q) / sum_q), both++;
            }
            if (has_right && !seen_last && level == levels - 1 && end > i) {
                seen_last = 1;
                if (!pass)
                    n_p++, n_q++, sum_p += right, sum_q += mean;
                else
                    sum += term((right - eps_p) / sum_p, (mean - eps_q) / sum_q), both++;
            }
            if (end == i)
                break;
            i = end;
        }
        double alone = 0;    /* bins that p fills and q does not */
        if (has_left && !counted) {
            alone++;
            if (!pass)
                n_p++, sum_p += left;
            else
                sum += term((left - eps_p) / sum_p, LITTLE / sum_q);
        }
        if (has_right && !seen_last) {
            alone++;
            if (!pass)
                n_p++, sum_p += right;
            else
                sum += term((right - eps_p) / sum_p, LITTLE / sum_q);
        }
        if (pass)
            sum += ((double)size - both - alone) * term(LITTLE / sum_p, LITTLE / sum_q);
    }
    return sum;
}

static void some(void *arg, int64_t task)
{
    const search *s = arg;
    int64_t least = s->p->levels / 2, n = s->p->bins / 2 + 1 - least, end = (task + 1) * AT_ONCE;
    for (int64_t i = task * AT_ONCE; i < end && i < n; i++)
        s->divergence[i] = divergence(s, least + i);
}

/* bufs: counts, edges, threshold, divergence */
PLK_KERNEL(plk_entropy_run)
{
    const plk_entropy *p = params;
    const float *hist = bufs[0], *edges = bufs[1];
    int64_t n = p->bins / 2 + 1 - p->levels / 2, best = -1;
    double *total = pl_scratch(sizeof *total * (size_t)(p->bins + 1 + n) + sizeof(int64_t) * (size_t)p->bins);
    (void)scalars;
    if (!total)
        return pl_fail(PL_ENOMEM, "out of memory for the threshold of a histogram");
    int64_t *filled = (int64_t *)(total + p->bins + 1 + n);
    search s = {p, hist, total, filled, 0, total + p->bins + 1};
    total[0] = 0;
    for (int64_t i = 0; i < p->bins; i++) {
        total[i + 1] = total[i] + hist[i];
        if (hist[i] != 0)
            filled[s.n_filled++] = i;
    }
    pl_thread_pool_run(pl_threads(n * s.n_filled), (n + AT_ONCE - 1) / AT_ONCE, some, &s);
    for (int64_t i = 0; i < n; i++)
        if (s.divergence[i] < (best < 0 ? (double)INFINITY : s.divergence[best]))
            best = i;
    *(float *)bufs[2] = edges[best < 0 ? p->bins : p->bins / 2 + 1 + p->levels / 2 + best];
    *(float *)bufs[3] = best < 0 ? INFINITY : (float)s.divergence[best];
    return PL_OK;
}
