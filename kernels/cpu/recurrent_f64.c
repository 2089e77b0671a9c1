/* The RNN's kernels in float64. */
#define PLK_REAL double
#include "recurrent_back.h"
#include "recurrent_forward.h"
#include "simd.h"

PLK_KERNEL(plk_rnn_run_f64) { return forward(params, bufs, scalars); }

PLK_KERNEL(plk_rnn_backward_f64)
{
    (void)scalars;
    return backward(params, bufs);
}
