/* Convolutions and their gradients on row-major arrays of any layout, as matrix products that read one operand from the
 * images.
 *
 *              rows of a tile           summed over             vectors
 *   forward    outputs (image, pixel)   channels and window     filters
 *   data       outputs (image, pixel)   filters                 channels; added to dx, for each element of the window
 *   weight     channels and window      outputs (image, pixel)  filters
 *
 * The operand of the rows needs no packing: it is read through tables of offsets into x, or into a copy of x with its
 * padding. The offsets also hide where channels lie and how many dimensions there are. conv_group.c serves groups whose
 * filters fill less than half a vector.
 */
#include "conv.h"
#include "bytes.h"
#include "engine/core/scratch.h"
#include "lanes.h"
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

/* x with its padding: sizes and steps of its dimensions, of channels and of images. */
typedef struct { int64_t size[3], step[3], channel, image; int copied; } padded;

static padded padded_of(const plk_conv *p, int64_t channels, int channels_last)
{
    padded q = {.copied = p->pad[0] || p->pad[1] || p->pad[2]};
    int64_t step = channels_last ? channels : 1;
    for (int d = 2; d >= 0; d--) {
        q.size[d] = p->size[d];
        if (q.copied) {                   /* at least what windows cover */
            int64_t covered = (p->out[d] - 1) * p->stride[d] + (p->kernel[d] - 1) * p->dilate[d] + 1;
            q.size[d] = covered > p->size[d] + p->pad[d] ? covered : p->size[d] + p->pad[d];
        }
        q.step[d] = step;
        step *= q.size[d];
    }
    q.channel = channels_last ? 1 : step;
    q.image = plk_volume(q.size) * channels;
    return q;
}

/* The offset of the window of output `o` of a chunk. */
static int32_t corner(const plk_conv *p, const padded *q, int64_t o)
{
    int64_t w = o % p->out[2], h = o / p->out[2] % p->out[1], d = o / (p->out[2] * p->out[1]) % p->out[0];
    int64_t image = o / plk_volume(p->out);
    return (int32_t)(image * q->image + d * p->stride[0] * q->step[0] + h * p->stride[1] * q->step[1] +
                     w * p->stride[2] * q->step[2]);
}

/* The offset of element i of the window. */
static int64_t tap(const plk_conv *p, const padded *q, int64_t i)
{
    int64_t w = i % p->kernel[2], h = i / p->kernel[2] % p->kernel[1], d = i / (p->kernel[2] * p->kernel[1]);
    return d * p->dilate[0] * q->step[0] + h * p->dilate[1] * q->step[1] + w * p->dilate[2] * q->step[2];
}

/* The offset of the vector of filters f in a packed operand of `depth` rows: one panel after the other. */
static float *packed_at(const panels *s, float *packed, int64_t depth, int64_t f, int64_t *step)
{
    int64_t j = f < s->first ? 0 : 1 + (f - s->first) / 2, start = panel_start(s, j);
    *step = panel_width(s, j) * LANES;
    return packed + start * LANES * depth + (f - start) * LANES;
}

/* Shared by the pieces of one convolution; for one chunk of images at a time. inputs, filters: of one group. */
typedef struct {
    const plk_conv *p;
    plk_conv_bufs b;
    padded q;
    panels s;
    const float *from;                           /* the images of the chunk */
    float *y, *packed, *padded, *own, *sums, *lanes;
    int32_t *places, *corners;
    int64_t inputs, filters, window, depth, width, area, own_floats, sums_floats, first, images, outputs, n_blocks;
    int n_threads;
} pass;

static pass pass_of(const plk_conv *p, int64_t vectors_of)
{
    pass a = {.p = p, .inputs = p->channels / p->groups, .filters = p->filters / p->groups};
    a.s = panels_of(vectors_of / p->groups);
    a.width = a.s.vectors * LANES;
    a.window = plk_volume(p->kernel);
    a.depth = a.inputs * a.window;
    a.area = plk_volume(p->out);
    a.n_threads = pl_threads(p->n * p->filters * a.area * a.depth / 16);
    return a;
}

