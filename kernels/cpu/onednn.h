/* oneDNN, loaded at run time: reorders, convolutions. Without it every function here fails. */
#ifndef PLK_ONEDNN_H
#define PLK_ONEDNN_H
#include "kernel.h"
#include "loop.h"
/* cffi reads from here on: */
enum { PLK_CONV_FORWARD = 0, PLK_CONV_DATA, PLK_CONV_WEIGHT };
enum { PLK_LAYOUT_CHARS = 24 };
/* One convolution. The logical order of arrays is x (n, channels, space), w (filters, channels / groups, kernel),
 * y (n, filters, out); channels_last is their order in memory if a layout is "". dilate 1 is dense. Other layouts are
 * oneDNN's tags for the logical order; with groups w's is (groups, filters / groups, channels / groups, kernel). sum:
 * the result is added to y. */
typedef struct {
    int32_t kind, nd, channels_last, bias, sum;
    int64_t n, channels, filters, groups;
    int64_t space[3], kernel[3], out[3], stride[3], dilate[3], pad[3];
    char x_layout[24], w_layout[24], y_layout[24];   /* PLK_LAYOUT_CHARS */
} plk_conv;
/* A primitive of oneDNN in a plan; addend and act are _conv's: bufs[addend] is added before the activation. */
typedef struct {
    void *primitive;                             /* borrowed */
    int32_t addend, y;                           /* which buf; addend 0: none */
    int64_t n;                                   /* elements of y, including its padding */
    plk_act act;
} plk_dnn;
/* The gradient of a convolution's weights, summed over `shares` of the batch, each of `per` images except the
 * last. Each share is a primitive for one thread, because oneDNN splits the sum of one primitive by the number of
 * threads. */
typedef struct {
    void *primitive, *last;                      /* borrowed; last: of the last share */
    int64_t shares, per, x_size, y_size, w_size; /* floats of one image, and of the gradient */
} plk_dnn_weight;
int plk_dnn_load(const char *path);              /* 1: found and usable */
int plk_dnn_version(void);                       /* 10000 major + 100 minor + patch; 0: not loaded */
/* new; NULL: oneDNN is absent or has no kernel for this. alone: 1: on one thread */
void *plk_dnn_conv(const plk_conv *conv, int alone);
/* Fills in the layouts that are "" with those that oneDNN prefers, and its name for the kernel (PLK_LAYOUT_CHARS,
 * zeroed); 0: none */
int plk_dnn_conv_layouts(plk_conv *conv, char *kernel);
/* new; NULL: no such layouts */
void *plk_dnn_reorder(int ndim, const int64_t *dims, const char *from, const char *to);
void plk_dnn_free(void *primitive);              /* what plk_dnn_conv and plk_dnn_reorder made */
int plk_dnn_threads(void *primitive);            /* how many threads it enters OpenMP with */
/* cffi stops reading here */

int plk_dnn_run(const void *params, void *const *bufs, const double *scalars);
#endif
