/* The RNN's kernels in float32. */
#define PLK_REAL float
#include "recurrent_back.h"
#include "recurrent_forward.h"
#include "simd.h"

PLK_KERNEL(plk_rnn_run) { return forward(params, bufs, scalars); }

PLK_KERNEL(plk_rnn_backward)
{
    (void)scalars;
    return backward(params, bufs);
}