/* The offset in an image of element k of (channel, window), the order of w. */
static int32_t place(const pass *a, int64_t k)
{
    int64_t c = a->p->w_last ? k % a->inputs : k / a->window, i = a->p->w_last ? k / a->inputs : k % a->window;
    return (int32_t)(c * a->q.channel + tap(a->p, &a->q, i));
}

static int64_t images_of(const plk_conv *p, int64_t image_floats)
{
    int64_t n_chunks = count(4 * image_floats * p->n, CHUNK_BYTES);
    return n_chunks > p->n ? 1 : count(p->n, n_chunks);
}

static int no_memory(void) { return pl_fail(PL_ENOMEM, "out of memory for a convolution"); }

/* One plane of channels, or one image with its channels last. */
static void pad_piece(void *arg, int64_t i)
{
    const pass *a = arg;
    const plk_conv *p = a->p;
    int64_t inner = p->channels_last ? p->channels : 1, row = p->size[2] * inner, volume = plk_volume(p->size) * inner;
    int64_t q_volume = plk_volume(a->q.size) * inner;
    int64_t images = p->channels_last ? a->first : a->first * p->channels;
    const float *from = (p->kind == PLK_CONV_WEIGHT ? a->b.w : a->b.x) + (images + i) * volume;
    float *to = a->padded + i * q_volume;
    memset(to, 0, (size_t)q_volume * sizeof *to);
    for (int64_t d = 0; d < p->size[0]; d++)
        for (int64_t h = 0; h < p->size[1]; h++, from += row)
            plk_copy_bytes(
                to + ((((d + p->pad[0]) * a->q.size[1]) + h + p->pad[1]) * a->q.size[2] + p->pad[2]) * inner, from,
                (size_t)row * sizeof *to);
}

/* Pads the images from `first` on. */
static void chunk_begin(pass *a, int64_t first, int64_t chunk)
{
    const plk_conv *p = a->p;
    a->first = first;
    a->images = least(chunk, p->n - first);
    a->outputs = a->images * a->area;
    a->from = (p->kind == PLK_CONV_WEIGHT ? a->b.w : a->b.x) + first * p->channels * plk_volume(p->size);
    if (a->q.copied) {
        pl_thread_pool_run(a->n_threads, a->images * (p->channels_last ? 1 : p->channels), pad_piece, a);
        a->from = a->padded;
    }
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Packs a vector of filters of a group; after the last one come the offsets. */
static void forward_prepare(void *arg, int64_t i)
{
    const pass *a = arg;
    int64_t g = i / a->s.vectors, f = i % a->s.vectors, step;
    if (g == a->p->groups) {
        for (int64_t k = 0; k < a->depth; k++)
            a->places[k] = place(a, k);
        return;
    }
    float *to = packed_at(&a->s, a->packed + g * a->depth * a->width, a->depth, f, &step);
    to_lanes(a->b.w + (g * a->filters + f * LANES) * a->depth, a->depth, least(LANES, a->filters - f * LANES), a->depth,
             to, step);
}

/* Stores n outputs from `o` on of `some` filters from f on: strip[pixel][filter] + bias, the addend, act(). */
static void store_strip(const pass *a, const float *strip, int64_t n, int64_t some, int64_t f, int64_t o)
{
    const plk_conv *p = a->p;
    const float *addend = a->b.addend;
    vec shift = {0};
    for (int64_t l = 0; a->b.bias && l < some; l++)
        shift[l] = a->b.bias[f + l];
    if (p->channels_last) {
        for (int64_t i = 0; i < n; i++) {
            vec v = vec_load(strip + i * a->width) + shift;
            int64_t at = (o + i) * p->filters + f;
            for (int64_t l = 0; addend && l < some; l++)
                v[l] += addend[at + l];
            if (some == LANES)
                vec_store(a->b.y + at, v);
            else
                memcpy(a->b.y + at, &v, (size_t)some * sizeof(float));
            plk_apply(&p->act, some, a->b.y + at);
        }
        return;
    }
    for (int64_t i = 0, m; i < n; i += m) {
        int64_t image = (o + i) / a->area, from = (o + i) % a->area, at = (image * p->filters + f) * a->area + from;
        float planes[LANES * PIXELS], *y = a->b.y + at;
        m = least(n - i, a->area - from);
        if (!addend && !p->act.loop) {
            from_lanes(strip + i * a->width, a->width, m, shift, y, a->area, some);
            continue;
        }
        from_lanes(strip + i * a->width, a->width, m, shift, planes, PIXELS, some);
        for (int64_t l = 0; l < some; l++, y += a->area, at += a->area) {
            for (int64_t k = 0; k < m; k++)
                y[k] = planes[l * PIXELS + k] + (addend ? addend[at + k] : 0);
            plk_apply(&p->act, m, y);
        }
    }
}

static void forward_piece(void *arg, int64_t piece)
{
    const pass *a = arg;
    const plk_conv *p = a->p;
    const panels *s = &a->s;
    float *strip = a->own + pl_thread_pool_index() * a->own_floats;
    int64_t g = piece / a->n_blocks, o = piece % a->n_blocks * PIXELS, n = least(PIXELS, a->outputs - o);
    const float *packed = a->packed + g * a->depth * a->width, *from = a->from + g * a->inputs * a->q.channel;
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
                    rows[r] = from + corners[row];
                    to[r] = strip + row * a->width + start;
                }
                any_tile(v, least(DEPTH, a->depth - k), rows, 0, a->places + k,
                         packed + start * a->depth + k * v * LANES, to, k > 0);
            }
        }
    for (int64_t f = 0; f < a->filters; f += LANES)
        store_strip(a, strip + f, n, least(LANES, a->filters - f), g * a->filters + f, a->first * a->area + o);
}

