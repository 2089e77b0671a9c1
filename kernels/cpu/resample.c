/* Resampling of images. Positions between pixels are prepared in chunks: four pixels and weights for each position,
 * used for all channels. Positions that are NaN or outside the image have weights of 0. */
#include "resample.h"
#include "bytes.h"
#include "gemm.h"
#include "parts.h"
#include "simd.h"

#include <math.h>
#include <stdlib.h>

/* ---- repeated pixels ------------------------------------------------------------------------------------------- */

static void repeat_rows(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_upsample *p = call->params;
    int64_t wide = p->width * p->scale;
    for (int64_t r = begin; r < end; r++) {
        const float *x = (const float *)call->bufs[0] + r * p->width;
        float *y = (float *)call->bufs[1] + r * p->scale * wide;
        if (p->scale == 2)
            for (int64_t i = 0; i < p->width; i++)
                y[2 * i] = y[2 * i + 1] = x[i];
        else
            for (int64_t i = 0; i < p->width; i++)
                for (int64_t k = 0; k < p->scale; k++)
                    y[i * p->scale + k] = x[i];
        for (int64_t k = 1; k < p->scale; k++)
            plk_copy_bytes(y + k * wide, y, sizeof *y * (size_t)wide);
    }
}

static int upsample(const plk_upsample *p, void *const *bufs, plk_part part)
{
    int64_t rows = p->n_planes * p->height;
    plk_run_parts(rows * p->width * p->scale * p->scale / 4, rows, 1, part, &(plk_call){p, bufs, NULL});
    return PL_OK;
}

/* bufs: x (n_planes, height, width), y (n_planes, height * scale, width * scale) */
PLK_KERNEL(plk_upsample_run)
{
    (void)scalars;
    return upsample(params, bufs, repeat_rows);
}

static void add_rows(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_upsample *p = call->params;
    int64_t wide = p->width * p->scale;
    for (int64_t r = begin; r < end; r++) {
        float *dx = (float *)call->bufs[1] + r * p->width;
        for (int64_t i = 0; i < p->width; i++)
            dx[i] = 0;
        for (int64_t k = 0; k < p->scale; k++) {
            const float *dy = (const float *)call->bufs[0] + (r * p->scale + k) * wide;
            if (p->scale == 2)
                for (int64_t i = 0; i < p->width; i++)
                    dx[i] += dy[2 * i] + dy[2 * i + 1];
            else
                for (int64_t i = 0; i < p->width; i++)
                    for (int64_t j = 0; j < p->scale; j++)
                        dx[i] += dy[i * p->scale + j];
        }
    }
}

/* bufs: dy, dx */
PLK_KERNEL(plk_upsample_backward)
{
    (void)scalars;
    return upsample(params, bufs, add_rows);
}

/* ---- bilinear resizing ----------------------------------------------------------------------------------------- */

/* Along one axis: the lower input of an output, and the weight of the one after it. */
typedef struct { int32_t low; float high; } tap;

static void taps_set(tap *taps, int64_t n_in, int64_t n_out, int align)
{
    float step = n_out > 1 ? (float)(align ? (double)(n_in - 1) / (double)(n_out - 1) : (double)n_in / (double)n_out)
                           : 0;
    for (int64_t i = 0; i < n_out; i++) {
        float at = n_in == n_out || n_out == 1 ? (float)i : align ? (float)i * step : ((float)i + 0.5f) * step - 0.5f;
        at = at > 0 ? at : 0;
        int64_t low = (int64_t)at < n_in ? (int64_t)at : n_in - 1;
        taps[i] = (tap){(int32_t)low, n_in == n_out ? 0 : at - (float)low};
    }
}

/* Taps of rows, then of columns, then a row of width + 1 for each thread; NULL if out of memory; the caller frees
 * it. */
static tap *resize_plan(const plk_resample *p, int n_threads, float **rows)
{
    size_t n_taps = (size_t)(p->out[0] + p->out[1]), wide = (size_t)(p->in[1] + 1);
    tap *taps = malloc(sizeof *taps * n_taps + sizeof(float) * wide * (size_t)n_threads);
    if (taps) {
        taps_set(taps, p->in[0], p->out[0], p->align);
        taps_set(taps + p->out[0], p->in[1], p->out[1], p->align);
        *rows = (float *)(taps + n_taps);
    }
    return taps;
}

