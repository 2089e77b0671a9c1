/* Included by winograd_blocked.c for blocks of LANES channels, each a VEC. */
#include "winograd_points.h"

/* The tiles [first, first + n) of one row of tiles (number `row` of the batch), one block of channels, as
 * V[point][tile][channel]; v: the first tile.  down: scratch for a strip of 6 vectors for each column */
static void NAME(transform_in)(const plk_conv_blocked *p, const cut *k, const float *x, int64_t row, int64_t first,
                               int64_t n, int64_t block, float *v, VEC *down)
{
    int64_t image = row / k->down, top = row % k->down * 4 - p->pad[0], left = first * 4 - p->pad[1];
    const float *plane = x + (image * (p->channels / LANES) + block) * p->size[0] * p->size[1] * LANES;
    static const float zeros[LANES];
    const float *from[SIDE];
    int64_t step[SIDE], n_columns = 4 * n + 2;
    int64_t begin = least(n_columns, left < 0 ? -left : 0), end = least(n_columns, p->size[1] - left);
    for (int i = 0; i < SIDE; i++) {
        int inside = top + i >= 0 && top + i < p->size[0];
        from[i] = inside ? plane + ((top + i) * p->size[1] + left + begin) * LANES : zeros;
        step[i] = inside ? LANES : 0;
    }
    for (int64_t j = 0; j < n_columns; j++) {
        VEC d[SIDE], t[SIDE];
        if (j < begin || j >= end) {
            UNROLL for (int i = 0; i < SIDE; i++)
                down[i * n_columns + j] = (VEC){0};
            continue;
        }
        UNROLL for (int i = 0; i < SIDE; i++) {
            d[i] = LOAD(from[i]);
            from[i] += step[i];
        }
        NAME(input_transform)(d, 1, t);
        UNROLL for (int i = 0; i < SIDE; i++)
            down[i * n_columns + j] = t[i];
    }
    for (int64_t t = 0; t < n; t++) {
        float *to = v + t * p->channels + block * LANES;
        for (int i = 0; i < SIDE; i++, to += SIDE * k->v_point) {
            VEC out[SIDE];
            NAME(input_transform)(down + i * n_columns + 4 * t, 1, out);
            UNROLL for (int j = 0; j < SIDE; j++)
                STORE(to + j * k->v_point, out[j]);
        }
    }
}

/* U of one channel and block of filters, at steps of `point`. */
PLK_INLINE void NAME(transform_window)(const float *w, float *u, int64_t point)
{
    VEC in[9], half[18], out[SIDE];
    UNROLL for (int q = 0; q < 9; q++)
        in[q] = LOAD(w + q * LANES * LANES);
    UNROLL for (int q = 0; q < 3; q++) {
        NAME(weight_transform)(in + q, 3, out);
        UNROLL for (int h = 0; h < SIDE; h++)
            half[h * 3 + q] = out[h];
    }
    for (int h = 0; h < SIDE; h++, u += SIDE * point) {
        NAME(weight_transform)(half + h * 3, 1, out);
        UNROLL for (int q = 0; q < SIDE; q++)
            STORE(u + q * point, out[q]);
    }
}

/* U[point][panel][channel][2 LANES] of the channels [c, c + depth) and the blocks of filters [f, f + blocks). */
static void NAME(transform_weights)(const plk_conv_blocked *p, const float *w, int64_t f, int64_t blocks, int64_t c,
                                    int64_t depth, float *u)
{
    int64_t panel = depth * 2 * LANES, point = odd_lines(over(blocks, 2) * panel), window = 9 * LANES * LANES;
    for (int64_t b = 0; b < blocks; b += 2) {
        const float *g = w + ((f + b) * (p->channels / LANES) + c / LANES) * window;
        const float *other = b + 1 < blocks ? g + p->channels / LANES * window : NULL;
        for (int64_t i = 0; i < depth; i++) {
            int64_t at = i / LANES * window + i % LANES * LANES;
            float *to = u + b / 2 * panel + i * 2 * LANES;
            if (i % LANES == 0)
                for (int64_t q = 0; q < window; q += 16) {
                    __builtin_prefetch(g + at + window + q);
                    __builtin_prefetch(other + at + window + q);
                }
            NAME(transform_window)(g + at, to, point);
            if (other)
                NAME(transform_window)(other + at, to + LANES, point);
        }
    }
}