static int forward(const plk_conv *p, void *const *bufs)
{
    pass a = pass_of(p, p->filters);
    a.b = plk_conv_bufs_of(p, bufs);
    a.q = padded_of(p, p->channels, p->channels_last);
    a.own_floats = PIXELS * a.width;
    int64_t chunk = images_of(p, a.q.image), image_floats = a.q.copied ? up(chunk * a.q.image, 16) : 0;
    int64_t packed = up(p->groups * a.depth * a.width, 16), places = up(a.depth, 16);
    a.packed = pl_scratch(sizeof(float) * (size_t)(packed + places + image_floats + a.n_threads * a.own_floats));
    if (!a.packed)
        return no_memory();
    a.places = (int32_t *)(a.packed + packed);
    a.padded = (float *)a.places + places;
    a.own = a.padded + image_floats;
    pl_thread_pool_run(a.n_threads, p->groups * a.s.vectors + 1, forward_prepare, &a);
    for (int64_t first = 0; first < p->n; first += chunk) {
        chunk_begin(&a, first, chunk);
        a.n_blocks = count(a.outputs, PIXELS);
        pl_thread_pool_run(a.n_threads, p->groups * a.n_blocks, forward_piece, &a);
    }
    return PL_OK;
}

/* ---- data gradient ----------------------------------------------------------------------------------------------- */

static void data_prepare(void *arg, int64_t i)                    /* of each group: (place, panel, filter, lane) */
{
    const pass *a = arg;
    int64_t g = i / a->filters, f = i % a->filters, place_step = a->filters * a->width;
    const float *w = a->b.w + i * a->depth;
    for (int64_t c = 0; c < a->s.vectors; c++) {
        int64_t step, some = least(LANES, a->inputs - c * LANES);
        float *to = packed_at(&a->s, a->packed + g * a->window * place_step, a->filters, c, &step) + f * step;
        if (a->p->w_last)
            for (int64_t k = 0; k < a->window; k++)
                for (int64_t l = 0; l < LANES; l++)
                    to[k * place_step + l] = l < some ? w[k * a->inputs + c * LANES + l] : 0;
        else
            to_lanes(w + c * LANES * a->window, a->window, some, a->window, to, place_step);
    }
}

