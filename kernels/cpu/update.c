/* Runs the loops of optimizer updates. 16-bit weights and gradients pass through blocks in the L1 cache. */
#include "update.h"
#include "cast.h"
#include "dtype.h"
#include "engine/core/scratch.h"
#include "parts.h"
#include "pointwise.h"
#include "reduce_methods.h"
#include "simd.h"

enum { BLOCK = 1024, CHUNK = 32768 };

/* One weight of a call. */
typedef struct {
    const plk_update *p;
    plk_loop loop;
    void *const *group;
    char *out;
    int64_t n;
    double scalars[PLK_MAX_UPDATE_SCALARS + 1];
    double *squares;                             /* LAMB: of each chunk, the sums of squares of weight and direction */
} weight;

static void convert(int from, const void *x, int to, void *y, int64_t n)
{
    plk_cast cast = {n, from, to};
    void *bufs[2] = {(void *)(uintptr_t)x, y};
    plk_cast_run(&cast, bufs, NULL);
}

/* Element i of a weight or of its output. */
static void *at(const weight *w, void *array, int64_t i)
{
    return (char *)array + i * (int64_t)plk_dtype_bytes(w->p->dtype);
}

/* Element i of an array in the type of computation: a state, a 32-bit weight. */
static void *full_at(const weight *w, void *array, int64_t i)
{
    return (char *)array + i * (int64_t)(w->p->wide ? 4 : plk_dtype_bytes(w->p->dtype));
}

/* The gradient's elements from i on, converted into `scratch` if need be. */
static void *gradient_at(const weight *w, int64_t i, int64_t n, float *scratch)
{
    void *gradient = (char *)w->group[1] + i * (int64_t)plk_dtype_bytes(w->p->gradient);
    if (!w->p->wide || w->p->gradient == PLK_F32)
        return gradient;
    convert(w->p->gradient, gradient, PLK_F32, scratch, n);
    return scratch;
}

/* Updates elements [i, i + n) of `from` by a gradient, to `to`; states are updated in place. */
static void step(const weight *w, int64_t i, int64_t n, void *from, void *gradient, void *to)
{
    int n_states = w->p->n_states;
    void *bufs[3 + 2 * PLK_MAX_STATES] = {from, gradient};
    bufs[2 + n_states] = to;
    for (int s = 0; s < n_states; s++)
        bufs[2 + s] = bufs[3 + n_states + s] = full_at(w, w->group[2 + s], i);
    w->loop(n, bufs, w->scalars);
}

static void update(void *arg, int64_t begin, int64_t end)
{
    const weight *w = arg;
    const plk_update *p = w->p;
    float gradient[BLOCK];
    if (!p->wide) {
        step(w, begin, end - begin, at(w, w->group[0], begin), gradient_at(w, begin, 0, NULL), at(w, w->out, begin));
        return;
    }
    for (int64_t i = begin, n; i < end; i += n) {
        void *full = full_at(w, w->group[2 + p->n_states], i);
        n = end - i < BLOCK ? end - i : BLOCK;
        step(w, i, n, full, gradient_at(w, i, n, gradient), p->wide == 2 ? full_at(w, w->out, i) : full);
        if (p->wide == 1)
            convert(PLK_F32, full, p->dtype, at(w, w->out, i), n);
    }
}

static void weight_begin(weight *w, const plk_update *p, int k, void *const *bufs, const double *scalars)
{
    int size = 2 + p->n_states + (p->wide != 0), n = p->n_weights;
    void *const *after = bufs + size * n;
    *w = (weight){.p = p, .loop = plk_pointwise_loop(p->loop, p->wide ? PLK_F32 : p->dtype), .group = bufs + size * k,
                  .out = after[p->n_after + k], .n = p->n[k]};
    for (int i = 0; i < p->n_scalars; i++)
        switch (p->at[i]) {
        case PLK_SCALAR_LRS: w->scalars[i] = ((const float *)after[0])[k]; break;
        case PLK_SCALAR_WDS: w->scalars[i] = ((const float *)after[1])[k]; break;
        case PLK_SCALAR_SCALE: w->scalars[i] = *(const float *)after[0]; break;
        case PLK_SCALAR_FIXED: w->scalars[i] = p->fixed[i]; break;
        default: w->scalars[i] = scalars[p->at[i] + k * p->step[i]];
        }
}

/* Is the gradient usable? Its scale is 0, NaN or infinite if it overflowed. */
static int is_usable(const plk_update *p, const weight *w)
{
    for (int i = 0; i < p->n_scalars; i++)
        if (p->at[i] == PLK_SCALAR_SCALE && !(w->scalars[i] != 0 && isfinite(w->scalars[i])))
            return 0;
    return 1;
}

