/* Numbers from Philox's words: a uniform float32 takes one word, a float64 two; a normal pair takes two words (or four)
 * by Box and Muller. */
#include "random.h"
#include "bytes.h"
#include "dtype.h"
#include "parts.h"
#include "philox.h"
#include "simd.h"
#include "vecmath.h"

enum { LANES = PHILOX_LANES, WORDS = PHILOX_WORDS };

static inline __attribute__((always_inline)) double unit64(uint32_t a, uint32_t b)
{
    return (double)(((uint64_t)a << 32 | b) >> 11) * 0x1p-53;
}

typedef void (*fill_fn)(const plk_random *p, const uint32_t *words, int64_t at, int64_t n, void *y);

static void uniform32(const plk_random *p, const uint32_t *words, int64_t at, int64_t n, void *y)
{
    float low = (float)p->a, width = (float)(p->b - p->a), *to = (float *)y + at;
    for (int64_t i = 0; i < n; i++)
        to[i] = low + width * unit(words[i]);
}

static void uniform64(const plk_random *p, const uint32_t *words, int64_t at, int64_t n, void *y)
{
    double *to = (double *)y + at;
    for (int64_t i = 0; i < n; i++)
        to[i] = p->a + (p->b - p->a) * unit64(words[2 * i], words[2 * i + 1]);
}

static void normal32(const plk_random *p, const uint32_t *words, int64_t at, int64_t n, void *y)
{
    float r[WORDS / 2], angle[WORDS / 2], even[WORDS / 2], odd[WORDS / 2], *to = (float *)y + at;
    for (int i = 0; i < WORDS / 2; i++) {
        r[i] = sqrtf(-2.0f * plk_log_f32((float)((words[2 * i] >> 8) + 1) * 0x1p-24f));
        angle[i] = unit(words[2 * i + 1]) * 6.28318530718f;
    }
    for (int i = 0; i < WORDS / 2; i++)
        even[i] = r[i] * plk_cos_near_f32(angle[i]);
    for (int i = 0; i < WORDS / 2; i++)
        odd[i] = r[i] * plk_sin_near_f32(angle[i]);
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)p->a + (float)p->b * (i % 2 ? odd[i / 2] : even[i / 2]);
}

static void normal64(const plk_random *p, const uint32_t *words, int64_t at, int64_t n, void *y)
{
    double *to = (double *)y + at;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t *w = words + 4 * (i / 2);
        double r = sqrt(-2 * log(1 - unit64(w[0], w[1]))), angle = unit64(w[2], w[3]) * 6.283185307179586;
        to[i] = p->a + p->b * r * (i % 2 ? sin(angle) : cos(angle));
    }
}

static void exponential32(const plk_random *p, const uint32_t *words, int64_t at, int64_t n, void *y)
{
    float scale = (float)(-1 / p->a), *to = (float *)y + at;
    for (int64_t i = 0; i < n; i++)
        to[i] = scale * plk_log_f32((float)((words[i] >> 8) + 1) * 0x1p-24f);
}

static void exponential64(const plk_random *p, const uint32_t *words, int64_t at, int64_t n, void *y)
{
    double *to = (double *)y + at;
    for (int64_t i = 0; i < n; i++)
        to[i] = -log(1 - unit64(words[2 * i], words[2 * i + 1])) / p->a;
}

/* A range up to 2^16: one number is more likely than another by at most 2^-16 of its probability. */
static void narrow32(const plk_random *p, const uint32_t *words, int64_t at, int64_t n, void *y)
{
    uint32_t width = (uint32_t)(p->high - p->low), low = (uint32_t)p->low;
    int32_t *to = (int32_t *)y + at;
    for (int64_t i = 0; i < n; i++)
        to[i] = (int32_t)(low + (uint32_t)((uint64_t)words[i] * width >> 32));
}

/* The high half of a product of 64 bits. */
static inline uint64_t high64(uint64_t a, uint64_t b)
{
    uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32, low = al * bl;
    uint64_t middle = ah * bl + (low >> 32), other = al * bh + (uint32_t)middle;
    return ah * bh + (middle >> 32) + (other >> 32);
}

static void whole32(const plk_random *p, const uint32_t *words, int64_t at, int64_t n, void *y)
{
    uint64_t width = (uint64_t)(p->high - p->low);
    int32_t *to = (int32_t *)y + at;
    for (int64_t i = 0; i < n; i++)
        to[i] = (int32_t)(p->low + (int64_t)high64((uint64_t)words[2 * i] << 32 | words[2 * i + 1], width));
}

