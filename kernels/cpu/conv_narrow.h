/* Convolutions of 16-bit floats and 8-bit integers, with what follows them. */
#ifndef PLK_CONV_NARROW_H
#define PLK_CONV_NARROW_H
#include "kernel.h"
#include "loop.h"
/* cffi reads from here on: */
/* x (n, channels, size), w (filters, channels / groups, kernel), y (n, filters, out); x_last, y_last: with the channels
 * last. Missing dimensions come first and have size 1.
 *     y = act(sum * scale + bias + addend * addend_scale), cut to [low, high]
 * for each filter, rounded once to the dtype of y: to nearest even, integers to the nearest they hold. scaled: there is
 * a float32 scale; *_dtype -1: there is none. Sums with a whole bias (or none) and no scale stay integers.
 * columns, per_unit: w is stored in panels of so many filters, units of so many channels; 0: row-major. */
typedef struct {
    int64_t n, channels, filters, groups, size[3], kernel[3], out[3], stride[3], dilate[3], pad[3];
    int32_t dtype, w_dtype, bias_dtype, add_dtype, out_dtype, scaled, add_scaled, x_last, y_last, columns, per_unit;
    float low, high;
    plk_act act;
} plk_narrow_conv;
int plk_narrow_per_unit(int a, int b);    /* channels in a unit of 32 bits, when these dtypes are multiplied */
/* cffi stops reading here */
#endif
