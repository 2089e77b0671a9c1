/* Convolutions of 16-bit floats and 8-bit integers, as products of pixels with weights; narrow_tile.h.
 *
 * Data have their channels last, so that the elements of a pixel are contiguous: a row of the product is the window of
 * one output, copied from the image to the panel that the tile reads, which costs one copy for all filters. Nothing is
 * padded beforehand. Weights are stored in panels, prepared once in inference. A tile is finished while it is in the L1
 * cache. Depth is not divided: panels of both operands stream from the L2 cache, which is fast enough. */
#pragma GCC optimize("fp-contract=off")    /* the same number with every instruction set */
#include "conv_narrow.h"
#include "bytes.h"
#include "cache.h"
#include "engine/core/scratch.h"
#include "gemm.h"
#include "narrow_end.h"
#include "narrow_transpose.h"
#include "narrow_tile.h"
#include "parts.h"
#include "simd.h"
#include "winograd_narrow.h"

enum { MOST_TILES = 16, LEAST_TILES = 4, ITEMS_EACH = 4 };

/* How one call is computed. A *run* is a part of a window that is contiguous in the image: the channels of a group at
 * one pixel, or a line of the window if channels are not whole units. */
typedef struct {
    const plk_narrow_conv *c;
    const char *x, *w;
    ending end;
    source a, b;
    int64_t item, w_item, channels, filters;         /* of one group */
    int64_t run, run_units, n_runs, taps, n_units;   /* taps: runs of a line; n_units: of a window */
    int64_t rows, panels, tiles, groups_of_panels;   /* panels: of a group of filters; tiles: of an item */
    const plk_unit *packed;                          /* all panels; or NULL: they are stored as `w` is */
    int status;
} conv;

/* ---- packing the image ----------------------------------------------------------------------------------------- */

static inline void copy_run(char *to, const char *from, int64_t n)
{
    if (n >= 16 && n <= 32) {    /* the lines of a first layer */
        memcpy(to, from, 16);
        memcpy(to + n - 16, from + n - 16, 16);
    } else {
        plk_copy_bytes(to, from, (size_t)n);
    }
}

/* Row r of a panel: the window of output `pixel` of the batch. line: room for a window. */
static inline void place_window(const conv *k, plk_unit *to, int64_t pixel, int64_t group, char *line)
{
    static const char zeros[4 * AMX_UNITS];
    const plk_narrow_conv *c = k->c;
    int64_t w = pixel % c->out[2], h = pixel / c->out[2] % c->out[1], d = pixel / c->out[2] / c->out[1];
    int64_t image = d / c->out[0], run_bytes = k->run * k->item;
    int64_t room = k->run_units * per_unit(k->a.way) * k->item, all = c->channels, chunk = chunk_of(k->a);
    int64_t chunks = k->run_units / chunk, chunk_bytes = chunk * per_unit(k->a.way) * k->item;
    /* whole chunks of one pixel are inside the image or not, and are read where they are */
    int staged = run_bytes % chunk_bytes != 0 || k->run > k->channels;
    d = d % c->out[0] * c->stride[0] - c->pad[0], h = h * c->stride[1] - c->pad[1];
    w = w * c->stride[2] - c->pad[2];
    char *at = line;
    for (int64_t i = 0; i < c->kernel[0]; i++) {
        int64_t z = d + i * c->dilate[0];
        for (int64_t j = 0; j < c->kernel[1]; j++) {
            int64_t y = h + j * c->dilate[1];
            int inside = z >= 0 && z < c->size[0] && y >= 0 && y < c->size[1];
            const char *from = k->x + ((image * c->size[0] + z) * c->size[1] + y) * c->size[2] * all * k->item;
            for (int64_t q = 0; q < k->taps; q++) {
                int64_t first = (w + q * c->dilate[2]) * all + group * k->channels;
                int64_t end = least(k->run, c->size[2] * all - first), begin = first < 0 ? -first : 0;
                const char *source_run = from + first * k->item;
                int whole = inside && begin == 0 && end == k->run;
                if (!staged) {
                    place_chunks(k->a, to, whole ? source_run : zeros, chunks, whole ? chunk_bytes : 0);
                    to += chunks * rows_of(k->a) * chunk;
                    continue;
                }
                if (whole) {
                    copy_run(at, source_run, run_bytes);
                } else {
                    memset(at, 0, (size_t)run_bytes);
                    if (inside && begin < end)
                        plk_copy_bytes(at + begin * k->item, source_run + begin * k->item,
                                       (size_t)((end - begin) * k->item));
                }
                at += room;
            }
        }
    }
    if (staged)
        place_chunks(k->a, to, line, up(k->n_units, chunk), chunk_bytes);
}

