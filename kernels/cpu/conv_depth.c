/* Depthwise convolutions on blocks of channels. Several columns of a row of outputs are summed in registers; the
 * epilogue is applied to a row while it is in the cache. */
#include "conv_blocked.h"
#include "blocks_of_lanes.h"
#include "parts.h"
#include "pointwise.h"
#include "simd.h"

/* COLUMNS: outputs whose sums are in registers; BANDS: of rows, and PIECES: of work, for each thread */
enum { COLUMNS = 8, BANDS = 2, PIECES = 8, MOST_TAPS = 5 };
enum { ANY, INNER, THREE, THREE_APART, FIVE, FIVE_APART };      /* windows that have tiles of their own */

#define UNROLL _Pragma("GCC unroll 32")
#define INLINE static inline __attribute__((always_inline))
#define LOAD(p) (*(const VEC *)(p))
#define STORE(p, v) (*(VEC *)(p) = (v))

static const float zeros[16];

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t over(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

static int kind_of(const plk_conv_blocked *p)
{
    int64_t width = p->kernel[1], stride = p->stride[1];
    int64_t beyond = (p->out[1] - 1) * stride - p->pad[1] + width - p->size[1];
    if ((width != 3 && width != 5) || stride > 2 || p->dilate[1] != 1 || most(p->pad[1], beyond) > width / 2)
        return ANY;
    return (width == 3 ? THREE : FIVE) + (int)stride - 1;
}

#define PER_BLOCK "conv_depth_lanes.h"
#include "per_block.h"

typedef struct { const plk_conv_blocked *p; void *const *bufs; int64_t blocks, rows, bands, per, groups; } work;

static void piece(void *arg, int64_t i)
{
    const work *w = arg;
    const plk_conv_blocked *p = w->p;
    int64_t image = i / w->groups / w->bands, top = i / w->groups % w->bands * w->rows;
    int64_t end = least(top + w->rows, p->out[0]), last = least((i % w->groups + 1) * w->per, w->blocks);
    for (int64_t b = i % w->groups * w->per; b < last; b++)
        for (int64_t h = top; h < end; h++)
            OF_LANES(p->lanes, row)(p, w->bufs, image, b, h);
}

/* bufs: x, w, bias, addend if any, y (which may be the addend) */
PLK_KERNEL(plk_conv_depth_run)
{
    const plk_conv_blocked *p = params;
    int64_t blocks = p->channels / p->lanes, out = p->out[0] * p->out[1];
    int n_threads = pl_threads(p->n * p->channels * out * p->kernel[0] * p->kernel[1] / 4);
    int whole = out < PLK_SMALL_IMAGE || p->n >= 4 * n_threads;
    int64_t rows = whole ? p->out[0] : over(p->out[0], least(p->out[0], BANDS * n_threads));
    int64_t bands = over(p->out[0], rows);
    int64_t per = most(1, blocks * bands * p->n / (PIECES * n_threads)), groups = over(blocks, per);
    (void)scalars;
    work w = {p, bufs, blocks, rows, bands, per, groups};
    pl_thread_pool_run(n_threads, p->n * bands * groups, piece, &w);
    return PL_OK;
}
