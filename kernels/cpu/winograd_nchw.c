/* 3x3 convolutions with stride 1 on row-major images, and their gradients, by Winograd's F(4x4, 3x3): 36 products for
 * each tile of 4x4 outputs instead of 144.  Source: Lavin and Gray 2016, arXiv:1509.09308.
 *
 *   forward, data    y = At [ (G w Gt) . (Bt x B) ] A         a product (tiles, channels) x (channels, filters) for
 *   weight          dw = Gt [ (A dy At) . (Bt x B) ] G        each of the 36 points; for dw the tiles are summed
 *
 * A data gradient is a forward convolution of dy with rotated windows. Images are divided into chunks whose transforms
 * fit the outer cache. Within a chunk, all threads transform tiles; then each computes blocks of products, whose
 * results stay in its inner cache until they are transformed back. Lanes are channels throughout. */
#include "conv.h"
#include "engine/core/scratch.h"
#include "lanes.h"
#include "parts.h"
#include "simd.h"

enum {
    POINTS = 36, VECTORS = 2, PANEL = VECTORS * LANES,    /* columns of one product */
    TILES = 40,                                           /* of one block, about */
    BLOCK = 32,                                           /* filters of one block of products */
    FILTERS = 48,                                         /* of one block of dw */
    DEPTH = 256,                                          /* a panel of this many rows fits the L1 cache */
    CHUNK_BYTES = 4 << 20
};

/* One operand's transforms: (tile block, part of the channels, point, tile, channel); steps in floats. */
typedef struct { float *data; int64_t tiles, width, row, point, part, block; } points;

/* The sizes of one run, with x, w, y named as in a forward convolution. */
typedef struct {
    int64_t n, channels, filters, height, width, out_height, out_width, pad_h, pad_w;
    int64_t tiles_high, tiles_wide;
    /* rows of tiles, of a chunk; tiles of a block; blocks of a chunk */
    int64_t rows, chunk, block, n_blocks;
    int n_threads;
} work;

static int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Steps with an odd number of cache lines between points, so that their stores do not share sets. */
static int64_t odd_lines(int64_t floats) { return up(floats, 16) + (up(floats, 16) / 16 % 2 ? 0 : 16); }

static points points_of(int64_t channels, int64_t width, int64_t tiles)
{
    int64_t row = width < channels ? width : up(channels, 16) + 16, point = odd_lines(tiles * row);
    int64_t parts = width < channels ? (channels + width - 1) / width : 1;
    return (points){NULL, tiles, width, row, point, POINTS * point, parts * POINTS * point};
}

static float *point_at(const points *p, int64_t t, int64_t c)
{
    return p->data + t / p->tiles * p->block + t % p->tiles * p->row + c / p->width * p->part + c % p->width;
}

/* ---- the transforms of gradients; the others are Winograd's in both kernels -------------------------------------- */

#define VEC vec
#define NAME(name) name
#include "winograd_points.h"

PLK_INLINE void gradient_transform(const vec *y, int64_t step, vec *t)
{
    vec even_a = y[0] + (PA * PA) * y[2 * step], odd_a = PA * y[step] + (PA * PA * PA) * y[3 * step];
    vec even_b = y[0] + (PB * PB) * y[2 * step], odd_b = PB * y[step] + (PB * PB * PB) * y[3 * step];
    t[0] = y[0];
    t[1] = even_a + odd_a;
    t[2] = even_a - odd_a;
    t[3] = even_b + odd_b;
    t[4] = even_b - odd_b;
    t[5] = y[3 * step];
}

PLK_INLINE void weight_back(const vec *m, int64_t step, vec *g)
{
    vec even_a = m[step] + m[2 * step], odd_a = m[step] - m[2 * step];
    vec even_b = m[3 * step] + m[4 * step], odd_b = m[3 * step] - m[4 * step];
    g[0] = m[0] * (1 / (PA * PA * PB * PB)) + even_a * (1 / FA) + even_b * (1 / FB);
    g[1] = odd_a * (PA / FA) + odd_b * (PB / FB);
    g[2] = even_a * (PA * PA / FA) + even_b * (PB * PB / FB) + m[5 * step];
}