/* ---- packing weights ------------------------------------------------------------------------------------------- */

/* The bytes of a window of elements, in runs that are filled up to whole units. */
static int64_t window_bytes(const conv *k) { return row_units(k->b, k->n_units) * per_unit(k->a.way) * k->w_item; }

/* The weights of one filter, element (run, i) at run * room + i; to: zeros. */
static void filter_line(const conv *k, char *to, int64_t filter)
{
    const plk_narrow_conv *c = k->c;
    int64_t per = per_unit(k->b.way), room = k->run_units * per, taps = k->n_runs, depth = k->channels;
    if (k->taps != c->kernel[2])    /* a run is a line: (taps of it, channels) */
        room = depth, taps = c->kernel[0] * c->kernel[1] * c->kernel[2];
    if (c->columns) {
        int64_t blocks = up(depth, c->per_unit), panel = filter / c->columns;
        const char *from = k->w + (panel * taps * blocks * c->columns + filter % c->columns) * c->per_unit * k->w_item;
        for (int64_t t = 0; t < taps; t++)
            for (int64_t b = 0; b < blocks; b++, from += c->columns * c->per_unit * k->w_item)
                memcpy(to + (t * room + b * c->per_unit) * k->w_item, from,
                       (size_t)(least(c->per_unit, depth - b * c->per_unit) * k->w_item));
        return;
    }
    const char *from = k->w + filter * depth * taps * k->w_item;
    if (k->taps != c->kernel[2]) {
        int64_t line = c->kernel[2], padded = k->run_units * per;
        for (int64_t t = 0; t < taps; t++)
            for (int64_t i = 0; i < depth; i++)
                memcpy(to + (t / line * padded + t % line * depth + i) * k->w_item, from + (i * taps + t) * k->w_item,
                       (size_t)k->w_item);
    } else if (taps == 1) {
        plk_copy_bytes(to, from, (size_t)(depth * k->w_item));
    } else if (k->w_item == 1) {
        plk_transpose_bytes((uint8_t *)to, room, (const uint8_t *)from, taps, depth, taps);
    } else {
        plk_transpose_halves((uint16_t *)(void *)to, room, (const uint16_t *)(const void *)from, taps, depth, taps);
    }
}

/* stored: panels of elements, as inference stores them, not of units */
typedef struct { const conv *k; plk_unit *to; int stored, status; } packing;

static void pack_panel(void *arg, int64_t i)
{
    packing *p = arg;
    const conv *k = p->k;
    int64_t bytes = window_bytes(k), group = i / k->panels, first = i % k->panels * COLUMNS;
    int64_t n = least(COLUMNS, k->filters - first);
    char *lines = plk_gemm_scratch((size_t)(bytes * COLUMNS));
    if (!lines) {
        __atomic_store_n(&p->status, PL_ENOMEM, __ATOMIC_RELAXED);
        return;
    }
    memset(lines, 0, (size_t)(bytes * COLUMNS));
    for (int64_t f = 0; f < n; f++)
        filter_line(k, lines + f * bytes, group * k->filters + first + f);
    if (p->stored) {    /* pairs of bytes */
        plk_transpose_halves((uint16_t *)(void *)p->to + i * k->n_units * COLUMNS, COLUMNS,
                             (const uint16_t *)(const void *)lines, bytes / 2, COLUMNS, k->n_units);
        return;
    }
    operand b = {.as = k->b, .from = lines, .line_bytes = bytes, .step_bytes = k->w_item};
    pack_columns(p->to + i * k->n_units * COLUMNS, b, COLUMNS, k->n_units * per_unit(k->b.way));
}