static void data_piece(void *arg, int64_t item)
{
    const pass *a = arg;
    const plk_conv *p = a->p;
    const panels *s = &a->s;
    float *sums = a->own + pl_thread_pool_index() * a->own_floats, *strip = sums + up(a->sums_floats, 16);
    int64_t i = item / (s->n * p->groups), g = item / s->n % p->groups, j = item % s->n;
    int64_t start = panel_start(s, j) * LANES, volume = plk_volume(p->size), place_step = a->filters * a->width;
    const float *packed = a->packed + g * a->window * place_step + start * a->filters;
    int v = panel_width(s, j), m = panel_rows(v);
    memset(sums, 0, (size_t)(a->q.image * v * LANES) * sizeof *sums);
    for (int64_t o = 0; o < a->area; o += PIXELS) {
        int64_t n = least(PIXELS, a->area - o);
        int32_t corners[PIXELS];
        const float *dy = a->b.x + (i * p->filters + g * a->filters) * a->area + o;
        if (p->channels_last)
            dy = a->b.x + (i * a->area + o) * p->filters + g * a->filters;
        else
            for (int64_t f = 0; f < a->filters; f++)
                memcpy(strip + f * PIXELS, dy + f * a->area, (size_t)n * sizeof *strip);
        for (int64_t k = 0; k < n; k++)
            corners[k] = corner(p, &a->q, o + k);
        for (int64_t k = 0; k < a->window; k++) {
            float *at = sums + tap(p, &a->q, k) * v * LANES;
            for (int64_t b = 0; b < n; b += m) {
                const float *rows[MAX_ROWS];
                float *to[MAX_ROWS];
                for (int r = 0; r < m; r++) {
                    int64_t row = least(b + r, n - 1);
                    rows[r] = p->channels_last ? dy + row * p->filters : strip + row;
                    to[r] = at + (int64_t)corners[row] * v * LANES;
                }
                any_tile(v, a->filters, rows, p->channels_last ? 1 : PIXELS, NULL, packed + k * place_step, to, 1);
            }
        }
    }
    for (int64_t c = 0; c < v * LANES && start + c < a->inputs; c += LANES)
        for (int64_t row = 0; row < p->size[0] * p->size[1]; row++) {
            int64_t d = row / p->size[1] + p->pad[0], h = row % p->size[1] + p->pad[1];
            int64_t some = least(LANES, a->inputs - start - c), to = g * a->inputs + start + c;
            const float *from = sums + ((d * a->q.size[1] + h) * a->q.size[2] + p->pad[2]) * v * LANES + c;
            if (p->channels_last)
                for (int64_t w = 0; w < p->size[2]; w++)
                    memcpy(a->b.y + (i * volume + row * p->size[2] + w) * p->channels + to, from + w * v * LANES,
                           (size_t)some * sizeof *from);
            else
                from_lanes(from, v * LANES, p->size[2], (vec){0},
                           a->b.y + (i * p->channels + to) * volume + row * p->size[2], volume, some);
        }
}

static int data_gradient(const plk_conv *p, void *const *bufs)
{
    pass a = pass_of(p, p->channels);
    a.b = (plk_conv_bufs){.x = bufs[0], .w = bufs[1], .y = bufs[2]};
    a.q = padded_of(p, 1, 0);
    a.sums_floats = a.q.image * (a.s.first > 2 ? 3 : 2) * LANES;
    a.own_floats = up(a.sums_floats, 16) + (p->channels_last ? 0 : a.filters * PIXELS);
    int64_t packed = up(a.window * p->filters * a.width, 16);
    a.packed = pl_scratch(sizeof(float) * (size_t)(packed + a.n_threads * a.own_floats));
    if (!a.packed)
        return no_memory();
    a.own = a.packed + packed;
    pl_thread_pool_run(a.n_threads, p->filters, data_prepare, &a);
    pl_thread_pool_run(a.n_threads, p->n * p->groups * a.s.n, data_piece, &a);
    return PL_OK;
}

/* ---- weight gradient --------------------------------------------------------------------------------------------- */

