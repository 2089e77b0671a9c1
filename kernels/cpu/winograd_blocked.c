/* Convolutions with a 3 x 3 kernel and stride 1 by Winograd's minimal filtering (Lavin and Gray 2015,
 * arXiv:1509.09308) on blocks of channels: y = A^T [(G w G^T) * (B^T x B)] A for tiles of 4 x 4 outputs.
 *
 *   x --B^T x B--> V[point][tile][channel]  --+
 *   w --G w G^T--> U[point][channel][filter] -+- one product for each point --> M[point][tile][filter] --A^T M A--> y
 *
 * The work is divided into ranges of tiles and groups of filters. Each thread transforms what its pieces need, so no
 * thread waits for another. Weights are also transformed where they are used, as many at a time as stay in the inner
 * cache: transformed weights are four times as large, and reading them takes longer than the transform.
 *
 * winograd_nchw.c serves row-major images and gradients.
 */
#include "conv_blocked.h"
#include "cache.h"
#include "engine/core/scratch.h"
#include "blocks_of_lanes.h"
#include "parts.h"
#include "pointwise.h"
#include "simd.h"

enum { SIDE = 6, POINTS = SIDE * SIDE };
enum { ROWS = 6, PANELS = 2 };                   /* tiles of a register block; pairs of filter blocks of one U */
enum { DEPTH = 64, TILES = 48 };                 /* channels and tiles of one visit of M */
enum { MOST_BYTES = 4 << 20 };                   /* of V for one range of tiles, about */
enum { ITEMS = 4 };                              /* pieces of work for each thread, at most */

#define UNROLL _Pragma("GCC unroll 40")

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t over(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

/* An odd number of cache lines: elements at such a step are in different cache sets. */
static int64_t odd_lines(int64_t floats) { return (over(floats, 16) | 1) * 16; }

/* How a convolution is divided; sizes of buffers in floats. */
typedef struct {
    int64_t down, across, tiles;                 /* tiles of an image along each axis; of the batch */
    int64_t ranges, range;                       /* ranges of tiles, tiles of one */
    int64_t groups, group;                       /* groups of filters, U's of one */
    int64_t v_point, v, strip, u, m;             /* u: of all channels, if it serves several visits of M */
    int whole, n_threads;
} cut;

/* The transforms of one tile and channel (or filter), which stores limit, and of the weights of one channel and filter
 * take as long as the products of so many tiles, channels and filters. Only the division of work depends on it. */
static const double tile_cost = 8, weight_cost = 4;

/* Divides the work so that it ends as soon as possible. */
static void choose(const plk_conv_blocked *p, cut *k)
{
    int64_t items = over(p->filters, 2 * p->lanes * PANELS), bytes = 4 * POINTS * p->channels * k->tiles;
    int64_t most = plk_clamp(plk_cache_share() / 4, plk_cache_own(), MOST_BYTES);
    int64_t fewest = over(bytes, most), pieces = ITEMS * k->n_threads;
    double best = 0;
    for (int64_t ranges = fewest; ranges <= (fewest > pieces ? fewest : pieces); ranges++)
        for (int64_t groups = 1; groups <= items && groups <= pieces; groups *= 2) {
            double tiles = (double)over(over(k->tiles, ranges), 2) * 2, channels = (double)p->channels;
            double filters = (double)least(p->filters, over(items, groups) * 2 * p->lanes * PANELS);
            double item = tiles * (channels + filters) * tile_cost + channels * filters * (weight_cost + tiles);
            double time = (double)over(ranges * groups, k->n_threads) * item;
            if (best == 0 || time < best) {
                best = time;
                k->ranges = ranges;
                k->group = over(items, groups);
            }
        }
    k->range = over(k->tiles, k->ranges);
    k->ranges = over(k->tiles, k->range);
    k->groups = over(items, k->group);
}

static cut cut_of(const plk_conv_blocked *p)
{
    int64_t panels = 2 * p->lanes * PANELS;
    cut k = {.down = over(p->out[0], 4), .across = over(p->out[1], 4)};
    k.tiles = p->n * k.down * k.across;
    k.n_threads = pl_threads(k.tiles * POINTS * p->channels * p->filters / 8);
    choose(p, &k);
    k.v_point = odd_lines(k.range * p->channels);
    k.v = POINTS * k.v_point;
    k.strip = (over((4 * least(k.across, k.range) + 2) * SIDE, 2) + 1) * 2 * p->lanes;
    k.whole = k.range > TILES;
    k.u = POINTS * odd_lines(panels * least(DEPTH, p->channels)) * (k.whole ? over(p->channels, DEPTH) : 1);
    k.m = POINTS * odd_lines(panels * least(TILES, k.range));
    return k;
}

/* scratch: of each thread; held: the range whose transforms are in it, or -1 */
typedef struct { const plk_conv_blocked *p; const cut *k; void *const *bufs; float *scratch; int64_t *held; } work;

#define LOAD(p) (*(const VEC *)(p))
#define STORE(p, v) (*(VEC *)(p) = (v))
#define PER_BLOCK "winograd_blocked_lanes.h"
#include "per_block.h"

/* bufs: x, w, bias, addend if any, y (which may be the addend) */
PLK_KERNEL(plk_winograd_blocked_run)
{
    const plk_conv_blocked *p = params;
    cut k = cut_of(p);
    float *scratch = pl_scratch(sizeof *scratch * (size_t)(k.n_threads * (k.v + k.strip + k.u + k.m)) + 64);
    (void)scalars;
    if (!scratch)
        return pl_fail(PL_ENOMEM, "out of memory for a convolution");
    scratch = (float *)(((uintptr_t)scratch + 63) / 64 * 64);
    int64_t held[k.n_threads];
    for (int i = 0; i < k.n_threads; i++)
        held[i] = -1;
    work w = {p, &k, bufs, scratch, held};
    pl_thread_pool_run(k.n_threads, k.ranges * k.groups, OF_LANES(p->lanes, piece), &w);
    return PL_OK;
}
