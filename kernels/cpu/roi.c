/* Regions of interest. ROIAlign and PSROIPooling average separately along rows and columns: a few weights for every bin
 * of each axis, computed once for a region, serve all channels. Threads share the channels, so that gradients are added
 * in the order of the regions. Regions that are not finite, or of images that do not exist, give 0. */
#include "roi.h"
#include "parts.h"
#include "simd.h"

#include <math.h>
#include <stdlib.h>

/* Of one axis: bins x n weights, and the first and last pixel of each bin. */
typedef struct { float *weight; int64_t *low, *high, n, bins; } band;

static int64_t image_of(const plk_roi *p, const float *roi)
{ return roi[0] >= 0 && roi[0] < (float)p->n ? (int64_t)roi[0] : -1; }

static float rounded(float v) { return copysignf(floorf(fabsf(v) + 0.5f), v); }
/* v within [0, n]; floats above 2^24 need not hold n. */
static int64_t limited(float v, int64_t n)
{
    int64_t whole = !(v > 0) ? 0 : v < 0x1p62f ? (int64_t)v : n;
    return whole < n ? whole : n;
}

/* Rounded, also where one instruction could multiply and add: there a bin must not end at another pixel. */
static float times(int64_t i, float size) { return (float)((double)i * (double)size); }

/* Means of whole pixels. Returns 0 if the region is not finite. */
static int whole_set(const plk_roi *p, band *b, float low, float high)
{
    float start = rounded(low) * p->scale, extent = (rounded(high) + 1) * p->scale - start;
    float size = (extent > 0.1f || extent != extent ? extent : 0.1f) / (float)b->bins;
    if (!isfinite(start) || !isfinite(size))
        return 0;
    memset(b->weight, 0, sizeof *b->weight * (size_t)(b->bins * b->n));
    for (int64_t i = 0; i < b->bins; i++) {
        b->low[i] = limited(floorf(times(i, size) + start), b->n);
        b->high[i] = limited(ceilf(times(i + 1, size) + start), b->n) - 1;
        for (int64_t at = b->low[i]; at <= b->high[i]; at++)
            b->weight[i * b->n + at] = 1 / (float)(b->high[i] + 1 - b->low[i]);
    }
    return 1;
}

/* Returns 0 if the region is not finite. */
static int band_set(const plk_roi *p, band *b, float low, float high)
{
    if (p->whole)
        return whole_set(p, b, low, high);
    float start = low * p->scale - (p->aligned ? 0.5f : 0), extent = high * p->scale - (p->aligned ? 0.5f : 0) - start;
    if (!p->aligned && !(extent > 1))
        extent = extent == extent ? 1 : extent;
    if (!isfinite(start) || !isfinite(extent))
        return 0;
    float size = extent / (float)b->bins, asked = ceilf(size);
    int64_t samples = p->sampling;
    if (samples <= 0)
        samples = asked <= 0 ? 0 : asked > (float)p->most_samples ? p->most_samples : (int64_t)asked;
    memset(b->weight, 0, sizeof *b->weight * (size_t)(b->bins * b->n));
    for (int64_t i = 0; i < b->bins; i++) {
        float *weight = b->weight + i * b->n, share = samples ? 1 / (float)samples : 0;
        b->low[i] = b->n;
        b->high[i] = -1;
        for (int64_t k = 0; k < samples; k++) {
            float at = start + (float)i * size + ((float)k + 0.5f) * size / (float)samples;
            if (!(at >= -1 && at <= (float)b->n))
                continue;
            int64_t below = limited(at, b->n - 1), above = below + 1 < b->n ? below + 1 : below;
            float part = above > below && at > 0 ? at - (float)below : 0;
            weight[below] += (1 - part) * share;
            weight[above] += part * share;
            b->low[i] = below < b->low[i] ? below : b->low[i];
            b->high[i] = above > b->high[i] ? above : b->high[i];
        }
    }
    return 1;
}

typedef struct { band rows, columns; float *line; } plan;

static size_t plan_bytes(const plk_roi *p)
{
    int64_t bins = p->bins[0] + p->bins[1], floats = p->bins[0] * p->height + p->bins[1] * p->width + p->width;
    return ((size_t)bins * 16 + (size_t)floats * 4 + 63) / 64 * 64;
}

