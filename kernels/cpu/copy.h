/* Moving elements: strided copies (transpose, slice, flip, broadcast), joins and splits, fills. */
#ifndef PLK_COPY_H
#define PLK_COPY_H
#include "kernel.h"
/* cffi reads from here on: */
enum { PLK_MAX_PARTS = 64 };
enum { PLK_PLACED_FIRMLY, PLK_PLACED_IN, PLK_PLACED_OUT };
/* From in + in_offset with in_strides (0 repeats, negative flips) to out + out_offset with out_strides; in elements. */
typedef struct {
    int32_t size, ndim, dtype;           /* bytes of an element; dtype: of a scalar that is copied */
    int64_t n, shape[PLK_MAX_DIMS], in_strides[PLK_MAX_DIMS], out_strides[PLK_MAX_DIMS], in_offset, out_offset;
    int64_t out_n;                       /* elements of the whole output, if more than the copied ones are written */
    int64_t lowest, highest;             /* bounds of the call's scalar, if it is added to an offset */
    int32_t placed;                      /* to which offset */
} plk_copy;
/* The joined array is (outer, sum of bytes); part k is (outer, bytes[k]). */
typedef struct { int64_t outer, total, bytes[PLK_MAX_PARTS]; int32_t n_parts; } plk_join;
typedef struct { int64_t n; int32_t dtype, dynamic; double value; } plk_fill;
/* Rows of `width` bytes, n bytes in all, of which the last `head` of each move to its front. */
typedef struct { int64_t n, width, head; } plk_roll;
/* cffi stops reading here */
#endif
