/* Batch normalisation in float32, with the sum and the activation that follow it, forward and backward.
 *
 * Statistics take one pass over memory: for each block in the L1 cache a mean and the sum of squared deviations, which
 * Chan's rule combines in double. Backward applies relu's mask and sums in one pass, and stores the masked dy in dx;
 * for other activations it recomputes their input.
 *
 * Compiled without contraction, so that recomputation and fused groups round (x - mean) * scale + shift alike.
 */
#pragma GCC optimize("fp-contract=off")
#include "batch_norm.h"
#include "lanes.h"
#include "parts.h"
#include "simd.h"
#include "vecmath.h"
#include "generated/activate.h"

enum { SUMS = 16, COLUMNS = 64, BLOCK = 2048, AHEAD = 2 };   /* AHEAD: vectors in flight */
/* Arrays of a loop are the same or do not overlap. */
#define ELEMENTWISE _Pragma("GCC ivdep")

/* ---- rows of a channel: n of `length` elements, `step` apart ----------------------------------------------------- */

typedef struct { double count, mean, square; } moments;

/* Adds rows of x that fit into the L1 cache to the moments. */
static void add_block(const float *x, int64_t n, int64_t length, int64_t step, moments *all)
{
    double acc[SUMS] = {0}, total = 0, around = 0, count = (double)(n * length);
    float part[SUMS] = {0};
    for (int64_t r = 0; r < n; r++) {
        const float *v = x + r * step;
        int64_t i = 0;
        for (; i + SUMS <= length; i += SUMS)
            PLK_LANES for (int l = 0; l < SUMS; l++)
                acc[l] += (double)v[i + l];
        for (; i < length; i++)
            total += (double)v[i];
    }
    for (int l = 0; l < SUMS; l++)
        total += acc[l];
    float centre = (float)(total / count);
    for (int64_t r = 0; r < n; r++) {
        const float *v = x + r * step;
        int64_t i = 0;
        for (; i + SUMS <= length; i += SUMS)
            PLK_LANES for (int l = 0; l < SUMS; l++) {
                float d = v[i + l] - centre;
                part[l] += d * d;
            }
        for (; i < length; i++)
            around += (double)((v[i] - centre) * (v[i] - centre));
    }
    for (int l = 0; l < SUMS; l++)
        around += (double)part[l];
    double away = total / count - all->mean, both = all->count + count;
    all->square += around + away * away * all->count * count / both;
    all->mean += away * count / both;
    all->count = both;
}

static moments channel_moments(const float *x, int64_t n, int64_t length, int64_t step)
{
    moments all = {0, 0, 0};
    int64_t n_rows = length < BLOCK ? BLOCK / length : 1;
    for (int64_t r = 0; r < n; r += n_rows)
        for (int64_t i = 0; i < length; i += BLOCK)
            add_block(x + r * step + i, n - r < n_rows ? n - r : n_rows, length - i < BLOCK ? length - i : BLOCK, step,
                      &all);
    return all;
}

/* y <- act((x - mean) * scale + shift [+ other]) */
PLK_INLINE void write_row(const plk_batch_norm *p, const float *x, const float *other, int64_t n, float mean,
                          float scale, float shift, float *y, const int add, const int act)
{
    const float low = p->low, high = p->high;
    ELEMENTWISE for (int64_t i = 0; i < n; i++)
        y[i] = plk_activated((x[i] - mean) * scale + shift + (add ? other[i] : 0), act, low, high);
}

static void write_activated(const plk_batch_norm *p, const float *x, int64_t n, float mean, float scale, float shift,
                            float *y)
{
#define WRITE(act) \
    case act: \
        write_row(p, x, NULL, n, mean, scale, shift, y, 0, act); \
        break;
    switch (p->act) { /* outside the loop, where it is a constant */
    PLK_EACH_NORM_ACT(WRITE)
    }
#undef WRITE
}

/* The gradient of relu, given its result; infinite and NaN gradients are multiplied by 0 or 1. */
PLK_INLINE float masked(float d, float y, const int relu)
{
    return relu ? d * (y > 0 ? 1.0f : 0.0f) : d;
}

typedef struct {
    const float *dy, *more, *y, *x, *gamma, *beta, *means, *rstds;
    float *dz, *dx, *dgamma, *dbeta;
} backward_bufs;

PLK_INLINE vec mask_vector(const backward_bufs *at, int64_t i, const int two, const int relu)
{
    vec d = vec_load(at->dy + i);
    if (two)
        d += vec_load(at->more + i);
    if (relu)
        d *= (vec)((lanes_mask)(vec_load(at->y + i) > 0) & (lanes_mask)vec_all(1));
    if (two || relu)
        vec_store(at->dz + i, d);
    return d;
}