static plan plan_in(const plk_roi *p, char *scratch)
{
    int64_t *whole = (int64_t *)scratch, rows = p->bins[0], columns = p->bins[1];
    float *real = (float *)(whole + 2 * (rows + columns));
    return (plan){{real, whole, whole + rows, p->height, rows},
                  {real + rows * p->height, whole + 2 * rows, whole + 2 * rows + columns, p->width, columns},
                  real + rows * p->height + columns * p->width};
}

/* Sums over the pixels of one bin of one plane. */
static float bin_sum(const plan *l, const float *x, int64_t i, int64_t j)
{
    const float *across = l->columns.weight + j * l->columns.n;
    float sum = 0;
    for (int64_t r = l->rows.low[i]; r <= l->rows.high[i]; r++) {
        float line = 0;
        for (int64_t c = l->columns.low[j]; c <= l->columns.high[j]; c++)
            line += across[c] * x[r * l->columns.n + c];
        sum += l->rows.weight[i * l->rows.n + r] * line;
    }
    return sum;
}

static void bin_spread(const plan *l, float *dx, int64_t i, int64_t j, float dy)
{
    const float *across = l->columns.weight + j * l->columns.n;
    for (int64_t r = l->rows.low[i]; r <= l->rows.high[i]; r++) {
        float g = l->rows.weight[i * l->rows.n + r] * dy;
        for (int64_t c = l->columns.low[j]; c <= l->columns.high[j]; c++)
            dx[r * l->columns.n + c] += across[c] * g;
    }
}

/* The columns that any bin touches. */
static void reach(const band *b, int64_t *low, int64_t *high)
{
    *low = b->n;
    *high = -1;
    for (int64_t j = 0; j < b->bins; j++) {
        *low = b->low[j] < *low ? b->low[j] : *low;
        *high = b->high[j] > *high ? b->high[j] : *high;
    }
}

/* All bins of one plane: rows first, then columns. */
static void plane_sums(const plan *l, const float *x, float *y)
{
    int64_t low, high, width = l->columns.n;
    reach(&l->columns, &low, &high);
    for (int64_t i = 0; i < l->rows.bins; i++) {
        for (int64_t c = low; c <= high; c++)
            l->line[c] = 0;
        for (int64_t r = l->rows.low[i]; r <= l->rows.high[i]; r++) {
            float weight = l->rows.weight[i * l->rows.n + r];
            for (int64_t c = low; c <= high; c++)
                l->line[c] += weight * x[r * width + c];
        }
        for (int64_t j = 0; j < l->columns.bins; j++) {
            float sum = 0;
            for (int64_t c = l->columns.low[j]; c <= l->columns.high[j]; c++)
                sum += l->columns.weight[j * width + c] * l->line[c];
            y[i * l->columns.bins + j] = sum;
        }
    }
}

static void plane_spread(const plan *l, const float *dy, float *dx)
{
    int64_t low, high, width = l->columns.n;
    reach(&l->columns, &low, &high);
    for (int64_t i = 0; i < l->rows.bins; i++) {
        for (int64_t c = low; c <= high; c++)
            l->line[c] = 0;
        for (int64_t j = 0; j < l->columns.bins; j++)
            for (int64_t c = l->columns.low[j]; c <= l->columns.high[j]; c++)
                l->line[c] += l->columns.weight[j * width + c] * dy[i * l->columns.bins + j];
        for (int64_t r = l->rows.low[i]; r <= l->rows.high[i]; r++) {
            float weight = l->rows.weight[i * l->rows.n + r];
            for (int64_t c = low; c <= high; c++)
                dx[r * width + c] += weight * l->line[c];
        }
    }
}

