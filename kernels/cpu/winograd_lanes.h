/* Included by winograd.c for blocks of LANES channels, each a VEC, and tiles of TILE x TILE outputs. */

/* Is any number of v a NaN? */
INLINE int NAME(any)(VEC v)
{
    float sum = 0;
    for (int l = 0; l < LANES; l++)
        sum += v[l];
    return sum != sum;
}

/* B^T d for one column or row of a TILE, in place; d has steps of `step`. */
INLINE void NAME(take)(VEC *d, int step)
{
    VEC a = d[0], b = d[step], c = d[2 * step], e = d[3 * step];
    if (TILE == 2) {
        d[0] = a - c;
        d[step] = b + c;
        d[2 * step] = c - b;
        d[3 * step] = e - b;
    }
}

/* A^T m likewise: the first `TILE` of d are the result. */
INLINE void NAME(give)(VEC *d, int step)
{
    VEC a = d[0], b = d[step], c = d[2 * step], e = d[3 * step];
    if (TILE == 2) {
        d[0] = a + b + c;
        d[step] = b - c + e;
    }
}

/* The tiles [first, last) of one block of channels: V[point][tile - begin][channel]. */
INLINE void NAME(transform_in)(const plk_winograd *p, const grid *g, const float *x, float *v, int64_t block,
                               int64_t first, int64_t last, int64_t begin, int64_t v_step)
{
    for (int64_t t = first; t < last; t++) {
        int64_t image = t / (g->down * g->across), row = t / g->across % g->down, column = t % g->across;
        int64_t y0 = row * TILE - p->pad[0], x0 = column * TILE - p->pad[1];
        const float *from = x + (image * g->blocks + block) * p->height * p->width * LANES;
        VEC d[MAX_POINTS];
        int inside = y0 >= 0 && x0 >= 0 && y0 + SIDE <= p->height && x0 + SIDE <= p->width;
        if (inside) {
            UNROLL for (int i = 0; i < SIDE; i++)
                UNROLL for (int j = 0; j < SIDE; j++)
                    d[i * SIDE + j] = LOAD(from + ((y0 + i) * p->width + x0 + j) * LANES);
        } else {
            VEC at_border[MAX_POINTS];
            for (int i = 0; i < SIDE * SIDE; i++) {
                int64_t h = y0 + i / SIDE, w = x0 + i % SIDE;
                int in = h >= 0 && h < p->height && w >= 0 && w < p->width;
                at_border[i] = in ? LOAD(from + (h * p->width + w) * LANES) : (VEC){0};
            }
            UNROLL for (int i = 0; i < SIDE * SIDE; i++)
                d[i] = at_border[i];
        }
        UNROLL for (int i = 0; i < SIDE; i++)
            NAME(take)(d + i, SIDE);
        UNROLL for (int i = 0; i < SIDE; i++)
            NAME(take)(d + i * SIDE, 1);
        float *to = v + (t - begin) * p->channels + block * LANES;
        UNROLL for (int i = 0; i < SIDE * SIDE; i++)
            STORE(to + i * v_step, d[i]);
    }
}

/* m (rows, 2 LANES) = v (rows, k) u (k, 2 LANES) */
INLINE void NAME(multiply)(int rows, const float *restrict v, int64_t v_step, const float *restrict u, float *restrict m,
                           int64_t m_step, int64_t k)
{
    VEC acc[ROWS][2];
    UNROLL for (int r = 0; r < rows; r++)
        acc[r][0] = acc[r][1] = (VEC){0};
    for (int64_t i = 0; i < k; i++) {
        VEC u0 = LOAD(u + i * 2 * LANES), u1 = LOAD(u + i * 2 * LANES + LANES);
        UNROLL for (int r = 0; r < rows; r++) {
            float s = v[r * v_step + i];
            acc[r][0] += s * u0;
            acc[r][1] += s * u1;
        }
    }
    UNROLL for (int r = 0; r < rows; r++) {
        STORE(m + r * m_step, acc[r][0]);
        STORE(m + r * m_step + LANES, acc[r][1]);
    }
}