/* ---- images to points -------------------------------------------------------------------------------------------- */

/* One row of tiles of LANES channels (`some` of them real) of an image: rows of the image become strip[row][column].
 * x: the first channel's plane.  top, left: image coordinates of the strip's corner. */
static void load_strip(const float *x, int64_t some, int64_t height, int64_t width, int64_t top, int64_t left,
                       int64_t n_rows, int64_t n_columns, float *strip)
{
    for (int64_t i = 0; i < n_rows; i++, strip += n_columns * LANES) {
        int64_t h = top + i, first = left < 0 ? -left : 0, last = least(n_columns, width - left);
        if (h < 0 || h >= height || last <= first) {
            memset(strip, 0, (size_t)(n_columns * LANES) * sizeof *strip);
            continue;
        }
        memset(strip, 0, (size_t)(first * LANES) * sizeof *strip);
        to_lanes(x + h * width + left + first, height * width, some, last - first, strip + first * LANES,
                 LANES);
        memset(strip + last * LANES, 0, (size_t)((n_columns - last) * LANES) * sizeof *strip);
    }
}

/* Transforms the tiles of one row of tiles; t: the first one's number in the chunk.  6x6 values of x, or 4x4 of dy. */
PLK_INLINE void strip_points(const int is_input, vec *strip, int64_t n_columns, int64_t n_tiles, const points *to,
                             int64_t t, int64_t channel)
{
    vec tall[6], out[6];
    const int n_rows = is_input ? 6 : 4;
    vec *down = strip + n_rows * n_columns;
    for (int64_t j = 0; j < n_columns; j++) {
        if (is_input)
            input_transform(strip + j, n_columns, tall);
        else
            gradient_transform(strip + j, n_columns, tall);
        for (int i = 0; i < 6; i++)
            down[i * n_columns + j] = tall[i];
    }
    for (int64_t k = 0; k < n_tiles; k++) {
        float *at = point_at(to, t + k, channel);
        for (int i = 0; i < 6; i++) {
            if (is_input)
                input_transform(down + i * n_columns + 4 * k, 1, out);
            else
                gradient_transform(down + i * n_columns + 4 * k, 1, out);
            for (int j = 0; j < 6; j++)
                vec_store(at + (i * 6 + j) * to->point, out[j]);
        }
    }
}

/* Piece number `unit` (row of tiles, LANES channels) of a chunk that starts at row `first`. */
static void input_piece(const work *w, const float *x, int64_t first, int64_t unit, const points *to, vec *strip)
{
    int64_t groups = up(w->channels, LANES) / LANES, c = unit % groups * LANES, row = first + unit / groups;
    int64_t n_columns = 4 * w->tiles_wide + 2, i = row / w->tiles_high, th = row % w->tiles_high;
    load_strip(x + (i * w->channels + c) * w->height * w->width, least(LANES, w->channels - c), w->height,
               w->width, 4 * th - w->pad_h, -w->pad_w, 6, n_columns, (float *)strip);
    strip_points(1, strip, n_columns, w->tiles_wide, to, unit / groups * w->tiles_wide, c);
}

static void gradient_piece(const work *w, const float *dy, int64_t first, int64_t unit, const points *to, vec *strip)
{
    int64_t groups = up(w->filters, LANES) / LANES, f = unit % groups * LANES, row = first + unit / groups;
    int64_t n_columns = 4 * w->tiles_wide, i = row / w->tiles_high, th = row % w->tiles_high;
    load_strip(dy + (i * w->filters + f) * w->out_height * w->out_width, least(LANES, w->filters - f),
               w->out_height, w->out_width, 4 * th, 0, 4, n_columns, (float *)strip);
    strip_points(0, strip, n_columns, w->tiles_wide, to, unit / groups * w->tiles_wide, f);
}

/* ---- weights to points and back ---------------------------------------------------------------------------------- */

/* u (point, channel, PANEL) of the filters [first, first + PANEL).  turned: w is (channels, filters, 3, 3) and
 * its windows are rotated by 180 degrees. */