/* dz <- mask(dy [+ more]) from element `first` on; the sums of dz and of dz * (x - mean) */
PLK_INLINE void mask_channel(const backward_bufs *at, int64_t first, int64_t n, int64_t length, int64_t step,
                             float mean, double *sum, double *along, const int two, const int relu)
{
    const vec centre = vec_all(mean);
    vec a[AHEAD] = {0}, b[AHEAD] = {0};
    double s = 0, t = 0;
    int64_t summed = 0;                     /* since the float sums were added to the double ones */
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = first + r * step, stop = i + length, end; i < stop; i = end) {
            end = stop - i < BLOCK ? stop : i + BLOCK;
            for (; i + AHEAD * LANES <= end; i += AHEAD * LANES)
                _Pragma("GCC unroll 4") for (int v = 0; v < AHEAD; v++) {
                    vec d = mask_vector(at, i + v * LANES, two, relu);
                    a[v] += d;
                    b[v] += d * (vec_load(at->x + i + v * LANES) - centre);
                }
            for (; i < end; i++) {
                float d = masked(at->dy[i] + (two ? at->more[i] : 0), at->y[i], relu);
                if (two || relu)
                    at->dz[i] = d;
                s += (double)d;
                t += (double)(d * (at->x[i] - mean));
            }
            summed += BLOCK < length ? BLOCK : length;
            if (summed < BLOCK && r + 1 < n)
                continue;
            summed = 0;
            for (int v = 0; v < AHEAD; v++)
                for (int l = 0; l < LANES; l++) {
                    s += (double)a[v][l];
                    t += (double)b[v][l];
                }
            for (int v = 0; v < AHEAD; v++)
                a[v] = b[v] = (vec){0};
        }
    *sum = s;
    *along = t;
}

/* ---- channels last: up to COLUMNS neighbouring channels --------------------------------------------------------- */

/* Sums over the rows of x, or of (x - mean)^2. */
static void column_sums(const plk_batch_norm *p, const float *x, const float *mean, int64_t first, int width,
                        double *sum)
{
    for (int j = 0; j < width; j++)
        sum[j] = 0;
    for (int64_t r = 0; r < p->n; r++) {
        const float *v = x + r * p->channels + first;
        if (mean)
            for (int j = 0; j < width; j++)
                sum[j] += (double)((v[j] - mean[j]) * (v[j] - mean[j]));
        else
            for (int j = 0; j < width; j++)
                sum[j] += (double)v[j];
    }
}

/* ---- forward ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const float *x, *gamma, *beta, *other;
    float *moving_mean, *moving_var, *y, *means, *rstds;
} forward_bufs;

static void finish_stats(const plk_batch_norm *p, const forward_bufs *at, int64_t c, double mean, double var)
{
    at->means[c] = (float)mean;
    at->rstds[c] = (float)(1 / sqrt(var + p->eps));
    at->moving_mean[c] = (float)((double)at->moving_mean[c] * p->momentum + mean * (1 - p->momentum));
    at->moving_var[c] = (float)((double)at->moving_var[c] * p->momentum + var * (1 - p->momentum));
}

/* mean and rstd of channels [first, first + width) into the outputs */
static void channel_stats(const plk_batch_norm *p, const forward_bufs *at, int64_t first, int width)
{
    const float *x = at->x;
    double count = (double)p->n * (double)p->space, sum[COLUMNS];
    float mean[COLUMNS];
    if (!p->batch_stats) {
        for (int64_t c = first; c < first + width; c++) {
            at->means[c] = at->moving_mean[c];
            at->rstds[c] = (float)(1 / sqrt((double)at->moving_var[c] + p->eps));
        }
    } else if (p->space == 1) {
        column_sums(p, x, NULL, first, width, sum);
        for (int j = 0; j < width; j++)
            mean[j] = (float)(sum[j] / count);
        column_sums(p, x, mean, first, width, sum);
        for (int j = 0; j < width; j++)
            finish_stats(p, at, first + j, (double)mean[j], sum[j] / count);
    } else {
        moments m = channel_moments(x + first * p->space, p->n, p->space, p->channels * p->space);
        finish_stats(p, at, first, m.mean, m.square / count);
    }
}

/* The channels of one piece: one, or COLUMNS if channels are last. */
static int unit_of(const plk_batch_norm *p) { return p->space == 1 ? COLUMNS : 1; }

static void run_units(const plk_batch_norm *p, pl_piece piece, void *job)
{
    int n_threads = pl_threads(p->n * p->channels * p->space * 2);
    pl_thread_pool_run(n_threads, (p->channels + unit_of(p) - 1) / unit_of(p), piece, job);
}

typedef struct { const plk_batch_norm *p; forward_bufs at; } forward_job;

