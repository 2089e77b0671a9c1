/* Included by conv_depth.c for blocks of LANES channels, each a VEC. */

/* y (columns) = bias + the sums over `rows` rows of windows; x: the first column's first tap. stride: of columns;
 * addend: NULL, or columns to add (which may be y) */
PLK_INLINE void NAME(sum)(const plk_conv_blocked *p, int columns, int64_t stride, const float *x, const float *w,
                          int64_t rows, VEC bias, const float *addend, float *y)
{
    VEC acc[COLUMNS];
    UNROLL for (int i = 0; i < columns; i++)
        acc[i] = bias;
    for (int64_t h = 0; h < rows; h++, x += p->dilate[0] * p->size[1] * LANES)
        for (int64_t v = 0; v < p->kernel[1]; v++, w += LANES) {
            const float *from = x + v * p->dilate[1] * LANES;
            VEC tap = LOAD(w);
            UNROLL for (int i = 0; i < columns; i++)
                acc[i] += LOAD(from + i * stride * LANES) * tap;
        }
    UNROLL for (int i = 0; i < columns; i++)
        STORE(y + i * LANES, addend ? acc[i] + LOAD(addend + i * LANES) : acc[i]);
}

/* The window of one output near an edge, added to its sum. */
static void NAME(sum_inside)(const plk_conv_blocked *p, const float *x, int64_t left, const float *w, int64_t rows,
                             VEC *sum)
{
    for (int64_t h = 0; h < rows; h++, x += p->dilate[0] * p->size[1] * LANES)
        for (int64_t v = 0; v < p->kernel[1]; v++, w += LANES) {
            int64_t column = left + v * p->dilate[1];
            if (column >= 0 && column < p->size[1])
                *sum += LOAD(x + column * LANES) * LOAD(w);
        }
}

/* Columns [first, last), whose windows are inside x. x: the row, w: the first tap of `rows` rows. */
PLK_INLINE void NAME(sum_columns)(const plk_conv_blocked *p, int64_t stride, int64_t first, int64_t last, const float *x,
                                  const float *w, int64_t rows, VEC bias, const float *addend, float *y)
{
    for (int64_t n; first < last; first += n) {
        const float *from = x + (first * stride - p->pad[1]) * LANES, *more = addend ? addend + first * LANES : NULL;
        float *to = y + first * LANES;
        n = last - first;
        if (n >= COLUMNS)
            NAME(sum)(p, n = COLUMNS, stride, from, w, rows, bias, more, to);
        else if (n >= 4)
            NAME(sum)(p, n = 4, stride, from, w, rows, bias, more, to);
        else if (n >= 2)
            NAME(sum)(p, n = 2, stride, from, w, rows, bias, more, to);
        else
            NAME(sum)(p, 1, stride, from, w, rows, bias, more, to);
    }
}

/* Row h of outputs of one image and block of channels. */
static void NAME(row)(const plk_conv_blocked *p, void *const *bufs, int64_t image, int64_t block, int64_t h)
{
    int64_t plane = image * (p->channels / LANES) + block, at = (plane * p->out[0] + h) * p->out[1] * LANES;
    int64_t top = h * p->stride[0] - p->pad[0], stride = p->stride[1], reach = (p->kernel[1] - 1) * p->dilate[1];
    int64_t tap = top < 0 ? over(-top, p->dilate[0]) : 0;    /* the first row of the window that is inside */
    int64_t rows = top < p->size[0] ? least(p->kernel[0], over(p->size[0] - top, p->dilate[0])) - tap : 0;
    const float *x = (const float *)bufs[0] + (plane * p->size[0] + top + tap * p->dilate[0]) * p->size[1] * LANES;
    const float *w = (const float *)bufs[1] + (block * p->kernel[0] + tap) * p->kernel[1] * LANES;
    const float *addend = p->add ? (const float *)bufs[3] + at : NULL;
    float *y = (float *)bufs[3 + p->add] + at;
    VEC bias = LOAD((const float *)bufs[2] + block * LANES);
    int64_t first = least(p->out[1], over(p->pad[1], stride)), space = p->size[1] - 1 + p->pad[1] - reach;
    int64_t last = space < 0 ? first : most(first, least(p->out[1], space / stride + 1));
    rows = most(rows, 0);
    for (int64_t i = 0; i < p->out[1] - (last - first); i++) {
        int64_t column = i < first ? i : i + last - first;
        VEC sum = bias;
        NAME(sum_inside)(p, x, column * stride - p->pad[1], w, rows, &sum);
        STORE(y + column * LANES, addend ? sum + LOAD(addend + column * LANES) : sum);
    }
    if (stride == 1)
        NAME(sum_columns)(p, 1, first, last, x, w, rows, bias, addend, y);
    else if (stride == 2)
        NAME(sum_columns)(p, 2, first, last, x, w, rows, bias, addend, y);
    else
        NAME(sum_columns)(p, stride, first, last, x, w, rows, bias, addend, y);
    plk_apply(&p->act, p->out[1] * LANES, y);
}
