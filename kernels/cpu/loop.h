/* Generated loops over contiguous arrays, and the one that kernels apply to their results. */
#ifndef PLK_LOOP_H
#define PLK_LOOP_H
#include <stdint.h>
/* cffi reads from here on: */
/* n: elements; bufs: inputs, then outputs, which may be one of the inputs. */
typedef void (*plk_loop)(int64_t n, void *const *bufs, const double *scalars);
enum { PLK_ACT_SCALARS = 8 };
/* Applied to each element of a finished result: a loop of one float32 input, or 0. */
typedef struct { uintptr_t loop; double scalars[PLK_ACT_SCALARS]; } plk_act;
/* cffi stops reading here */

static inline void plk_apply(const plk_act *act, int64_t n, float *y)
{
    if (act->loop)
        ((plk_loop)act->loop)(n, (void *const[]){y, y}, act->scalars);
}
#endif
