/* The fused RNN: rnn_relu, rnn_tanh, lstm and gru over (steps, batch, inputs), and its gradient. */
#ifndef PLK_RECURRENT_H
#define PLK_RECURRENT_H
#include "kernel.h"
/* cffi reads from here on: */
enum { PLK_RNN_RELU = 0, PLK_RNN_TANH, PLK_LSTM, PLK_GRU };
/* Parameters and reserve are packed as kernels/ops/recurrent.py says; spare: elements at the reserve's end. */
typedef struct {
    /* out: of a state, which is less than hidden if projected */
    int64_t steps, batch, inputs, hidden, out, spare;
    int32_t mode, layers, directions, state_outputs, keep;   /* keep: 1 writes the reserve */
    int32_t lengths, length_dtype, clip;                     /* lengths: 1 a (batch) input; clip: 1 limits cells */
    double p;                                                /* dropout between layers; 0: no masks in the reserve */
    double clip_min, clip_max, clip_nan;                     /* clip_nan: replaces NaN; NaN: keeps it */
} plk_rnn;
/* cffi stops reading here */
#endif
