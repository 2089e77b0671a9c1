/* Convolutions of 16-bit floats and 8-bit integers, as products of pixels with weights; narrow_tile.h.
 *
 * Data have their channels last, so that the elements of a pixel are contiguous: a row of the product is the window of
 * one output, copied from the image to the panel that the tile reads, which costs one copy for all filters. Nothing is
 * padded beforehand. Weights are stored in panels, prepared once in inference. A tile is finished while it is in the L1
 * cache. Depth is not divided: panels of both operands stream from the L2 cache, which is fast enough. */
#pragma GCC optimize("fp-contract=off")    /* the same number with every instruction set */
#include "conv_narrow.h"
#include "cache.h"
#include "engine/core/scratch.h"
#include "gemm.h"
#include "narrow_transpose.h"
#include "narrow_tile.h"
#include "parts.h"
#include "simd.h"

enum { MOST_TILES = 16, LEAST_TILES = 4, ITEMS_EACH = 4 };

/* How one call is computed. A *run* is a part of a window that is contiguous in the image: the channels of a group at
 * one pixel, or a line of the window if channels are not whole units. */
typedef struct {
    const plk_narrow_conv *c;
    const char *x, *w, *bias, *addend;
    const float *scale;
    float addend_scale;
    char *y;
    source a, b;
    int64_t item, w_item, channels, filters;         /* of one group */
    int64_t run, run_units, n_runs, taps, n_units;   /* taps: runs of a line; n_units: of a window */
    int64_t rows, panels, tiles, groups_of_panels;   /* panels: of a group of filters; tiles: of an item */
    const plk_unit *packed;                          /* all panels; or NULL: they are stored as `w` is */
    int whole, integers, status;                     /* whole: sums are integers; integers: results are sums */
} conv;

/* ---- packing the image ----------------------------------------------------------------------------------------- */

static inline void copy_run(char *to, const char *from, int64_t n)
{
    if (n >= 16 && n <= 32) {    /* the lines of a first layer */
        memcpy(to, from, 16);
        memcpy(to + n - 16, from + n - 16, 16);
    } else {
        memcpy(to, from, (size_t)n);
    }
}

/* Row r of a panel: the window of output `pixel` of the batch. line: room for a window. */
static inline void place_window(const conv *k, plk_unit *to, int64_t pixel, int64_t group, char *line)
{
    static const char zeros[4 * CHUNK];
    const plk_narrow_conv *c = k->c;
    int64_t w = pixel % c->out[2], h = pixel / c->out[2] % c->out[1], d = pixel / c->out[2] / c->out[1];
    int64_t image = d / c->out[0], run_bytes = k->run * k->item;
    int64_t room = k->run_units * per_unit(k->a.way) * k->item, all = c->channels, chunks = k->run_units / CHUNK;
    int staged = k->run_units % CHUNK != 0;
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
                if (!staged) {    /* of one pixel: inside the image or not */
                    place_chunks(k->a, to, whole ? source_run : zeros, chunks,
                                 whole ? CHUNK * per_unit(k->a.way) * k->item : 0);
                    to += chunks * ROWS * CHUNK;
                    continue;
                }
                if (whole) {
                    copy_run(at, source_run, run_bytes);
                } else {
                    memset(at, 0, (size_t)run_bytes);
                    if (inside && begin < end)
                        memcpy(at + begin * k->item, source_run + begin * k->item, (size_t)((end - begin) * k->item));
                }
                at += room;
            }
        }
    }
    if (staged)
        place_chunks(k->a, to, line, up(k->n_units, CHUNK), CHUNK * per_unit(k->a.way) * k->item);
}

/* ---- packing weights ------------------------------------------------------------------------------------------- */

/* The bytes of a window of elements, in runs that are filled up to whole units. */
static int64_t window_bytes(const conv *k) { return up(k->n_units, CHUNK) * CHUNK * per_unit(k->a.way) * k->w_item; }

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
        memcpy(to, from, (size_t)(depth * k->w_item));
    } else if (k->w_item == 1) {
        plk_transpose_bytes((uint8_t *)to, room, (const uint8_t *)from, taps, depth, taps);
    } else {
        plk_transpose_halves((uint16_t *)(void *)to, room, (const uint16_t *)(const void *)from, taps, depth, taps);
    }
}