/* Channels [begin, end) of the output, all regions. back: from `y` to `x`. */
static void align(const plk_roi *p, plan *l, const float *rois, float *x, float *y, int64_t begin, int64_t end,
                  int back)
{
    int64_t area = p->height * p->width, bins = p->bins[0] * p->bins[1];
    int64_t high = p->groups[0], wide = p->groups[1], out_channels = high ? p->channels / (high * wide) : p->channels;
    for (int64_t r = 0; r < p->n_rois; r++) {
        const float *roi = rois + r * 5;
        int64_t image = image_of(p, roi);
        int good = image >= 0 && band_set(p, &l->rows, roi[2], roi[4]) && band_set(p, &l->columns, roi[1], roi[3]);
        if (!good && back)
            continue;
        for (int64_t c = begin; c < end; c++) {
            float *yc = y + (r * out_channels + c) * bins;
            float *xc = x + (image * p->channels + (high ? c * high * wide : c)) * area;
            if (!good)
                memset(yc, 0, sizeof *yc * (size_t)bins);
            else if (!high && back)
                plane_spread(l, yc, xc);
            else if (!high)
                plane_sums(l, xc, yc);
            else
                for (int64_t k = 0; k < bins; k++) {
                    int64_t i = k / p->bins[1], j = k % p->bins[1];
                    float *plane = xc + (i * high / p->bins[0] * wide + j * wide / p->bins[1]) * area;
                    if (back)
                        bin_spread(l, plane, i, j, yc[k]);
                    else
                        yc[k] = bin_sum(l, plane, i, j);
                }
        }
    }
}

/* scratch: for the weights of each piece */
typedef struct {
    const plk_roi *p;
    const float *rois;
    float *x, *y;
    char *scratch;
    int64_t channels;
    int back, n_pieces;
} align_job;

static void align_piece(void *arg, int64_t piece)
{
    const align_job *j = arg;
    plan l = plan_in(j->p, j->scratch + plan_bytes(j->p) * (size_t)piece);
    int64_t begin, end;
    plk_share(j->channels, 1, (int)piece, j->n_pieces, &begin, &end);
    if (begin < end)
        align(j->p, &l, j->rois, j->x, j->y, begin, end, j->back);
}

static int align_all(const plk_roi *p, const float *rois, float *x, float *y, int back)
{
    int64_t bins = p->bins[0] * p->bins[1], groups = p->groups[0] * p->groups[1];
    int64_t channels = p->channels / (groups ? groups : 1);
    int n_threads = pl_threads(p->n_rois * channels * bins * 16);
    char *scratch = malloc(plan_bytes(p) * (size_t)n_threads);
    if (!scratch)
        return pl_fail(PL_ENOMEM, "out of memory for ROIAlign");
    if (back)
        memset(x, 0, sizeof *x * (size_t)(p->n * p->channels * p->height * p->width));
    /* few pieces: each computes the weights of all regions */
    align_job j = {p, rois, x, y, scratch, channels, back, n_threads};
    pl_thread_pool_run(n_threads, n_threads, align_piece, &j);
    free(scratch);
    return PL_OK;
}

/* bufs: x (n, channels, height, width), rois (n_rois, 5), y (n_rois, channels out, bins) */
PLK_KERNEL(plk_roi_align_run)
{
    (void)scalars;
    return align_all(params, bufs[1], bufs[0], bufs[2], 0);
}

/* bufs: dy, rois, dx */
PLK_KERNEL(plk_roi_align_backward)
{
    (void)scalars;
    return align_all(params, bufs[1], bufs[2], bufs[0], 1);
}

/* ---- RROIAlign ------------------------------------------------------------------------------------------------- */

/* A turned region: its centre, extents and direction, and the samples along the axes of a bin. */
typedef struct { float y, x, extent[2], cosine, sine; int64_t image, samples[2]; } turned;

/* Returns 0 if the region is not finite, or of no image. */
static int turned_set(const plk_roi *p, turned *t, const float *roi)
{
    float angle = roi[5] * (float)(3.141592653589793 / 180);
    *t = (turned){roi[2] * p->scale, roi[1] * p->scale, {roi[4] * p->scale, roi[3] * p->scale}, cosf(angle),
                  sinf(angle), image_of(p, roi), {p->sampling, p->sampling}};
    for (int k = 1; k < 6; k++)
        if (!isfinite(roi[k]))
            return 0;
    for (int axis = 0; axis < 2; axis++) {
        t->extent[axis] = t->extent[axis] > 1 ? t->extent[axis] : 1;
        float asked = ceilf(t->extent[axis] / (float)p->bins[axis]);
        if (p->sampling <= 0)
            t->samples[axis] = asked > (float)p->most_samples ? p->most_samples : (int64_t)asked;
    }
    return t->image >= 0;
}

