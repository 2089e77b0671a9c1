/* Exact convolutions of bytes with a 3 x 3 window and stride 1 by Winograd's F(4x4, 3x3); for conv_narrow.c.
 *
 *   x --B^T x B--> V[point][tile][channel]  --+
 *   w --G w G^T--> U[point][channel][filter] -+- one product for each point --> M[point][tile][filter] --A^T M A--> y
 *
 * Interpolation at 0, +-1, +-2 and infinity, with matrices of whole numbers: rows of B^T add up to at most 10, those of
 * 24 G, divided by (6, -4, -4, 1, 1, 24), to 7. So V and U of bytes, at most 100 * 128 and 49 * 255, fit 16 bits, whose
 * products are the tiles of narrow_tile.h. The factors of G go into A^T: its rows give (24, 12, 6, 6) times the sums.
 * All of this holds modulo 2^32, so sums may wrap. A sum y arrives as 9 * 2^s * y with s <= 6; multiplied by the
 * inverse of 9 and shifted, it is exact if -2^25 <= y < 2^25. So many channels as cannot exceed that are one *part*;
 * parts are added up. uint8 becomes int8, the zeros around an image too: then twice as many are one part.
 * sums_of_shift has what is missing.
 *
 * The work is divided into ranges of tiles and groups of panels of filters. As in winograd_blocked.c each thread
 * transforms what its pieces need, and transforms weights where they are used. */
#ifndef PLK_WINOGRAD_NARROW_H
#define PLK_WINOGRAD_NARROW_H
#include "cache.h"
#include "narrow_end.h"
#include "parts.h"

enum { SIDE = 6, POINTS = SIDE * SIDE, TAPS = 9, OUTPUTS = 16 };
enum { DEEP = 2 * CHUNK, SHORTS = 2 * WIDTH < (int)DEEP ? 2 * WIDTH : (int)DEEP };    /* of a chunk; of a vector */
enum { STRIP = 8 };                              /* tiles of a row whose sums are finished together, at most */
enum { PIECES_EACH = 4 };
enum { EXACT = 1 << 25 };

