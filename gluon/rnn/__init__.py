"""Recurrent networks: layers over whole sequences, and cells that are stepped or unrolled."""
from .rnn_cell import (BidirectionalCell, DropoutCell, GRUCell, HybridRecurrentCell,  # noqa: F401
                       HybridSequentialRNNCell, LSTMCell, ModifierCell, RecurrentCell, ResidualCell, RNNCell,
                       SequentialRNNCell, ZoneoutCell)
from .rnn_layer import GRU, LSTM, RNN  # noqa: F401
