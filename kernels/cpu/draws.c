/* Distributions of which a number takes several words. Each number has a generator of its own, so that it does not
 * depend on the others, on threads or on the order in which they are drawn. */
#include "draws.h"
#include "bytes.h"
#include <math.h>
#include "engine/core/scratch.h"

typedef struct {
    double seed, call;
    uint64_t block;
    uint32_t words[4];
    int left;                                    /* of words, in pairs */
} generator;

static generator generator_of(double seed, double call, int64_t at)
{
    return (generator){.seed = seed, .call = call, .block = (uint64_t)at << 16};
}

/* In [0, 1). */
static double next_unit(generator *g)
{
    if (!g->left) {
        plk_draw_words(g->seed, g->call, g->block++, g->words);
        g->left = 2;
    }
    g->left--;
    return plk_draw_unit(g->words[2 * g->left], g->words[2 * g->left + 1]);
}

static double next_exponential(generator *g) { return -log1p(-next_unit(g)); }

/* Box and Muller. */
static double next_normal(generator *g)
{
    double r = sqrt(2 * next_exponential(g));
    return r * cos(6.283185307179586 * next_unit(g));
}

/* Marsaglia and Tsang 2000; below 1 by a number of alpha + 1. */
static double next_gamma(generator *g, double alpha)
{
    if (!(alpha > 0))
        return 0;
    double factor = alpha < 1 ? exp(-next_exponential(g) / alpha) : 1;
    double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = next_normal(g), v = 1 + c * x, u = 1 - next_unit(g);
        if (v <= 0)
            continue;
        v = v * v * v;
        if (u < 1 - 0.0331 * (x * x) * (x * x) || log(u) < 0.5 * x * x + d - d * v + d * log(v))
            return factor * d * v;
    }
}

/* log(k!) by Stirling's series. */
static double log_factorial(double k)
{
    static const double small[] = {0, 0, 0.69314718055994531, 1.791759469228055, 3.1780538303479458, 4.7874917427820458,
                                   6.5792512120101012, 8.5251613610654147, 10.604602902745251, 12.801827480081469};
    if (k < 10)
        return small[(int)k];
    double x = k + 1;
    return (x - 0.5) * log(x) - x + 0.91893853320467274 + (1.0 / 12 - (1.0 / 360 - 1 / (1260 * x * x)) / (x * x)) / x;
}

/* Small means: the inverse of the distribution function. Others: Hormann's transformed rejection (PTRS, 1993). */
static double next_poisson(generator *g, double mean)
{
    enum { FAR = 100 };                          /* no number of so small a mean is larger */
    if (!(mean > 0))
        return 0;
    if (mean < 10) {
        double u = next_unit(g), p = exp(-mean), k = 0;
        for (; u >= p && k < FAR; p *= mean / k)
            u -= p, k++;
        return k;
    }
    double b = 0.931 + 2.53 * sqrt(mean), a = -0.059 + 0.02483 * b, log_mean = log(mean);
    double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        double u = next_unit(g) - 0.5, v = 1 - next_unit(g), us = 0.5 - fabs(u);
        double k = floor((2 * a / us + b) * u + mean + 0.43);
        if (us >= 0.07 && v <= v_r)
            return k;
        if (k < 0 || (us < 0.013 && v > us))
            continue;
        if (log(v * inverse_alpha / (a / (us * us) + b)) <= k * log_mean - mean - log_factorial(k))
            return k;
    }
}

double plk_draw_normal(double seed, double call, int64_t at)
{
    generator g = generator_of(seed, call, at);
    return next_normal(&g);
}

double plk_draw_exponential(double seed, double call, int64_t at)
{
    generator g = generator_of(seed, call, at);
    return next_exponential(&g);
}

double plk_draw_gamma(double seed, double call, int64_t at, double alpha)
{
    generator g = generator_of(seed, call, at);
    return next_gamma(&g, alpha);
}

double plk_draw_poisson(double seed, double call, int64_t at, double mean)
{
    generator g = generator_of(seed, call, at);
    return next_poisson(&g, mean);
}

/* bufs: x, its rows in random order.  scalars: seed, call */
PLK_KERNEL(plk_shuffle_run)
{
    const plk_shuffle *p = params;
    int64_t *from = pl_scratch((size_t)(p->n + 1) * sizeof *from);
    size_t bytes = (size_t)p->row_bytes;
    if (!from)
        return pl_fail(PL_ENOMEM, "out of memory for shuffle");
    for (int64_t i = 0; i < p->n; i++) {         /* Fisher and Yates */
        int64_t j = (int64_t)(plk_draw_uniform(scalars[0], scalars[1], i) * (double)(i + 1));
        from[i] = from[j];
        from[j] = i;
    }
    for (int64_t i = 0; i < p->n; i++)
        plk_copy_bytes((char *)bufs[1] + (size_t)i * bytes, (const char *)bufs[0] + (size_t)from[i] * bytes, bytes);
    return PL_OK;
}

/* bufs: classes (batch, n), numbers of draws (batch), both int64.  scalars: seed, call */
PLK_KERNEL(plk_zipfian_run)
{
    const plk_zipfian *p = params;
    int64_t size = 2;                            /* of a hash table of classes + 1, at most half full */
    while (size < 2 * p->n + 2)
        size *= 2;
    int64_t *seen = pl_scratch((size_t)size * sizeof *seen), *found = bufs[0], *tries = bufs[1];
    double width = log((double)p->range + 1);
    if (!seen)
        return pl_fail(PL_ENOMEM, "out of memory for sample_unique_zipfian");
    for (int64_t row = 0; row < p->batch; row++) {
        generator g = generator_of(scalars[0], scalars[1], row << 24);    /* any number of words */
        memset(seen, 0, (size_t)size * sizeof *seen);
        tries[row] = 0;
        for (int64_t i = 0; i < p->n; tries[row]++) {
            double drawn = exp(next_unit(&g) * width) - 1;
            int64_t class = drawn < (double)(p->range - 1) ? (int64_t)drawn : p->range - 1;
            uint64_t at = (uint64_t)class * 0x9e3779b97f4a7c15u;
            for (at = (at >> 32) % (uint64_t)size; seen[at] && seen[at] != class + 1;)
                at = (at + 1) % (uint64_t)size;
            if (!seen[at]) {
                seen[at] = class + 1;
                found[row * p->n + i++] = class;
            }
        }
    }
    return PL_OK;
}