static void whole64(const plk_random *p, const uint32_t *words, int64_t at, int64_t n, void *y)
{
    uint64_t width = (uint64_t)p->high - (uint64_t)p->low;
    int64_t *to = (int64_t *)y + at;
    for (int64_t i = 0; i < n; i++)
        to[i] = (int64_t)((uint64_t)p->low + high64((uint64_t)words[2 * i] << 32 | words[2 * i + 1], width));
}

/* per_batch: elements that use one batch of words */
typedef struct { const plk_random *p; void *y; stream s; fill_fn fill; int64_t per_batch; } sample;

static void sample_batches(void *arg, int64_t begin, int64_t end)
{
    const sample *d = arg;
    for (int64_t b = begin; b < end; b++) {
        uint32_t words[WORDS];
        int64_t at = b * d->per_batch, left = d->p->n - at;
        philox(&d->s, (uint64_t)b * LANES, words);
        d->fill(d->p, words, at, left < d->per_batch ? left : d->per_batch, d->y);
    }
}

/* each: words for an element */
static int run(const plk_random *p, void *y, const double *scalars, fill_fn fill, int each)
{
    sample d = {p, y, stream_of(scalars), fill, WORDS / each};
    plk_run_parts(p->n * 4, (p->n + d.per_batch - 1) / d.per_batch, 1, sample_batches, &d);
    return PL_OK;
}

/* bufs: y, or one that is not read, y.  scalars: seed, call */
PLK_KERNEL(plk_random_uniform)
{
    const plk_random *p = params;
    return p->dtype == PLK_F32 ? run(p, bufs[p->out_at], scalars, uniform32, 1)
                               : run(p, bufs[p->out_at], scalars, uniform64, 2);
}

/* bufs: y, or one that is not read, y.  scalars: seed, call */
PLK_KERNEL(plk_random_normal)
{
    const plk_random *p = params;
    return p->dtype == PLK_F32 ? run(p, bufs[p->out_at], scalars, normal32, 1)
                               : run(p, bufs[p->out_at], scalars, normal64, 2);
}

/* bufs: y, or one that is not read, y.  scalars: seed, call */
PLK_KERNEL(plk_random_exponential)
{
    const plk_random *p = params;
    return p->dtype == PLK_F32 ? run(p, bufs[p->out_at], scalars, exponential32, 1)
                               : run(p, bufs[p->out_at], scalars, exponential64, 2);
}

/* bufs: y, or one that is not read, y.  scalars: seed, call */
PLK_KERNEL(plk_random_whole)
{
    const plk_random *p = params;
    if (p->dtype == PLK_I32 && p->high - p->low <= 1 << 16)
        return run(p, bufs[p->out_at], scalars, narrow32, 1);
    return run(p, bufs[p->out_at], scalars, p->dtype == PLK_I32 ? whole32 : whole64, 2);
}

static void drop_batches(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_dropout *p = call->params;
    const float *x = call->bufs[0];
    float *y = call->bufs[1], *mask = call->bufs[2], keep = (float)(1 - p->p),
          scale = p->p < 1 ? (float)(1 / (1 - p->p)) : 0;
    stream s = stream_of(call->scalars);
    for (int64_t b = begin; b < end; b++) {
        uint32_t words[WORDS];
        int64_t at = b * WORDS, n = p->n_mask - at < WORDS ? p->n_mask - at : WORDS;
        philox(&s, (uint64_t)b * LANES, words);
        for (int64_t i = 0; i < n; i++)
            mask[at + i] = unit(words[i]) < keep ? scale : 0;
        if (p->n_mask == p->n)
            for (int64_t i = at; i < at + n; i++)
                y[i] = x[i] * mask[i];
    }
}

/* bufs: x, y, mask.  scalars: seed, call; none if it is not active */
PLK_KERNEL(plk_dropout_run)
{
    const plk_dropout *p = params;
    const float *x = bufs[0], *mask = bufs[2];
    float *y = bufs[1];
    if (!p->active) {
        if (x != y)
            plk_copy_bytes(y, x, (size_t)p->n * sizeof *y);
        return PL_OK;
    }
    plk_run_parts(p->n * 2, (p->n_mask + WORDS - 1) / WORDS, 1, drop_batches, &(plk_call){params, bufs, scalars});
    for (int64_t i = 0; i < p->n && p->n_mask != p->n; i++) {
        int64_t rest = i, offset = 0;
        for (int d = p->ndim - 1; d >= 0; d--) {
            offset += rest % p->shape[d] * p->strides[d];
            rest /= p->shape[d];
        }
        y[i] = x[i] * mask[offset];
    }
    return PL_OK;
}
