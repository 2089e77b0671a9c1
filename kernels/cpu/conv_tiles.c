/* Convolutions and their gradients as products of register tiles that read one operand from the images themselves.
 *
 *              rows of a tile           summed over             vectors
 *   forward    outputs (image, pixel)   channels and window     filters
 *   data       outputs (image, pixel)   filters                 channels; added to dx, for each place in the window
 *   weight     channels and window      outputs (image, pixel)  filters
 *
 * The operand of the rows needs no packing: it is read through tables of offsets into x with its padding. Serves few
 * channels and small images, where oneDNN's blocks of channels are mostly empty, and machines without oneDNN.
 */
#include <omp.h>
#include "simd.h"
#include "lanes.h"
#include "onednn.h"
#include "conv_tiles.h"

enum {
    PIXELS = 96,                          /* outputs of one strip: their results stay in the inner caches */
    DEPTH = 256,                          /* a panel of this many rows fits the L1 cache */
    ROWS_AT_ONCE = 48,                    /* of dw */
    CHUNK_BYTES = 4 << 20
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
static int64_t count(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

/* Vectors of channels are cut into panels of 2; the first one has 3, or 1, where their number is odd. */
typedef struct { int64_t vectors, first, n; } panels;

static panels panels_of(int64_t channels)
{
    int64_t vectors = count(channels, LANES), first = vectors % 2 == 0 ? 2 : least(3, vectors);
    return (panels){vectors, first, 1 + (vectors - first) / 2};
}

static int panel_width(const panels *p, int64_t i) { return (int)(i == 0 ? p->first : 2); }
static int64_t panel_start(const panels *p, int64_t i) { return i == 0 ? 0 : p->first + 2 * (i - 1); }
static int panel_rows(int v) { return v == 1 ? ROWS(1) : v == 2 ? ROWS(2) : ROWS(3); }

static void any_tile(int v, int64_t depth, const float *const *rows, int64_t step, const int32_t *offsets, const float *b,
                     float *const *to, int add)
{
    if (offsets) {
        if (v == 1)
            tile(1, depth, rows, 0, offsets, b, LANES, to, add);
        else if (v == 2)
            tile(2, depth, rows, 0, offsets, b, 2 * LANES, to, add);
        else
            tile(3, depth, rows, 0, offsets, b, 3 * LANES, to, add);
    } else if (v == 1)
        tile(1, depth, rows, step, NULL, b, LANES, to, add);
    else if (v == 2)
        tile(2, depth, rows, step, NULL, b, 2 * LANES, to, add);
    else
        tile(3, depth, rows, step, NULL, b, 3 * LANES, to, add);
}

/* x with its padding. */
typedef struct { int64_t height, width, plane, image, chunk; int copied; } padded;

static padded padded_of(const plk_conv_tiles *p)
{
    padded q = {p->size[0], p->size[1], 0, 0, 0, p->pad[0] || p->pad[1]};
    if (q.copied) {                       /* what windows reach, at least */
        q.height = (p->out[0] - 1) * p->stride[0] + (p->kernel[0] - 1) * p->dilate[0] + 1;
        q.width = (p->out[1] - 1) * p->stride[1] + (p->kernel[1] - 1) * p->dilate[1] + 1;
        q.height = q.height > p->size[0] + p->pad[0] ? q.height : p->size[0] + p->pad[0];
        q.width = q.width > p->size[1] + p->pad[1] ? q.width : p->size[1] + p->pad[1];
    }
    q.plane = q.height * q.width;
    q.image = q.plane * p->channels;
    return q;
}

static void pad_plane(const plk_conv_tiles *p, const padded *q, const float *from, float *to)
{
    memset(to, 0, (size_t)q->plane * sizeof *to);
    for (int64_t h = 0; h < p->size[0]; h++)
        memcpy(to + (h + p->pad[0]) * q->width + p->pad[1], from + h * p->size[1], (size_t)p->size[1] * sizeof *to);
}

/* Where output `o` of a chunk looks in it. */
static int32_t corner(const plk_conv_tiles *p, const padded *q, int64_t o)
{
    int64_t area = p->out[0] * p->out[1], i = o / area, row = o % area / p->out[1], column = o % p->out[1];
    return (int32_t)(i * q->image + row * p->stride[0] * q->width + column * p->stride[1]);
}

/* Offset in an image of place k of (channel, window). */
static int32_t place(const plk_conv_tiles *p, const padded *q, int64_t k)
{
    int64_t kw = k % p->kernel[1], kh = k / p->kernel[1] % p->kernel[0], c = k / (p->kernel[1] * p->kernel[0]);
    return (int32_t)(c * q->plane + kh * p->dilate[0] * q->width + kw * p->dilate[1]);
}

/* y[filter][pixel] <- strip[pixel][lanes] + bias, for `some` filters of one vector and n outputs from o on. */
static void store_strip(const plk_conv_tiles *p, const float *strip, int64_t row, int64_t n, int64_t some, const float *bias,
                        float *y, int64_t f, int64_t o)
{
    int64_t area = p->out[0] * p->out[1];
    vec shift = {0};
    if (bias)
        for (int64_t l = 0; l < some; l++)
            shift[l] = bias[f + l];
    for (int64_t i = 0, m; i < n; i += m) {
        int64_t image = (o + i) / area, at = (o + i) % area;
        m = least(n - i, area - at);
        from_lanes(strip + i * row, row, m, shift, y + (image * p->filters + f) * area + at, area, some);
    }
}

/* Where vector f of the channels lies in a packed operand of `depth` rows: panels one after the other. */
static float *packed_at(const panels *s, float *packed, int64_t depth, int64_t f, int64_t *step)
{
    int64_t j = f < s->first ? 0 : 1 + (f - s->first) / 2, start = panel_start(s, j);
    *step = panel_width(s, j) * LANES;
    return packed + start * LANES * depth + (f - start) * LANES;
}

static int64_t images_of(const plk_conv_tiles *p, int64_t image_floats)
{
    int64_t n_chunks = count(4 * image_floats * p->n, CHUNK_BYTES);
    return n_chunks > p->n ? 1 : count(p->n, n_chunks);
}

static int threads_of(const plk_conv_tiles *p)
{
    return pl_threads(p->n * p->filters * p->out[0] * p->out[1] * p->channels * p->kernel[0] * p->kernel[1] / 16);
}

static int no_memory(void) { return pl_fail(PL_ENOMEM, "out of memory for a convolution"); }

/* ---- forward ------------------------------------------------------------------------------------------------------ */

static int forward(const plk_conv_tiles *p, const float *x, const float *w, const float *bias, float *y)
{
    padded q = padded_of(p);
    panels s = panels_of(p->filters);
    int64_t depth = p->channels * p->kernel[0] * p->kernel[1], width = s.vectors * LANES, area = p->out[0] * p->out[1];
    int64_t chunk = images_of(p, q.image), strip_floats = PIXELS * width;
    int n_threads = threads_of(p);
    float *packed = pl_scratch(sizeof *packed * (size_t)(up(depth * width, 16) + up(depth, 16) +
                                                         (q.copied ? up(chunk * q.image, 16) : 0) + n_threads * strip_floats));
    if (!packed)
        return no_memory();
    int32_t *places = (int32_t *)(packed + up(depth * width, 16));
    float *room = (float *)places + up(depth, 16), *strips = room + (q.copied ? up(chunk * q.image, 16) : 0);
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
#pragma omp for nowait
    for (int64_t f = 0; f < s.vectors; f++) {
        int64_t step;
        float *to = packed_at(&s, packed, depth, f, &step);
        to_lanes(w + f * LANES * depth, depth, least(LANES, p->filters - f * LANES), depth, to, step);
    }
#pragma omp for
    for (int64_t k = 0; k < depth; k++)
        places[k] = place(p, &q, k);
    for (int64_t first = 0; first < p->n; first += chunk) {
        int64_t images = least(chunk, p->n - first), outputs = images * area;
        const float *from = x + first * p->channels * p->size[0] * p->size[1];
        float *strip = strips + omp_get_thread_num() * strip_floats;
        if (q.copied) {
#pragma omp for
            for (int64_t c = 0; c < images * p->channels; c++)
                pad_plane(p, &q, from + c * p->size[0] * p->size[1], room + c * q.plane);
            from = room;
        }
#pragma omp for schedule(dynamic)
        for (int64_t o = 0; o < outputs; o += PIXELS) {
            int64_t n = least(PIXELS, outputs - o);
            int32_t corners[PIXELS];
            for (int64_t i = 0; i < n; i++)
                corners[i] = corner(p, &q, o + i);
            for (int64_t k = 0; k < depth; k += DEPTH)
                for (int64_t j = 0; j < s.n; j++) {
                    int v = panel_width(&s, j), m = panel_rows(v);
                    int64_t start = panel_start(&s, j) * LANES;
                    for (int64_t i = 0; i < n; i += m) {
                        const float *rows[MAX_ROWS];
                        float *to[MAX_ROWS];
                        for (int r = 0; r < m; r++) {
                            int64_t row = least(i + r, n - 1);
                            rows[r] = from + corners[row];
                            to[r] = strip + row * width + start;
                        }
                        any_tile(v, least(DEPTH, depth - k), rows, 0, places + k, packed + start * depth + k * v * LANES,
                                 to, k > 0);
                    }
                }
            for (int64_t f = 0; f < p->filters; f += LANES)
                store_strip(p, strip + f, width, n, least(LANES, p->filters - f), bias, y, f, first * area + o);
        }
    }
    }
    return PL_OK;
}

/* ---- data gradient ------------------------------------------------------------------------------------------------ */

static int data_gradient(const plk_conv_tiles *p, const float *dy, const float *w, float *dx)
{
    padded q = padded_of(p);
    panels s = panels_of(p->channels);
    int64_t window = p->kernel[0] * p->kernel[1], area = p->out[0] * p->out[1], width = s.vectors * LANES;
    int64_t part = s.first * LANES > 2 * LANES ? 3 * LANES : 2 * LANES, sums_floats = q.plane * part;
    int64_t own = up(sums_floats, 16) + p->filters * PIXELS;
    int n_threads = threads_of(p);
    float *packed = pl_scratch(sizeof *packed * (size_t)(up(window * p->filters * width, 16) + n_threads * own));
    if (!packed)
        return no_memory();
    float *rooms = packed + up(window * p->filters * width, 16);
    int64_t plane = p->size[0] * p->size[1];
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
#pragma omp for
    for (int64_t f = 0; f < p->filters; f++)                      /* (place, panel, filter, lane) */
        for (int64_t c = 0; c < s.vectors; c++) {
            int64_t step;
            float *to = packed_at(&s, packed, p->filters, c, &step);
            to_lanes(w + (f * p->channels + c * LANES) * window, window, least(LANES, p->channels - c * LANES), window,
                     to + f * step, p->filters * width);
        }
#pragma omp for schedule(dynamic)
    for (int64_t item = 0; item < p->n * s.n; item++) {
        float *sums = rooms + omp_get_thread_num() * own, *strip = sums + up(sums_floats, 16);
        int64_t i = item / s.n, j = item % s.n, start = panel_start(&s, j) * LANES;
        int v = panel_width(&s, j), m = panel_rows(v);
        memset(sums, 0, (size_t)(q.plane * v * LANES) * sizeof *sums);
        for (int64_t o = 0; o < area; o += PIXELS) {
            int64_t n = least(PIXELS, area - o);
            int32_t corners[PIXELS];
            for (int64_t f = 0; f < p->filters; f++)
                memcpy(strip + f * PIXELS, dy + (i * p->filters + f) * area + o, (size_t)n * sizeof *strip);
            for (int64_t k = 0; k < n; k++)
                corners[k] = corner(p, &q, o + k);
            for (int64_t k = 0; k < window; k++) {
                float *at = sums + (int64_t)place(p, &q, k) * v * LANES;
                for (int64_t a = 0; a < n; a += m) {
                    const float *rows[MAX_ROWS];
                    float *to[MAX_ROWS];
                    for (int r = 0; r < m; r++) {
                        int64_t row = least(a + r, n - 1);
                        rows[r] = strip + row;
                        to[r] = at + (int64_t)corners[row] * v * LANES;
                    }
                    any_tile(v, p->filters, rows, PIXELS, NULL, packed + (k * width + start) * p->filters, to, 1);
                }
            }
        }
        for (int64_t c = 0; c < v * LANES && start + c < p->channels; c += LANES)
            for (int64_t h = 0; h < p->size[0]; h++)
                from_lanes(sums + ((h + p->pad[0]) * q.width + p->pad[1]) * v * LANES + c, v * LANES, p->size[1], (vec){0},
                           dx + (i * p->channels + start + c) * plane + h * p->size[1], plane,
                           least(LANES, p->channels - start - c));
    }
    }
    return PL_OK;
}

