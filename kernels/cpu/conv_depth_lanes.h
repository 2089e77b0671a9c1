/* Included by conv_depth.c for blocks of LANES channels, each a VEC. */
#include "rectify_lanes.h"

/* A row of outputs. x: the first row of inputs that its windows see, of n_rows; w: that row's taps. */
typedef struct {
    const plk_conv_blocked *p;
    const float *x, *w, *bias, *addend, *next;
    float *y;
    int64_t n_rows;
} NAME(line);

/* The inputs at a column, or zeros outside. */
INLINE const float *NAME(at)(const plk_conv_blocked *p, const float *x, int64_t column)
{
    return (uint64_t)column < (uint64_t)p->size[1] ? x + column * LANES : zeros;
}

/* `columns` outputs from column `first` on. width, stride: of windows whose taps are adjacent and whose padding is at
 * most half of them: only the outermost taps may be outside. width 0: of any windows; outside: may their taps be? */
INLINE void NAME(tile)(const int columns, const int width, const int stride, const int outside, const NAME(line) *s,
                       int64_t first)
{
    const plk_conv_blocked *p = s->p;
    const float *x = s->x, *w = s->w;
    VEC acc[COLUMNS], tap[MOST_TAPS];
    UNROLL for (int i = 0; i < columns; i++)
        acc[i] = LOAD(s->bias);
    for (int64_t h = 0; stride == 2 && h < p->stride[0]; h++) {      /* rows that the next row of outputs sees first */
        const float *next = s->next + (h * p->size[1] + first * p->stride[1]) * LANES;
        for (int64_t i = 0; i < columns * p->stride[1] * LANES; i += 16)
            __builtin_prefetch(next + i);
    }
    for (int64_t h = 0; h < s->n_rows; h++, x += p->dilate[0] * p->size[1] * LANES) {
        int64_t left = first * p->stride[1] - p->pad[1];
        for (int64_t v = 0; width == 0 && v < p->kernel[1]; v++, w += LANES)
            UNROLL for (int i = 0; i < columns; i++) {
                int64_t column = left + v * p->dilate[1] + i * p->stride[1];
                acc[i] += LOAD(outside ? NAME(at)(p, x, column) : x + column * LANES) * LOAD(w);
            }
        if (width == 0)
            continue;
        UNROLL for (int v = 0; v < width; v++)
            tap[v] = LOAD(w + v * LANES);
        w += width * LANES;
        UNROLL for (int j = 0; j <= (columns - 1) * stride + width - 1; j++) {
            int near = j < width / 2 || j >= (columns - 1) * stride + width - width / 2;
            VEC value = LOAD(near ? NAME(at)(p, x, left + j) : x + (left + j) * LANES);
            UNROLL for (int v = 0; v < width; v++)
                if (j >= v && (j - v) % stride == 0 && (j - v) / stride < columns)
                    acc[(j - v) / stride] += value * tap[v];
        }
    }
    if (s->addend)
        UNROLL for (int i = 0; i < columns; i++)
            acc[i] += LOAD(s->addend + (first + i) * LANES);
    if (p->rectify)
        UNROLL for (int i = 0; i < columns; i++)
            NAME(rectify)(&acc[i], p->rectify, (float)p->act.scalars[0], (float)p->act.scalars[1]);
    UNROLL for (int i = 0; i < columns; i++)
        STORE(s->y + (first + i) * LANES, acc[i]);
}

typedef void NAME(tile_fn)(const NAME(line) *s, int64_t first);
#define TILE(columns, name, width, stride, outside) \
    static __attribute__((noinline)) void NAME(name##_##columns)(const NAME(line) *s, int64_t first) \
    { \
        NAME(tile)(columns, width, stride, outside, s, first); \
    }
#define TILES(...) \
    TILE(1, __VA_ARGS__) TILE(2, __VA_ARGS__) TILE(3, __VA_ARGS__) TILE(4, __VA_ARGS__) TILE(5, __VA_ARGS__) \
    TILE(6, __VA_ARGS__) TILE(7, __VA_ARGS__) TILE(8, __VA_ARGS__)
TILES(any, 0, 1, 1)
TILES(inner, 0, 1, 0)
TILES(three, 3, 1, 1)
TILES(three_apart, 3, 2, 1)
TILES(five, 5, 1, 1)
TILES(five_apart, 5, 2, 1)
#define OF(name) \
    {NAME(name##_1), NAME(name##_2), NAME(name##_3), NAME(name##_4), NAME(name##_5), NAME(name##_6), NAME(name##_7), \
     NAME(name##_8)}
static NAME(tile_fn) *const NAME(tiles)[][COLUMNS] = {
    [ANY] = OF(any), [INNER] = OF(inner), [THREE] = OF(three), [THREE_APART] = OF(three_apart), [FIVE] = OF(five),
    [FIVE_APART] = OF(five_apart),
};
#undef TILE
#undef TILES
#undef OF

/* Row h of outputs of one image and block of channels. */
static void NAME(row)(const plk_conv_blocked *p, void *const *bufs, int64_t image, int64_t block, int64_t h)
{
    int64_t plane = image * (p->channels / LANES) + block, at = (plane * p->out[0] + h) * p->out[1] * LANES;
    int64_t top = h * p->stride[0] - p->pad[0];
    int64_t tap = top < 0 ? over(-top, p->dilate[0]) : 0;    /* the first row of the window that is inside */
    int64_t rows = top < p->size[0] ? least(p->kernel[0], over(p->size[0] - top, p->dilate[0])) - tap : 0;
    NAME(line) s = {
        .p = p, .n_rows = most(rows, 0), .y = (float *)bufs[3 + p->add] + at,
        .x = (const float *)bufs[0] + (plane * p->size[0] + top + tap * p->dilate[0]) * p->size[1] * LANES,
        .w = (const float *)bufs[1] + (block * p->kernel[0] + tap) * p->kernel[1] * LANES,
        .next = (const float *)bufs[0] + (plane * p->size[0] + top + p->kernel[0]) * p->size[1] * LANES,
        .bias = (const float *)bufs[2] + block * LANES, .addend = p->add ? (const float *)bufs[3] + at : NULL,
    };
    int kind = kind_of(p);
    int64_t reach = (p->kernel[1] - 1) * p->dilate[1];
    int64_t n_tiles = over(p->out[1], COLUMNS), width = p->out[1] / n_tiles, wider = p->out[1] % n_tiles;
    for (int64_t i = 0, first = 0, end; i < n_tiles; i++, first = end) {
        end = first + width + (i < wider);           /* as wide as the others, to one column */
        int inside = first * p->stride[1] >= p->pad[1] && (end - 1) * p->stride[1] - p->pad[1] + reach < p->size[1];
        NAME(tiles)[kind == ANY && inside ? INNER : kind][end - first - 1](&s, first);
    }
    if (!p->rectify)
        plk_apply(&p->act, p->out[1] * LANES, s.y);
}