typedef int16_t shorts __attribute__((vector_size(2 * SHORTS), aligned(2), may_alias));
typedef int8_t signed_bytes __attribute__((vector_size(SHORTS), aligned(1), may_alias));
typedef uint8_t plain_bytes __attribute__((vector_size(SHORTS), aligned(1), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

/* How a convolution is divided; sizes of buffers in bytes. */
typedef struct {
    int64_t down, across, tiles;                 /* tiles of an image along each axis; of the batch */
    int64_t ranges, range;                       /* ranges of tiles, tiles of one */
    int64_t panels, groups;                      /* panels of filters, groups of them */
    int64_t units, part;                         /* units of all channels and of a part */
    int64_t v_point, u_point, m_point, v, u, m, y;
    int n_threads;
} winograd_cut;

/* w: panels of filters, each (tap, unit, filter, 2 channels). held: the range whose V a thread has, or -1 */
typedef struct {
    const plk_narrow_conv *c;
    const winograd_cut *k;
    const ending *end;
    const char *x, *w;
    char *scratch;
    int64_t *held;
} winograd;

/* ---- the transforms along one axis ------------------------------------------------------------------------------ */

/* B^T d: 6 inputs, `step` apart */
PLK_INLINE void short_inputs(const shorts *d, int step, shorts *t)
{
    shorts d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step], d5 = d[5 * step];
    shorts even_1 = d4 - 4 * d2, odd_1 = d3 - 4 * d1, even_2 = d4 - d2, odd_2 = 2 * (d3 - d1);
    t[0] = 4 * (d0 - d2) + even_2;
    t[1] = even_1 + odd_1;
    t[2] = even_1 - odd_1;
    t[3] = even_2 + odd_2;
    t[4] = even_2 - odd_2;
    t[5] = d5 - d3 - 2 * odd_2;
}

/* G g without its factors: 3 weights */
PLK_INLINE void short_weights(const shorts *g, int step, shorts *t)
{
    shorts even_1 = g[0] + g[2 * step], even_2 = g[0] + 4 * g[2 * step], odd_2 = 2 * g[step];
    t[0] = g[0];
    t[1] = even_1 + g[step];
    t[2] = even_1 - g[step];
    t[3] = even_2 + odd_2;
    t[4] = even_2 - odd_2;
    t[5] = g[2 * step];
}

/* A^T m with the factors of G: 4 outputs, 24, 12, 6 and 6 times too large */
PLK_INLINE void word_outputs(const words *m, int step, words *y)
{
    words even_1 = m[step] + m[2 * step], odd_1 = m[step] - m[2 * step];
    words even_2 = m[3 * step] + m[4 * step], odd_2 = m[3 * step] - m[4 * step];
    y[0] = 6 * m[0] - 4 * even_1 + even_2;
    y[1] = odd_2 - 2 * odd_1;
    y[2] = even_2 - even_1;
    y[3] = 6 * m[5 * step] + 2 * odd_2 - odd_1;
}

/* ---- images to points ------------------------------------------------------------------------------------------- */

PLK_INLINE shorts widened(const int dtype, plain_bytes x)
{
#if defined(__AVX2__)    /* GCC converts each half of the bytes */
    return (shorts)(dtype == PLK_I8 ? _mm256_cvtepi8_epi16((__m128i)x) : _mm256_cvtepu8_epi16((__m128i)x));
#endif
    return dtype == PLK_I8 ? __builtin_convertvector((signed_bytes)x, shorts) : __builtin_convertvector(x, shorts);
}

/* A chunk of channels of one tile, whose pixels are row and column bytes apart. */
PLK_INLINE void chunk_points(const int dtype, const char *x, int64_t row, int64_t column, char *v, int64_t v_point)
{
    const plain_bytes shift = (uint8_t)(dtype == PLK_U8 ? 0x80 : 0) - (plain_bytes){0};
    for (int h = 0; h < DEEP; h += SHORTS, x += SHORTS, v += 2 * SHORTS) {
        shorts d[SIDE], across[POINTS], out[SIDE];
        for (int i = 0; i < SIDE; i++) {
            _Pragma("GCC unroll 6") for (int j = 0; j < SIDE; j++)
                d[j] = widened(PLK_I8, *(const plain_bytes *)(const void *)(x + i * row + j * column) ^ shift);
            short_inputs(d, 1, across + i * SIDE);
        }
        for (int j = 0; j < SIDE; j++) {
            short_inputs(across + j, SIDE, out);
            _Pragma("GCC unroll 6") for (int i = 0; i < SIDE; i++)
                *(shorts *)(void *)(v + (i * SIDE + j) * v_point) = out[i];
        }
    }
}

/* Tile number `tile` of the batch, channels from `channel` on. */
PLK_INLINE void tile_points(const winograd *w, const int dtype, int64_t tile, int64_t channel, char *v)
{
    const plk_narrow_conv *c = w->c;
    const winograd_cut *k = w->k;
    int64_t image = tile / k->across / k->down, column = c->channels, row = c->size[2] * column;
    int64_t top = tile / k->across % k->down * 4 - c->pad[1], left = tile % k->across * 4 - c->pad[2];
    int64_t n = least(DEEP, column - channel);
    const char *from = w->x + image * c->size[1] * row + channel;
    if (top >= 0 && left >= 0 && top + SIDE <= c->size[1] && left + SIDE <= c->size[2] && n == DEEP) {
        chunk_points(dtype, from + top * row + left * column, row, column, v, k->v_point);
        return;
    }
    char pixels[POINTS * DEEP], *to = pixels;
    for (int64_t i = top; i < top + SIDE; i++)
        for (int64_t j = left; j < left + SIDE; j++, to += DEEP) {
            int inside = i >= 0 && i < c->size[1] && j >= 0 && j < c->size[2];
            if (inside && n == DEEP) {
                memcpy(to, from + i * row + j * column, DEEP);
            } else {
                memset(to, 0, DEEP);
                if (inside)
                    memcpy(to, from + i * row + j * column, (size_t)n);
            }
        }
    chunk_points(dtype, pixels, SIDE * DEEP, DEEP, v, k->v_point);
}

/* V of n tiles: (point, panel of ROWS tiles, chunk of channels, tile, channel). */
static void range_points(const winograd *w, int64_t first, int64_t n, char *v)
{
    const winograd_cut *k = w->k;
    int64_t chunks = up(k->units, CHUNK);
    for (int64_t t = 0; t < n; t += ROWS)
        for (int64_t q = 0; q < chunks; q++)
            for (int64_t r = 0; r < least(ROWS, n - t); r++) {
                char *to = v + ((t / ROWS * chunks + q) * ROWS + r) * 2 * DEEP;
                if (w->c->dtype == PLK_I8)
                    tile_points(w, PLK_I8, first + t + r, q * DEEP, to);
                else
                    tile_points(w, PLK_U8, first + t + r, q * DEEP, to);
            }
}

/* ---- weights to points ------------------------------------------------------------------------------------------ */

static const char *weights_at(const winograd *w, int64_t panel, int64_t unit)
{
    return w->w + (panel * TAPS * w->k->units + unit) * COLUMNS * 2;
}

/* U of a panel's units [begin, begin + n): (point, unit, filter, 2 channels). */
PLK_INLINE void panel_points(const winograd *w, const int dtype, int64_t panel, int64_t begin, int64_t n, char *u)
{
    const winograd_cut *k = w->k;
    int64_t tap = k->units * COLUMNS * 2, u_point = k->u_point;
    const char *from = weights_at(w, panel, begin);
    for (int64_t i = 0; i < n * COLUMNS * 2; i += SHORTS) {
        shorts g[TAPS], half[3 * SIDE], out[SIDE];
        _Pragma("GCC unroll 9") for (int q = 0; q < TAPS; q++)
            g[q] = widened(dtype, *(const plain_bytes *)(const void *)(from + q * tap + i));
        _Pragma("GCC unroll 3") for (int q = 0; q < 3; q++)
            short_weights(g + 3 * q, 1, half + q * SIDE);
        for (int q = 0; q < SIDE; q++) {
            short_weights(half + q, SIDE, out);
            _Pragma("GCC unroll 6") for (int p = 0; p < SIDE; p++)
                *(shorts *)(void *)(u + (p * SIDE + q) * u_point + 2 * i) = out[p];
        }
    }
}

/* ---- points to sums --------------------------------------------------------------------------------------------- */

/* What is missing in the sums of a panel whose data were shifted: 128 times all weights, which U has at (1, 1). */
static void sums_of_shift(const char *u, int64_t units, plk_unit *sums)
{
    const plk_units by = 0x800080 - (plk_units){0};
    plk_units left = {0}, right = {0};
    for (int64_t i = 0; i < units; i++, u += COLUMNS * 4) {
        add_units(PLK_BY_SHORT, &left, by, *(const plk_units *)(const void *)u);
        add_units(PLK_BY_SHORT, &right, by, *(const plk_units *)(const void *)(u + WIDTH * 4));
    }
    *(plk_units *)sums = left;
    *(plk_units *)(sums + WIDTH) = right;
}

/* One tile of a panel: y, lines of `line` outputs, = the sums and `more`, or += them. */
PLK_INLINE void tile_sums(const char *m, int64_t m_point, const plk_unit *more, plk_unit *y, int64_t line, int add)
{
    static const int shift[4] = {3, 2, 1, 1};
    for (int h = 0; h < COLUMNS; h += WIDTH) {
        words in[SIDE], down[4 * SIDE], out[4];
        for (int j = 0; j < SIDE; j++) {
            _Pragma("GCC unroll 6") for (int i = 0; i < SIDE; i++)
                in[i] = *(const words *)(const void *)(m + (i * SIDE + j) * m_point + 4 * h);
            word_outputs(in, 1, out);
            _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
                down[i * SIDE + j] = out[i];
        }
        _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) {
            word_outputs(down + i * SIDE, 1, out);
            _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) {
                plk_units *to = (plk_units *)(y + (i * line + j) * COLUMNS + h);
                plk_units sum = (plk_units)(out[j] * 0x38e38e39u) >> (shift[i] + shift[j]);    /* 9 * that is 1 */
                words total = (words)sum + *(const words *)(const void *)(more + h);
                if (add)
                    total += (words)*to;
                *to = (plk_units)total;
            }
        }
    }
}