/* A panel that is stored as elements of one row for each unit, converted. */
static void convert_panel(const conv *k, plk_unit *to, const char *from)
{
    convert_run(k->b, to, from, k->n_units * COLUMNS * per_unit(k->b.way));
}

/* ---- items ----------------------------------------------------------------------------------------------------- */

/* Sums of a panel's columns of bytes. */
static void sum_columns(const plk_unit *panel, int64_t n_units, int32_t *sums)
{
#if defined(__AVX512F__)
    const plk_units ones = 0x01010101 - (plk_units){0};
    plk_units left = {0}, right = {0};
    for (int64_t u = 0; u < n_units; u++, panel += COLUMNS) {
        add_units(PLK_BY_BYTE, &left, ones, *(const plk_units *)panel);
        add_units(PLK_BY_BYTE, &right, ones, *(const plk_units *)(panel + WIDTH));
    }
    *(plk_units *)sums = left;
    *(plk_units *)(sums + WIDTH) = right;
#endif
}

/* Some rows of outputs times some panels of one group */
static void item(void *arg, int64_t i)
{
    conv *k = arg;
    const int64_t most = rows_of(k->a), chunk = chunk_of(k->a), units = row_units(k->a, k->n_units);
    int64_t height = k->tiles * most, blocks = up(k->rows, height), split = k->groups_of_panels;
    int64_t part = i / split % blocks, group = i / split / blocks, row = part * height;
    int64_t n_rows = least(height, k->rows - row), per_tile = most * units;
    int64_t begin = i % split * k->panels / split, end = (i % split + 1) * k->panels / split;
    int64_t line = (units * per_unit(k->a.way) * k->item + 63) / 64 * 64;
    int64_t of_b = k->packed ? 0 : k->n_units * COLUMNS, in_place = 4 / k->w_item == per_unit(k->b.way);
    plk_unit *a = plk_gemm_scratch(sizeof *a * (size_t)(k->tiles * per_tile + of_b) + (size_t)line);
    plk_unit v[MOST_ROWS * COLUMNS] __attribute__((aligned(64)));
    if (!a) {
        __atomic_store_n(&k->status, PL_ENOMEM, __ATOMIC_RELAXED);
        return;
    }
    plk_unit *room = a + k->tiles * per_tile;
    char *window = memset(room + of_b, 0, (size_t)line);
    for (int64_t r = 0; r < n_rows; r++)
        place_window(k, a + r / most * per_tile + r % most * chunk, row + r, group, window);
    if (n_rows % most)    /* what a tile reads past the last row */
        for (int64_t u = 0; u < units; u += chunk)
            memset(a + n_rows / most * per_tile + u * most + n_rows % most * chunk, 0,
                   (size_t)((most - n_rows % most) * chunk) * sizeof *a);
    begin_products(k->a, k->n_units);
    for (int64_t p = begin; p < end; p++) {
        int64_t columns = least(COLUMNS, k->filters - p * COLUMNS), filter = group * k->filters + p * COLUMNS;
        const plk_unit *panel = k->packed + (group * k->panels + p) * k->n_units * COLUMNS;
        int32_t sums[COLUMNS] = {0};
        if (!k->packed) {
            const char *stored = k->w + p * k->n_units * COLUMNS * per_unit(k->b.way) * k->w_item;
            panel = (const plk_unit *)(const void *)stored;
            if (!in_place) {
                convert_panel(k, room, stored);
                panel = room;
            }
        }
        if (k->a.shift)
            sum_columns(panel, k->n_units, sums);
        by_column by = of_columns(&k->end, filter, columns, sums);
        for (int64_t r = 0; r < n_rows; r += most) {
            int64_t rows = least(most, n_rows - r);
            multiply_panels(k->a, 0, rows, k->n_units, a + r / most * per_tile, panel, v, COLUMNS, 0);
            finish(&k->end, &by, v, row + r, rows, filter, columns);
        }
    }
    end_products(k->a);
}

/* ---- channels first -------------------------------------------------------------------------------------------- */

/* Of each image: rows x columns elements become columns x rows. */
typedef struct { char *to; const char *from; int64_t rows, columns, item, strips, width; } turning;