static void resize_plane(const plk_resample *p, const tap *taps, const float *x, float *y, float *row)
{
    int64_t width = p->in[1];
    const tap *columns = taps + p->out[0];
    for (int64_t i = 0; i < p->out[0]; i++, y += p->out[1]) {
        float high = taps[i].high, low = 1 - high;
        const float *a = x + taps[i].low * width, *b = taps[i].low + 1 < p->in[0] ? a + width : a;
        for (int64_t j = 0; j < width; j++)
            row[j] = low * a[j] + high * b[j];
        row[width] = row[width - 1];
        for (int64_t j = 0; j < p->out[1]; j++)
            y[j] = (1 - columns[j].high) * row[columns[j].low] + columns[j].high * row[columns[j].low + 1];
    }
}

static void resize_plane_back(const plk_resample *p, const tap *taps, const float *dy, float *dx, float *row)
{
    int64_t width = p->in[1];
    const tap *columns = taps + p->out[0];
    memset(dx, 0, sizeof *dx * (size_t)(p->in[0] * width));
    for (int64_t i = 0; i < p->out[0]; i++, dy += p->out[1]) {
        float high = taps[i].high, low = 1 - high;
        float *a = dx + taps[i].low * width, *b = taps[i].low + 1 < p->in[0] ? a + width : a;
        memset(row, 0, sizeof *row * (size_t)(width + 1));
        for (int64_t j = 0; j < p->out[1]; j++) {
            row[columns[j].low] += (1 - columns[j].high) * dy[j];
            row[columns[j].low + 1] += columns[j].high * dy[j];
        }
        row[width - 1] += row[width];
        for (int64_t j = 0; j < width; j++)
            a[j] += low * row[j];
        for (int64_t j = 0; j < width; j++)
            b[j] += high * row[j];
    }
}

/* rows: one for each thread of the pool */
typedef struct { const plk_resample *p; const tap *taps; const float *from; float *to, *rows; int back; } resize_job;

static void resize_planes(void *arg, int64_t begin, int64_t end)
{
    const resize_job *j = arg;
    const plk_resample *p = j->p;
    int64_t in = p->in[0] * p->in[1], out = p->out[0] * p->out[1];
    float *row = j->rows + pl_thread_pool_index() * (p->in[1] + 1);
    for (int64_t k = begin; k < end; k++)
        if (j->back)
            resize_plane_back(p, j->taps, j->from + k * out, j->to + k * in, row);
        else
            resize_plane(p, j->taps, j->from + k * in, j->to + k * out, row);
}

static int resize(const plk_resample *p, const float *from, float *to, int back)
{
    int64_t work = p->n_planes * (p->in[0] * p->in[1] + p->out[0] * p->out[1]);
    float *rows;
    tap *taps = resize_plan(p, pl_threads(work), &rows);
    if (!taps)
        return pl_fail(PL_ENOMEM, "out of memory for BilinearResize2D");
    plk_run_parts(work, p->n_planes, 1, resize_planes, &(resize_job){p, taps, from, to, rows, back});
    free(taps);
    return PL_OK;
}

/* bufs: x, like (if any), y */
PLK_KERNEL(plk_resample_run)
{
    const plk_resample *p = params;
    (void)scalars;
    return resize(p, bufs[0], bufs[p->like ? 2 : 1], 0);
}

/* bufs: dy, dx */
PLK_KERNEL(plk_resample_backward)
{
    (void)scalars;
    return resize(params, bufs[0], bufs[1], 1);
}

/* ---- positions between pixels ---------------------------------------------------------------------------------- */

enum { CHUNK = 512 };

/* The four pixels around each position of a chunk, their weights, and the derivatives of the weights. */
typedef struct {
    int32_t at[4][CHUNK];
    float weight[4][CHUNK], along_y[4][CHUNK], along_x[4][CHUNK];
} places;

static inline int64_t within(int64_t i, int64_t n) { return i < 0 ? 0 : i < n ? i : n - 1; }

/* clamp: positions outside the image are moved to its border; otherwise pixels outside have a weight of 0. */
static inline void place_set(places *c, int64_t i, float y, float x, int64_t height, int64_t width, int inside,
                             int clamp)
{
    inside = inside && y > -2 && y < (float)(height + 1) && x > -2 && x < (float)(width + 1);
    y = inside ? y : 0;
    x = inside ? x : 0;
    int free_y = 1, free_x = 1;
    if (clamp) {
        float last_y = (float)(height - 1), last_x = (float)(width - 1);
        free_y = y >= 0 && y < last_y;
        free_x = x >= 0 && x < last_x;
        y = y < 0 ? 0 : y > last_y ? last_y : y;
        x = x < 0 ? 0 : x > last_x ? last_x : x;
    }
    float top = floorf(y), left = floorf(x), fy = y - top, fx = x - left;
    int64_t row = (int64_t)top, column = (int64_t)left;
    for (int k = 0; k < 4; k++) {
        int64_t r = row + (k >> 1), q = column + (k & 1);
        int here = inside && r >= 0 && r < height && q >= 0 && q < width;
        float wy = k >> 1 ? fy : 1 - fy, wx = k & 1 ? fx : 1 - fx;
        c->at[k][i] = (int32_t)(within(r, height) * width + within(q, width));
        c->weight[k][i] = here ? wy * wx : 0;
        c->along_y[k][i] = here && free_y ? (k >> 1 ? wx : -wx) : 0;
        c->along_x[k][i] = here && free_x ? (k & 1 ? wy : -wy) : 0;
    }
}