/* The tiles [first, first + n) of a panel: their sums over a part of the channels, and after the last part what
 * follows. y: sums of earlier parts. */
static void range_sums(const winograd *w, int64_t first, int64_t n, int64_t panel, const by_column *by, const char *m,
                       const plk_unit *more, plk_unit *y, int add, int last)
{
    const plk_narrow_conv *c = w->c;
    const winograd_cut *k = w->k;
    int64_t filter = panel * COLUMNS, columns = least(COLUMNS, c->filters - filter), some;
    for (int64_t t = 0; t < n; t += some, y += add || !last ? some * OUTPUTS * COLUMNS : 0) {
        int64_t tile = first + t, column = tile % k->across, strip = tile / k->across;
        some = least(STRIP, least(k->across - column, n - t));
        for (int64_t i = 0; i < some; i++)
            tile_sums(m + (t + i) * COLUMNS * 4, k->m_point, more, y + 4 * i * COLUMNS, 4 * some, add);
        int64_t top = strip % k->down * 4, left = column * 4;
        int64_t row = (strip / k->down * c->out[1] + top) * c->out[2] + left, wide = least(4 * some, c->out[2] - left);
        for (int64_t i = 0; last && i < least(4, c->out[1] - top); i++)
            finish(w->end, by, y + i * 4 * some * COLUMNS, row + i * c->out[2], wide, filter, columns);
    }
}

