"""LSTM, GRU and RNN: plait's fused RNN operator where it computes the same, else a loop of cells.

x: (steps, batch, inputs). Weights w (directions, G H, inputs), r (directions, G H, H) and b
(directions, 2 G H) have the gates in ONNX's order: LSTM i, o, f, c; GRU z, r, h.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..run import Call, dtype_of, rule
from .pointwise import activation
from .shape import sliced

DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}  # of gates, in plait's operator


class Layer(NamedTuple):
    """One call. clip: 0 for none."""

    kind: str
    size: int
    directions: int
    reverse: bool
    activations: list[str]
    alpha: list[float]
    beta: list[float]
    clip: float

    @property
    def gates(self) -> int:
        return len(ORDER[self.kind])

    def functions(self, direction: int) -> list[Any]:
        """The activations of a direction; alphas and betas go to those that take some, in order."""
        n = len(self.activations) // self.directions
        takes_alpha = ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
        takes_beta = ("affine", "scaledtanh", "hardsigmoid")
        alpha, beta, made = iter(self.alpha), iter(self.beta), []
        for name in self.activations:
            kind = name.lower()
            a = next(alpha, None) if kind in takes_alpha else None
            b = next(beta, None) if kind in takes_beta else None
            made.append(activation(name, a, b))
        return made[direction * n : (direction + 1) * n]


def _layer(c: Call, r: Any) -> Layer:
    kind, direction = c.node.op, c("direction", "forward")
    n = 2 if direction == "bidirectional" else 1
    names = c("activations") or DEFAULTS[kind] * n
    try:
        for name in names:
            activation(name, None, None)
    except KeyError as error:
        raise c.fail(f"unknown activation {error}") from None
    return Layer(
        kind,
        c("hidden_size") or r.shape[-1],
        n,
        direction == "reverse",
        list(names),
        list(c("activation_alpha") or []),
        list(c("activation_beta") or []),
        float(c("clip", 0.0) or 0.0),
    )


@rule("LSTM")
def lstm(
    c: Call,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lens: Any = None,
    h: Any = None,
    cell: Any = None,
    p: Any = None,
) -> Any:
    return _recurrent(c, x, w, r, b, lens, [h, cell], p)


@rule("GRU", "RNN")
def gru(c: Call, x: Any, w: Any, r: Any, b: Any = None, lens: Any = None, h: Any = None) -> Any:
    return _recurrent(c, x, w, r, b, lens, [h], None)


def _recurrent(
    c: Call, x: Any, w: Any, r: Any, b: Any, lens: Any, states: list[Any], p: Any
) -> Any:
    layer, by_batch = _layer(c, r), c("layout", 0)
    if by_batch:
        x = c.np.swapaxes(x, 0, 1)
        states = [s if s is None else c.np.swapaxes(s, 0, 1) for s in states]
    shape = (layer.directions, x.shape[1], layer.size)
    states = [c.np.zeros(shape, dtype=dtype_of(x)) if s is None else s for s in states]
    defaults = [n.lower() for n in DEFAULTS[layer.kind]] * layer.directions
    names = [n.lower() for n in layer.activations]
    known = names == defaults or layer.kind == "RNN" and set(names) == {"relu"}
    fused = (
        known
        and not layer.clip
        and p is None
        and not c("input_forget", 0)
        and (layer.kind != "GRU" or c("linear_before_reset", 0))
        and 0 not in x.shape
        and x.shape[0] > 1  # one step: products whose weights are packed once, not in each call
    )
    run = _fused if fused else _loop
    y, last = run(c, layer, x, w, r, b, lens, states, p)
    if by_batch:
        y = c.np.transpose(y, (2, 0, 1, 3))
        last = [c.np.swapaxes(s, 0, 1) for s in last]
    return (y, *last)


def _turned(c: Call, x: Any, lens: Any) -> Any:
    """The steps in reverse, of each row as many as it has."""
    return (
        c.np.flip(x, 0) if lens is None else c.nn.SequenceReverse(x, lens, use_sequence_length=True)
    )


def _fused(
    c: Call, layer: Layer, x: Any, w: Any, r: Any, b: Any, lens: Any, states: list[Any], p: Any
) -> Any:
    if layer.reverse:
        x = _turned(c, x, lens)
    gates, size = layer.gates, layer.size
    order = ORDER[layer.kind]

    def part(v: Any, d: int, first: int) -> Any:
        """The gates of a direction from row `first` on, in plait's order, as a vector."""
        v = sliced(c, v, 0, d, d + 1)
        pieces = [sliced(c, v, 1, (first + g) * size, (first + g + 1) * size) for g in order]
        return [c.np.reshape(piece, (-1,)) for piece in pieces]

    if b is None:
        b = c.np.zeros((layer.directions, 2 * gates * size), dtype=dtype_of(x))
    flat = []
    for d in range(layer.directions):
        flat += part(w, d, 0) + part(r, d, 0)
    for d in range(layer.directions):
        flat += part(b, d, 0) + part(b, d, gates)
    given = [x, c.np.concatenate(flat, axis=0), *states]
    if lens is not None:
        given.append(lens.astype("int32"))
    relu = layer.kind == "RNN" and layer.activations[0].lower() == "relu"
    mode = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_relu" if relu else "rnn_tanh"}[layer.kind]
    found = c.nn.RNN(
        *given,
        state_size=size,
        num_layers=1,
        bidirectional=layer.directions == 2,
        mode=mode,
        state_outputs=True,
        use_sequence_length=lens is not None,
    )
    y, *last = [found[i] for i in range(len(states) + 1)]
    if layer.reverse:
        y = _turned(c, y, lens)
    steps, batch = x.shape[:2]
    y = c.np.reshape(y, (steps, batch, layer.directions, size))
    return c.np.transpose(y, (0, 2, 1, 3)), last