static void gather(const places *c, const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = c->weight[0][i] * x[c->at[0][i]] + c->weight[1][i] * x[c->at[1][i]] +
               c->weight[2][i] * x[c->at[2][i]] + c->weight[3][i] * x[c->at[3][i]];
}

/* Adds dy to dx, and the gradients of the positions to dplace_y, dplace_x. */
static void scatter(const places *c, const float *x, const float *dy, float *dx, float *dplace_y, float *dplace_x,
                    int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float g = dy[i], sum_y = 0, sum_x = 0;
        for (int k = 0; k < 4; k++) {
            int32_t at = c->at[k][i];
            dx[at] += g * c->weight[k][i];
            sum_y += c->along_y[k][i] * x[at];
            sum_x += c->along_x[k][i] * x[at];
        }
        dplace_y[i] += g * sum_y;
        dplace_x[i] += g * sum_x;
    }
}

/* ---- BilinearSampler ------------------------------------------------------------------------------------------- */

static void sampler_places(const plk_sampler *p, places *c, const float *grid, int64_t begin, int64_t n)
{
    int64_t area = p->out[0] * p->out[1];
    float half_y = (float)(p->height - 1) / 2, half_x = (float)(p->width - 1) / 2;
    for (int64_t i = 0; i < n; i++) {
        float x = (grid[begin + i] + 1) * half_x, y = (grid[area + begin + i] + 1) * half_y;
        place_set(c, i, y, x, p->height, p->width, 1, 0);
    }
}

/* Each piece is a chunk of an image. */
static void sampler_piece(void *arg, int64_t k)
{
    const plk_call *call = arg;
    const plk_sampler *p = call->params;
    void *const *bufs = call->bufs;
    int64_t area = p->out[0] * p->out[1], space = p->height * p->width, chunks = (area + CHUNK - 1) / CHUNK;
    int64_t image = k / chunks, begin = k % chunks * CHUNK, n = area - begin < CHUNK ? area - begin : CHUNK;
    places c;
    sampler_places(p, &c, (const float *)bufs[1] + image * 2 * area, begin, n);
    for (int64_t ch = image * p->channels; ch < (image + 1) * p->channels; ch++)
        gather(&c, (const float *)bufs[0] + ch * space, (float *)bufs[2] + ch * area + begin, n);
}

/* bufs: x (n, channels, height, width), grid (n, 2, out), y (n, channels, out) */
PLK_KERNEL(plk_sampler_run)
{
    const plk_sampler *p = params;
    int64_t area = p->out[0] * p->out[1];
    int n_threads = pl_threads(p->n * area * (p->channels * 4 + 20));
    pl_thread_pool_run(n_threads, p->n * ((area + CHUNK - 1) / CHUNK), sampler_piece,
                       &(plk_call){params, bufs, scalars});
    return PL_OK;
}

static void sampler_back(void *arg, int64_t first_image, int64_t end_image)
{
    const plk_call *call = arg;
    const plk_sampler *p = call->params;
    void *const *bufs = call->bufs;
    int64_t area = p->out[0] * p->out[1], space = p->height * p->width;
    float half_y = (float)(p->height - 1) / 2, half_x = (float)(p->width - 1) / 2;
    for (int64_t image = first_image; image < end_image; image++) {
        const float *grid = (const float *)bufs[2] + image * 2 * area;
        float *dgrid = (float *)bufs[4] + image * 2 * area;
        for (int64_t begin = 0; begin < area; begin += CHUNK) {
            places c;
            int64_t n = area - begin < CHUNK ? area - begin : CHUNK;
            sampler_places(p, &c, grid, begin, n);
            for (int64_t ch = image * p->channels; ch < (image + 1) * p->channels; ch++)
                scatter(&c, (const float *)bufs[1] + ch * space, (const float *)bufs[0] + ch * area + begin,
                        (float *)bufs[3] + ch * space, dgrid + area + begin, dgrid + begin, n);
        }
        for (int64_t i = 0; i < area; i++) {
            dgrid[i] *= half_x;
            dgrid[area + i] *= half_y;
        }
    }
}

