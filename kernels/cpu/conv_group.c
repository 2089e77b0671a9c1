/* Convolutions of groups with few filters, depthwise ones among them, and their gradients: on row-major arrays of any
 * layout. Vectors are over the filters of adjacent groups (over channels for the gradient of data), so that each lane
 * has its own input. One piece of work copies the inputs of one vector, with padding, into lanes:
 *
 *   forward   y[filter] += x[its channel i] w[i]       for each input i of a group
 *   data      dx[channel] += dy[its filter j] w[j]     for each filter j of a group
 *   weight    dw[i][filter] += x[its channel i] dy     summed over parts of the batch, which depend on shapes only */
#include "conv.h"
#include "engine/core/scratch.h"
#include "lanes.h"
#include "parts.h"
#include "simd.h"

enum { COLUMNS = 4, MOST_PARTS = 8, LEAST_PIXELS = 128 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t count(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

/* padded: sizes of x with its padding; inputs, filters: of one group. A thread's own memory: x, y, w of one vector in
 * lanes, and x without its padding. */
typedef struct {
    const plk_conv *p;
    plk_conv_bufs b;
    int64_t padded[3], inputs, filters, window, volume, area, padded_volume, vectors, own_floats, parts, per_part;
    float *own, *sums;
    int same;                                     /* x needs no padding */
} pass;

/* Rows of pixels in lanes from a box of one size into one of another, or back; the smaller one starts at pad. */
static void move_rows(const int64_t *size, float *inside, const int64_t *box, const int64_t *pad, float *outside,
                      int back)
{
    for (int64_t row = 0; row < size[0] * size[1]; row++) {
        int64_t d = row / size[1] + pad[0], h = row % size[1] + pad[1];
        float *at = outside + ((d * box[1] + h) * box[2] + pad[2]) * LANES, *from = inside + row * size[2] * LANES;
        memcpy(back ? from : at, back ? at : from, (size_t)(size[2] * LANES) * sizeof *at);
    }
}

/* One image's channels channel[l] into lanes; then into a padded box, if box is not NULL: `dense` holds them before. */
static void lanes_in(const float *from, int64_t channels, const int64_t *size, int channels_last,
                     const int64_t *channel, int64_t some, const int64_t *box, const int64_t *pad, float *dense,
                     float *to)
{
    int64_t volume = plk_volume(size), step = some > 1 ? channel[1] - channel[0] : 1, even = some == LANES;
    float *y = box ? dense : to;
    for (int64_t l = 1; l < some; l++)
        even = even && channel[l] == channel[0] + l * step;
    if (even && !channels_last)
        to_lanes(from + channel[0] * volume, step * volume, LANES, volume, y, LANES);
    else if (even && step == 1)
        for (int64_t i = 0; i < volume; i++)
            vec_store(y + i * LANES, vec_load(from + i * channels + channel[0]));
    else
        for (int64_t i = 0; i < volume; i++)
            for (int64_t l = 0; l < LANES; l++)
                y[i * LANES + l] = l >= some ? 0 : from[channels_last ? i * channels + channel[l]
                                                                      : channel[l] * volume + i];
    if (!box)
        return;
    memset(to, 0, (size_t)(plk_volume(box) * LANES) * sizeof *to);
    move_rows(size, dense, box, pad, to, 0);
}

/* The inverse: adjacent channels from `channel` on. */
static void lanes_out(const float *from, float *to, int64_t channels, int64_t volume, int channels_last,
                      int64_t channel, int64_t some)
{
    if (!channels_last)
        from_lanes(from, LANES, volume, (vec){0}, to + channel * volume, volume, some);
    else
        for (int64_t i = 0; i < volume; i++)
            memcpy(to + i * channels + channel, from + i * LANES, (size_t)some * sizeof *to);
}

/* Element (filter, input, tap) of w. */
static float weight(const pass *a, const float *w, int64_t f, int64_t i, int64_t tap)
{
    return w[f * a->inputs * a->window + (a->p->w_last ? tap * a->inputs + i : i * a->window + tap)];
}

/* The offset in a padded image of the window's row (depth kd, height kh) of the outputs' row (d, h), in pixels. */
static int64_t row_at(const pass *a, int64_t d, int64_t h, int64_t kd, int64_t kh)
{
    const plk_conv *p = a->p;
    return ((d * p->stride[0] + kd * p->dilate[0]) * a->padded[1] + h * p->stride[1] + kh * p->dilate[1]) *
           a->padded[2];
}

/* sums (outputs of a row) += x w for one row of the window */
PLK_INLINE void sum_row(const pass *a, const float *x, const float *w, float *sums)
{
    const plk_conv *p = a->p;
    int64_t step = p->stride[2] * LANES, n = p->out[2], o = 0;
    for (; o + COLUMNS <= n; o += COLUMNS) {
        vec acc[COLUMNS];
        _Pragma("GCC unroll 4") for (int c = 0; c < COLUMNS; c++)
            acc[c] = vec_load(sums + (o + c) * LANES);
        for (int64_t k = 0; k < p->kernel[2]; k++) {
            const float *from = x + o * step + k * p->dilate[2] * LANES;
            vec u = vec_load(w + k * LANES);
            _Pragma("GCC unroll 4") for (int c = 0; c < COLUMNS; c++)
                acc[c] += vec_load(from + c * step) * u;
        }
        _Pragma("GCC unroll 4") for (int c = 0; c < COLUMNS; c++)
            vec_store(sums + (o + c) * LANES, acc[c]);
    }
    for (; o < n; o++) {
        vec acc = vec_load(sums + o * LANES);
        for (int64_t k = 0; k < p->kernel[2]; k++)
            acc += vec_load(x + o * step + k * p->dilate[2] * LANES) * vec_load(w + k * LANES);
        vec_store(sums + o * LANES, acc);
    }
}

/* dx += dy w for one row of the window */
PLK_INLINE void spread_row(const pass *a, const float *dy, const float *w, float *dx)
{
    const plk_conv *p = a->p;
    for (int64_t k = 0; k < p->kernel[2]; k++) {
        vec u = vec_load(w + k * LANES);
        float *to = dx + k * p->dilate[2] * LANES;
        for (int64_t o = 0; o < p->out[2]; o++, to += p->stride[2] * LANES)
            vec_store(to, vec_load(to) + vec_load(dy + o * LANES) * u);
    }
}

/* dw += x dy for `taps` elements of one row of the window */
PLK_INLINE void multiply_row(const pass *a, int taps, const float *x, const float *dy, float *dw)
{
    const plk_conv *p = a->p;
    int64_t step = p->stride[2] * LANES, next = p->dilate[2] * LANES;
    vec acc[COLUMNS];
    _Pragma("GCC unroll 4") for (int k = 0; k < taps; k++)
        acc[k] = vec_load(dw + k * LANES);
    for (int64_t o = 0; o < p->out[2]; o++, x += step) {
        vec u = vec_load(dy + o * LANES);
        _Pragma("GCC unroll 4") for (int k = 0; k < taps; k++)
            acc[k] += vec_load(x + k * next) * u;
    }
    _Pragma("GCC unroll 4") for (int k = 0; k < taps; k++)
        vec_store(dw + k * LANES, acc[k]);
}

typedef void row_fn(const pass *a, float *x, float *y, float *w);

static void forward_row(const pass *a, float *x, float *y, float *w) { sum_row(a, x, w, y); }
static void data_row(const pass *a, float *x, float *y, float *w) { spread_row(a, y, w, x); }
static void weight_row(const pass *a, float *x, float *y, float *w)
{
    int64_t k = 0, next = a->p->dilate[2] * LANES;
    for (; k + COLUMNS <= a->p->kernel[2]; k += COLUMNS)
        multiply_row(a, COLUMNS, x + k * next, y, w + k * LANES);
    switch (a->p->kernel[2] - k) {
    case 3: multiply_row(a, 3, x + k * next, y, w + k * LANES); break;
    case 2: multiply_row(a, 2, x + k * next, y, w + k * LANES); break;
    case 1: multiply_row(a, 1, x + k * next, y, w + k * LANES); break;
    }
}

/* Calls `row` for all rows of outputs and of the window: x padded, y the outputs, w the window, all in lanes. */
static void each_row(const pass *a, float *x, float *y, float *w, row_fn *row)
{
    const plk_conv *p = a->p;
    for (int64_t o = 0; o < p->out[0] * p->out[1]; o++)
        for (int64_t k = 0; k < p->kernel[0] * p->kernel[1]; k++)
            row(a, x + row_at(a, o / p->out[1], o % p->out[1], k / p->kernel[1], k % p->kernel[1]) * LANES,
                y + o * p->out[2] * LANES, w + k * p->kernel[2] * LANES);
}

/* The channels that are input i of the filters f ... f + some of a vector. */
static void inputs_of(const pass *a, int64_t f, int64_t some, int64_t i, int64_t *channel)
{
    for (int64_t l = 0; l < some; l++)
        channel[l] = (f + l) / a->filters * a->inputs + i;
}

static void x_in(const pass *a, const float *x, int64_t image, const int64_t *channel, int64_t some, float *dense,
                 float *to)
{
    const plk_conv *p = a->p;
    lanes_in(x + image * p->channels * a->volume, p->channels, p->size, p->channels_last, channel, some,
             a->same ? NULL : a->padded, p->pad, dense, to);
}

/* The filters filter[l] of an image of outputs (y, or dy) in lanes. */
static void y_in(const pass *a, const float *y, int64_t image, const int64_t *filter, int64_t some, float *to)
{
    const plk_conv *p = a->p;
    lanes_in(y + image * p->filters * a->area, p->filters, p->out, p->channels_last, filter, some, NULL, NULL, NULL,
             to);
}

static void forward_piece(void *arg, int64_t item)
{
    const pass *a = arg;
    const plk_conv *p = a->p;
    float *x = a->own + pl_thread_pool_index() * a->own_floats, *y = x + a->padded_volume * LANES;
    float *w = y + a->area * LANES, *dense = w + a->window * LANES;
    int64_t image = item / a->vectors, f = item % a->vectors * LANES, some = least(LANES, p->filters - f);
    int64_t channel[LANES];
    vec start = {0};
    for (int64_t l = 0; a->b.bias && l < some; l++)
        start[l] = a->b.bias[f + l];
    for (int64_t o = 0; o < a->area; o++)
        vec_store(y + o * LANES, start);
    for (int64_t i = 0; i < a->inputs; i++) {
        for (int64_t k = 0; k < a->window * LANES; k++)
            w[k] = k % LANES < some ? weight(a, a->b.w, f + k % LANES, i, k / LANES) : 0;
        inputs_of(a, f, some, i, channel);
        x_in(a, a->b.x, image, channel, some, dense, x);
        each_row(a, x, y, w, forward_row);
    }
    if (a->b.addend) {
        for (int64_t l = 0; l < some; l++)
            channel[l] = f + l;
        y_in(a, a->b.addend, image, channel, some, x);    /* x is done, and large enough */
        for (int64_t k = 0; k < a->area * LANES; k++)
            y[k] += x[k];
    }
    plk_apply(&p->act, a->area * LANES, y);
    lanes_out(y, a->b.y + image * p->filters * a->area, p->filters, a->area, p->channels_last, f, some);
}

static void data_piece(void *arg, int64_t item)
{
    const pass *a = arg;
    const plk_conv *p = a->p;
    float *x = a->own + pl_thread_pool_index() * a->own_floats, *y = x + a->padded_volume * LANES;
    float *w = y + a->area * LANES, *dense = w + a->window * LANES;
    int64_t image = item / a->vectors, c = item % a->vectors * LANES, some = least(LANES, p->channels - c);
    int64_t filter[LANES];
    memset(x, 0, (size_t)(a->padded_volume * LANES) * sizeof *x);
    for (int64_t j = 0; j < a->filters; j++) {
        for (int64_t l = 0; l < some; l++)
            filter[l] = (c + l) / a->inputs * a->filters + j;
        for (int64_t k = 0; k < a->window * LANES; k++)
            w[k] = k % LANES < some
                       ? weight(a, a->b.w, filter[k % LANES], (c + k % LANES) % a->inputs, k / LANES) : 0;
        y_in(a, a->b.x, image, filter, some, y);
        each_row(a, x, y, w, data_row);
    }
    if (!a->same)
        move_rows(p->size, dense, a->padded, p->pad, x, 1);
    lanes_out(a->same ? x : dense, a->b.y + image * p->channels * a->volume, p->channels, a->volume, p->channels_last, c,
              some);
}

/* dw of one vector of filters over one part of the batch, as [part][vector][input][tap][lane]. */
static void weight_piece(void *arg, int64_t item)
{
    const pass *a = arg;
    const plk_conv *p = a->p;
    float *x = a->own + pl_thread_pool_index() * a->own_floats, *y = x + a->padded_volume * LANES;
    float *dense = y + (a->area + a->window) * LANES;
    int64_t part = item / a->vectors, f = item % a->vectors * LANES, some = least(LANES, p->filters - f);
    int64_t channel[LANES], size = a->inputs * a->window * LANES;
    float *sums = a->sums + item * size;
    memset(sums, 0, (size_t)size * sizeof *sums);
    for (int64_t image = part * a->per_part; image < least(p->n, (part + 1) * a->per_part); image++) {
        for (int64_t l = 0; l < some; l++)
            channel[l] = f + l;
        y_in(a, a->b.x, image, channel, some, y);
        for (int64_t i = 0; i < a->inputs; i++) {
            inputs_of(a, f, some, i, channel);
            x_in(a, a->b.w, image, channel, some, dense, x);
            each_row(a, x, y, sums + i * a->window * LANES, weight_row);
        }
    }
}

static void weight_store(void *arg, int64_t vector)
{
    const pass *a = arg;
    int64_t f = vector * LANES, size = a->inputs * a->window * LANES;
    for (int64_t k = 0; k < size; k++) {
        int64_t filter = f + k % LANES, at = k / LANES;
        float sum = 0;
        if (filter >= a->p->filters)
            continue;
        for (int64_t part = 0; part < a->parts; part++)
            sum += a->sums[(part * a->vectors + vector) * size + k];
        if (a->p->w_last)
            at = at % a->window * a->inputs + at / a->window;
        a->b.y[filter * a->inputs * a->window + at] = sum;
    }
}

PLK_KERNEL(plk_conv_group_run)
{
    const plk_conv *p = params;
    int weight = p->kind == PLK_CONV_WEIGHT, data = p->kind == PLK_CONV_DATA;
    pass a = {.p = p, .inputs = p->channels / p->groups, .filters = p->filters / p->groups};
    (void)scalars;
    a.b = weight || data ? (plk_conv_bufs){.x = bufs[0], .w = bufs[1], .y = bufs[2]} : plk_conv_bufs_of(p, bufs);
    for (int d = 0; d < 3; d++)
        a.padded[d] = most((p->out[d] - 1) * p->stride[d] + (p->kernel[d] - 1) * p->dilate[d] + 1,
                           p->size[d] + p->pad[d]);
    a.window = plk_volume(p->kernel);
    a.volume = plk_volume(p->size);
    a.area = plk_volume(p->out);
    a.padded_volume = most(plk_volume(a.padded), a.area);
    a.vectors = count(data ? p->channels : p->filters, LANES);
    a.same = plk_volume(a.padded) == a.volume;
    a.own_floats = (a.padded_volume + a.area + a.window + a.volume) * LANES;
    a.per_part = count(p->n, least(least(p->n, MOST_PARTS), most(1, p->n * a.area / LEAST_PIXELS)));
    a.parts = count(p->n, a.per_part);
    int n_threads = pl_threads(p->n * p->filters * a.area * a.inputs * a.window / 8);
    int64_t sums = weight ? a.parts * a.vectors * a.inputs * a.window * LANES : 0;
    a.own = pl_scratch(sizeof(float) * (size_t)(n_threads * a.own_floats + sums));
    if (!a.own)
        return pl_fail(PL_ENOMEM, "out of memory for a convolution");
    a.sums = a.own + n_threads * a.own_floats;
    pl_thread_pool_run(n_threads, (weight ? a.parts : p->n) * a.vectors,
                       weight ? weight_piece : data ? data_piece : forward_piece, &a);
    if (weight)
        pl_thread_pool_run(n_threads, a.vectors, weight_store, &a);
    return PL_OK;
}