PLK_INLINE void forward(const forward_job *job, int64_t piece, const int add, const int relu)
{
    const plk_batch_norm *p = job->p;
    const forward_bufs *at = &job->at;
    const int act = relu ? PLK_ACT_RELU : p->act;
    int64_t c = piece * unit_of(p);
    int width = (int)(p->channels - c < unit_of(p) ? p->channels - c : unit_of(p));
    float scale[COLUMNS];
    channel_stats(p, at, c, width);
    for (int j = 0; j < width; j++)
        scale[j] = at->rstds[c + j] * (p->fix_gamma ? 1 : at->gamma[c + j]);
    for (int64_t b = 0; b < p->n; b++) {
        int64_t i = (b * p->channels + c) * p->space;
        if (p->space > 1) {
            if (relu || act == PLK_ACT_NONE)
                write_row(p, at->x + i, at->other + i, p->space, at->means[c], scale[0], at->beta[c], at->y + i, add,
                          relu ? PLK_ACT_RELU : PLK_ACT_NONE);
            else
                write_activated(p, at->x + i, p->space, at->means[c], scale[0], at->beta[c], at->y + i);
            continue;
        }
        for (int j = 0; j < width; j++)
            at->y[i + j] = plk_activated((at->x[i + j] - at->means[c + j]) * scale[j] + at->beta[c + j]
                                         + (add ? at->other[i + j] : 0), act, p->low, p->high);
    }
}

static void forward_plain(void *job, int64_t piece) { forward(job, piece, 0, 0); }
static void forward_relu(void *job, int64_t piece) { forward(job, piece, 0, 1); }
static void forward_add(void *job, int64_t piece) { forward(job, piece, 1, 0); }
static void forward_add_relu(void *job, int64_t piece) { forward(job, piece, 1, 1); }

/* bufs: x, gamma, beta, moving_mean, moving_var, [other,] y, mean, rstd */
PLK_KERNEL(plk_batch_norm_run)
{
    const plk_batch_norm *p = params;
    forward_job job = {p, {bufs[0], bufs[1], bufs[2], bufs[5], bufs[3], bufs[4],
                           bufs[5 + p->add], bufs[6 + p->add], bufs[7 + p->add]}};
    int relu = p->act == PLK_ACT_RELU;
    (void)scalars;
    run_units(p, p->add ? p->act ? forward_add_relu : forward_add : relu ? forward_relu : forward_plain, &job);
    return PL_OK;
}

/* ---- backward --------------------------------------------------------------------------------------------------- */

/* dz <- (dy [+ more]) * derivative of the activation, in channel c; the sums of dz and of dz * (x - mean) */
PLK_INLINE void slope_row(const plk_batch_norm *p, const float *dy, const float *more, const float *x, int64_t n,
                          float mean, float scale, float shift, float *dz, const int act)
{
    const float low = p->low, high = p->high;
    if (more)
        ELEMENTWISE for (int64_t i = 0; i < n; i++)
            dz[i] = (dy[i] + more[i]) * plk_activation_slope((x[i] - mean) * scale + shift, act, low, high);
    else
        ELEMENTWISE for (int64_t i = 0; i < n; i++)
            dz[i] = dy[i] * plk_activation_slope((x[i] - mean) * scale + shift, act, low, high);
}

static void slope_channel(const plk_batch_norm *p, const backward_bufs *at, int64_t c, double *sum, double *along)
{
    const float mean = at->means[c], scale = at->rstds[c] * at->gamma[c], shift = at->beta[c];
    const float *x = at->x;
    float *dz = at->dz;
    for (int64_t r = 0; r < p->n; r++)
        for (int64_t i = (r * p->channels + c) * p->space, stop = i + p->space, end; i < stop; i = end) {
            float a[SUMS] = {0}, b[SUMS] = {0};
            int64_t k = i;
            end = stop - i < BLOCK ? stop : i + BLOCK;
#define SLOPE(act) \
    case act: \
        slope_row(p, at->dy + i, p->more ? at->more + i : NULL, x + i, end - i, mean, scale, shift, dz + i, act); \
        break;
            switch (p->act) {
            PLK_EACH_NORM_ACT(SLOPE)
            }
#undef SLOPE
            for (; k + SUMS <= end; k += SUMS)
                PLK_LANES for (int l = 0; l < SUMS; l++) {
                    a[l] += dz[k + l];
                    b[l] += dz[k + l] * (x[k + l] - mean);
                }
            for (; k < end; k++) {
                *sum += (double)dz[k];
                *along += (double)(dz[k] * (x[k] - mean));
            }
            for (int l = 0; l < SUMS; l++) {
                *sum += (double)a[l];
                *along += (double)b[l];
            }
        }
}

typedef struct { const plk_batch_norm *p; backward_bufs at; } backward_job;