static void weight_panel(const work *k, const float *w, int turned, int64_t first, float *u, int64_t point)
{
    float g[9 * LANES * LANES];
    vec rows[18], out[6], in[9];
    for (int64_t half = 0; half < VECTORS; half++) {
        int64_t f = first + half * LANES, some = least(LANES, k->filters - f), n;
        for (int64_t c = 0; c < k->channels; c += n) {
            n = turned ? 1 : least(LANES, k->channels - c);
            if (some <= 0)
                memset(g, 0, sizeof g);
            else if (turned)
                to_lanes(w + (c * k->filters + f) * 9, 9, some, 9, g, LANES);
            else
                to_lanes(w + (f * k->channels + c) * 9, k->channels * 9, some, 9 * n, g, LANES);
            for (int64_t i = 0; i < n; i++) {
                for (int q = 0; q < 9; q++)
                    in[q] = vec_load(g + (i * 9 + (turned ? 8 - q : q)) * LANES);
                for (int q = 0; q < 3; q++) {
                    weight_transform(in + q, 3, out);
                    for (int p = 0; p < 6; p++)
                        rows[p * 3 + q] = out[p];
                }
                for (int p = 0; p < 6; p++) {
                    weight_transform(rows + p * 3, 1, out);
                    for (int q = 0; q < 6; q++)
                        vec_store(u + (p * 6 + q) * point + (c + i) * PANEL + half * LANES, out[q]);
                }
            }
        }
    }
}

/* dw of n_filters x n_channels from m (point, filter, channel). */
static void weight_store(const work *w, const float *m, int64_t row, int64_t point, float *dw, int64_t f,
                         int64_t n_filters, int64_t c, int64_t n_channels)
{
    vec in[6], down[18], out[9];
    for (int64_t i = 0; i < n_filters; i++)
        for (int64_t j = 0; j < n_channels; j += LANES) {
            for (int q = 0; q < 6; q++) {
                for (int p = 0; p < 6; p++)
                    in[p] = vec_load(m + (p * 6 + q) * point + i * row + j);
                vec g[3];
                weight_back(in, 1, g);
                for (int p = 0; p < 3; p++)
                    down[p * 6 + q] = g[p];
            }
            for (int p = 0; p < 3; p++)
                weight_back(down + p * 6, 1, out + 3 * p);
            const float *from = (const float *)out;
            float *to = dw + ((f + i) * w->channels + c + j) * 9;
            int64_t some = least(LANES, n_channels - j);
            for (int64_t l = 0; l < some; l++)
                for (int q = 0; q < 9; q++)
                    to[l * 9 + q] = from[q * LANES + l];
        }
}

/* ---- points to images -------------------------------------------------------------------------------------------- */

/* A 4x4 tile of LANES filters (`some` of them real) into y, the first filter's plane. */
static void store_tile(const work *w, vec *v, int64_t some, float *y, int64_t h, int64_t x)
{
    int64_t rows = least(4, w->out_height - h), columns = least(4, w->out_width - x),
            plane = w->out_height * w->out_width;
    for (int at = 0; at < 16; at += LANES) {
        vec_transpose(v + at);
        for (int64_t l = 0; l < some; l++) {
            float *to = y + l * plane, *from = (float *)(v + at + l);
            for (int64_t i = 0; i < LANES / 4; i++) {
                int64_t row = at / 4 + i;
                if (row >= rows)
                    break;
                if (columns == 4)
                    memcpy(to + (h + row) * w->out_width + x, from + 4 * i, 16);
                else
                    for (int64_t j = 0; j < columns; j++)
                        to[(h + row) * w->out_width + x + j] = from[4 * i + j];
            }
        }
    }
}