static void turn(void *arg, int64_t i)
{
    const turning *t = arg;
    int64_t image = i / t->strips, first = i % t->strips * t->width, n = least(t->width, t->columns - first);
    char *to = t->to + (image * t->columns + first) * t->rows * t->item;
    const char *from = t->from + (image * t->rows * t->columns + first) * t->item;
    if (t->item == 1)
        plk_transpose_bytes((uint8_t *)to, t->rows, (const uint8_t *)from, t->columns, t->rows, n);
    else if (t->item == 2)
        plk_transpose_halves((uint16_t *)(void *)to, t->rows, (const uint16_t *)(const void *)from, t->columns, t->rows,
                             n);
    else
        transpose((float *)(void *)to, t->rows, (const float *)(const void *)from, t->columns, t->rows, n);
}

static void turn_images(char *to, const char *from, int64_t n, int64_t rows, int64_t columns, int64_t item)
{
    turning t = {to, from, rows, columns, item, up(columns, 256), 256};
    pl_thread_pool_run(pl_threads(n * rows * columns / 8), n * t.strips, turn, &t);
}

/* ---- the call -------------------------------------------------------------------------------------------------- */

static int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static void divide(conv *k, int n_threads)
{
    int64_t rows = rows_of(k->a), most = plk_cache_own() / 8 * 3 / (4 * rows * row_units(k->a, k->n_units));
    int64_t all = up(k->rows, rows), wanted = n_threads > 1 ? n_threads * ITEMS_EACH : 1;
    k->tiles = least(all, most < LEAST_TILES ? LEAST_TILES : most > MOST_TILES ? MOST_TILES : most);
    while (k->tiles > LEAST_TILES && k->c->groups * up(all, k->tiles) < wanted)
        k->tiles = up(k->tiles, 2);
    k->tiles = up(all, up(all, k->tiles));
    k->groups_of_panels = least(k->panels, up(wanted, k->c->groups * up(all, k->tiles)));
}

/* Is each image, with its channels first, the matrix to multiply? */
static int is_product(const plk_narrow_conv *c)
{
    int same = c->dtype == c->w_dtype && c->dtype == c->out_dtype && c->low == -INFINITY && c->high == INFINITY;
    int plain = same && !c->act.loop && c->bias_dtype < 0 && c->add_dtype < 0 && !c->scaled && c->groups == 1;
    for (int i = 0; i < 3; i++)
        plain = plain && c->kernel[i] == 1 && c->stride[i] == 1 && c->pad[i] == 0;
    return plain && !(c->x_last || c->y_last || c->columns) && c->out[0] * c->out[1] * c->out[2] > COLUMNS;
}