static void weight_prepare(void *arg, int64_t item)               /* dy of each group: (panel, pixel, lane) */
{
    const pass *a = arg;
    const plk_conv *p = a->p;
    int64_t i = item / (a->s.vectors * p->groups), g = item / a->s.vectors % p->groups, f = item % a->s.vectors, step;
    int64_t some = least(LANES, a->filters - f * LANES), filter = g * a->filters + f * LANES;
    float *to = packed_at(&a->s, a->lanes + g * a->outputs * a->width, a->outputs, f, &step) + i * a->area * step;
    if (p->channels_last)
        for (int64_t o = 0; o < a->area; o++) {
            memset(to + o * step, 0, LANES * sizeof *to);
            memcpy(to + o * step, a->b.x + ((a->first + i) * a->area + o) * p->filters + filter,
                   (size_t)some * sizeof *to);
        }
    else
        to_lanes(a->b.x + ((a->first + i) * p->filters + filter) * a->area, a->area, some, a->area, to, step);
    for (int64_t o = i * a->area; g == 0 && f == 0 && o < (i + 1) * a->area; o++)
        a->corners[o] = corner(p, &a->q, o);
}

static void weight_piece(void *arg, int64_t item)
{
    const pass *a = arg;
    int64_t g = item / (a->n_blocks * a->s.n), j = item / a->n_blocks % a->s.n;
    int64_t row = item % a->n_blocks * ROWS_AT_ONCE, end = least(row + ROWS_AT_ONCE, a->depth);
    int64_t start = panel_start(&a->s, j) * LANES;
    float *sums = a->sums + g * a->depth * a->width + start;
    const float *lanes = a->lanes + (g * a->width + start) * a->outputs, *from = a->from + g * a->inputs * a->q.channel;
    int v = panel_width(&a->s, j), m = panel_rows(v);
    for (int64_t o = 0; o < a->outputs; o += DEPTH)
        for (int64_t b = row; b < end; b += m) {
            const float *rows[MAX_ROWS];
            float *to[MAX_ROWS];
            for (int r = 0; r < m; r++) {
                rows[r] = from + place(a, least(b + r, end - 1));
                to[r] = sums + least(b + r, end - 1) * a->width;
            }
            any_tile(v, least(DEPTH, a->outputs - o), rows, 0, a->corners + o, lanes + o * v * LANES, to,
                     o > 0 || a->first > 0);
        }
}

static void weight_store(void *arg, int64_t item)
{
    const pass *a = arg;
    int64_t g = item / a->s.vectors, f = item % a->s.vectors * LANES;
    from_lanes(a->sums + g * a->depth * a->width + f, a->width, a->depth, (vec){0},
               a->b.y + (g * a->filters + f) * a->depth, a->depth, least(LANES, a->filters - f));
}

static int weight_gradient(const plk_conv *p, void *const *bufs)
{
    pass a = pass_of(p, p->filters);
    a.b = (plk_conv_bufs){.x = bufs[0], .w = bufs[1], .y = bufs[2]};
    a.q = padded_of(p, p->channels, p->channels_last);
    a.n_blocks = count(a.depth, ROWS_AT_ONCE);
    int64_t width = p->groups * a.width, chunk = images_of(p, (a.q.copied ? a.q.image : 0) + a.area * width);
    int64_t sums_floats = up(a.depth * width, 16), image_floats = a.q.copied ? up(chunk * a.q.image, 16) : 0;
    a.sums = pl_scratch(sizeof(float) * (size_t)(sums_floats + image_floats + chunk * a.area * (width + 1)));
    if (!a.sums)
        return no_memory();
    a.padded = a.sums + sums_floats;
    a.lanes = a.padded + image_floats;
    a.corners = (int32_t *)(a.lanes + chunk * a.area * width);
    for (int64_t first = 0; first < p->n; first += chunk) {
        chunk_begin(&a, first, chunk);
        pl_thread_pool_run(a.n_threads, a.images * p->groups * a.s.vectors, weight_prepare, &a);
        pl_thread_pool_run(a.n_threads, p->groups * a.s.n * a.n_blocks, weight_piece, &a);
    }
    pl_thread_pool_run(a.n_threads, p->groups * a.s.vectors, weight_store, &a);
    return PL_OK;
}

PLK_KERNEL(plk_conv_run)
{
    const plk_conv *p = params;
    (void)scalars;
    return p->kind == PLK_CONV_WEIGHT ? weight_gradient(p, bufs)
           : p->kind == PLK_CONV_DATA ? data_gradient(p, bufs) : forward(p, bufs);
}