/* One item: tiles [first, last) times the panels [panel, panel + n_panels), as m[point][tile - first][filter]. */
static void NAME(multiply_item)(const plk_winograd *p, const grid *g, int points, const float *v, int64_t v_step,
                                const float *u, float *m, int64_t n_tiles, int64_t panel, int64_t n_panels)
{
    int64_t u_step = p->channels * 2 * LANES, m_step = n_panels * 2 * LANES;
    for (int point = 0; point < points; point++)
        for (int k = 0; k < n_panels; k++) {
            const float *us = u + (point * g->panels + panel + k) * u_step, *vs = v + point * v_step;
            float *ms = m + point * n_tiles * m_step + k * 2 * LANES;
            int64_t t = 0;
            for (; t + ROWS <= n_tiles; t += ROWS)
                NAME(multiply)(ROWS, vs + t * p->channels, p->channels, us, ms + t * m_step, m_step, p->channels);
            for (; t + 2 <= n_tiles; t += 2)
                NAME(multiply)(2, vs + t * p->channels, p->channels, us, ms + t * m_step, m_step, p->channels);
            if (t < n_tiles)
                NAME(multiply)(1, vs + t * p->channels, p->channels, us, ms + t * m_step, m_step, p->channels);
        }
}

/* What transforms cannot give where numbers are not finite (inf - inf): one TILE and block of filters by definition. The
 * weights follow from the transformed ones. */
static __attribute__((noinline)) void NAME(direct)(const plk_winograd *p, const grid *g, const float *x,
                                                   const float *u, int64_t block, int64_t t, VEC *d)
{
    int64_t image = t / (g->down * g->across), row = t / g->across % g->down, column = t % g->across;
    int64_t u_step = g->panels * p->channels * 2 * LANES;
    for (int i = 0; i < TILE * TILE; i++)
        d[i / TILE * SIDE + i % TILE] = (VEC){0};
    for (int64_t c = 0; c < p->channels; c++) {
        const float *us = u + ((block / 2 * p->channels + c) * 2 + block % 2) * LANES;
        VEC k[3 * MAX_SIDE], w[9];
        for (int j = 0; j < SIDE; j++)
            for (int i = 0; i < 3; i++)
                k[i * SIDE + j] = i == 0 ? LOAD(us + j * u_step) : i == 2 ? LOAD(us + (3 * SIDE + j) * u_step)
                                : LOAD(us + (SIDE + j) * u_step) - LOAD(us + (2 * SIDE + j) * u_step);
        for (int i = 0; i < 3; i++) {
            w[i * 3] = k[i * SIDE];
            w[i * 3 + 1] = k[i * SIDE + 1] - k[i * SIDE + 2];
            w[i * 3 + 2] = k[i * SIDE + 3];
        }
        const float *from = x + (image * g->blocks + c / LANES) * p->height * p->width * LANES + c % LANES;
        for (int i = 0; i < TILE * TILE * 9; i++) {
            int64_t h = row * TILE + i / 9 / TILE + i % 9 / 3 - p->pad[0];
            int64_t v = column * TILE + i / 9 % TILE + i % 3 - p->pad[1];
            if (h >= 0 && h < p->height && v >= 0 && v < p->width)
                d[i / 9 / TILE * SIDE + i / 9 % TILE] += from[(h * p->width + v) * LANES] * w[i % 9];
        }
    }
}

