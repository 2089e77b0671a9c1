/* Convolutions with a kernel of one element on blocks of channels. Outputs are taken in groups of pixels that stay in
 * cache while pairs of filter blocks pass over them; what follows the product is applied to a group when it is done. */
#include "simd.h"
#include "parts.h"
#include "pointwise.h"
#include "conv_point.h"

enum { ROWS = 6, PIXELS = 96, DEPTH = 512 };     /* DEPTH: channels between two visits of the outputs */

#define UNROLL _Pragma("GCC unroll 8")
#define INLINE static inline __attribute__((always_inline))
#define LOAD(p) (*(const VEC *)(p))
#define STORE(p, v) (*(VEC *)(p) = (v))
typedef float vec8 __attribute__((vector_size(32), aligned(4)));
typedef float vec16 __attribute__((vector_size(64), aligned(4)));

#define LANES 8
#define VEC vec8
#define NAME(name) name##_8
#include "conv_point_lanes.h"
#undef LANES
#undef VEC
#undef NAME
#define LANES 16
#define VEC vec16
#define NAME(name) name##_16
#include "conv_point_lanes.h"

typedef struct {
    const plk_conv_point *p;
    void *const *bufs;
    float *gathered;
    int64_t parts, step, slices, per, room;
} work;

static void piece(void *arg, int64_t i)
{
    const work *w = arg;
    const plk_conv_point *p = w->p;
    int64_t out = p->out_height * p->out_width, blocks = p->filters / p->lanes;
    int64_t part = i / w->slices % w->parts, begin = i % w->slices * w->per, first = part * w->step;
    int64_t end = begin + w->per < blocks ? begin + w->per : blocks, pixels = out - first < w->step ? out - first : w->step;
    float *to = w->gathered ? w->gathered + pl_team_place() * w->room : NULL;
    if (p->lanes == 8)
        item_8(p, w->bufs, i / w->slices / w->parts, first, pixels, begin, end, to);
    else
        item_16(p, w->bufs, i / w->slices / w->parts, first, pixels, begin, end, to);
}

/* bufs: x, w, bias, addend if any, y (which may be the addend) */
PLK_KERNEL(plk_conv_point_run)
{
    const plk_conv_point *p = params;
    int64_t out = p->out_height * p->out_width, blocks = p->filters / p->lanes;
    int64_t parts = out < PLK_SMALL_IMAGE ? 1 : (out + PIXELS - 1) / PIXELS, step = (out + parts - 1) / parts;
    int n_threads = pl_threads(p->n * out * p->channels * p->filters / 8);
    /* slices of filters: enough items for all threads */
    int64_t slices = p->n * parts >= 4 * n_threads ? 1 : 4 * n_threads;
    int64_t per = ((blocks + slices - 1) / slices + 1) / 2 * 2, room = step * p->channels;
    int strided = p->stride[0] > 1 || p->stride[1] > 1;
    float *gathered = strided ? pl_scratch(sizeof(float) * (size_t)(n_threads * room)) : NULL;
    (void)scalars;
    if (strided && !gathered)
        return pl_fail(PL_ENOMEM, "out of memory for a convolution");
    slices = (blocks + per - 1) / per;
    work w = {p, bufs, gathered, parts, step, slices, per, room};
    pl_team_run(n_threads, p->n * parts * slices, piece, &w);
    return PL_OK;
}