typedef struct { const conv *k; plk_unit *to; int status; } packing;

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
    operand b = {.as = k->b, .from = lines, .line_bytes = bytes, .step_bytes = k->w_item};
    pack_columns(p->to + i * k->n_units * COLUMNS, b, COLUMNS, k->n_units * per_unit(k->b.way));
}

/* A panel that is stored as elements of one row for each unit, converted. */
static void convert_panel(const conv *k, plk_unit *to, const char *from)
{
    convert_run(k->b, to, from, k->n_units * COLUMNS * per_unit(k->b.way));
}

/* ---- the end of a tile ----------------------------------------------------------------------------------------- */

/* What is added to and multiplied with sums, for the columns of a panel. */
typedef struct { float scale[COLUMNS], shift[COLUMNS]; int32_t bias[COLUMNS]; } by_column;

static void floats_of(int dtype, float *to, const char *from, int64_t n)
{
    switch (dtype) {
    case PLK_F32: memcpy(to, from, (size_t)n * sizeof *to); break;
    case PLK_I32:
        for (int64_t i = 0; i < n; i++)
            to[i] = (float)((const int32_t *)(const void *)from)[i];
        break;
    case PLK_I8:
        for (int64_t i = 0; i < n; i++)
            to[i] = ((const int8_t *)from)[i];
        break;
    case PLK_U8:
        for (int64_t i = 0; i < n; i++)
            to[i] = ((const uint8_t *)from)[i];
        break;
    default: convert_run((source){PLK_BY_FLOAT, dtype, 0}, to, from, n);
    }
}

static by_column of_columns(const conv *k, int64_t filter, int64_t n, const int32_t *sums)
{
    const plk_narrow_conv *c = k->c;
    by_column v = {{0}, {0}, {0}};
    for (int64_t q = 0; q < n; q++) {
        v.scale[q] = c->scaled ? k->scale[filter + q] : 1;
        v.bias[q] = k->a.shift ? -k->a.shift * sums[q] : 0;
    }
    if (c->bias_dtype < 0)
        return v;
    const char *bias = k->bias + filter * (int64_t)plk_dtype_bytes(c->bias_dtype);
    if (c->bias_dtype == PLK_F32 || c->bias_dtype == PLK_F16 || c->bias_dtype == PLK_BF16)
        floats_of(c->bias_dtype, v.shift, bias, n);
    else
        for (int64_t q = 0; q < n; q++)
            v.bias[q] += c->bias_dtype == PLK_I32  ? ((const int32_t *)(const void *)bias)[q]
                         : c->bias_dtype == PLK_I8 ? ((const int8_t *)bias)[q]
                                                   : ((const uint8_t *)bias)[q];
    return v;
}

/* The low bytes of a vector's numbers. */
static inline void store_bytes(char *to, vector v)
{
#if defined(__AVX512F__)
    _mm_storeu_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8((__m512i)v));
#else
    for (int l = 0; l < WIDTH; l++)
        to[l] = (char)((plk_units)v)[l];
#endif
}

#if defined(__AVX512F__)
/* vcvtneps2bf16 would take denormals for zeros. */
static inline __m256i brains_of(__m512 v)
{
    __m512i b = _mm512_castps_si512(v), one = _mm512_set1_epi32(1), nan = _mm512_set1_epi32(0x400000);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(b, 16), one);
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(b, _mm512_set1_epi32(0x7fff)), odd);
    r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), b, nan);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}
#endif

/* A vector of results, rounded to a dtype: to nearest even. */
static inline void store_vector(int dtype, char *to, vector v)
{
    float x[WIDTH];
    switch (dtype) {
#if defined(__AVX512F__)
    case PLK_BF16: _mm256_storeu_si256((__m256i *)(void *)to, brains_of((__m512)v)); break;
#endif
    case PLK_F32: *(vector *)(void *)to = v; break;
    case PLK_I8:
    case PLK_U8: store_bytes(to, v + 12582912.0f); break;    /* that sum has no bits below 1 */
    default: memcpy(x, &v, sizeof x); store_run(dtype, to, x, WIDTH);
    }
}

