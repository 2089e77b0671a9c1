/* Convolutions with a window of one element and stride 1, and their gradients: a matrix product for each image, or one
 * for the batch where channels are last. */
#include "conv.h"
#include "bytes.h"
#include "gemm.h"
#include "parts.h"
#include "simd.h"

typedef struct { const plk_conv *p; plk_conv_bufs b; int64_t pixels; int n_threads; int failed; } job;

/* y, before the product is added: bias and addend, or what there is of them. */
static void begin(const job *j, float *y, const float *addend)
{
    const plk_conv *p = j->p;
    const float *bias = j->b.bias;
    int64_t rows = p->channels_last ? j->pixels : p->filters, row = p->channels_last ? p->filters : j->pixels;
    if (addend && addend != y)
        plk_copy_bytes(y, addend, (size_t)(rows * row) * sizeof *y);
    for (int64_t r = 0; r < rows && bias; r++, y += row)
        if (p->channels_last)
            for (int64_t i = 0; i < row; i++)
                y[i] = addend ? y[i] + bias[i] : bias[i];
        else
            for (int64_t i = 0; i < row; i++)
                y[i] = addend ? y[i] + bias[r] : bias[r];
}

static void image(void *arg, int64_t i)
{
    job *j = arg;
    const plk_conv *p = j->p;
    int64_t c = p->channels, f = p->filters, m = j->pixels;
    int status, fill = j->b.bias || j->b.addend;
    if (p->kind == PLK_CONV_DATA) {
        const float *dy = j->b.x + i * f * m;
        float *dx = j->b.y + i * c * m;
        status = p->channels_last ? plk_sgemm(0, 0, m, c, f, 1, dy, f, j->b.w, c, 0, dx, c, j->n_threads)
                                  : plk_sgemm(1, 0, c, m, f, 1, j->b.w, c, dy, m, 0, dx, m, j->n_threads);
    } else {
        const float *x = j->b.x + i * c * m;
        float *y = j->b.y + i * f * m;
        if (fill)
            begin(j, y, j->b.addend ? j->b.addend + i * f * m : NULL);
        status = p->channels_last
                     ? plk_sgemm(0, 1, m, f, c, 1, x, c, j->b.w, c, (float)fill, y, f, j->n_threads)
                     : plk_sgemm(0, 0, f, m, c, 1, j->b.w, c, x, m, (float)fill, y, m, j->n_threads);
        plk_apply(&p->act, f * m, y);
    }
    if (status != PL_OK)
        __atomic_store_n(&j->failed, status, __ATOMIC_RELAXED);
}

/* dw: the images in their order. */
static int weight(const plk_conv *p, const float *dy, const float *x, float *dw, int64_t m)
{
    int64_t c = p->channels, f = p->filters;
    int n_threads = plk_gemm_threads(f, c, m), status = PL_OK;
    if (p->channels_last)
        return plk_sgemm(1, 0, f, c, p->n * m, 1, dy, f, x, c, 0, dw, c, plk_gemm_threads(f, c, p->n * m));
    for (int64_t i = 0; i < p->n && status == PL_OK; i++)
        status = plk_sgemm(0, 1, f, c, m, 1, dy + i * f * m, m, x + i * c * m, m, i > 0, dw, c, n_threads);
    return status;
}

PLK_KERNEL(plk_conv_matmul_run)
{
    const plk_conv *p = params;
    int64_t pixels = plk_volume(p->out), n = p->n;
    (void)scalars;
    if (p->kind == PLK_CONV_WEIGHT)
        return weight(p, bufs[0], bufs[1], bufs[2], pixels);
    job j = {p, {0}, pixels, 1, PL_OK};
    if (p->kind == PLK_CONV_DATA)
        j.b = (plk_conv_bufs){.x = bufs[0], .w = bufs[1], .y = bufs[2]};
    else
        j.b = plk_conv_bufs_of(p, bufs);
    if (p->channels_last) {
        j.pixels *= n;
        n = 1;
    }
    int wide = plk_gemm_threads(p->filters, n * j.pixels, p->channels);
    if (n == 1)
        j.n_threads = wide;
    if (n < wide || n == 1)
        for (int64_t i = 0; i < n; i++)
            image(&j, i);
    else
        pl_thread_pool_run(wide, n, image, &j);
    return j.failed;
}
