/* Convolutions and their gradients on row-major images, as matrix products that read one operand from the images.
 *
 *              rows of a tile           summed over             vectors
 *   forward    outputs (image, pixel)   channels and window     filters
 *   data       outputs (image, pixel)   filters                 channels; added to dx, for each element of the window
 *   weight     channels and window      outputs (image, pixel)  filters
 *
 * The operand of the rows needs no packing: it is read through tables of offsets into the padded x. Used for few
 * channels and small images, where oneDNN's blocks of channels are mostly empty, and on machines without oneDNN.
 */
#include "conv_nchw.h"
#include "engine/core/scratch.h"
#include "lanes.h"
#include "onednn.h"
#include "parts.h"
#include "simd.h"

enum {
    PIXELS = 96,                          /* outputs of one strip, which stays in the L1 or L2 cache */
    DEPTH = 256,                          /* a panel of this many rows fits the L1 cache */
    ROWS_AT_ONCE = 48,                    /* of dw */
    CHUNK_BYTES = 4 << 20
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
static int64_t count(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

/* Vectors of channels are divided into panels of 2; the first one has 3 or 1 if their number is odd. */
typedef struct { int64_t vectors, first, n; } panels;

static panels panels_of(int64_t channels)
{
    int64_t vectors = count(channels, LANES), first = vectors % 2 == 0 ? 2 : least(3, vectors);
    return (panels){vectors, first, 1 + (vectors - first) / 2};
}

static int panel_width(const panels *p, int64_t i) { return (int)(i == 0 ? p->first : 2); }
static int64_t panel_start(const panels *p, int64_t i) { return i == 0 ? 0 : p->first + 2 * (i - 1); }
static int panel_rows(int v) { return v == 1 ? ROWS(1) : v == 2 ? ROWS(2) : ROWS(3); }

static void any_tile(int v, int64_t depth, const float *const *rows, int64_t step, const int32_t *offsets,
                     const float *b, float *const *to, int add)
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

static padded padded_of(const plk_conv_nchw *p)
{
    padded q = {p->size[0], p->size[1], 0, 0, 0, p->pad[0] || p->pad[1]};
    if (q.copied) {                       /* at least what windows cover */
        q.height = (p->out[0] - 1) * p->stride[0] + (p->kernel[0] - 1) * p->dilate[0] + 1;
        q.width = (p->out[1] - 1) * p->stride[1] + (p->kernel[1] - 1) * p->dilate[1] + 1;
        q.height = q.height > p->size[0] + p->pad[0] ? q.height : p->size[0] + p->pad[0];
        q.width = q.width > p->size[1] + p->pad[1] ? q.width : p->size[1] + p->pad[1];
    }
    q.plane = q.height * q.width;
    q.image = q.plane * p->channels;
    return q;
}

static void pad_plane(const plk_conv_nchw *p, const padded *q, const float *from, float *to)
{
    memset(to, 0, (size_t)q->plane * sizeof *to);
    for (int64_t h = 0; h < p->size[0]; h++)
        memcpy(to + (h + p->pad[0]) * q->width + p->pad[1], from + h * p->size[1], (size_t)p->size[1] * sizeof *to);
}

/* The offset of the window of output `o` of a chunk. */
static int32_t corner(const plk_conv_nchw *p, const padded *q, int64_t o)
{
    int64_t area = p->out[0] * p->out[1], i = o / area, row = o % area / p->out[1], column = o % p->out[1];
    return (int32_t)(i * q->image + row * p->stride[0] * q->width + column * p->stride[1]);
}

/* The offset in an image of element k of (channel, window). */
static int32_t place(const plk_conv_nchw *p, const padded *q, int64_t k)
{
    int64_t kw = k % p->kernel[1], kh = k / p->kernel[1] % p->kernel[0], c = k / (p->kernel[1] * p->kernel[0]);
    return (int32_t)(c * q->plane + kh * p->dilate[0] * q->width + kw * p->dilate[1]);
}

/* y[filter][pixel] <- strip[pixel][lanes] + bias, for `some` filters of one vector and n outputs from o on. */
static void store_strip(const plk_conv_nchw *p, const float *strip, int64_t row, int64_t n, int64_t some,
                        const float *bias, float *y, int64_t f, int64_t o)
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

/* The offset of vector f of the channels in a packed operand of `depth` rows: one panel after the other. */
static float *packed_at(const panels *s, float *packed, int64_t depth, int64_t f, int64_t *step)
{
    int64_t j = f < s->first ? 0 : 1 + (f - s->first) / 2, start = panel_start(s, j);
    *step = panel_width(s, j) * LANES;
    return packed + start * LANES * depth + (f - start) * LANES;
}

static int64_t images_of(const plk_conv_nchw *p, int64_t image_floats)
{
    int64_t n_chunks = count(4 * image_floats * p->n, CHUNK_BYTES);
    return n_chunks > p->n ? 1 : count(p->n, n_chunks);
}

static int threads_of(const plk_conv_nchw *p)
{
    return pl_threads(p->n * p->filters * p->out[0] * p->out[1] * p->channels * p->kernel[0] * p->kernel[1] / 16);
}

static int no_memory(void) { return pl_fail(PL_ENOMEM, "out of memory for a convolution"); }

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Shared by the pieces of one convolution; for one chunk of images at a time. */
typedef struct {
    const plk_conv_nchw *p;
    padded q;
    panels s;
    const float *x, *w, *bias, *dy, *from;       /* from: the images of the chunk */
    float *y, *packed, *padded, *own, *sums, *lanes;
    int32_t *places, *corners;
    int64_t depth, width, area, own_floats, sums_floats, first, images, outputs, n_blocks;
} pass;

static void pad_piece(void *arg, int64_t c)
{
    const pass *a = arg;
    const plk_conv_nchw *p = a->p;
    int64_t plane = p->size[0] * p->size[1];
    pad_plane(p, &a->q, a->x + (a->first * p->channels + c) * plane, a->padded + c * a->q.plane);
}

/* Pads the images from `first` on. */
static void chunk_begin(pass *a, int64_t first, int64_t chunk, int n_threads)
{
    const plk_conv_nchw *p = a->p;
    a->first = first;
    a->images = least(chunk, p->n - first);
    a->outputs = a->images * a->area;
    a->from = a->x + first * p->channels * p->size[0] * p->size[1];
    if (a->q.copied) {
        pl_thread_pool_run(n_threads, a->images * p->channels, pad_piece, a);
        a->from = a->padded;
    }
}

/* Packs a vector of filters; after the last one come the offsets. */
static void forward_prepare(void *arg, int64_t f)
{
    const pass *a = arg;
    if (f == a->s.vectors) {
        for (int64_t k = 0; k < a->depth; k++)
            a->places[k] = place(a->p, &a->q, k);
        return;
    }
    int64_t step;
    float *to = packed_at(&a->s, a->packed, a->depth, f, &step);
    to_lanes(a->w + f * LANES * a->depth, a->depth, least(LANES, a->p->filters - f * LANES), a->depth, to, step);
}

static void forward_piece(void *arg, int64_t piece)
{
    const pass *a = arg;
    const plk_conv_nchw *p = a->p;
    const panels *s = &a->s;
    float *strip = a->own + pl_thread_pool_index() * a->own_floats;
    int64_t o = piece * PIXELS, n = least(PIXELS, a->outputs - o);
    int32_t corners[PIXELS];
    for (int64_t i = 0; i < n; i++)
        corners[i] = corner(p, &a->q, o + i);
    for (int64_t k = 0; k < a->depth; k += DEPTH)
        for (int64_t j = 0; j < s->n; j++) {
            int v = panel_width(s, j), m = panel_rows(v);
            int64_t start = panel_start(s, j) * LANES;
            for (int64_t i = 0; i < n; i += m) {
                const float *rows[MAX_ROWS];
                float *to[MAX_ROWS];
                for (int r = 0; r < m; r++) {
                    int64_t row = least(i + r, n - 1);
                    rows[r] = a->from + corners[row];
                    to[r] = strip + row * a->width + start;
                }
                any_tile(v, least(DEPTH, a->depth - k), rows, 0, a->places + k,
                         a->packed + start * a->depth + k * v * LANES, to, k > 0);
            }
        }
    for (int64_t f = 0; f < p->filters; f += LANES)
        store_strip(p, strip + f, a->width, n, least(LANES, p->filters - f), a->bias, a->y, f, a->first * a->area + o);
}

static int forward(const plk_conv_nchw *p, const float *x, const float *w, const float *bias, float *y)
{
    pass a = {.p = p, .q = padded_of(p), .s = panels_of(p->filters), .x = x, .w = w, .bias = bias, .y = y};
    a.depth = p->channels * p->kernel[0] * p->kernel[1];
    a.width = a.s.vectors * LANES;
    a.area = p->out[0] * p->out[1];
    a.own_floats = PIXELS * a.width;
    int64_t chunk = images_of(p, a.q.image), image_floats = a.q.copied ? up(chunk * a.q.image, 16) : 0;
    int n_threads = threads_of(p);
    a.packed = pl_scratch(sizeof(float) * (size_t)(up(a.depth * a.width, 16) + up(a.depth, 16) + image_floats +
                                                   n_threads * a.own_floats));
    if (!a.packed)
        return no_memory();
    a.places = (int32_t *)(a.packed + up(a.depth * a.width, 16));
    a.padded = (float *)a.places + up(a.depth, 16);
    a.own = a.padded + image_floats;
    pl_thread_pool_run(n_threads, a.s.vectors + 1, forward_prepare, &a);
    for (int64_t first = 0; first < p->n; first += chunk) {
        chunk_begin(&a, first, chunk, n_threads);
        pl_thread_pool_run(n_threads, count(a.outputs, PIXELS), forward_piece, &a);
    }
    return PL_OK;
}

/* ---- data gradient ----------------------------------------------------------------------------------------------- */

static void data_prepare(void *arg, int64_t f)                    /* (place, panel, filter, lane) */
{
    const pass *a = arg;
    const plk_conv_nchw *p = a->p;
    int64_t window = p->kernel[0] * p->kernel[1];
    for (int64_t c = 0; c < a->s.vectors; c++) {
        int64_t step;
        float *to = packed_at(&a->s, a->packed, p->filters, c, &step);
        to_lanes(a->w + (f * p->channels + c * LANES) * window, window, least(LANES, p->channels - c * LANES), window,
                 to + f * step, p->filters * a->width);
    }
}

static void data_piece(void *arg, int64_t item)
{
    const pass *a = arg;
    const plk_conv_nchw *p = a->p;
    const panels *s = &a->s;
    float *sums = a->own + pl_thread_pool_index() * a->own_floats, *strip = sums + up(a->sums_floats, 16);
    int64_t i = item / s->n, j = item % s->n, start = panel_start(s, j) * LANES, plane = p->size[0] * p->size[1];
    int64_t window = p->kernel[0] * p->kernel[1];
    int v = panel_width(s, j), m = panel_rows(v);
    memset(sums, 0, (size_t)(a->q.plane * v * LANES) * sizeof *sums);
    for (int64_t o = 0; o < a->area; o += PIXELS) {
        int64_t n = least(PIXELS, a->area - o);
        int32_t corners[PIXELS];
        for (int64_t f = 0; f < p->filters; f++)
            memcpy(strip + f * PIXELS, a->dy + (i * p->filters + f) * a->area + o, (size_t)n * sizeof *strip);
        for (int64_t k = 0; k < n; k++)
            corners[k] = corner(p, &a->q, o + k);
        for (int64_t k = 0; k < window; k++) {
            float *at = sums + (int64_t)place(p, &a->q, k) * v * LANES;
            for (int64_t b = 0; b < n; b += m) {
                const float *rows[MAX_ROWS];
                float *to[MAX_ROWS];
                for (int r = 0; r < m; r++) {
                    int64_t row = least(b + r, n - 1);
                    rows[r] = strip + row;
                    to[r] = at + (int64_t)corners[row] * v * LANES;
                }
                any_tile(v, p->filters, rows, PIXELS, NULL, a->packed + (k * a->width + start) * p->filters, to, 1);
            }
        }
    }
    for (int64_t c = 0; c < v * LANES && start + c < p->channels; c += LANES)
        for (int64_t h = 0; h < p->size[0]; h++)
            from_lanes(sums + ((h + p->pad[0]) * a->q.width + p->pad[1]) * v * LANES + c, v * LANES, p->size[1],
                       (vec){0}, a->y + (i * p->channels + start + c) * plane + h * p->size[1], plane,
                       least(LANES, p->channels - start - c));
}

static int data_gradient(const plk_conv_nchw *p, const float *dy, const float *w, float *dx)
{
    pass a = {.p = p, .q = padded_of(p), .s = panels_of(p->channels), .dy = dy, .w = w, .y = dx};
    a.area = p->out[0] * p->out[1];
    a.width = a.s.vectors * LANES;
    a.sums_floats = a.q.plane * (a.s.first * LANES > 2 * LANES ? 3 * LANES : 2 * LANES);
    a.own_floats = up(a.sums_floats, 16) + p->filters * PIXELS;
    int n_threads = threads_of(p);
    int64_t packed_floats = up(p->kernel[0] * p->kernel[1] * p->filters * a.width, 16);
    a.packed = pl_scratch(sizeof(float) * (size_t)(packed_floats + n_threads * a.own_floats));
    if (!a.packed)
        return no_memory();
    a.own = a.packed + packed_floats;
    pl_thread_pool_run(n_threads, p->filters, data_prepare, &a);
    pl_thread_pool_run(n_threads, p->n * a.s.n, data_piece, &a);
    return PL_OK;
}

/* ---- weight gradient --------------------------------------------------------------------------------------------- */

static void weight_prepare(void *arg, int64_t i)                  /* dy transposed: (panel, pixel, lane) */
{
    const pass *a = arg;
    const plk_conv_nchw *p = a->p;
    int64_t image = i / a->s.vectors, f = i % a->s.vectors, step;
    float *to = packed_at(&a->s, a->lanes, a->outputs, f, &step);
    to_lanes(a->dy + ((a->first + image) * p->filters + f * LANES) * a->area, a->area,
             least(LANES, p->filters - f * LANES), a->area, to + image * a->area * step, step);
    for (int64_t o = image * a->area; f == 0 && o < (image + 1) * a->area; o++)
        a->corners[o] = corner(p, &a->q, o);
}

static void weight_piece(void *arg, int64_t item)
{
    const pass *a = arg;
    const plk_conv_nchw *p = a->p;
    int64_t j = item / a->n_blocks, row = item % a->n_blocks * ROWS_AT_ONCE, end = least(row + ROWS_AT_ONCE, a->depth);
    int64_t start = panel_start(&a->s, j) * LANES;
    int v = panel_width(&a->s, j), m = panel_rows(v);
    for (int64_t o = 0; o < a->outputs; o += DEPTH)
        for (int64_t b = row; b < end; b += m) {
            const float *rows[MAX_ROWS];
            float *to[MAX_ROWS];
            for (int r = 0; r < m; r++) {
                rows[r] = a->from + place(p, &a->q, least(b + r, end - 1));
                to[r] = a->sums + least(b + r, end - 1) * a->width + start;
            }
            any_tile(v, least(DEPTH, a->outputs - o), rows, 0, a->corners + o,
                     a->lanes + start * a->outputs + o * v * LANES, to, o > 0 || a->first > 0);
        }
}

static void weight_store(void *arg, int64_t vector)
{
    const pass *a = arg;
    int64_t f = vector * LANES;
    from_lanes(a->sums + f, a->width, a->depth, (vec){0}, a->y + f * a->depth, a->depth,
               least(LANES, a->p->filters - f));
}

static int weight_gradient(const plk_conv_nchw *p, const float *dy, const float *x, float *dw)
{
    pass a = {.p = p, .q = padded_of(p), .s = panels_of(p->filters), .x = x, .dy = dy, .y = dw};
    a.depth = p->channels * p->kernel[0] * p->kernel[1];
    a.width = a.s.vectors * LANES;
    a.area = p->out[0] * p->out[1];
    a.n_blocks = count(a.depth, ROWS_AT_ONCE);
    int64_t chunk = images_of(p, (a.q.copied ? a.q.image : 0) + a.area * a.width);
    int n_threads = threads_of(p);
    int64_t sums_floats = up(a.depth * a.width, 16), image_floats = a.q.copied ? up(chunk * a.q.image, 16) : 0;
    a.sums = pl_scratch(sizeof(float) * (size_t)(sums_floats + image_floats + chunk * a.area * (a.width + 1)));
    if (!a.sums)
        return no_memory();
    a.padded = a.sums + sums_floats;
    a.lanes = a.padded + image_floats;
    a.corners = (int32_t *)(a.lanes + chunk * a.area * a.width);
    for (int64_t first = 0; first < p->n; first += chunk) {
        chunk_begin(&a, first, chunk, n_threads);
        pl_thread_pool_run(n_threads, a.images * a.s.vectors, weight_prepare, &a);
        pl_thread_pool_run(n_threads, a.n_blocks * a.s.n, weight_piece, &a);
    }
    pl_thread_pool_run(n_threads, count(p->filters, LANES), weight_store, &a);
    return PL_OK;
}

/* bufs: x, w, bias if any, y | dy, w, dx | dy, x, dw */
PLK_KERNEL(plk_conv_nchw_run)
{
    const plk_conv_nchw *p = params;
    int bias = p->kind == PLK_CONV_FORWARD && p->bias;
    (void)scalars;
    if (p->kind == PLK_CONV_WEIGHT)
        return weight_gradient(p, bufs[0], bufs[1], bufs[2]);
    if (p->kind == PLK_CONV_DATA)
        return data_gradient(p, bufs[0], bufs[1], bufs[2]);
    return forward(p, bufs[0], bufs[1], bias ? bufs[2] : NULL, bufs[2 + bias]);
}
