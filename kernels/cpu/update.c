/* SGD and Adam in float32. 16-bit weights and gradients pass through blocks in the L1 cache. */
#include "simd.h"
#include "update.h"
#include "cast.h"
#include "parts.h"

enum { BLOCK = 1024 };

typedef struct { float lr, wd, momentum, rescale, clip; } rates;

static inline __attribute__((always_inline)) float clipped(float g, float clip)
{
    float up = g > clip ? clip : g;
    up = up < -clip ? -clip : up;
    return clip >= 0 ? up : g;
}

/* w may be out; mom may be NULL */
static void step(const rates *r, int64_t n, const float *w, const float *g, float *mom, float *out)
{
    float keep = 1 - r->lr * r->wd, lr = r->lr, decay = r->lr * r->wd, momentum = r->momentum, rescale = r->rescale;
    float clip = r->clip;
    if (mom) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) {
            float m = momentum * mom[i] - decay * w[i] - lr * clipped(rescale * g[i], clip);
            mom[i] = m;
            out[i] = w[i] + m;
        }
    } else {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++)
            out[i] = keep * w[i] - lr * clipped(rescale * g[i], clip);
    }
}

static void convert(int from, const void *x, int to, void *y, int64_t n)
{
    plk_cast cast = {n, from, to};
    void *bufs[2] = {(void *)(uintptr_t)x, y};
    plk_cast_run(&cast, bufs, NULL);
}

static void update(const plk_sgd *p, const rates *r, void *const *group, void *out, int64_t begin, int64_t end)
{
    float *mom = p->has_momentum ? (float *)group[2] : NULL;
    if (p->dtype == PLK_F32) {
        step(r, end - begin, (const float *)group[0] + begin, (const float *)group[1] + begin, mom ? mom + begin : NULL,
             (float *)out + begin);
        return;
    }
    float *wide = group[p->has_momentum ? 3 : 2], gradient[BLOCK];
    for (int64_t i = begin, n; i < end; i += n) {
        n = end - i < BLOCK ? end - i : BLOCK;
        convert(p->dtype, (const uint16_t *)group[1] + i, PLK_F32, gradient, n);
        step(r, n, wide + i, gradient, mom ? mom + i : NULL, wide + i);
        convert(PLK_F32, wide + i, p->dtype, (uint16_t *)out + i, n);
    }
}

typedef struct { const plk_sgd *p; const rates *r; void *const *group; void *out; int64_t n; int n_pieces; } sgd_weight;

static void sgd_piece(void *arg, int64_t i)
{
    const sgd_weight *w = arg;
    int64_t begin, end;
    plk_share(w->n, BLOCK, (int)i, w->n_pieces, &begin, &end);
    update(w->p, w->r, w->group, w->out, begin, end);
}

/* bufs: groups, lrs and wds if preloaded, new weights.  scalars: lrs, wds, momentum if any, rescale, clip */
PLK_KERNEL(plk_sgd_run)
{
    const plk_sgd *p = params;
    int size = 2 + p->has_momentum + (p->dtype != PLK_F32), n = p->n_weights;
    const float *lrs = p->preloaded ? bufs[size * n] : NULL, *wds = p->preloaded ? bufs[size * n + 1] : NULL;
    void *const *outs = bufs + size * n + (p->preloaded ? 2 : 0);
    const double *rest = scalars + (p->preloaded ? 0 : 2 * n);
    for (int k = 0; k < n; k++) {
        rates r;
        if (p->single) {                         /* lr, momentum if any, wd, rescale, clip */
            const double *s = scalars + p->has_momentum;
            r = (rates){(float)scalars[0], (float)s[1], (float)scalars[1], (float)s[2], (float)s[3]};
        } else {
            const double *s = rest + p->has_momentum;
            r = (rates){lrs ? lrs[k] : (float)scalars[k], wds ? wds[k] : (float)scalars[n + k], (float)rest[0], (float)s[0],
                        (float)s[1]};
        }
        int n_threads = pl_threads(p->n[k]);
        sgd_weight w = {p, &r, bufs + size * k, outs[k], p->n[k], plk_pieces(n_threads, p->n[k])};
        pl_team_run(n_threads, w.n_pieces, sgd_piece, &w);
    }
    return PL_OK;
}

typedef struct { float lr, wd, beta1, beta2, new1, new2, epsilon, rescale, clip; } adam_rates;

static void adam_step(const adam_rates *r, int64_t n, const float *w, const float *g, float *mean, float *var, float *out)
{
    float lr = r->lr, wd = r->wd, beta1 = r->beta1, beta2 = r->beta2, new1 = r->new1, new2 = r->new2;
    float epsilon = r->epsilon, rescale = r->rescale, clip = r->clip;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float d = clipped(rescale * g[i] + wd * w[i], clip);
        float m = beta1 * mean[i] + new1 * d, v = beta2 * var[i] + new2 * d * d;
        mean[i] = m;
        var[i] = v;
        out[i] = w[i] - lr * m / (sqrtf(v) + epsilon);
    }
}

typedef struct { const adam_rates *r; void *const *group; float *out; int64_t n; int n_pieces; } adam_weight;

static void adam_piece(void *arg, int64_t i)
{
    const adam_weight *w = arg;
    int64_t begin, end;
    plk_share(w->n, 64, (int)i, w->n_pieces, &begin, &end);
    adam_step(w->r, end - begin, (const float *)w->group[0] + begin, (const float *)w->group[1] + begin,
              (float *)w->group[2] + begin, (float *)w->group[3] + begin, w->out + begin);
}

/* bufs: groups, new weights.  scalars: lrs, wds, beta1, beta2, epsilon, rescale, clip; single: lr, beta1, beta2, epsilon,
 * wd, rescale, clip */
PLK_KERNEL(plk_adam_run)
{
    const plk_adam *p = params;
    int n = p->n_weights;
    const double *s = scalars + (p->single ? 1 : 2 * n), *last = s + (p->single ? 4 : 3);
    adam_rates r = {.beta1 = (float)s[0], .beta2 = (float)s[1], .new1 = (float)(1 - s[0]), .new2 = (float)(1 - s[1]),
                    .epsilon = (float)s[2], .rescale = (float)last[0], .clip = (float)last[1]};
    for (int k = 0; k < n; k++) {
        r.lr = (float)scalars[p->single ? 0 : k];
        r.wd = (float)(p->single ? s[3] : scalars[n + k]);
        int n_threads = pl_threads(p->n[k] * 2);
        adam_weight w = {&r, bufs + 4 * k, bufs[4 * n + k], p->n[k], plk_pieces(n_threads, p->n[k] * 2)};
        pl_team_run(n_threads, w.n_pieces, adam_piece, &w);
    }
    return PL_OK;
}