def _loop(
    c: Call, layer: Layer, x: Any, w: Any, r: Any, b: Any, lens: Any, states: list[Any], p: Any
) -> Any:
    made, ends = [], []
    for d in range(layer.directions):
        back = layer.reverse or d == 1
        own = _turned(c, x, lens) if back else x

        def of(v: Any, d: int = d) -> Any:
            return None if v is None else c.np.squeeze(sliced(c, v, 0, d, d + 1), axis=0)

        y, last = _direction(
            c, layer, d, own, of(w), of(r), of(b), lens, [of(s) for s in states], of(p)
        )
        made.append(_turned(c, y, lens) if back else y)
        ends.append(last)
    return c.np.stack(made, axis=1), [c.np.stack(list(s), axis=0) for s in zip(*ends)]


def _direction(
    c: Call,
    layer: Layer,
    d: int,
    x: Any,
    w: Any,
    r: Any,
    b: Any,
    lens: Any,
    states: list[Any],
    p: Any,
) -> Any:
    """One direction: (steps, batch, H), the last states."""
    size, gates = layer.size, layer.gates
    functions = layer.functions(d)
    np_ = c.np

    def gate(v: Any, g: int, axis: int = -1) -> Any:
        return sliced(c, v, len(v.shape) - 1 if axis == -1 else axis, g * size, (g + 1) * size)

    def clipped(v: Any) -> Any:
        return np_.clip(v, -layer.clip, layer.clip) if layer.clip else v

    wb = rb = None
    if b is not None:
        wb, rb = sliced(c, b, 0, 0, gates * size), sliced(c, b, 0, gates * size, 2 * gates * size)
    rows = x.shape[0] * x.shape[1]
    from_x = _dense(c, np_.reshape(x, (rows, x.shape[2])), w, wb)
    from_x = np_.reshape(from_x, (x.shape[0], x.shape[1], gates * size))

    def lstm_cell(a: Any, h: Any, cell: Any) -> Any:
        f, g, k = functions
        a = a + _dense(c, h, r, rb)
        i, o, forget, new = (gate(a, n) for n in range(4))
        if p is not None:
            i, forget = i + gate(p, 0) * cell, forget + gate(p, 2) * cell
        i = f(c, clipped(i))
        forget = 1 - i if c("input_forget", 0) else f(c, clipped(forget))
        cell = forget * cell + i * g(c, clipped(new))
        o = o if p is None else o + gate(p, 1) * cell
        h = f(c, clipped(o)) * k(c, cell)
        return h, [h, cell]

    def gru_cell(a: Any, h: Any) -> Any:
        f, g = functions
        first, last = sliced(c, r, 0, 0, 2 * size), sliced(c, r, 0, 2 * size, 3 * size)
        first_b, last_b = (
            (None, None) if rb is None else (sliced(c, rb, 0, 0, 2 * size), gate(rb, 2))
        )
        own = sliced(c, a, 1, 0, 2 * size) + _dense(c, h, first, first_b)
        z, reset = f(c, clipped(gate(own, 0))), f(c, clipped(gate(own, 1)))
        if c("linear_before_reset", 0):
            inner = reset * _dense(c, h, last, last_b)
        else:
            inner = _dense(c, reset * h, last, last_b)
        new = g(c, clipped(gate(a, 2) + inner))
        h = (1 - z) * new + z * h
        return h, [h]

    def rnn_cell(a: Any, h: Any) -> Any:
        h = functions[0](c, clipped(a + _dense(c, h, r, rb)))
        return h, [h]

    cells: dict[str, Callable[..., Any]] = {"LSTM": lstm_cell, "GRU": gru_cell, "RNN": rnn_cell}
    cell = cells[layer.kind]

    def step(data: Any, before: Any) -> Any:
        if lens is None:
            return cell(data, *before)
        a, t = data
        y, after = cell(a, *before)
        going = np_.expand_dims(np_.less(t, lens.astype("int64")), 1)
        after = [np_.where(going, new, old) for new, old in zip(after, before)]
        return np_.where(going, y, np_.zeros_like(y)), after

    data = from_x
    if lens is not None:
        data = [from_x, c.array(np.arange(x.shape[0], dtype=np.int64))]
    if x.shape[0] == 1:
        now = [np_.squeeze(v, axis=0) for v in (data if lens is not None else [data])]
        y, after = step(now if lens is not None else now[0], states)
        return np_.expand_dims(y, 0), after
    return c.nn.contrib.foreach(step, data, list(states))


def _dense(c: Call, x: Any, weight: Any, bias: Any) -> Any:
    """x (rows, inputs) times the weight (outputs, inputs), plus the bias."""
    given = [] if bias is None else [bias]
    units = weight.shape[0]
    return c.nn.FullyConnected(x, weight, *given, num_hidden=units, no_bias=bias is None)
