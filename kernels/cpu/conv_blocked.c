/* Direct convolutions on blocks of channels. Outputs are computed in groups of pixels whose inputs stay in the cache
 * for all blocks of filters. For 1x1 windows the image is read in place. Otherwise the rows that a group needs are
 * first copied with their padding, columns sorted by their phase of the stride, so that adjacent outputs read adjacent
 * inputs for any stride. The epilogue is applied to a tile, or to a finished block. */
#include "conv_blocked.h"
#include "cache.h"
#include "engine/core/scratch.h"
#include "blocks_of_lanes.h"
#include "parts.h"
#include "pointwise.h"
#include "simd.h"

/* A tile is so many outputs (rows) of 1, 2, ... blocks of filters: its sums leave registers for their operands. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define MOST_BLOCKS 4                             /* 32 registers */
static const int64_t tile_rows[MOST_BLOCKS] = {6, 6, 6, 6};
#else
#define MOST_BLOCKS 3
static const int64_t tile_rows[MOST_BLOCKS] = {6, 6, 4};
#endif
/* DEPTH: multiply-adds between two visits of an output */
enum { MOST_ROWS = 6, SHORT = 64, PIXELS = 96, DEPTH = 256 };

#define UNROLL _Pragma("GCC unroll 8")
#define INLINE static inline __attribute__((always_inline))
#define LOAD(p) (*(const VEC *)(p))
#define STORE(p, v) (*(VEC *)(p) = (v))

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t over(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* How one call is divided: items are (image, part of its rows or pixels, slice of its blocks of filters). Copied inputs
 * of a part are (channels / x_lanes, rows, phases of columns, width, x_lanes). */
typedef struct {
    const plk_conv_blocked *p;
    void *const *bufs;
    /* channels: with the rest of the last block; n_taps: of one group, n_whole: those of whole blocks; group: from one
     * group's inputs to the next one's */
    int64_t channels, parts, per_part, slices, n_taps, n_whole, group;
    /* offsets of the inputs of a tile for each element of the window and block of channels */
    int32_t *taps;
    int in_place;
    int64_t rows, row_gap, row_step, phases, width, place_bytes;   /* row_gap: between rows of x adjacent in the copy */
    char *places;                        /* copied inputs of each thread, after the number of their part */
} work;

/* How many of the `left` blocks of filters the next tiles take: no single one is left after wider ones. Short sums take
 * two: these tiles mostly load and store, and blocks may be at distances that fall into one cache set. */
static int64_t next_blocks(int64_t left, int64_t depth)
{
    if (depth < SHORT && left > 3)
        return 2;
    return left <= MOST_BLOCKS ? left : left == MOST_BLOCKS + 1 ? over(left, 2) : MOST_BLOCKS > 3 ? MOST_BLOCKS : 2;
}

#define PER_BLOCK "conv_blocked_lanes.h"
#include "per_block.h"

/* The inputs of a part, copied to `to`. */
static void gather(const work *w, int64_t image, int64_t part, float *to)
{
    const plk_conv_blocked *p = w->p;
    int64_t lanes = p->x_lanes, top = part * w->per_part * p->stride[0] - p->pad[0], row = p->size[1] * lanes;
    const float *x = (const float *)w->bufs[0] + image * w->channels * p->size[0] * p->size[1];
    for (int64_t c = 0; c < w->channels / lanes; c++, x += p->size[0] * row)
        for (int64_t i = 0; i < w->rows; i++) {
            int64_t h = top + i * w->row_gap, inside = h >= 0 && h < p->size[0];
            for (int64_t phase = 0; phase < w->phases; phase++, to += w->width * lanes) {
                int64_t left = phase - p->pad[1], first = left < 0 ? least(w->width, over(-left, p->stride[1])) : 0;
                int64_t n = p->size[1] > left ? least(w->width, over(p->size[1] - left, p->stride[1])) : 0, j = first;
                if (!inside || n <= first) {
                    memset(to, 0, (size_t)(w->width * lanes) * sizeof *to);
                    continue;
                }
                if (first > 0)
                    memset(to, 0, (size_t)(first * lanes) * sizeof *to);
                if (n < w->width)
                    memset(to + n * lanes, 0, (size_t)((w->width - n) * lanes) * sizeof *to);
                const float *from = x + h * row + left * lanes;
                if (p->stride[1] == 1)
                    memcpy(to + first * lanes, from + first * lanes, (size_t)((n - first) * lanes) * sizeof *to);
                else if (lanes == 4)
                    for (; j < n; j++)
                        memcpy(to + j * 4, from + j * p->stride[1] * 4, 4 * sizeof *to);
                else if (lanes == 8)
                    for (; j < n; j++)
                        memcpy(to + j * 8, from + j * p->stride[1] * 8, 8 * sizeof *to);
                else if (lanes == 16)
                    for (; j < n; j++)
                        memcpy(to + j * 16, from + j * p->stride[1] * 16, 16 * sizeof *to);
                else if (p->stride[1] == 2)
                    for (; j < n; j++)
                        to[j] = from[j * 2];
                else
                    for (; j < n; j++)
                        to[j] = from[j * p->stride[1]];
            }
        }
}

static void piece(void *arg, int64_t i)
{
    const work *w = arg;
    const plk_conv_blocked *p = w->p;
    int64_t part = i / w->slices, slice = i % w->slices, blocks = p->filters / p->lanes;
    int64_t begin = slice * blocks / w->slices, end = (slice + 1) * blocks / w->slices;
    const float *x;
    if (w->in_place)
        x = (const float *)w->bufs[0] + (part / w->parts * w->channels * p->size[0] * p->size[1] +
                                         part % w->parts * w->per_part * p->x_lanes);
    else {
        int64_t *holds = (int64_t *)(void *)(w->places + (size_t)pl_thread_pool_index() * (size_t)w->place_bytes);
        float *copy = (float *)(void *)((char *)holds + 64);
        if (*holds != part)
            gather(w, part / w->parts, part % w->parts, copy);
        *holds = part;
        x = copy;
    }
    OF_LANES(p->lanes, item)(w, x, part / w->parts, part % w->parts, begin, end);
}

/* Rows of outputs whose inputs are copied together: they must fit the cache, but few would copy many rows twice. */
static int64_t rows_of(work *w, int n_threads)
{
    const plk_conv_blocked *p = w->p;
    /* rows and columns that no window uses are skipped if it is one element high or wide */
    w->row_gap = p->kernel[0] == 1 ? p->stride[0] : 1;
    w->row_step = p->kernel[0] == 1 ? 1 : p->stride[0];
    w->phases = p->kernel[1] == 1 ? 1 : p->stride[1];
    w->width = p->out[1] + (p->kernel[1] - 1) * p->dilate[1] / p->stride[1];
    int64_t row = (int64_t)sizeof(float) * w->channels * w->phases * w->width,
            both = (p->kernel[0] - 1) * p->dilate[0] + 1;
    int64_t fit = (plk_cache_own() / 4 * 3 / row - both) / w->row_step + 1;
    int64_t share = over(p->n * p->out[0], 4 * n_threads);
    int64_t rows = least(over(p->kernel[0] == 1 ? PIXELS : 4 * PIXELS, p->out[1]), least(fit, share));
    rows = rows > over(PIXELS / 2, p->out[1]) ? rows : over(PIXELS / 2, p->out[1]);
    return over(p->out[0], over(p->out[0], least(rows, p->out[0])));
}

static void plan(work *w, int n_threads)
{
    const plk_conv_blocked *p = w->p;
    int64_t pixels = p->out[0] * p->out[1], blocks = p->filters / p->lanes;
    if (w->in_place) {
        w->parts = pixels < PLK_SMALL_IMAGE ? 1 : over(pixels, PIXELS);
        w->per_part = over(pixels, w->parts);
    } else
        w->per_part = rows_of(w, n_threads);
    w->parts = over(w->in_place ? pixels : p->out[0], w->per_part);
    /* slices of filters: as many for each thread, of about as many blocks as the widest tile has */
    int64_t tiles = most(1, blocks / (n_threads * MOST_BLOCKS));
    w->slices = p->n * w->parts >= 4 * n_threads ? 1 : least(blocks, n_threads * tiles);
    int64_t window = p->kernel[0] * p->kernel[1];
    w->n_taps = w->channels / p->groups / p->x_lanes * window;
    w->n_whole = p->channels / p->groups / p->x_lanes * window;
    w->group = w->channels / p->groups * p->size[0] * p->size[1];
    if (w->in_place)
        return;
    w->rows = (w->per_part - 1) * w->row_step + (p->kernel[0] - 1) * p->dilate[0] + 1;
    w->place_bytes = (64 + (int64_t)sizeof(float) * w->channels * w->rows * w->phases * w->width + 63) / 64 * 64;
    w->group = w->channels / p->groups * w->rows * w->phases * w->width;
}

static void fill_taps(const work *w)
{
    const plk_conv_blocked *p = w->p;
    int32_t *tap = w->taps;
    for (int64_t c = 0; c < w->channels / p->groups / p->x_lanes; c++)
        for (int64_t i = 0; i < p->kernel[0]; i++)
            for (int64_t j = 0; j < p->kernel[1]; j++) {
                int64_t column = j * p->dilate[1], row = c * w->rows + i * p->dilate[0];
                int64_t at = w->in_place ? c * p->size[0] * p->size[1]
                                         : (row * w->phases + column % w->phases) * w->width + column / p->stride[1];
                *tap++ = (int32_t)(at * p->x_lanes);
            }
}

/* bufs: x, w, bias, addend if any, y (which may be the addend) */
PLK_KERNEL(plk_conv_blocked_run)
{
    const plk_conv_blocked *p = params;
    int64_t outputs = p->n * p->out[0] * p->out[1];
    int n_threads = pl_threads(outputs * p->channels / p->groups * p->kernel[0] * p->kernel[1] * p->filters / 8);
    work w = {.p = p, .bufs = bufs, .channels = over(p->channels, p->x_lanes) * p->x_lanes};
    w.in_place = p->kernel[0] * p->kernel[1] * p->stride[0] * p->stride[1] == 1 && !p->pad[0] && !p->pad[1];
    (void)scalars;
    plan(&w, n_threads);
    int64_t taps = (w.n_taps * (int64_t)sizeof(int32_t) + 63) / 64 * 64;
    char *memory = pl_scratch((size_t)(taps + (w.in_place ? 0 : n_threads * w.place_bytes)));
    if (!memory)
        return pl_fail(PL_ENOMEM, "out of memory for a convolution");
    w.taps = (int32_t *)(void *)memory;
    w.places = memory + taps;
    fill_taps(&w);
    for (int i = 0; i < n_threads && !w.in_place; i++)
        *(int64_t *)(void *)(w.places + i * w.place_bytes) = -1;
    pl_thread_pool_run(n_threads, p->n * w.parts * w.slices, piece, &w);
    return PL_OK;
}