/* Where sample (sy, sx) of bin (i, j) lies from the centre along one axis. */
static float turned_offset(const plk_roi *p, const turned *t, int axis, int64_t bin, int64_t k)
{
    double step = (double)bin + ((double)k + 0.5) / (double)t->samples[axis];
    return (float)(step / (double)p->bins[axis] - 0.5) * t->extent[axis];
}

/* The mean of a bin of one plane; back: *y spread on it. */
static void turned_bin(const plk_roi *p, const turned *t, int64_t i, int64_t j, float *plane, float *y, int back)
{
    float share = 1 / (float)(t->samples[0] * t->samples[1]), sum = 0, bottom = (float)(p->height - 1),
          right = (float)(p->width - 1);
    for (int64_t k = 0; k < t->samples[0] * t->samples[1]; k++) {
        float down = turned_offset(p, t, 0, i, k / t->samples[1]), along = turned_offset(p, t, 1, j, k % t->samples[1]);
        float row = t->y + down * t->cosine - along * t->sine, column = t->x + along * t->cosine + down * t->sine;
        if (!(row >= -1 && row <= bottom + 1 && column >= -1 && column <= right + 1))
            continue;
        int64_t top = limited(row, p->height - 1), left = limited(column, p->width - 1),
                below = top + 1 < p->height ? p->width : 0, beside = left + 1 < p->width;
        float *at = plane + top * p->width + left, fy = below && row > 0 ? row - (float)top : 0,
              fx = beside && column > 0 ? column - (float)left : 0;
        if (back) {
            float g = *y * share;
            at[0] += g * (1 - fy) * (1 - fx), at[beside] += g * (1 - fy) * fx;
            at[below] += g * fy * (1 - fx), at[below + beside] += g * fy * fx;
        } else {
            sum += (1 - fy) * ((1 - fx) * at[0] + fx * at[beside]);
            sum += fy * ((1 - fx) * at[below] + fx * at[below + beside]);
        }
    }
    if (!back)
        *y = sum * share;
}

/* Channels [begin, end): gradients are added in the order of the regions. */
typedef struct { const plk_roi *p; const float *rois; float *x, *y; int back; } turned_job;

static void turned_channels(void *arg, int64_t begin, int64_t end)
{
    const turned_job *job = arg;
    const plk_roi *p = job->p;
    int64_t area = p->height * p->width, bins = p->bins[0] * p->bins[1];
    for (int64_t r = 0; r < p->n_rois; r++) {
        turned t;
        int good = turned_set(p, &t, job->rois + r * 6);
        for (int64_t c = begin; c < end; c++)
            for (int64_t k = 0; k < bins; k++) {
                float *y = job->y + (r * p->channels + c) * bins + k;
                if (good)
                    turned_bin(p, &t, k / p->bins[1], k % p->bins[1], job->x + (t.image * p->channels + c) * area, y,
                               job->back);
                else if (!job->back)
                    *y = 0;
            }
    }
}

/* bufs: x, rois (n_rois, 6), y */
PLK_KERNEL(plk_roi_turned_run)
{
    const plk_roi *p = params;
    (void)scalars;
    plk_run_parts(p->n_rois * p->channels * p->bins[0] * p->bins[1] * 64, p->channels, 1, turned_channels,
                  &(turned_job){p, bufs[1], bufs[0], bufs[2], 0});
    return PL_OK;
}

/* bufs: dy, rois, dx */
PLK_KERNEL(plk_roi_turned_backward)
{
    const plk_roi *p = params;
    (void)scalars;
    memset(bufs[2], 0, sizeof(float) * (size_t)(p->n * p->channels * p->height * p->width));
    plk_run_parts(p->n_rois * p->channels * p->bins[0] * p->bins[1] * 64, p->channels, 1, turned_channels,
                  &(turned_job){p, bufs[1], bufs[2], bufs[0], 1});
    return PL_OK;
}

