/* Included by conv_blocked.c for blocks of LANES channels, each a VEC; FMA: 1 where an instruction multiplies and adds
 * one. */
#include "rectify_lanes.h"

/* Inputs and outputs of a tile. */
typedef struct {
    const float *x, *w, *start;          /* start: initial values of the sums */
    const int32_t *taps;
    int64_t n_taps, n_rest, rest;        /* n_rest of the taps are of the last block, which has `rest` channels */
    int64_t w_step;                      /* *_step: to the next block of filters; *_row: to the next output */
    int64_t start_row, start_step, y_step;
    float *y;
    const float *shift;                  /* added when the sum is done, a vector for each block; or NULL */
    int rectify;                         /* PLK_RELU or PLK_CLIP then, or 0 */
    float low, high;
} NAME(sums);

#if FMA
#define ADD(to, s, u) __asm__("vfmadd231ps %2, %1, %0" : "+v"(to) : "v"(s), "v"(u))
#define FENCE __asm__ volatile("" ::: "memory")
#else
#define ADD(to, s, u) to += (s) * (u)
#define FENCE (void)0
#endif
/* Channel l of a block. The fence stops the compiler from moving loads of later channels here: no register is free. */
#define STEP(l) \
    { \
        VEC u[MOST_BLOCKS]; \
        UNROLL for (int b = 0; b < blocks; b++) u[b] = LOAD(w + b * w_step + (l) * LANES); \
        UNROLL for (int r = 0; r < rows; r++) { \
            VEC v = x[r * x_lanes + (l)] - (VEC){0}; \
            UNROLL for (int b = 0; b < blocks; b++) ADD(acc[r][b], v, u[b]); \
        } \
        FENCE; \
    }

/* `rows` outputs from output `at` on, of some blocks of filters */
INLINE void NAME(tile)(const int rows, const int blocks, const int x_lanes, const NAME(sums) *s, int64_t at)
{
    VEC acc[MOST_ROWS][MOST_BLOCKS];
    const float *first = s->x + at * x_lanes, *w = s->w, *start = s->start + at * s->start_row;
    const int32_t *tap = s->taps, *end = tap + s->n_taps, *whole = end - s->n_rest;
    int64_t w_step = s->w_step;
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int b = 0; b < blocks; b++)
            acc[r][b] = LOAD(start + r * s->start_row + b * s->start_step);
    for (; tap < whole; tap++, w += x_lanes * LANES) {
        const float *x = first + *tap;
        STEP(0)
        if (x_lanes > 1) {
            STEP(1) STEP(2) STEP(3)
#if LANES >= 8
            STEP(4) STEP(5) STEP(6) STEP(7)
#endif
#if LANES == 16
            STEP(8) STEP(9) STEP(10) STEP(11) STEP(12) STEP(13) STEP(14) STEP(15)
#endif
        }
    }
    for (; x_lanes > 1 && tap < end; tap++, w += x_lanes * LANES) {
        const float *x = first + *tap;
        _Pragma("GCC unroll 1") for (int64_t l = 0; l < s->rest; l++)
            STEP(l)
    }
    if (s->shift)
        UNROLL for (int b = 0; b < blocks; b++) {
            VEC shift = LOAD(s->shift + b * LANES);
            UNROLL for (int r = 0; r < rows; r++)
                acc[r][b] += shift;
        }
    if (s->rectify)
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int b = 0; b < blocks; b++)
                NAME(rectify)(&acc[r][b], s->rectify, s->low, s->high);
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int b = 0; b < blocks; b++)
            STORE(s->y + (at + r) * LANES + b * s->y_step, acc[r][b]);
}
#undef STEP
#undef FENCE
#undef ADD

