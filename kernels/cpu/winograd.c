/* Convolutions with a 3 x 3 kernel and stride 1 by Winograd's minimal filtering (Lavin and Gray 2015,
 * arXiv:1509.09308): y = A^T [(G w G^T) * (B^T x B)] A for tiles of 2 x 2 or 4 x 4 outputs.
 *
 *   x --B^T x B--> V[point][tile][channel] --one product for each point--> M[point][tile][filter] --A^T M A--> y
 *
 * A group of tiles at a time is transformed by all threads; then each thread takes some of these tiles and a slice of
 * the filters, multiplies, and transforms back what it has while it is in cache.
 *
 * This is the one for blocked channels and weights transformed once (inference). conv3x3.c is the one for row-major
 * images, both gradients and weights that change at each step: its lanes are channels that it must gather, so the
 * transforms, which are all that a Winograd kernel is beside its products, share no line. One file for both would
 * reorder images on the way in and out, twice the memory traffic of small layers.
 */
#include <omp.h>
#include "simd.h"
#include "pointwise.h"
#include "winograd.h"

enum { MAX_TILE = 4, MAX_SIDE = MAX_TILE + 2, MAX_POINTS = MAX_SIDE * MAX_SIDE };
enum { ROWS = 6 };                               /* tiles in one register block */
enum { ITEM_TILES = 48, ITEM_PANELS = 2 };       /* what a thread multiplies before it transforms back */
enum { GROUP_BYTES = 1 << 20 };                  /* of V for each thread: near its second-level cache */

#define UNROLL _Pragma("GCC unroll 40")
#define INLINE static inline __attribute__((always_inline))
typedef float vec8 __attribute__((vector_size(32), aligned(4)));
typedef float vec16 __attribute__((vector_size(64), aligned(4)));

/* Where the tiles of a convolution lie. */
typedef struct {
    int64_t down, across, all;                   /* tiles of an image along each axis; of the batch */
    int64_t blocks, panels;                      /* of channels, of filters */
} grid;

static grid grid_of(const plk_winograd *p)
{
    int64_t down = (p->out_height + p->tile - 1) / p->tile, across = (p->out_width + p->tile - 1) / p->tile;
    return (grid){down, across, p->n * down * across, p->channels / p->lanes,
                  (p->filters + 2 * p->lanes - 1) / (2 * p->lanes)};
}

#define LOAD(p) (*(const VEC *)(p))
#define STORE(p, v) (*(VEC *)(p) = (v))
#define SIDE (TILE + 2)
#define LANES 8
#define VEC vec8
#define TILE 2
#define NAME(name) name##_8_2
#include "winograd_lanes.h"
#undef LANES
#undef VEC
#undef NAME
#define LANES 16
#define VEC vec16
#define NAME(name) name##_16_2
#include "winograd_lanes.h"

/* bufs: x, weights, bias, addend if any, y (which may be the addend) */
PLK_KERNEL(plk_winograd_run)
{
    const plk_winograd *p = params;
    grid g = grid_of(p);
    int64_t points = (p->tile + 2) * (p->tile + 2), item = points * ITEM_TILES * ITEM_PANELS * 2 * p->lanes;
    int n_threads = pl_threads(g.all * points * p->channels * p->filters / 8);
    int64_t group = n_threads * GROUP_BYTES / (int64_t)sizeof(float) / (points * p->channels);
    group = (group > ITEM_TILES ? group : ITEM_TILES) / ITEM_TILES * ITEM_TILES;
    group = group < g.all ? group : g.all;
    float *room = pl_scratch(sizeof(float) * (size_t)(points * group * p->channels + n_threads * item) + 64);
    (void)scalars;
    if (!room)
        return pl_fail(PL_ENOMEM, "out of memory for a convolution");
    room = (float *)(((uintptr_t)room + 63) / 64 * 64);
    if (p->lanes == 8)
        run_8_2(p, &g, bufs, room, group, item, n_threads);
    else
        run_16_2(p, &g, bufs, room, group, item, n_threads);
    return PL_OK;
}

static const float filter_2[4][3] = {{1, 0, 0}, {.5f, .5f, .5f}, {.5f, -.5f, .5f}, {0, 0, 1}};

/* bufs: w, the transformed weights */
PLK_KERNEL(plk_winograd_weights)
{
    const plk_winograd_filter *p = params;
    const float *w = bufs[0], (*g)[3] = filter_2;
    float *u = bufs[1];
    int side = p->tile + 2;
    int64_t panels = (p->filters + p->panel - 1) / p->panel, step = panels * p->channels * p->panel;
    int n_threads = pl_threads(step * side * side);
    (void)scalars;
#pragma omp parallel for num_threads(n_threads) if (n_threads > 1)
    for (int64_t row = 0; row < panels * p->channels; row++)
        for (int64_t l = 0; l < p->panel; l++) {
            int64_t f = row / p->channels * p->panel + l, c = row % p->channels;
            float *to = u + row * p->panel + l, half[MAX_SIDE][3];
            const float *k = f < p->filters ? w + (f * p->channels + c) * 9 : NULL;
            for (int i = 0; i < side && k; i++)
                for (int j = 0; j < 3; j++)
                    half[i][j] = g[i][0] * k[j] + g[i][1] * k[3 + j] + g[i][2] * k[6 + j];
            for (int i = 0; i < side; i++)
                for (int j = 0; j < side; j++)
                    to[(i * side + j) * step] =
                        k ? half[i][0] * g[j][0] + half[i][1] * g[j][1] + half[i][2] * g[j][2] : 0;
        }
    return PL_OK;
}