/* ---- ROIPooling ------------------------------------------------------------------------------------------------ */

/* First and last pixel (excluded) of every bin of an axis: `ends` (bins, 2). */
static void bins_set(int64_t *ends, float low, float high, float scale, int64_t bins, int64_t n)
{
    float start = rounded(low * scale), extent = rounded(high * scale) - start + 1;
    float size = (extent > 1 || extent != extent ? extent : 1) / (float)bins;
    for (int64_t i = 0; i < bins; i++) {
        ends[2 * i] = limited(floorf((float)i * size) + start, n);
        ends[2 * i + 1] = limited(ceilf((float)(i + 1) * size) + start, n);
    }
}

/* ends: of the bins of all regions */
typedef struct { const plk_roi *p; void *const *bufs; int64_t *ends; } pool_job;

static void pool_regions(void *arg, int64_t begin, int64_t end)
{
    const pool_job *job = arg;
    const plk_roi *p = job->p;
    void *const *bufs = job->bufs;
    int64_t area = p->height * p->width, bins = p->bins[0] * p->bins[1];
    for (int64_t r = begin; r < end; r++) {
        const float *roi = (const float *)bufs[1] + r * 5;
        int64_t image = image_of(p, roi), *rows = job->ends + r * 2 * (p->bins[0] + p->bins[1]),
                *columns = rows + 2 * p->bins[0];
        bins_set(rows, roi[2], roi[4], p->scale, p->bins[0], p->height);
        bins_set(columns, roi[1], roi[3], p->scale, p->bins[1], p->width);
        for (int64_t k = 0; k < p->channels * bins; k++) {
            int64_t c = k / bins, i = k % bins / p->bins[1], j = k % p->bins[1], best = -1;
            const float *x = (const float *)bufs[0] + (image * p->channels + c) * area;
            float top = 0;
            for (int64_t h = rows[2 * i]; image >= 0 && h < rows[2 * i + 1]; h++)
                for (int64_t w = columns[2 * j]; w < columns[2 * j + 1]; w++)
                    if (best < 0 || x[h * p->width + w] > top ||
                        (top != top && x[h * p->width + w] == x[h * p->width + w])) {
                        best = h * p->width + w;
                        top = x[best];
                    }
            ((float *)bufs[2])[r * p->channels * bins + k] = best < 0 ? 0 : top;
            ((int32_t *)bufs[3])[r * p->channels * bins + k] = (int32_t)best;
        }
    }
}

/* bufs: x, rois, y (n_rois, channels, bins), index int32 like y */
PLK_KERNEL(plk_roi_pool_run)
{
    const plk_roi *p = params;
    int64_t *all = malloc(sizeof *all * 2 * (size_t)(p->bins[0] + p->bins[1] + 1) * (size_t)(p->n_rois + 1));
    (void)scalars;
    if (!all)
        return pl_fail(PL_ENOMEM, "out of memory for ROIPooling");
    plk_run_parts(p->n_rois * p->channels * p->bins[0] * p->bins[1] * 16, p->n_rois, 1, pool_regions,
                  &(pool_job){p, bufs, all});
    free(all);
    return PL_OK;
}

/* bufs: dy, rois, index, dx */
PLK_KERNEL(plk_roi_pool_backward)
{
    const plk_roi *p = params;
    int64_t area = p->height * p->width, bins = p->bins[0] * p->bins[1];
    float *dx = bufs[3];
    (void)scalars;
    memset(dx, 0, sizeof *dx * (size_t)(p->n * p->channels * area));
    for (int64_t r = 0; r < p->n_rois; r++) {
        int64_t image = image_of(p, (const float *)bufs[1] + r * 5);
        for (int64_t k = 0; image >= 0 && k < p->channels * bins; k++) {
            int64_t from = r * p->channels * bins + k;
            int32_t at = ((const int32_t *)bufs[2])[from];
            if (at >= 0 && at < area)
                dx[(image * p->channels + k / bins) * area + at] += ((const float *)bufs[0])[from];
        }
    }
    return PL_OK;
}