/* bufs: x, w, scale if any, bias if any, addend if any, scale of the addend if any, y */
PLK_KERNEL(plk_narrow_conv_run)
{
    const plk_narrow_conv *c = params;
    int at = 2, way = narrow_way(c->dtype, c->w_dtype), floats = c->dtype == PLK_F16 || c->dtype == PLK_BF16;
    int64_t per = per_unit(way), out = c->out[0] * c->out[1] * c->out[2], size = c->size[0] * c->size[1] * c->size[2];
    if (is_product(c)) {
        plk_gemm g = {.n_batch = c->n, .m = c->filters, .n = out, .k = c->channels, .b_step = c->channels * out,
                      .dtype = c->dtype, .alpha = 1};
        return plk_gemm_narrow(&g, (void *[]){bufs[1], bufs[0], bufs[2]}, scalars);
    }
    ending end = {.c = c, .addend_scale = 1, .whole = !floats};
    end.scale = c->scaled ? bufs[at++] : NULL;
    end.bias = c->bias_dtype >= 0 ? bufs[at++] : NULL;
    end.addend = c->add_dtype >= 0 ? bufs[at++] : NULL;
    if (c->add_scaled)
        end.addend_scale = *(const float *)bufs[at++];
    end.y = bufs[at];
    end.integers = end.whole && !c->scaled && c->add_dtype < 0 && c->low == -INFINITY && c->high == INFINITY &&
                   (c->out_dtype == PLK_I32 || c->out_dtype == PLK_I8 || c->out_dtype == PLK_U8);
    int amx = narrow_amx(way);
    end.shift = way == PLK_BY_BYTE && c->dtype == PLK_I8 && !amx ? 128 : 0;
    conv k = {.c = c, .x = bufs[0], .w = bufs[1], .end = end, .rows = c->n * out,
              .channels = c->channels / c->groups, .filters = c->filters / c->groups,
              .item = (int64_t)plk_dtype_bytes(c->dtype), .w_item = (int64_t)plk_dtype_bytes(c->w_dtype)};
    k.a = (source){way, c->dtype, end.shift, amx};
    k.b = (source){way, c->w_dtype, 0, 0};
    int by_winograd = suits_winograd(c, way);
    int lines = !by_winograd && c->groups == 1 && !c->columns && c->kernel[2] > 1 && c->dilate[2] == 1 &&
                k.channels % per != 0;
    k.taps = lines ? 1 : c->kernel[2];
    k.run = lines ? c->kernel[2] * k.channels : k.channels;
    k.run_units = up(k.run, per), k.n_runs = c->kernel[0] * c->kernel[1] * k.taps;
    k.n_units = k.run_units * k.n_runs, k.panels = up(k.filters, COLUMNS);
    int n_threads = plk_gemm_threads(k.rows, c->filters, k.n_units * per);
    winograd_cut cut = {0};
    if (by_winograd)
        cut = winograd_cut_of(c, n_threads);
    int turn_x = !c->x_last && size > 1 && c->channels > 1, turn_y = !c->y_last && out > 1 && c->filters > 1;
    int stored = c->columns == COLUMNS && c->per_unit == per && c->groups == 1;
    int64_t out_item = (int64_t)plk_dtype_bytes(c->out_dtype), of_x = 0, of_y = 0, of_w = 0, of_add = 0;
    int64_t of_points = by_winograd ? n_threads * winograd_bytes(&cut) + 64 : 0;
    if (turn_x)
        of_x = round_up(c->n * size * c->channels * k.item);
    if (turn_y)
        of_y = round_up(k.rows * c->filters * out_item);
    if (turn_y && k.end.addend)
        of_add = round_up(k.rows * c->filters * (int64_t)plk_dtype_bytes(c->add_dtype));
    if (!stored)
        of_w = round_up(c->groups * k.panels * k.n_units * COLUMNS *
                        (by_winograd ? per * k.w_item : (int64_t)sizeof(plk_unit)));
    int64_t bytes = of_x + of_y + of_add + of_w + of_points;
    char *memory = bytes ? pl_scratch((size_t)bytes) : NULL;
    if (!memory && bytes)
        return pl_fail(PL_ENOMEM, "out of memory for a convolution");
    if (turn_x) {
        turn_images(memory, k.x, c->n, c->channels, size, k.item);
        k.x = memory;
    }
    if (of_add) {
        turn_images(memory + of_x + of_y, k.end.addend, c->n, c->filters, out, (int64_t)plk_dtype_bytes(c->add_dtype));
        k.end.addend = memory + of_x + of_y;
    }
    if (!stored) {
        packing p = {&k, (plk_unit *)(void *)(memory + of_x + of_y + of_add), by_winograd, PL_OK};
        pl_thread_pool_run(pl_threads(c->groups * k.panels * k.n_units * COLUMNS / 4), c->groups * k.panels, pack_panel,
                           &p);
        k.packed = p.to, k.status = p.status;
    }
    char *y = k.end.y;
    k.end.y = turn_y ? memory + of_x : y;
    if (!k.status && by_winograd) {
        winograd_run(c, &cut, &k.end, k.x, stored ? k.w : (const char *)k.packed, memory + bytes - of_points);
    } else if (!k.status) {
        divide(&k, n_threads);
        pl_thread_pool_run(n_threads, c->groups * up(k.rows, k.tiles * rows_of(k.a)) * k.groups_of_panels, item, &k);
    }
    if (turn_y && !k.status)
        turn_images(y, k.end.y, c->n, out, c->filters, out_item);
    return k.status ? pl_fail(k.status, "out of memory for a convolution") : PL_OK;
}
