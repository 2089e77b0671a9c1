/* Included by conv_point.c for blocks of LANES channels, each a VEC. */

/* y (rows, 2 blocks) = start + x (rows, k) w (k, 2 blocks); x_step: from one block of channels to the next. */
INLINE void NAME(multiply)(int rows, int blocks, const float *x, int64_t x_step, const float *w0, const float *w1,
                           const float *start0, const float *start1, int64_t start_step, float *y0, float *y1, int64_t k)
{
    VEC a[ROWS], b[ROWS];
    UNROLL for (int r = 0; r < rows; r++) {
        a[r] = LOAD(start0 + r * start_step);
        b[r] = blocks > 1 ? LOAD(start1 + r * start_step) : a[r];
    }
    for (int64_t c = 0; c < k; c += LANES, x += x_step)
        for (int l = 0; l < LANES; l++, w0 += LANES, w1 += LANES) {
            VEC u = LOAD(w0), v = blocks > 1 ? LOAD(w1) : u;
            UNROLL for (int r = 0; r < rows; r++) {
                float s = x[r * LANES + l];
                a[r] += s * u;
                if (blocks > 1)
                    b[r] += s * v;
            }
        }
    UNROLL for (int r = 0; r < rows; r++) {
        STORE(y0 + r * LANES, a[r]);
        if (blocks > 1)
            STORE(y1 + r * LANES, b[r]);
    }
}

/* `pixels` outputs of one or two blocks of filters, over k channels */
static void NAME(multiply_pixels)(int blocks, int64_t pixels, const float *x, int64_t x_step, const float *w0,
                                  const float *w1, const float *start0, const float *start1, int64_t start_step, float *y0,
                                  float *y1, int64_t k)
{
    for (int64_t p = 0, n; p < pixels; p += n) {
        n = pixels - p < ROWS ? pixels - p : ROWS;
        if (n < ROWS && n > 4)
            n = 4;
        const float *xs = x + p * LANES, *s0 = start0 + p * start_step, *s1 = start1 + p * start_step;
        float *t0 = y0 + p * LANES, *t1 = y1 + p * LANES;
#define CASE(rows) \
    if (blocks > 1) \
        NAME(multiply)(rows, 2, xs, x_step, w0, w1, s0, s1, start_step, t0, t1, k); \
    else \
        NAME(multiply)(rows, 1, xs, x_step, w0, w1, s0, s1, start_step, t0, t1, k)
        if (n == ROWS) {
            CASE(ROWS);
        } else if (n == 4) {
            CASE(4);
        } else if (n == 3) {
            CASE(3);
        } else if (n == 2) {
            CASE(2);
        } else {
            CASE(1);
        }
#undef CASE
    }
}

/* One image's outputs [first, first + pixels), blocks of filters [begin, end). room: for gathered x */
static void NAME(item)(const plk_conv_point *p, void *const *bufs, int64_t image, int64_t first, int64_t pixels,
                       int64_t begin, int64_t end, float *room)
{
    int64_t space = p->height * p->width, out = p->out_height * p->out_width, x_step = space * LANES;
    const float *x = (const float *)bufs[0] + image * p->channels * space, *w = bufs[1], *bias = bufs[2];
    const float *addend = p->add ? (const float *)bufs[3] + image * p->filters * out : NULL;
    float *y = (float *)bufs[3 + p->add] + image * p->filters * out;
    plk_loop loop = p->act ? plk_pointwise_loop(p->act - 1, PLK_F32) : NULL;
    if (p->stride[0] > 1 || p->stride[1] > 1) {
        for (int64_t c = 0; c < p->channels / LANES; c++)
            for (int64_t i = 0; i < pixels; i++) {
                int64_t at = first + i, h = at / p->out_width * p->stride[0], v = at % p->out_width * p->stride[1];
                STORE(room + (c * pixels + i) * LANES, LOAD(x + (c * space + h * p->width + v) * LANES));
            }
        x = room;
        x_step = pixels * LANES;
    } else
        x += first * LANES;
    for (int64_t f = begin; f < end; f += 2) {
        int blocks = f + 1 < end ? 2 : 1;
        int64_t other = f + blocks - 1, at0 = (f * out + first) * LANES, at1 = (other * out + first) * LANES;
        for (int64_t c = 0; c < p->channels; c += DEPTH) {
            int64_t k = p->channels - c < DEPTH ? p->channels - c : DEPTH;
            const float *s0 = c ? y + at0 : addend ? addend + at0 : bias + f * LANES;
            const float *s1 = c ? y + at1 : addend ? addend + at1 : bias + other * LANES;
            NAME(multiply_pixels)(blocks, pixels, x + c / LANES * x_step, x_step, w + (f * p->channels + c) * LANES,
                                  w + (other * p->channels + c) * LANES, s0, s1, c || addend ? LANES : 0, y + at0, y + at1,
                                  k);
        }
        for (int b = 0; b < blocks; b++) {
            float *to = y + (b ? at1 : at0);
            VEC shift = LOAD(bias + (f + b) * LANES);
            for (int64_t i = 0; addend && i < pixels; i++)
                STORE(to + i * LANES, LOAD(to + i * LANES) + shift);
            if (loop)
                loop(pixels * LANES, (void *const[]){to, to}, p->scalars);
        }
    }
}