/* m (rows, 2 LANES) = v (rows, depth) u (depth, 2 LANES), or added to it */
PLK_INLINE void NAME(multiply)(int rows, const float *restrict v, int64_t v_step, const float *restrict u,
                               float *restrict m, int64_t m_step, int64_t depth, int add)
{
    VEC acc[ROWS][2];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int j = 0; j < 2; j++)
            acc[r][j] = add ? LOAD(m + r * m_step + j * LANES) : (VEC){0};
    for (int64_t i = 0; i < depth; i++) {
        VEC u0 = LOAD(u + i * 2 * LANES), u1 = LOAD(u + i * 2 * LANES + LANES);
        UNROLL for (int r = 0; r < rows; r++) {
            float s = v[r * v_step + i];
            acc[r][0] += s * u0;
            acc[r][1] += s * u1;
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int j = 0; j < 2; j++)
            STORE(m + r * m_step + j * LANES, acc[r][j]);
}

/* All tiles of an item for one point and panel. */
static void NAME(multiply_tiles)(int64_t n_tiles, const float *v, int64_t v_step, const float *u, float *m,
                                 int64_t m_step, int64_t depth, int add)
{
    for (int64_t t = 0, n; t < n_tiles; t += n, v += n * v_step, m += n * m_step) {
        n = least(ROWS, n_tiles - t);
        if (n == ROWS)
            NAME(multiply)(ROWS, v, v_step, u, m, m_step, depth, add);
        else if (n >= 4)
            NAME(multiply)(n = 4, v, v_step, u, m, m_step, depth, add);
        else if (n >= 2)
            NAME(multiply)(n = 2, v, v_step, u, m, m_step, depth, add);
        else
            NAME(multiply)(1, v, v_step, u, m, m_step, depth, add);
    }
}

/* Is any number of v a NaN? */
PLK_INLINE int NAME(any)(VEC v)
{
    float sum = 0;
    for (int l = 0; l < LANES; l++)
        sum += v[l];
    return sum != sum;
}

/* For values that are not finite, whose transforms give NaN (inf - inf): one tile and block of filters, directly. */
static __attribute__((noinline)) void NAME(direct)(const plk_conv_blocked *p, const float *x, const float *w,
                                                   int64_t image, int64_t block, int64_t top, int64_t left, VEC *d)
{
    for (int i = 0; i < 16; i++)
        d[i] = (VEC){0};
    for (int64_t c = 0; c < p->channels; c++) {
        const float *g = w + ((block * (p->channels / LANES) + c / LANES) * 9 * LANES + c % LANES) * LANES;
        int64_t plane = image * (p->channels / LANES) + c / LANES;
        const float *from = x + plane * p->size[0] * p->size[1] * LANES + c % LANES;
        for (int i = 0; i < 16 * 9; i++) {
            int64_t h = top + i / 36 + i % 9 / 3 - p->pad[0], v = left + i / 9 % 4 + i % 3 - p->pad[1];
            if (h >= 0 && h < p->size[0] && v >= 0 && v < p->size[1])
                d[i / 9] += from[(h * p->size[1] + v) * LANES] * LOAD(g + i % 9 * LANES * LANES);
        }
    }
}

/* The tiles [first, first + n) of one block of filters; m: the first tile's vector. */
static void NAME(transform_out)(const plk_conv_blocked *p, const cut *k, const float *m, int64_t m_step,
                                int64_t m_point, void *const *bufs, int64_t block, int64_t first, int64_t n)
{
    const float *addend = p->add ? bufs[3] : NULL;
    float *y = bufs[3 + p->add];
    VEC b = LOAD((const float *)bufs[2] + block * LANES);
    for (int64_t t = first, stop; t < first + n; t = stop) {
        int64_t column = t % k->across, image = t / k->across / k->down;
        int64_t top = t / k->across % k->down * 4, high = least(4, p->out[0] - top);
        stop = least(t + k->across - column, first + n);
        int64_t base = ((image * (p->filters / LANES) + block) * p->out[0] + top) * p->out[1];
        for (int64_t i = t; i < stop; i++, m += m_step) {
            int64_t left = (column + i - t) * 4, wide = least(4, p->out[1] - left);
            VEC in[SIDE], across[4 * SIDE], d[16], odd = {0};
            for (int h = 0; h < SIDE; h++) {
                UNROLL for (int j = 0; j < SIDE; j++)
                    in[j] = LOAD(m + (h * SIDE + j) * m_point);
                NAME(output_transform)(in, 1, across + 4 * h);
            }
            UNROLL for (int j = 0; j < 4; j++) {
                VEC column_of[4];
                NAME(output_transform)(across + j, 4, column_of);
                UNROLL for (int h = 0; h < 4; h++) {
                    d[4 * h + j] = column_of[h];
                    odd += column_of[h] * 0.0f;
                }
            }
            if (NAME(any)(odd)) {
                VEC again[16];
                NAME(direct)(p, bufs[0], bufs[1], image, block, top, left, again);
                for (int h = 0; h < 16; h++)
                    d[h] = again[h];
            }
            for (int h = 0; h < high; h++) {
                int64_t to = (base + h * p->out[1] + left) * LANES;
                for (int j = 0; j < wide; j++, to += LANES) {
                    VEC r = d[4 * h + j] + b;
                    STORE(y + to, addend ? r + LOAD(addend + to) : r);
                }
            }
        }
        int64_t begin = column * 4, end = least(begin + (stop - t) * 4, p->out[1]);
        for (int64_t h = 0; h < high; h++)
            plk_apply(&p->act, (end - begin) * LANES, y + (base + h * p->out[1] + begin) * LANES);
    }
}