/* ---- weight gradient ---------------------------------------------------------------------------------------------- */

static int weight_gradient(const plk_conv_tiles *p, const float *dy, const float *x, float *dw)
{
    padded q = padded_of(p);
    panels s = panels_of(p->filters);
    int64_t depth = p->channels * p->kernel[0] * p->kernel[1], width = s.vectors * LANES, area = p->out[0] * p->out[1];
    int64_t chunk = images_of(p, (q.copied ? q.image : 0) + area * width), n_blocks = count(depth, ROWS_AT_ONCE);
    int n_threads = threads_of(p);
    int64_t sums_floats = up(depth * width, 16), image_floats = q.copied ? up(chunk * q.image, 16) : 0;
    float *sums = pl_scratch(sizeof *sums * (size_t)(sums_floats + image_floats + chunk * area * (width + 1)));
    if (!sums)
        return no_memory();
    float *room = sums + sums_floats, *lanes = room + image_floats;
    int32_t *corners = (int32_t *)(lanes + chunk * area * width);
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
    for (int64_t first = 0; first < p->n; first += chunk) {
        int64_t images = least(chunk, p->n - first), outputs = images * area;
        const float *from = x + first * p->channels * p->size[0] * p->size[1];
        if (q.copied) {
#pragma omp for nowait
            for (int64_t c = 0; c < images * p->channels; c++)
                pad_plane(p, &q, from + c * p->size[0] * p->size[1], room + c * q.plane);
            from = room;
        }
#pragma omp for nowait
        for (int64_t o = 0; o < outputs; o++)
            corners[o] = corner(p, &q, o);
#pragma omp for
        for (int64_t i = 0; i < images * s.vectors; i++) {        /* dy, turned: (panel, pixel, lane) */
            int64_t image = i / s.vectors, f = i % s.vectors, step;
            float *to = packed_at(&s, lanes, outputs, f, &step);
            to_lanes(dy + ((first + image) * p->filters + f * LANES) * area, area, least(LANES, p->filters - f * LANES), area,
                     to + image * area * step, step);
        }
#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < n_blocks * s.n; item++) {
            int64_t j = item / n_blocks, row = item % n_blocks * ROWS_AT_ONCE, end = least(row + ROWS_AT_ONCE, depth);
            int64_t start = panel_start(&s, j) * LANES;
            int v = panel_width(&s, j), m = panel_rows(v);
            for (int64_t o = 0; o < outputs; o += DEPTH)
                for (int64_t a = row; a < end; a += m) {
                    const float *rows[MAX_ROWS];
                    float *to[MAX_ROWS];
                    for (int r = 0; r < m; r++) {
                        rows[r] = from + place(p, &q, least(a + r, end - 1));
                        to[r] = sums + least(a + r, end - 1) * width + start;
                    }
                    any_tile(v, least(DEPTH, outputs - o), rows, 0, corners + o, lanes + start * outputs + o * v * LANES, to,
                             o > 0 || first > 0);
                }
        }
    }
#pragma omp for
    for (int64_t f = 0; f < p->filters; f += LANES)
        from_lanes(sums + f, width, depth, (vec){0}, dw + f * depth, depth, least(LANES, p->filters - f));
    }
    return PL_OK;
}

/* bufs: x, w, bias if any, y | dy, w, dx | dy, x, dw */
PLK_KERNEL(plk_conv_tiles_run)
{
    const plk_conv_tiles *p = params;
    int bias = p->kind == PLK_CONV_FORWARD && p->bias;
    (void)scalars;
    if (p->kind == PLK_CONV_WEIGHT)
        return weight_gradient(p, bufs[0], bufs[1], bufs[2]);
    if (p->kind == PLK_CONV_DATA)
        return data_gradient(p, bufs[0], bufs[1], bufs[2]);
    return forward(p, bufs[0], bufs[1], bias ? bufs[2] : NULL, bufs[2 + bias]);
}