PLK_INLINE void backward(const backward_job *job, int64_t piece, const int two, const int relu)
{
    const plk_batch_norm *p = job->p;
    const backward_bufs *at = &job->at;
    const int act = relu ? PLK_ACT_RELU : p->act, sloped = act > PLK_ACT_RELU;
    double count = (double)p->n * (double)p->space;
    const float *x = at->x, *means = at->means, *dz = two || act ? at->dz : at->dy;
    int64_t c = piece * unit_of(p);
    int width = (int)(p->channels - c < unit_of(p) ? p->channels - c : unit_of(p));
    double sum[COLUMNS] = {0}, along[COLUMNS] = {0};
    float f[COLUMNS], m[COLUMNS], a[COLUMNS];
    if (p->space > 1 && sloped)
        slope_channel(p, at, c, sum, along);
    else if (p->space > 1)
        mask_channel(at, c * p->space, p->n, p->space, p->channels * p->space, means[c], sum, along, two, relu);
    for (int64_t b = 0; b < p->n && p->space == 1; b++) {
        int64_t i = b * p->channels + c;
        for (int j = 0; j < width; j++) {
            float d = at->dy[i + j] + (two ? at->more[i + j] : 0);
            if (sloped)
                d *= plk_activation_slope((x[i + j] - means[c + j]) * (at->rstds[c + j] * at->gamma[c + j])
                                              + at->beta[c + j], act, p->low, p->high);
            else
                d = masked(d, at->y[i + j], relu);
            if (two || act)
                at->dz[i + j] = d;
            sum[j] += (double)d;
            along[j] += (double)(d * (x[i + j] - means[c + j]));
        }
    }
    for (int j = 0; j < width; j++) {
        double rstd = (double)at->rstds[c + j];
        at->dgamma[c + j] = (float)(along[j] * rstd);
        at->dbeta[c + j] = (float)sum[j];
        f[j] = at->gamma[c + j] * at->rstds[c + j];
        m[j] = (float)(sum[j] / count);
        a[j] = (float)(along[j] * rstd * rstd / count);
    }
    for (int64_t b = 0; b < p->n; b++) {
        int64_t first = (b * p->channels + c) * p->space, end = first + p->space;
        if (p->space > 1) {
            float mean = means[c], f0 = f[0], m0 = m[0], a0 = a[0];
            float *dx = at->dx;
            ELEMENTWISE for (int64_t i = first; i < end; i++)
                dx[i] = f0 * (dz[i] - m0 - (x[i] - mean) * a0);
            continue;
        }
        for (int j = 0; j < width; j++)
            at->dx[first + j] = f[j] * (dz[first + j] - m[j] - (x[first + j] - means[c + j]) * a[j]);
    }
}

static void backward_plain(void *job, int64_t piece) { backward(job, piece, 0, 0); }
static void backward_relu(void *job, int64_t piece) { backward(job, piece, 0, 1); }
static void backward_two(void *job, int64_t piece) { backward(job, piece, 1, 0); }
static void backward_two_relu(void *job, int64_t piece) { backward(job, piece, 1, 1); }

/* bufs: dy, x, gamma, mean, rstd, dx, dgamma, dbeta */
PLK_KERNEL(plk_batch_norm_backward)
{
    backward_job job = {params, {bufs[0], bufs[0], bufs[0], bufs[1], bufs[2], NULL, bufs[3], bufs[4],
                                 bufs[5], bufs[5], bufs[6], bufs[7]}};
    (void)scalars;
    run_units(params, backward_plain, &job);
    return PL_OK;
}

/* bufs: dy, y, x, gamma, mean, rstd, [more,] dx, dgamma, dbeta[, dz].  dx or dz may be dy. */
PLK_KERNEL(plk_batch_norm_relu_backward)
{
    const plk_batch_norm *p = params;
    void *const *out = bufs + 6 + p->more;
    backward_job job = {p, {bufs[0], bufs[p->more ? 6 : 0], bufs[1], bufs[2], bufs[3], NULL, bufs[4], bufs[5],
                            out[p->add ? 3 : 0], out[0], out[1], out[2]}};
    (void)scalars;
    run_units(p, p->more ? backward_two_relu : backward_relu, &job);
    return PL_OK;
}

/* bufs: dy, x, gamma, beta, mean, rstd, [more,] dx, dgamma, dbeta.  dx may be dy. */
PLK_KERNEL(plk_batch_norm_act_backward)
{
    const plk_batch_norm *p = params;
    void *const *out = bufs + 6 + p->more;
    backward_job job = {p, {bufs[0], bufs[p->more ? 6 : 0], bufs[0], bufs[1], bufs[2], bufs[3], bufs[4], bufs[5],
                            out[0], out[0], out[1], out[2]}};
    (void)scalars;
    run_units(p, p->more ? backward_two : backward_plain, &job);
    return PL_OK;
}