/* A vector of numbers of a dtype. */
static inline vector load_vector(int dtype, const char *from)
{
    float x[WIDTH];
#if defined(__AVX512F__)
    if (dtype == PLK_I8)
        return (vector)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)from)));
    if (dtype == PLK_BF16)
        return (vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)from)),
                                         16);
    if (dtype == PLK_U8)
        return (vector)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)from)));
#endif
    floats_of(dtype, x, from, WIDTH);
    return *(const vector *)x;
}

/* The larger and the smaller one; `v` where one is NaN. */
#if defined(__AVX512F__)
#define AT_LEAST(low, v) (vector)_mm512_max_ps((__m512)(low), (__m512)(v))
#define AT_MOST(high, v) (vector)_mm512_min_ps((__m512)(high), (__m512)(v))
#elif defined(__AVX2__)
#define AT_LEAST(low, v) (vector)_mm256_max_ps((__m256)(low), (__m256)(v))
#define AT_MOST(high, v) (vector)_mm256_min_ps((__m256)(high), (__m256)(v))
#else
#define CHOOSE(mask, a, b) (vector)(((plk_units)(mask) & (plk_units)(a)) | (~(plk_units)(mask) & (plk_units)(b)))
#define AT_LEAST(low, v) CHOOSE((low) > (v), low, v)
#define AT_MOST(high, v) CHOOSE((high) < (v), high, v)
#endif

/* Columns [q, q + WIDTH) of one row: the sum, scaled and shifted, and cut to what is wanted. */
PLK_INLINE vector finished(const conv *k, const by_column *by, const plk_unit *v, const char *addend, int q, float low,
                           float high)
{
    vector scale = *(const vector *)(by->scale + q), shift = *(const vector *)(by->shift + q), x, lows, highs;
    if (k->whole)
        x = __builtin_convertvector(*(const plk_units *)(v + q) + *(const plk_units *)(by->bias + q), vector);
    else
        x = *(const vector *)(const void *)(v + q);
    x = x * scale + shift;
    if (addend) {
        int dtype = k->c->add_dtype;
        vector more = load_vector(dtype, addend + q * (int64_t)plk_dtype_bytes(dtype));
        x += more * k->addend_scale;
    }
    lows = low - (vector){0}, highs = high - (vector){0};
    return AT_MOST(highs, AT_LEAST(lows, x));
}

/* Rows of outputs from `row` on, filters from `filter` on, of which there are `columns`. */
static void finish(const conv *k, const by_column *by, const plk_unit *v, int64_t row, int64_t rows, int64_t filter,
                   int64_t columns)
{
    const plk_narrow_conv *c = k->c;
    int64_t out_item = (int64_t)plk_dtype_bytes(c->out_dtype), all = c->filters;
    int64_t add_item = c->add_dtype < 0 ? 0 : (int64_t)plk_dtype_bytes(c->add_dtype);
    int whole = c->out_dtype == PLK_I8 || c->out_dtype == PLK_U8, later = c->act.loop != 0;
    float x[ROWS * COLUMNS], low = c->low, high = c->high;
    char done[4 * COLUMNS], more[4 * COLUMNS] = {0};
    if (whole) {    /* limits that the dtype holds; an activation comes before them */
        low = low > (c->out_dtype == PLK_I8 ? -128 : 0) ? low : c->out_dtype == PLK_I8 ? -128 : 0;
        high = high < (c->out_dtype == PLK_I8 ? 127 : 255) ? high : c->out_dtype == PLK_I8 ? 127 : 255;
    }
    for (int64_t r = 0; r < rows; r++, v += COLUMNS) {
        char *to = k->y + ((row + r) * all + filter) * out_item, *at = columns < COLUMNS ? done : to;
        const char *addend = c->add_dtype < 0 ? NULL : k->addend + ((row + r) * all + filter) * add_item;
        if (addend && columns < COLUMNS)
            addend = memcpy(more, addend, (size_t)(columns * add_item));
        for (int q = 0; q < COLUMNS; q += WIDTH) {
            vector y = finished(k, by, v, addend, q, low, high);
            if (later)
                *(vector *)(x + r * COLUMNS + q) = y;
            else
                store_vector(c->out_dtype, at + q * out_item, y);
        }
        if (at == done && !later)
            memcpy(to, done, (size_t)(columns * out_item));
    }
    if (!later)
        return;
    plk_apply(&c->act, rows * COLUMNS, x);
    for (int64_t r = 0; r < rows; r++) {
        for (int q = 0; q < COLUMNS; q += WIDTH)
            store_vector(c->out_dtype, done + q * out_item, *(const vector *)(x + r * COLUMNS + q));
        memcpy(k->y + ((row + r) * all + filter) * out_item, done, (size_t)(columns * out_item));
    }
}

