"""The fused RNN operator as LSTM, GRU and RNN, and as Scan where these lack something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....kernels.ops.recurrent import clip_of, split_inputs
from .....kernels.ops.recurrent_cells import blocks_of, cells_of, layout
from ..arrays import concatenate
from ..graph import Graph
from ..rule import rule
from ..tensors import FUNCTIONS, Tensor
from ..write import Body

# ONNX's gates in its order, by number of MXNet's
ORDER = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
KINDS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


def _reordered(g: Graph, w: Any, mode: str) -> Any:
    """The rows of a weight or bias with gates in ONNX's order."""
    n = len(ORDER[mode])
    each = w.shape[0] // n
    parts = [w[i * each : (i + 1) * each] for i in ORDER[mode]]
    return parts[0] if n == 1 else concatenate(g, parts, 0)


@rule("RNN")
def rnn(
    g: Graph, *ins: Tensor, mode: str, use_sequence_length: bool, state_outputs: bool, p: float,
    train: bool, **attrs: Any,
) -> list[Tensor]:  # fmt: skip
    x, parameters, state, cell, length = split_inputs(ins, mode, use_sequence_length)
    lay = layout(tuple(map(int, x.shape)), mode, **attrs)
    flat = parameters if parameters.value is None else g.tensor(parameters.value).again()
    cells = cells_of(blocks_of(flat, lay.parameter_shapes()), lay)
    special = lay.projected or clip_of(**attrs)[:2] != (None, None)
    counts = None if length is None else g.cast(length, "int32")
    hs, cs = [], []
    for layer in range(lay.layers):
        at = slice(layer * lay.directions, (layer + 1) * lay.directions)
        start = [None if s is None else s[at] for s in (state, cell)]
        if special:
            outs = []
            for i in range(at.start, at.stop):
                own = [None if v is None else v[i] for v in (state, cell)]
                reverse = lay.directions == 2 and i % 2 == 1
                outs.append(_scanned(g, x, cells[i], own, reverse, counts, attrs))
            x = outs[0][0] if len(outs) == 1 else concatenate(g, [o[0] for o in outs], 2)
            h, c = (FUNCTIONS["stack"](g, [o[k] for o in outs]) for k in (1, 2))
        else:
            x, h, c = _layer(g, x, cells[at], start, lay, counts)
        hs.append(h)
        cs.append(c)
    if not state_outputs:
        return [x]
    last = [concatenate(g, hs, 0) if len(hs) > 1 else hs[0]]
    return [
        x,
        *last,
        *([concatenate(g, cs, 0) if len(cs) > 1 else cs[0]] if mode == "lstm" else []),
    ]


def _layer(
    g: Graph, x: Tensor, cells: Sequence, start: Sequence[Tensor | None], lay: Any, counts: Any
) -> tuple[Tensor, Tensor, Tensor | None]:
    """One layer in all its directions: (outputs, last states, last cells)."""
    mode, steps, batch = lay.mode, x.shape[0], x.shape[1]
    w, r, b = [], [], []
    for weight, inner, _, bias, inner_bias in cells:
        w.append(_reordered(g, weight, mode))
        r.append(_reordered(g, inner, mode))
        b.append(concatenate(g, [_reordered(g, v, mode) for v in (bias, inner_bias)], 0))
    stacked = [np.stack(v) if len(v) > 1 else g.reshape(v[0], (1, *v[0].shape)) for v in (w, r, b)]
    n = len(cells)
    kinds = {"rnn_relu": ["Relu"] * n, "rnn_tanh": ["Tanh"] * n}
    state_shape = (n, batch, lay.out)
    outs = g.op(
        KINDS[mode], x, *stacked, counts, *(s for s in start if s is not None),
        n=3 if mode == "lstm" else 2,
        hidden_size=lay.hidden,
        direction="bidirectional" if n == 2 else "forward",
        activations=kinds.get(mode),
        linear_before_reset=1 if mode == "gru" else None,
        shape=state_shape,
    )  # fmt: skip
    y = outs[0]
    y.shape = (steps, n, batch, lay.out)
    y = g.reshape(g.transpose(y, [0, 2, 1, 3]), (steps, batch, n * lay.out))
    return y, outs[1], outs[2] if mode == "lstm" else None


def _scanned(
    g: Graph, x: Tensor, cell: Sequence, start: Sequence, reverse: bool, counts: Any, attrs: dict
) -> tuple[Tensor, Tensor, Tensor]:
    """One LSTM with a projection or clipped cells, in one direction."""
    weight, inner, projection, bias, inner_bias = cell
    low, high, nan = clip_of(**attrs)
    steps, batch = x.shape[:2]
    hidden = inner.shape[0] // 4
    pre = np.matmul(x, weight.T) + (bias + inner_bias)
    body = Graph(g.opset, g)
    h = Tensor(body, (batch, inner.shape[1]), x.dtype, g.names.new("h"))
    c = Tensor(body, (batch, hidden), x.dtype, g.names.new("c"))
    row = Tensor(body, (batch, 4 * hidden), x.dtype, g.names.new("row"))
    ins, scanned = [h, c, row], [pre]
    z = body.MatMul(h, inner.T, shape=row.shape) + row
    i, f, new, o = body.split(z, 1, [hidden] * 4)
    next_c = body.Sigmoid(f) * c + body.Sigmoid(i) * body.Tanh(new)
    if low is not None or high is not None:
        next_c = body.Clip(next_c, low, high)
    next_h = body.Sigmoid(o) * body.Tanh(next_c)
    if projection is not None:
        next_h = body.MatMul(next_h, projection.T, shape=h.shape)
    y = next_h
    if counts is not None:
        t = Tensor(body, (), np.dtype(np.int64), g.names.new("t"))
        ins.append(t)
        scanned.append(
            g.Range(np.int64(0), g.tensor(steps), np.int64(1), shape=(steps,), dtype="int64")
        )
        on = body.unsqueeze(t < g.cast(counts, "int64"), [1])
        y = body.where(on, next_h, 0.0)
        next_h, next_c = body.where(on, next_h, h), body.where(on, next_c, c)
    outs = [body.Identity(v) for v in (next_h, next_c, y)]
    way = [int(reverse)]
    last_h, last_c, ys = g.Scan(
        *start, *scanned, n=3, body=Body(body, ins, outs), num_scan_inputs=len(scanned),
        scan_input_directions=way * len(scanned), scan_output_directions=way, shape=h.shape,
    )  # fmt: skip
    last_c.shape = c.shape
    ys.shape = (steps, *h.shape)
    return ys, last_h, last_c