typedef void NAME(tile_fn)(const NAME(sums) *s, int64_t at);
#define TILE(rows, blocks) \
    static __attribute__((noinline)) void NAME(tile_##rows##_##blocks)(const NAME(sums) *s, int64_t at) \
    { \
        NAME(tile)(rows, blocks, LANES, s, at); \
    } \
    static __attribute__((noinline)) void NAME(plain_##rows##_##blocks)(const NAME(sums) *s, int64_t at) \
    { \
        NAME(tile)(rows, blocks, 1, s, at); \
    }
#define TILES_TO_4(blocks) TILE(1, blocks) TILE(2, blocks) TILE(3, blocks) TILE(4, blocks)
#define TILES_TO_6(blocks) TILES_TO_4(blocks) TILE(5, blocks) TILE(6, blocks)
#define TO_4(of, blocks) NAME(of##_1_##blocks), NAME(of##_2_##blocks), NAME(of##_3_##blocks), NAME(of##_4_##blocks)
#define TO_6(of, blocks) TO_4(of, blocks), NAME(of##_5_##blocks), NAME(of##_6_##blocks)
TILES_TO_6(1) TILES_TO_6(2)
#if MOST_BLOCKS == 4
TILES_TO_6(3) TILES_TO_6(4)
#define OF_BLOCKS(of) {{TO_6(of, 1)}, {TO_6(of, 2)}, {TO_6(of, 3)}, {TO_6(of, 4)}}
#else
TILES_TO_4(3)
#define OF_BLOCKS(of) {{TO_6(of, 1)}, {TO_6(of, 2)}, {TO_4(of, 3)}}
#endif
static NAME(tile_fn) *const NAME(tiles)[2][MOST_BLOCKS][MOST_ROWS] = {OF_BLOCKS(plain), OF_BLOCKS(tile)};
#undef TILE
#undef TILES_TO_4
#undef TILES_TO_6
#undef TO_4
#undef TO_6
#undef OF_BLOCKS

/* `pixels` adjacent outputs */
static void NAME(pixels)(NAME(tile_fn) *const *tiles, int64_t rows, const NAME(sums) *s, int64_t pixels)
{
    int64_t n_tiles = over(pixels, rows), height = pixels / n_tiles, higher = pixels % n_tiles;
    for (int64_t i = 0, at = 0, end; i < n_tiles; i++, at = end) {
        end = at + height + (i < higher);         /* heights differ by one at most, because a tile of one row is slow */
        tiles[end - at - 1](s, at);
    }
}

/* A part of one image's outputs, blocks of filters [begin, end); x: the first input of the part */
static void NAME(item)(const work *w, const float *x, int64_t image, int64_t part, int64_t begin, int64_t end)
{
    const plk_conv_blocked *p = w->p;
    int64_t out = p->out[0] * p->out[1], unit = w->in_place ? 1 : p->out[1], first = part * w->per_part * unit;
    int64_t pixels = least(w->per_part * unit, out - first), run = pixels,
            x_row = w->row_step * w->phases * w->width * p->x_lanes;
    int64_t at_once = DEPTH / p->x_lanes, per_group = p->filters / LANES / p->groups;
    const float *weights = w->bufs[1], *bias = w->bufs[2];
    const float *addend = p->add ? (const float *)w->bufs[3] + image * p->filters * out : NULL;
    float *y = (float *)w->bufs[3 + p->add] + image * p->filters * out;
    if (!w->in_place && x_row != p->out[1] * p->x_lanes)
        run = p->out[1];                          /* rows of outputs whose inputs are not adjacent */
    for (int64_t t = 0; t < w->n_taps; t += at_once) {
        int last = t + at_once >= w->n_taps, again = t > 0;
        for (int64_t f = begin, blocks; f < end; f += blocks) {
            int64_t left = least(end - f, per_group - f % per_group), n_taps = least(at_once, w->n_taps - t);
            blocks = next_blocks(left, w->n_taps * p->x_lanes);
            NAME(sums) s = {
                .taps = w->taps + t, .n_taps = n_taps, .rest = p->channels % p->x_lanes,
                .n_rest = least(n_taps, most(0, t + n_taps - w->n_whole)), .w_step = w->n_taps * p->x_lanes * LANES,
                .y_step = out * LANES, .shift = last && addend ? bias + f * LANES : NULL,
                .rectify = last ? p->rectify : 0, .low = (float)p->act.scalars[0], .high = (float)p->act.scalars[1],
            };
            s.w = weights + f * s.w_step + t * p->x_lanes * LANES;
            s.start_row = again || addend ? LANES : 0;
            s.start_step = again || addend ? out * LANES : LANES;
            for (int64_t i = 0; i < pixels; i += run) {
                int64_t at = (f * out + first + i) * LANES;
                s.x = x + f / per_group * w->group + i / run * x_row;
                s.y = y + at;
                s.start = again ? y + at : addend ? addend + at : bias + f * LANES;
                NAME(pixels)(NAME(tiles)[p->x_lanes > 1][blocks - 1], tile_rows[blocks - 1], &s, run);
            }
            for (int64_t b = 0; b < blocks && last && !p->rectify; b++)
                plk_apply(&p->act, pixels * LANES, y + ((f + b) * out + first) * LANES);
        }
    }
}