/* ---- pieces ----------------------------------------------------------------------------------------------------- */

/* M of a range of tiles and a panel, over a part of the channels. Meanwhile prefetches the weights of as many units. */
static void multiply_points(const winograd_cut *k, int64_t begin, int64_t units, int64_t n, const char *v,
                            const char *u, char *m, const char *next)
{
    int64_t height = up(k->units, CHUNK) * ROWS * CHUNK * 4, tap = k->units * COLUMNS * 2;
    for (int64_t p = 0; p < POINTS; p++) {
        enum { QUARTERS = POINTS / TAPS };
        int64_t quarter = units * COLUMNS * 2 / QUARTERS;
        for (int64_t i = p % QUARTERS * quarter; i < (p % QUARTERS + 1) * quarter; i += 64)
            __builtin_prefetch(next + p / QUARTERS * tap + i, 0, 2);
        for (int64_t t = 0; t < n; t += ROWS) {
            int64_t rows = least(ROWS, n - t);
            unit_products[PLK_BY_SHORT][0][rows == 1 ? 0 : rows <= FEW_ROWS ? 1 : 2](
                units, (const plk_unit *)(const void *)(v + p * k->v_point + t / ROWS * height + begin * ROWS * 4),
                (const plk_unit *)(const void *)(u + p * k->u_point),
                (plk_unit *)(void *)(m + p * k->m_point + t * COLUMNS * 4), COLUMNS, 0);
        }
    }
}

static int64_t winograd_bytes(const winograd_cut *k) { return k->v + k->u + k->m + k->y; }    /* of a thread */

static void winograd_piece(void *arg, int64_t i)
{
    const winograd *w = arg;
    const winograd_cut *k = w->k;
    int64_t range = i / k->groups, group = i % k->groups, *held = &w->held[pl_thread_pool_index()];
    int64_t first = range * k->range, n = least(k->range, k->tiles - first);
    char *v = w->scratch + pl_thread_pool_index() * winograd_bytes(k), *u = v + k->v, *m = u + k->u;
    if (*held != range)
        range_points(w, first, n, v);
    *held = range;
    int64_t start = group * k->panels / k->groups, end = (group + 1) * k->panels / k->groups;
    for (int64_t p = start; p < end; p++) {
        by_column by = of_columns(w->end, p * COLUMNS, least(COLUMNS, w->c->filters - p * COLUMNS), NULL);
        for (int64_t begin = 0; begin < k->units; begin += k->part) {
            int64_t units = least(k->part, k->units - begin);
            if (w->c->w_dtype == PLK_I8)
                panel_points(w, PLK_I8, p, begin, units, u);
            else
                panel_points(w, PLK_U8, p, begin, units, u);
            int last = begin + units == k->units;
            const char *next = last ? weights_at(w, p + 1 < end ? p + 1 : start, 0) : weights_at(w, p, begin + units);
            multiply_points(k, begin, units, n, v, u, m, next);
            plk_unit more[COLUMNS] = {0};
            if (w->c->dtype == PLK_U8)
                sums_of_shift(u + (SIDE + 1) * k->u_point, units, more);
            range_sums(w, first, n, p, &by, m, more, (plk_unit *)(void *)(m + k->m), begin > 0, last);
        }
    }
}