/* bufs: groups, inputs after them, new weights */
PLK_KERNEL(plk_update_run)
{
    const plk_update *p = params;
    for (int k = 0; k < p->n_weights; k++) {
        weight w;
        weight_begin(&w, p, k, bufs, scalars);
        if (is_usable(p, &w)) {
            plk_run_parts(w.n * (1 + p->n_states), w.n, BLOCK, update, &w);
        } else if (p->wide) {
            convert(PLK_F32, w.group[2 + p->n_states], p->dtype, w.out, w.n);
        } else if (w.out != w.group[0]) {
            memcpy(w.out, w.group[0], (size_t)w.n * plk_dtype_bytes(p->dtype));
        }
    }
    return PL_OK;
}

/* ---- LAMB --------------------------------------------------------------------------------------------------- */

static void measure_piece(void *arg, int64_t chunk)
{
    const weight *w = arg;
    const plk_update *p = w->p;
    float gradient[BLOCK], direction[BLOCK], narrow[BLOCK];
    int64_t begin = chunk * CHUNK, end = w->n - begin < CHUNK ? w->n : begin + CHUNK;
    double *sums = w->squares + 2 * chunk;
    sums[0] = sums[1] = 0;
    for (int64_t i = begin, n; i < end; i += n) {
        const void *measured = at(w, w->group[0], i);
        n = end - i < BLOCK ? end - i : BLOCK;
        step(w, i, n, full_at(w, w->group[p->wide ? 2 + p->n_states : 0], i), gradient_at(w, i, n, gradient),
             direction);
        if (p->wide) {                           /* the norm is that of the 16-bit weight */
            convert(p->dtype, measured, PLK_F32, narrow, n);
            measured = narrow;
        }
        sums[0] += methods_f32[PLK_SUM_SQUARE].run(measured, n);
        sums[1] += methods_f32[PLK_SUM_SQUARE].run(direction, n);
    }
}

/* lr |w| / |direction|, lr where one of them is 0 */
static double lamb_rate(const plk_lamb *p, const double *scalars, double lr, double weights, double directions)
{
    double lower = scalars[p->lower_at], upper = scalars[p->upper_at];
    weights = lower >= 0 && weights < lower ? lower : weights;
    weights = upper >= 0 && weights > upper ? upper : weights;
    return weights == 0 || directions == 0 ? lr : lr * (weights / directions);
}

/* As plk_update_run.  scalars: the direction's, lr, bounds */
PLK_KERNEL(plk_lamb_run)
{
    const plk_lamb *p = params;
    const plk_update *d = &p->direction;
    for (int k = 0; k < d->n_weights; k++) {
        weight w;
        weight_begin(&w, d, k, bufs, scalars);
        int64_t n_chunks = (w.n + CHUNK - 1) / CHUNK;
        double weights = 0, directions = 0;
        w.squares = pl_scratch(sizeof(double) * 2 * (size_t)(n_chunks + 1));
        if (!w.squares)
            return pl_fail(PL_ENOMEM, "out of memory for LAMB");
        pl_thread_pool_run(pl_threads(w.n * 3), n_chunks, measure_piece, &w);
        for (int64_t c = 0; c < n_chunks; c++) {
            weights += w.squares[2 * c];
            directions += w.squares[2 * c + 1];
        }
        w.scalars[d->n_scalars] = lamb_rate(p, scalars, scalars[p->lr_at + k], sqrt(weights), sqrt(directions));
        w.loop = plk_pointwise_loop(p->step, d->wide ? PLK_F32 : d->dtype);
        plk_run_parts(w.n * 3, w.n, BLOCK, update, &w);
    }
    return PL_OK;
}

/* bufs: weight, direction, the two norms, the 32-bit weight if the weight has 16, new weight. */
PLK_KERNEL(plk_lamb_step)
{
    const plk_lamb *p = params;
    const plk_update *d = &p->direction;
    void *group[3] = {bufs[0], bufs[1], bufs[4]};
    double rate = lamb_rate(p, scalars, scalars[p->lr_at], *(const float *)bufs[2], *(const float *)bufs[3]);
    weight w = {.p = d, .loop = plk_pointwise_loop(p->step, PLK_F32), .group = group, .out = bufs[4 + d->wide],
                .n = d->n[0], .scalars = {rate}};
    plk_run_parts(d->n[0], d->n[0], BLOCK, update, &w);
    return PL_OK;
}