/* Tiles [t, t + n) of a chunk, filters [f, f + n_filters), from m (point, tile, filter). */
static void output_block(const work *w, const float *m, int64_t row, int64_t point, const float *bias, float *y,
                         int64_t first, int64_t t, int64_t n, int64_t f, int64_t n_filters)
{
    vec in[6], across[24], out[16];
    for (int64_t i = 0; i < n; i++) {
        int64_t tw = (t + i) % w->tiles_wide, strip = first + (t + i) / w->tiles_wide;
        int64_t th = strip % w->tiles_high, image = strip / w->tiles_high;
        for (int64_t j = 0; j < n_filters; j += LANES) {
            int64_t some = least(LANES, n_filters - j);
            for (int p = 0; p < 6; p++) {
                for (int q = 0; q < 6; q++)
                    in[q] = vec_load(m + (p * 6 + q) * point + i * row + j);
                output_transform(in, 1, across + 4 * p);
            }
            vec shift = {0}, column[4];
            if (bias)
                for (int64_t l = 0; l < some; l++)
                    shift[l] = bias[f + j + l];
            for (int q = 0; q < 4; q++) {
                output_transform(across + q, 4, column);
                for (int p = 0; p < 4; p++)
                    out[p * 4 + q] = column[p] + shift;
            }
            store_tile(w, out, some, y + (image * w->filters + f + j) * w->out_height * w->out_width, 4 * th, 4 * tw);
        }
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static void matmul(int64_t depth, const float *a, int64_t a_row, int64_t a_step, int64_t n_rows, const float *b,
                    int64_t b_step, float *c, int64_t c_row, int add)
{
    for (int64_t r = 0; r < n_rows; r += ROWS(VECTORS)) {
        int n = (int)least(ROWS(VECTORS), n_rows - r);
        const float *rows[ROWS(VECTORS)];
        float *to[ROWS(VECTORS)];
        for (int64_t k = 0; k < depth; k += DEPTH) {
            for (int i = 0; i < ROWS(VECTORS); i++) {
                rows[i] = a + (r + (i < n ? i : n - 1)) * a_row + k * a_step;
                to[i] = c + (r + (i < n ? i : n - 1)) * c_row;
            }
            tile(VECTORS, least(DEPTH, depth - k), rows, a_step, NULL, b + k * b_step, b_step, to, add || k > 0);
        }
    }
}

/* ---- whole convolutions ------------------------------------------------------------------------------------------ */

static work work_of(const plk_conv *p)
{
    work w = {p->n, p->channels, p->filters, p->size[1], p->size[2], p->out[1], p->out[2], p->pad[1], p->pad[2],
              0, 0, 0, 0, 0, 0, 1};
    if (p->kind == PLK_CONV_DATA)                         /* the other way round */
        w = (work){p->n, p->filters, p->channels, p->out[1], p->out[2], p->size[1], p->size[2], 2 - p->pad[1],
                   2 - p->pad[2], 0, 0, 0, 0, 0, 0, 1};
    w.tiles_high = (w.out_height + 3) / 4;
    w.tiles_wide = (w.out_width + 3) / 4;
    w.rows = w.n * w.tiles_high;
    int64_t operands = w.channels + (p->kind == PLK_CONV_WEIGHT ? w.filters : 0),
            row = w.tiles_wide * POINTS * operands;
    w.n_threads = pl_threads(w.rows * row);
    int64_t n_chunks = (4 * w.rows * row + CHUNK_BYTES - 1) / CHUNK_BYTES;
    w.chunk = (w.rows + n_chunks - 1) / n_chunks;
    int64_t tiles = w.chunk * w.tiles_wide;
    w.n_blocks = up((tiles + TILES - 1) / TILES, w.n_threads);
    w.block = up((tiles + w.n_blocks - 1) / w.n_blocks, ROWS(VECTORS));
    w.n_blocks = (tiles + w.block - 1) / w.block;
    return w;
}

static int64_t strip_floats(const work *w) { return up(12 * (4 * w->tiles_wide + 2) * LANES, 16); }

/* One block of outputs: tiles [b * block, ...) of the chunk at row `first`, filters [f, end). */
static void forward_block(const work *w, const points *v, const float *u, int64_t u_point, float *m, const float *bias,
                          float *y, int64_t first, int64_t tiles, int64_t b, int64_t f, int64_t end)
{
    int64_t m_point = odd_lines(w->block * BLOCK), t = b * w->block, n = least(w->block, tiles - t);
    for (int point = 0; point < POINTS; point++)
        for (int64_t g = f; g < end; g += PANEL)
            matmul(w->channels, v->data + b * v->block + point * v->point, v->row, 1, n,
                    u + point * u_point + (g - f) * w->channels, PANEL, m + point * m_point + g - f, BLOCK, 0);
    output_block(w, m, BLOCK, m_point, bias, y, first, t, n, f, least(end, w->filters) - f);
}

/* Shared by the pieces of one convolution; for one chunk of rows of tiles at a time. */
typedef struct {
    work w;
    points v, d;                                 /* of the inputs; of the gradients */
    const float *x, *weight, *bias, *dy;
    float *y, *u, *sums, *own;
    int64_t u_point, own_floats, n_parts, c_parts, m_point, first, rows, tiles, n_blocks;
    int turned, by_part, one_chunk;
} pass;

static void chunk_begin(pass *a, int64_t first)
{
    a->first = first;
    a->rows = least(a->w.chunk, a->w.rows - first);
    a->tiles = a->rows * a->w.tiles_wide;
    a->n_blocks = (a->tiles + a->w.block - 1) / a->w.block;
}

static vec *own_strip(const pass *a) { return (vec *)(a->own + pl_thread_pool_index() * a->own_floats); }

static void weight_piece(void *arg, int64_t panel)
{
    const pass *a = arg;
    int64_t f = panel * PANEL;
    weight_panel(&a->w, a->weight, a->turned, f, a->u + f * a->w.channels, a->u_point);
}

static void forward_input(void *arg, int64_t unit)
{
    const pass *a = arg;
    input_piece(&a->w, a->x, a->first, unit, &a->v, own_strip(a));
}

static void forward_piece(void *arg, int64_t item)
{
    const pass *a = arg;
    const work *w = &a->w;
    int64_t n_filters = up(w->filters, PANEL);
    float *m = (float *)own_strip(a) + strip_floats(w), *part_u = m + POINTS * odd_lines(w->block * BLOCK);
    if (!a->by_part) {
        int64_t f = item / a->n_blocks * BLOCK, end = least(f + BLOCK, n_filters);
        forward_block(w, &a->v, a->u + f * w->channels, a->u_point, m, a->bias, a->y, a->first, a->tiles,
                      item % a->n_blocks, f, end);
        return;
    }
    int64_t f = item * BLOCK, end = least(f + BLOCK, n_filters);
    for (int64_t g = f; g < end; g += PANEL)
        weight_panel(w, a->weight, a->turned, g, part_u + (g - f) * w->channels, a->u_point);
    for (int64_t b = 0; b < a->n_blocks; b++)
        forward_block(w, &a->v, part_u, a->u_point, m, a->bias, a->y, a->first, a->tiles, b, f, end);
}

static int forward(const plk_conv *p, const float *x, const float *weight, const float *bias, float *y)
{
    pass a = {.w = work_of(p), .x = x, .weight = weight, .bias = bias, .y = y, .turned = p->kind == PLK_CONV_DATA};
    const work *w = &a.w;
    int64_t n_filters = up(w->filters, PANEL), n_parts = up(n_filters, BLOCK) / BLOCK,
            n_groups = up(w->channels, LANES) / LANES;
    /* With one chunk each thread transforms the weights that it needs, so that they stay in its cache. */
    a.by_part = w->chunk >= w->rows && n_parts >= 2 * w->n_threads;
    a.u_point = odd_lines((a.by_part ? BLOCK : n_filters) * w->channels);
    int64_t u_floats = POINTS * a.u_point, shared_u = a.by_part ? 0 : u_floats;
    a.own_floats = strip_floats(w) + POINTS * odd_lines(w->block * BLOCK) + (a.by_part ? u_floats : 0);
    a.v = points_of(w->channels, w->channels, w->block);
    a.u = pl_scratch(sizeof(float) * (size_t)(shared_u + w->n_blocks * a.v.block + w->n_threads * a.own_floats));
    if (!a.u)
        return pl_fail(PL_ENOMEM, "out of memory for a convolution");
    a.v.data = a.u + shared_u;
    a.own = a.v.data + w->n_blocks * a.v.block;
    if (!a.by_part)
        pl_thread_pool_run(w->n_threads, n_filters / PANEL, weight_piece, &a);
    for (int64_t first = 0; first < w->rows; first += w->chunk) {
        chunk_begin(&a, first);
        pl_thread_pool_run(w->n_threads, a.rows * n_groups, forward_input, &a);
        pl_thread_pool_run(w->n_threads, a.by_part ? n_parts : a.n_blocks * n_parts, forward_piece, &a);
    }
    return PL_OK;
}

static void gradient_input(void *arg, int64_t unit)
{
    const pass *a = arg;
    int64_t n_inputs = a->rows * (up(a->w.channels, LANES) / LANES);
    if (unit < n_inputs)
        input_piece(&a->w, a->x, a->first, unit, &a->v, own_strip(a));
    else
        gradient_piece(&a->w, a->dy, a->first, unit - n_inputs, &a->d, own_strip(a));
}

static void gradient_part(void *arg, int64_t part)
{
    const pass *a = arg;
    const work *w = &a->w;
    float *m = a->sums + (a->one_chunk ? pl_thread_pool_index() : part) * POINTS * a->m_point;
    int64_t f = part / a->c_parts * FILTERS, c = part % a->c_parts * PANEL, n_filters = least(FILTERS, w->filters - f);
    for (int64_t b = 0; b < a->n_blocks; b++)
        for (int point = 0; point < POINTS; point++)
            matmul(least(w->block, a->tiles - b * w->block), point_at(&a->d, b * w->block, f) + point * a->d.point, 1,
                    a->d.row, n_filters, point_at(&a->v, b * w->block, c) + point * a->v.point, a->v.row,
                    m + point * a->m_point, PANEL, b > 0 || a->first > 0);
    if (a->first + a->rows == w->rows)
        weight_store(w, m, PANEL, a->m_point, a->y, f, n_filters, c, least(PANEL, w->channels - c));
}

static int weight_gradient(const plk_conv *p, const float *dy, const float *x, float *dw)
{
    pass a = {.w = work_of(p), .x = x, .dy = dy, .y = dw};
    const work *w = &a.w;
    int64_t f_parts = up(w->filters, FILTERS) / FILTERS;
    a.c_parts = up(w->channels, PANEL) / PANEL;
    a.n_parts = f_parts * a.c_parts;
    a.m_point = odd_lines(FILTERS * PANEL);
    a.one_chunk = w->chunk >= w->rows;
    a.v = points_of(w->channels, PANEL, w->block);
    a.d = points_of(w->filters, FILTERS, w->block);
    a.own_floats = strip_floats(w);
    int64_t sums_floats = (a.one_chunk ? w->n_threads : a.n_parts) * POINTS * a.m_point;
    a.sums = pl_scratch(sizeof(float) * (size_t)(sums_floats + w->n_blocks * (a.v.block + a.d.block) +
                                                 w->n_threads * a.own_floats));
    if (!a.sums)
        return pl_fail(PL_ENOMEM, "out of memory for a convolution");
    a.v.data = a.sums + sums_floats;
    a.d.data = a.v.data + w->n_blocks * a.v.block;
    a.own = a.d.data + w->n_blocks * a.d.block;
    int64_t groups = up(w->channels, LANES) / LANES + up(w->filters, LANES) / LANES;
    for (int64_t first = 0; first < w->rows; first += w->chunk) {
        chunk_begin(&a, first);
        pl_thread_pool_run(w->n_threads, a.rows * groups, gradient_input, &a);
        pl_thread_pool_run(w->n_threads, a.n_parts, gradient_part, &a);
    }
    return PL_OK;
}

/* bufs: x, w, bias if any, y | dy, w, dx | dy, x, dw */
PLK_KERNEL(plk_winograd_nchw_run)
{
    const plk_conv *p = params;
    (void)scalars;
    if (p->kind == PLK_CONV_WEIGHT)
        return weight_gradient(p, bufs[0], bufs[1], bufs[2]);
    int bias = p->kind == PLK_CONV_FORWARD && p->bias;
    return forward(p, bufs[0], bufs[1], bias ? bufs[2] : NULL, bufs[2 + bias]);
}