/* bufs: dy, x, grid, dx, dgrid */
PLK_KERNEL(plk_sampler_backward)
{
    const plk_sampler *p = params;
    int64_t area = p->out[0] * p->out[1];
    memset(bufs[3], 0, sizeof(float) * (size_t)(p->n * p->channels * p->height * p->width));
    memset(bufs[4], 0, sizeof(float) * (size_t)(p->n * 2 * area));
    plk_run_parts(p->n * area * (p->channels * 8 + 20), p->n, 1, sampler_back, &(plk_call){params, bufs, scalars});
    return PL_OK;
}

/* ---- columns at learnt positions ------------------------------------------------------------------------------- */

static int64_t taps_of(const plk_deformable *p) { return p->kernel[0] * p->kernel[1]; }
static int64_t windows_of(const plk_deformable *p) { return p->out[0] * p->out[1]; }

/* Positions [begin, begin + n) of one group's taps x windows; offset: (taps, 2, windows). */
static void deformable_places(const plk_deformable *p, places *c, const float *offset, int64_t begin, int64_t n)
{
    int64_t windows = windows_of(p);
    for (int64_t i = 0; i < n; i++) {
        int64_t t = (begin + i) / windows, w = (begin + i) % windows;
        const float *moved = offset + t * 2 * windows + w;
        int64_t row = t / p->kernel[1] * p->dilate[0] + w / p->out[1] * p->stride[0] - p->pad[0];
        int64_t column = t % p->kernel[1] * p->dilate[1] + w % p->out[1] * p->stride[1] - p->pad[1];
        float y = (float)row + moved[0], x = (float)column + moved[windows], low = p->modulated ? -1 : 0;
        int inside = y < (float)p->height && x < (float)p->width;
        inside = inside && (p->modulated ? y > low && x > low : y >= low && x >= low);
        place_set(c, i, y, x, p->height, p->width, inside, !p->modulated);
    }
}

/* One image. */
typedef struct { const plk_deformable *p; const float *x, *offset, *mask; float *columns; } column_job;

/* Each piece is a chunk of a group. */
static void column_piece(void *arg, int64_t k)
{
    const column_job *j = arg;
    const plk_deformable *p = j->p;
    int64_t points = taps_of(p) * windows_of(p), each = p->channels / p->groups, space = p->height * p->width;
    int64_t chunks = (points + CHUNK - 1) / CHUNK, group = k / chunks, begin = k % chunks * CHUNK;
    int64_t n = points - begin < CHUNK ? points - begin : CHUNK;
    places c;
    deformable_places(p, &c, j->offset + group * 2 * points, begin, n);
    if (p->modulated)
        for (int q = 0; q < 4; q++)
            for (int64_t i = 0; i < n; i++)
                c.weight[q][i] *= j->mask[group * points + begin + i];
    for (int64_t ch = group * each; ch < (group + 1) * each; ch++)
        gather(&c, j->x + ch * space, j->columns + ch * points + begin, n);
}

/* Columns of one image: (channels, taps, windows). */
static void deformable_columns(const plk_deformable *p, const float *x, const float *offset, const float *mask,
                               float *columns, int n_threads)
{
    column_job j = {p, x, offset, mask, columns};
    pl_thread_pool_run(n_threads, p->groups * ((taps_of(p) * windows_of(p) + CHUNK - 1) / CHUNK), column_piece, &j);
}

/* bufs: x, offset, mask (modulated), columns */
PLK_KERNEL(plk_deformable_columns_run)
{
    const plk_deformable *p = params;
    int64_t points = taps_of(p) * windows_of(p), space = p->height * p->width;
    int n_threads = pl_threads(points * p->channels * 4);
    (void)scalars;
    for (int64_t i = 0; i < p->n; i++)
        deformable_columns(p, (const float *)bufs[0] + i * p->channels * space,
                           (const float *)bufs[1] + i * p->groups * 2 * points,
                           p->modulated ? (const float *)bufs[2] + i * p->groups * points : NULL,
                           (float *)bufs[p->modulated ? 3 : 2] + i * p->channels * points, n_threads);
    return PL_OK;
}