/* Block `block` of filters of one item; m: its first vector. */
INLINE void NAME(transform_out)(const plk_winograd *p, const grid *g, const float *m, int64_t m_step,
                                int64_t point_step, void *const *bufs, int64_t block, int64_t first, int64_t last)
{
    const float *addend = p->add ? bufs[3] : NULL;
    float *y = bufs[3 + p->add];
    VEC b = LOAD((const float *)bufs[2] + block * LANES), zero = {0};
    plk_loop loop = p->act ? plk_pointwise_loop(p->act - 1, PLK_F32) : NULL;
    for (int64_t t = first, stop; t < last; t = stop) {
        int64_t image = t / (g->down * g->across), row = t / g->across % g->down, column = t % g->across;
        stop = t + g->across - column < last ? t + g->across - column : last;
        int64_t high = p->out_height - row * TILE < TILE ? p->out_height - row * TILE : TILE;
        int64_t base = ((image * (p->filters / LANES) + block) * p->out_height + row * TILE) * p->out_width;
        int64_t begin = column * TILE;
        for (int64_t i = t; i < stop; i++) {
            const float *from = m + (i - first) * m_step;
            VEC d[MAX_POINTS];
            UNROLL for (int k = 0; k < SIDE * SIDE; k++)
                d[k] = LOAD(from + k * point_step);
            UNROLL for (int k = 0; k < SIDE; k++)
                NAME(give)(d + k, SIDE);
            UNROLL for (int k = 0; k < TILE; k++)
                NAME(give)(d + k * SIDE, 1);
            VEC odd = zero;
            UNROLL for (int k = 0; k < TILE * TILE; k++)
                odd += d[k / TILE * SIDE + k % TILE] * 0.0f;
            if (NAME(any)(odd)) {
                VEC again[MAX_POINTS];
                NAME(direct)(p, g, bufs[0], bufs[1], block, i, again);
                UNROLL for (int k = 0; k < TILE * TILE; k++)
                    d[k / TILE * SIDE + k % TILE] = again[k / TILE * SIDE + k % TILE];
            }
            int64_t at = (column + i - t) * TILE, wide = p->out_width - at < TILE ? p->out_width - at : TILE;
            UNROLL for (int h = 0; h < TILE; h++)
                UNROLL for (int w = 0; w < TILE; w++)
                    if (h < high && w < wide) {
                        int64_t to = (base + h * p->out_width + at + w) * LANES;
                        VEC r = d[h * SIDE + w] + b;
                        STORE(y + to, addend ? r + LOAD(addend + to) : r);
                    }
        }
        int64_t end = begin + (stop - t) * TILE < p->out_width ? begin + (stop - t) * TILE : p->out_width;
        for (int64_t h = 0; loop && h < high; h++) {
            float *row_of_y = y + (base + h * p->out_width + begin) * LANES;
            loop((end - begin) * LANES, (void *const[]){row_of_y, row_of_y}, p->scalars);
        }
    }
}

INLINE void NAME(run)(const plk_winograd *p, const grid *g, void *const *bufs, float *room, int64_t group,
                      int64_t item, int n_threads)
{
    enum { points = SIDE * SIDE };
    int64_t slices = (g->panels + ITEM_PANELS - 1) / ITEM_PANELS;
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    for (int64_t begin = 0; begin < g->all; begin += group) {
        int64_t n = g->all - begin < group ? g->all - begin : group, v_step = n * p->channels;
        int64_t parts = (n + ITEM_TILES - 1) / ITEM_TILES;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < g->blocks * parts; i++) {
            int64_t first = begin + i % parts * ITEM_TILES, last = first + ITEM_TILES;
            NAME(transform_in)(p, g, bufs[0], room, i / parts, first, last < begin + n ? last : begin + n, begin,
                               v_step);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < parts * slices; i++) {
            float *m = room + points * group * p->channels + omp_get_thread_num() * item;
            int64_t first = begin + i % parts * ITEM_TILES, panel = i / parts * ITEM_PANELS;
            int64_t n_tiles = begin + n - first < ITEM_TILES ? begin + n - first : ITEM_TILES;
            int64_t n_panels = g->panels - panel < ITEM_PANELS ? g->panels - panel : ITEM_PANELS;
            int64_t m_step = n_panels * 2 * LANES;
            NAME(multiply_item)(p, g, points, room + (first - begin) * p->channels, v_step, bufs[1], m, n_tiles, panel,
                                n_panels);
            for (int64_t k = 0; k < 2 * n_panels && (2 * panel + k) * LANES < p->filters; k++)
                NAME(transform_out)(p, g, m + k * LANES, m_step, n_tiles * m_step, bufs, 2 * panel + k, first,
                                    first + n_tiles);
        }
    }
}