/* x: channels last; w: panels of bytes; scratch: winograd_bytes for each thread, and 64. */
static void winograd_run(const plk_narrow_conv *c, const winograd_cut *k, const ending *end, const char *x,
                         const char *w, char *scratch)
{
    int64_t held[k->n_threads];
    for (int i = 0; i < k->n_threads; i++)
        held[i] = -1;
    winograd all = {c, k, end, x, w, (char *)(((uintptr_t)scratch + 63) / 64 * 64), held};
    pl_thread_pool_run(k->n_threads, k->ranges * k->groups, winograd_piece, &all);
}

/* ---- the choice ------------------------------------------------------------------------------------------------- */

/* An odd number of cache lines: elements at such a step are in different cache sets. */
static int64_t odd_lines(int64_t bytes) { return (up(bytes, 64) | 1) * 64; }

/* Vector instructions, times the integers of a vector: the transforms of a tile and channel, of a tile and filter, and
 * of the weights of a channel and filter; those of a product are 1. */
enum { TILE_IN = 175, TILE_OUT = 300, WEIGHT = 60 };

static winograd_cut winograd_cut_of(const plk_narrow_conv *c, int n_threads)
{
    int64_t worst = TAPS * 128 * (c->w_dtype == PLK_I8 ? 128 : 255), most = (EXACT - 1) / worst / DEEP * CHUNK;
    winograd_cut k = {.down = up(c->out[1], 4), .across = up(c->out[2], 4), .panels = up(c->filters, COLUMNS),
                      .units = up(c->channels, 2), .n_threads = n_threads};
    k.tiles = c->n * c->size[0] * k.down * k.across;
    k.part = up(up(k.units, up(k.units, most)), CHUNK) * CHUNK;
    int64_t tile = 4 * COLUMNS * (POINTS + OUTPUTS) + 4 * POINTS * k.part;
    int64_t tiles = plk_clamp(plk_cache_own() / 2 / tile / ROWS, 1, INT64_MAX) * ROWS;
    int64_t wanted = n_threads > 1 ? n_threads * PIECES_EACH : 1;
    k.ranges = up(k.tiles, tiles);
    k.range = up(up(k.tiles, k.ranges), ROWS) * ROWS;
    k.ranges = up(k.tiles, k.range);
    k.groups = least(k.panels, up(wanted, k.ranges));
    k.v_point = odd_lines(k.range * up(k.units, CHUNK) * CHUNK * 4);
    k.u_point = odd_lines(k.part * COLUMNS * 4);
    k.m_point = odd_lines(k.range * COLUMNS * 4);
    k.v = POINTS * k.v_point, k.u = POINTS * k.u_point, k.m = POINTS * k.m_point;
    k.y = odd_lines((k.part < k.units ? k.range : least(STRIP, k.range)) * OUTPUTS * COLUMNS * 4);
    return k;
}

/* Does Winograd's algorithm take fewer instructions? */
static int suits_winograd(const plk_narrow_conv *c, int way)
{
    int plain = way == PLK_BY_SHORT && c->groups == 1 && c->stride[0] == 1 && c->kernel[0] == 1 && c->pad[0] == 0;
    for (int i = 1; i < 3; i++)
        plain = plain && c->kernel[i] == 3 && c->stride[i] == 1 && c->dilate[i] == 1;
    if (!plain)
        return 0;
    winograd_cut k = winograd_cut_of(c, 1);
    int64_t tiles = up(k.tiles, ROWS) * ROWS, channels = 2 * k.units, filters = k.panels * COLUMNS;
    int64_t rows = up(c->n * c->size[0] * c->out[1] * c->out[2], ROWS) * ROWS, n_parts = up(k.units, k.part);
    int64_t transforms = tiles * up(channels, DEEP) * DEEP * TILE_IN + tiles * filters * TILE_OUT * n_parts +
                         k.ranges * channels * filters * WEIGHT;
    return tiles * channels * filters * POINTS + transforms < rows * channels * filters * TAPS;
}
#endif