/* One group of one image: x (each, space), dy (each, points); outputs are zero at first. */
static void columns_back(const plk_deformable *p, const float *x, const float *dy, const float *offset,
                         const float *mask, float *dx, float *doffset, float *dmask)
{
    int64_t windows = windows_of(p), points = taps_of(p) * windows, each = p->channels / p->groups;
    int64_t space = p->height * p->width;
    for (int64_t begin = 0; begin < points; begin += CHUNK) {
        places c;
        float through[CHUNK], read[CHUNK], sum_y[CHUNK] = {0}, sum_x[CHUNK] = {0};
        int64_t n = points - begin < CHUNK ? points - begin : CHUNK;
        deformable_places(p, &c, offset, begin, n);
        for (int64_t ch = 0; ch < each; ch++) {
            const float *g = dy + ch * points + begin;
            if (mask) {
                gather(&c, x + ch * space, read, n);
                for (int64_t i = 0; i < n; i++) {
                    dmask[begin + i] += g[i] * read[i];
                    through[i] = g[i] * mask[begin + i];
                }
                g = through;
            }
            scatter(&c, x + ch * space, g, dx + ch * space, sum_y, sum_x, n);
        }
        for (int64_t i = 0; i < n; i++) {
            float *to = doffset + (begin + i) / windows * 2 * windows + (begin + i) % windows;
            to[0] = sum_y[i];
            to[windows] = sum_x[i];
        }
    }
}

/* Groups [begin, end) of all images. */
static void groups_back(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_deformable *p = call->params;
    void *const *bufs = call->bufs;
    int64_t points = taps_of(p) * windows_of(p), each = p->channels / p->groups, space = p->height * p->width;
    int m = p->modulated != 0;
    for (int64_t k = begin; k < end; k++)
        columns_back(p, (const float *)bufs[1] + k * each * space, (const float *)bufs[0] + k * each * points,
                     (const float *)bufs[2] + k * 2 * points, m ? (const float *)bufs[3] + k * points : NULL,
                     (float *)bufs[3 + m] + k * each * space, (float *)bufs[4 + m] + k * 2 * points,
                     m ? (float *)bufs[6] + k * points : NULL);
}

/* bufs: dy (columns), x, offset, mask (modulated), dx, doffset, dmask (modulated) */
PLK_KERNEL(plk_deformable_columns_backward)
{
    const plk_deformable *p = params;
    int64_t points = taps_of(p) * windows_of(p), n_groups = p->n * p->groups;
    int m = p->modulated != 0;
    memset(bufs[3 + m], 0, sizeof(float) * (size_t)(p->n * p->channels * p->height * p->width));
    if (m)
        memset(bufs[6], 0, sizeof(float) * (size_t)(n_groups * points));
    plk_run_parts(p->n * points * p->channels * 8, n_groups, 1, groups_back, &(plk_call){params, bufs, scalars});
    return PL_OK;
}

/* bufs: x, offset, mask (modulated), weight (filters, channels / conv_groups, taps), bias (if any), y */
PLK_KERNEL(plk_deformable_run)
{
    const plk_deformable *p = params;
    int m = p->modulated != 0, status = PL_OK;
    int64_t points = taps_of(p) * windows_of(p), windows = windows_of(p), space = p->height * p->width;
    int64_t filters = p->filters / p->conv_groups, depth = p->channels / p->conv_groups * taps_of(p);
    const float *weight = bufs[2 + m], *bias = p->bias ? bufs[3 + m] : NULL;
    float *y = bufs[3 + m + (p->bias != 0)], *columns = malloc(sizeof *columns * (size_t)(p->channels * points + 1));
    int n_threads = pl_threads(points * p->channels * 4), matmul_threads = plk_gemm_threads(filters, windows, depth);
    (void)scalars;
    if (!columns)
        return pl_fail(PL_ENOMEM, "out of memory for a deformable convolution");
    for (int64_t i = 0; i < p->n && !status; i++) {
        deformable_columns(p, (const float *)bufs[0] + i * p->channels * space,
                           (const float *)bufs[1] + i * p->groups * 2 * points,
                           m ? (const float *)bufs[2] + i * p->groups * points : NULL, columns, n_threads);
        for (int64_t g = 0; g < p->conv_groups && !status; g++) {
            float *yg = y + (i * p->filters + g * filters) * windows;
            for (int64_t f = 0; f < filters; f++)
                for (int64_t j = 0; j < windows; j++)
                    yg[f * windows + j] = bias ? bias[g * filters + f] : 0;
            status = plk_sgemm(0, 0, filters, windows, depth, 1, weight + g * filters * depth, depth,
                               columns + g * depth * windows, windows, 1, yg, windows, matmul_threads);
        }
    }
    free(columns);
    return status;
}