/* The same of sums that stay integers: what lies beyond the dtype becomes its limit. */
static void finish_integers(const conv *k, const by_column *by, const plk_unit *v, int64_t row, int64_t rows,
                            int64_t filter, int64_t columns)
{
    const plk_narrow_conv *c = k->c;
    int64_t item = (int64_t)plk_dtype_bytes(c->out_dtype);
    int32_t sums[COLUMNS], low = c->out_dtype == PLK_I8 ? -128 : 0, high = low + 255;
    for (int64_t r = 0; r < rows; r++, v += COLUMNS) {
        char *to = k->y + ((row + r) * c->filters + filter) * item;
        for (int q = 0; q < COLUMNS; q++) {
            int32_t sum = (int32_t)((uint32_t)v[q] + (uint32_t)by->bias[q]);
            sums[q] = ((v[q] ^ sum) & (by->bias[q] ^ sum)) < 0 ? (sum < 0 ? INT32_MAX : INT32_MIN) : sum;
        }
        if (c->out_dtype == PLK_I32)
            memcpy(to, sums, (size_t)columns * sizeof *sums);
        else
            for (int64_t q = 0; q < columns; q++)
                to[q] = (char)(sums[q] < low ? low : sums[q] > high ? high : sums[q]);
    }
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
    int64_t height = k->tiles * ROWS, blocks = up(k->rows, height), split = k->groups_of_panels;
    int64_t part = i / split % blocks, group = i / split / blocks, row = part * height;
    int64_t n_rows = least(height, k->rows - row), per_tile = ROWS * up(k->n_units, CHUNK) * CHUNK;
    int64_t begin = i % split * k->panels / split, end = (i % split + 1) * k->panels / split;
    int64_t line = (up(k->n_units, CHUNK) * CHUNK * per_unit(k->a.way) * k->item + 63) / 64 * 64;
    int64_t of_b = k->packed ? 0 : k->n_units * COLUMNS, in_place = 4 / k->w_item == per_unit(k->b.way);
    plk_unit *a = plk_gemm_scratch(sizeof *a * (size_t)(k->tiles * per_tile + of_b) + (size_t)line), v[ROWS * COLUMNS];
    if (!a) {
        __atomic_store_n(&k->status, PL_ENOMEM, __ATOMIC_RELAXED);
        return;
    }
    plk_unit *room = a + k->tiles * per_tile;
    char *window = memset(room + of_b, 0, (size_t)line);
    for (int64_t r = 0; r < n_rows; r++)
        place_window(k, a + r / ROWS * per_tile + r % ROWS * CHUNK, row + r, group, window);
    if (n_rows % ROWS)    /* what a tile reads past the last row */
        for (int64_t r = n_rows % ROWS; r < ROWS; r++)
            for (int64_t u = 0; u < up(k->n_units, CHUNK); u++)
                memset(a + n_rows / ROWS * per_tile + (u * ROWS + r) * CHUNK, 0, CHUNK * sizeof *a);
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
        by_column by = of_columns(k, filter, columns, sums);
        for (int64_t r = 0; r < n_rows; r += ROWS) {
            int64_t rows = least(ROWS, n_rows - r);
            unit_products[k->a.way][0][rows == 1 ? 0 : rows <= FEW_ROWS ? 1 : 2](
                k->n_units, a + r / ROWS * per_tile, panel, v, COLUMNS, 0);
            (k->integers ? finish_integers : finish)(k, &by, v, row + r, rows, filter, columns);
        }
    }
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
    int64_t tile = ROWS * 4 * up(k->n_units, CHUNK) * CHUNK, most = plk_cache_own() / 8 * 3 / tile;
    int64_t all = up(k->rows, ROWS), wanted = n_threads > 1 ? n_threads * ITEMS_EACH : 1;
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
    conv k = {.c = c, .x = bufs[0], .w = bufs[1], .whole = !floats, .rows = c->n * out, .addend_scale = 1,
              .channels = c->channels / c->groups, .filters = c->filters / c->groups,
              .item = (int64_t)plk_dtype_bytes(c->dtype), .w_item = (int64_t)plk_dtype_bytes(c->w_dtype)};
    k.scale = c->scaled ? bufs[at++] : NULL;
    k.bias = c->bias_dtype >= 0 ? bufs[at++] : NULL;
    k.addend = c->add_dtype >= 0 ? bufs[at++] : NULL;
    if (c->add_scaled)
        k.addend_scale = *(const float *)bufs[at++];
    k.y = bufs[at];
    k.integers = k.whole && !c->scaled && c->add_dtype < 0 && c->low == -INFINITY && c->high == INFINITY &&
                 (c->out_dtype == PLK_I32 || c->out_dtype == PLK_I8 || c->out_dtype == PLK_U8);
    k.a = (source){way, c->dtype, way == PLK_BY_BYTE && c->dtype == PLK_I8 ? 128 : 0};
    k.b = (source){way, c->w_dtype, 0};
    int lines = c->groups == 1 && !c->columns && c->kernel[2] > 1 && c->dilate[2] == 1 && k.channels % per != 0;
    k.taps = lines ? 1 : c->kernel[2];
    k.run = lines ? c->kernel[2] * k.channels : k.channels;
    k.run_units = up(k.run, per), k.n_runs = c->kernel[0] * c->kernel[1] * k.taps;
    k.n_units = k.run_units * k.n_runs, k.panels = up(k.filters, COLUMNS);
    int n_threads = plk_gemm_threads(k.rows, c->filters, k.n_units * per);
    int turn_x = !c->x_last && size > 1 && c->channels > 1, turn_y = !c->y_last && out > 1 && c->filters > 1;
    int stored = c->columns == COLUMNS && c->per_unit == per && c->groups == 1;
    int64_t out_item = (int64_t)plk_dtype_bytes(c->out_dtype), of_x = 0, of_y = 0, of_w = 0, of_add = 0;
    if (turn_x)
        of_x = round_up(c->n * size * c->channels * k.item);
    if (turn_y)
        of_y = round_up(k.rows * c->filters * out_item);
    if (turn_y && k.addend)
        of_add = round_up(k.rows * c->filters * (int64_t)plk_dtype_bytes(c->add_dtype));
    if (!stored)
        of_w = c->groups * k.panels * k.n_units * COLUMNS * (int64_t)sizeof(plk_unit);
    char *memory = of_x + of_y + of_add + of_w ? pl_scratch((size_t)(of_x + of_y + of_add + of_w)) : NULL;
    if (!memory && of_x + of_y + of_add + of_w)
        return pl_fail(PL_ENOMEM, "out of memory for a convolution");
    if (turn_x) {
        turn_images(memory, k.x, c->n, c->channels, size, k.item);
        k.x = memory;
    }
    if (of_add) {
        turn_images(memory + of_x + of_y, k.addend, c->n, c->filters, out, (int64_t)plk_dtype_bytes(c->add_dtype));
        k.addend = memory + of_x + of_y;
    }
    if (!stored) {
        packing p = {&k, (plk_unit *)(void *)(memory + of_x + of_y + of_add), PL_OK};
        pl_thread_pool_run(pl_threads(c->groups * k.panels * k.n_units * COLUMNS / 4), c->groups * k.panels, pack_panel,
                           &p);
        k.packed = p.to, k.status = p.status;
    }
    char *y = k.y;
    k.y = turn_y ? memory + of_x : y;
    if (!k.status) {
        divide(&k, n_threads);
        pl_thread_pool_run(n_threads, c->groups * up(k.rows, k.tiles * ROWS) * k.groups_of_panels, item, &k);
    }
    if (turn_y && !k.status)
        turn_images(y, k.y, c->n, out, c->filters, out_item);
    return k.status ? pl_fail(k.status, "out of memory for a convolution") : PL_OK;
}
