/* Convolutions without oneDNN: columns of the input (im2col) and matrix products; channels first, 1 to 3 dimensions. */
#include "engine/core/scratch.h"
#include "gemm.h"
#include "onednn.h"

#include <stdlib.h>

typedef struct { int64_t space[3], kernel[3], out[3], stride[3], dilate[3], pad[3]; } box;

/* Any geometry as three dimensions; missing ones come first and have size 1. */
static box boxed(const plk_conv *c)
{
    box b = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}};
    for (int i = 0; i < c->nd; i++) {
        int d = 3 - c->nd + i;
        b.space[d] = c->space[i];
        b.kernel[d] = c->kernel[i];
        b.out[d] = c->out[i];
        b.stride[d] = c->stride[i];
        b.dilate[d] = c->dilate[i];
        b.pad[d] = c->pad[i];
    }
    return b;
}

/* columns (channels * kernel, out) <- x (channels, space), or the reverse, added up. */
static void move_columns(const box *b, int64_t channels, float *x, float *columns, int back)
{
    int64_t rows = channels * b->kernel[0] * b->kernel[1] * b->kernel[2];
    for (int64_t r = 0; r < rows; r++) {
        int64_t kw = r % b->kernel[2], kh = r / b->kernel[2] % b->kernel[1];
        int64_t kd = r / (b->kernel[2] * b->kernel[1]) % b->kernel[0],
                ch = r / (b->kernel[2] * b->kernel[1] * b->kernel[0]);
        for (int64_t od = 0; od < b->out[0]; od++)
            for (int64_t oh = 0; oh < b->out[1]; oh++) {
                int64_t d = od * b->stride[0] + kd * b->dilate[0] - b->pad[0];
                int64_t h = oh * b->stride[1] + kh * b->dilate[1] - b->pad[1];
                float *to = columns + ((r * b->out[0] + od) * b->out[1] + oh) * b->out[2];
                int inside = d >= 0 && d < b->space[0] && h >= 0 && h < b->space[1];
                float *from = x + ((ch * b->space[0] + d) * b->space[1] + h) * b->space[2];
                for (int64_t ow = 0; ow < b->out[2]; ow++) {
                    int64_t w = ow * b->stride[2] + kw * b->dilate[2] - b->pad[2];
                    int here = inside && w >= 0 && w < b->space[2];
                    if (!back)
                        to[ow] = here ? from[w] : 0;
                    else if (here)
                        from[w] += to[ow];
                }
            }
    }
}

static int64_t volume(const int64_t *sizes) { return sizes[0] * sizes[1] * sizes[2]; }

/* bufs: as plk_dnn_run's */
PLK_KERNEL(plk_conv_run)
{
    const plk_conv *c = params;
    box b = boxed(c);
    int64_t inputs = c->channels / c->groups, filters = c->filters / c->groups, depth = inputs * volume(b.kernel);
    int64_t out = volume(b.out), space = volume(b.space);
    const float *bias = c->kind == PLK_CONV_FORWARD && c->bias ? bufs[2] : NULL;
    float *x = bufs[c->kind == PLK_CONV_FORWARD ? 0 : c->kind == PLK_CONV_DATA ? 2 : 1];
    float *w = bufs[c->kind == PLK_CONV_WEIGHT ? 2 : 1];
    float *y = bufs[c->kind != PLK_CONV_FORWARD ? 0 : bias ? 3 : 2];
    float *columns = pl_scratch(sizeof *columns * (size_t)(depth * out + 1));
    int n_threads = plk_gemm_threads(filters, out, depth), status = PL_OK;
    (void)scalars;
    if (!columns)
        return pl_fail(PL_ENOMEM, "out of memory for a convolution");
    if (c->kind == PLK_CONV_DATA)
        memset(x, 0, sizeof *x * (size_t)(c->n * c->channels * space));
    if (c->kind == PLK_CONV_WEIGHT)
        memset(w, 0, sizeof *w * (size_t)(c->filters * depth));
    for (int64_t i = 0; i < c->n && !status; i++)
        for (int64_t g = 0; g < c->groups && !status; g++) {
            float *xg = x + (i * c->channels + g * inputs) * space, *wg = w + g * filters * depth;
            float *yg = y + (i * c->filters + g * filters) * out;
            if (c->kind == PLK_CONV_FORWARD) {
                for (int64_t f = 0; f < filters; f++)
                    for (int64_t j = 0; j < out; j++)
                        yg[f * out + j] = bias ? bias[g * filters + f] : 0;
                move_columns(&b, inputs, xg, columns, 0);
                status = plk_sgemm(0, 0, filters, out, depth, 1, wg, depth, columns, out, 1, yg, out, n_threads);
            } else if (c->kind == PLK_CONV_DATA) {
                status = plk_sgemm(1, 0, depth, out, filters, 1, wg, depth, yg, out, 0, columns, out, n_threads);
                move_columns(&b, inputs, xg, columns, 1);
            } else {
                move_columns(&b, inputs, xg, columns, 0);
                status = plk_sgemm(0, 1, filters, depth, out, 1, yg, out, columns, out, 1, wg, depth, n_threads);
            }
        }
    return status;
}
