/* Borders around arrays. */
#ifndef PLK_PAD_H
#define PLK_PAD_H
#include "kernel.h"
/* cffi reads from here on: */
enum { PLK_PAD_CONSTANT = 0, PLK_PAD_EDGE, PLK_PAD_REFLECT };
/* x (shape, inner) -> y (before + shape + after, inner): axes without a border are merged with their neighbours. */
typedef struct {
    int32_t mode, ndim, size, dtype;               /* size: bytes of an element */
    int64_t inner, n_in, n_out;                    /* elements */
    int64_t shape[PLK_MAX_DIMS], before[PLK_MAX_DIMS], out[PLK_MAX_DIMS];
} plk_pad;
/* cffi stops reading here */
#endif