/* The products of one piece of U; meanwhile prefetches the weights of the next one (`lines` cache lines of each block
 * of filters, at steps of row_of_w). */
static void NAME(multiply_piece)(const plk_conv_blocked *p, const cut *k, const float *v, const float *u, float *m,
                                 int64_t n, int64_t panels, int64_t m_point, int64_t depth, int add, const float *next,
                                 int64_t lines, int64_t row_of_w)
{
    int64_t panel = depth * 2 * LANES, u_point = odd_lines(panels * panel),
            each = over(2 * panels * lines, POINTS * panels);
    for (int point = 0; point < POINTS; point++)
        for (int64_t j = 0; j < panels; j++) {
            int64_t line = (point * panels + j) * each, end = least(line + each, 2 * panels * lines);
            for (; line < end; line++)
                __builtin_prefetch(next + line / lines * row_of_w + line % lines * 16, 0, 2);
            NAME(multiply_tiles)(n, v + point * k->v_point, p->channels, u + point * u_point + j * panel,
                                 m + point * m_point + j * 2 * LANES, panels * 2 * LANES, depth, add);
        }
}

/* The tiles [first, first + n), at v, of the blocks of filters [f, f + blocks). */
static void NAME(item)(const plk_conv_blocked *p, const cut *k, void *const *bufs, const float *v, float *u,
                       float *m, int64_t f, int64_t blocks, int64_t first, int64_t n)
{
    int64_t panels = over(blocks, 2), m_step = panels * 2 * LANES, row_of_w = p->channels * 9 * LANES;
    int64_t piece = k->whole ? POINTS * odd_lines(panels * DEPTH * 2 * LANES) : 0;
    for (int64_t t = 0, some; t < n; t += some) {
        some = least(TILES, n - t);
        int64_t m_point = odd_lines(some * m_step);
        for (int64_t c = 0; c < p->channels; c += DEPTH) {
            int64_t depth = least(DEPTH, p->channels - c), then = least(DEPTH, p->channels - c - depth);
            const float *next = (const float *)bufs[1] + f * row_of_w + (c + depth) * 9 * LANES;
            float *at = u + c / DEPTH * piece;
            if (t == 0)
                NAME(transform_weights)(p, bufs[1], f, blocks, c, depth, at);
            NAME(multiply_piece)(p, k, v + t * p->channels + c, at, m, some, panels, m_point, depth, c > 0, next,
                                 t == 0 ? then * 9 * LANES / 16 : 0, row_of_w);
        }
        for (int64_t b = 0; b < blocks; b++)
            NAME(transform_out)(p, k, m + b * LANES, m_step, m_point, bufs, f + b, first + t, some);
    }
}

static void NAME(piece)(void *arg, int64_t i)
{
    const work *w = arg;
    const plk_conv_blocked *p = w->p;
    const cut *k = w->k;
    float *v = w->scratch + pl_thread_pool_index() * (k->v + k->strip + k->u + k->m), *strip = v + k->v;
    float *u = strip + k->strip, *m = u + k->u;
    int64_t out_blocks = p->filters / LANES, *held = &w->held[pl_thread_pool_index()];
    int64_t range = i / k->groups, first = range * k->range, n = least(k->range, k->tiles - first);
    int64_t f = i % k->groups * k->group * 2 * PANELS, end = least(f + k->group * 2 * PANELS, out_blocks);
    for (int64_t t = first, some; *held != range && t < first + n; t += some) {
        some = least(k->across - t % k->across, first + n - t);
        for (int64_t b = 0; b < p->channels / LANES; b++)
            NAME(transform_in)(p, k, w->bufs[0], t / k->across, t % k->across, some, b,
                               v + (t - first) * p->channels, (VEC *)strip);
    }
    *held = range;
    for (; f < end; f += 2 * PANELS)
        NAME(item)(p, k, w->bufs, v, u, m, f, least(2 * PANELS, end - f), first, n);
}
