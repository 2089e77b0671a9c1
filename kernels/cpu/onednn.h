/* oneDNN, loaded at run time: matrix products and convolutions. Without it every function here says so. */
#ifndef PLK_ONEDNN_H
#define PLK_ONEDNN_H
#include "kernel.h"
/* cffi reads from here on: */
enum { PLK_CONV_FORWARD = 0, PLK_CONV_DATA, PLK_CONV_WEIGHT };
/* One convolution. Arrays are described by their logical order: x (n, channels, space), w (filters, channels / groups,
 * kernel), y (n, filters, out); channels_last tells how all three lie in memory. dilate 1 is dense. */
typedef struct {
    int32_t kind, nd, channels_last, bias;
    int64_t n, channels, filters, groups;
    int64_t space[3], kernel[3], out[3], stride[3], dilate[3], pad[3];
} plk_conv;
typedef struct { void *primitive; } plk_dnn;     /* from plk_dnn_conv; borrowed */
int plk_dnn_load(const char *path);              /* 1: found and usable */
int plk_dnn_version(void);                       /* 10000 major + 100 minor + patch; 0: not loaded */
void *plk_dnn_conv(const plk_conv *conv);        /* new; NULL: oneDNN is absent or has no kernel for this */
void plk_dnn_free(void *primitive);             /* what plk_dnn_conv made */
int plk_dnn_threads(void *primitive);            /* how many threads it enters OpenMP with */
/* cffi stops reading here */
int plk_dnn_sgemm(int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                  int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc, int n_threads);
#endif
