"""The fused RNN operator: rnn_relu, rnn_tanh, lstm, gru; layers, directions, dropout between
layers, projection.

Parameters are one vector: for each layer and direction the weights i2h (G H, inputs), h2h (G H, R)
and, with a projection, h2r (R, H); after all weights, for each layer and direction the biases i2h
and h2h (G H). H is state_size, R the size of the output state (projection_size or H), G the number
of gates: lstm input, forget, cell, output; gru reset, update, new.

While training the operator has one more, hidden output: the *reserve*, a vector of what the
backward operator needs (the dropout masks; gates, cells and outputs of every step);
`Layout.reserve_shapes` says how it is laid out. Without masks it may be a library's, which alone
can read it (kernels/cuda/recurrent_cudnn.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...engine.error import OperatorError, ShapeError
from ..record import FRACTION, Array, Attrs, Param, Sample, Type, Types, operator, sample, values
from ..shapes import same_dtype
from .recurrent_cells import GATES, Clip, forward_all, layout, total

# Checks and inference


def input_names_of(mode: str, use_sequence_length: bool, **_: Any) -> tuple[str, ...]:
    return (
        ("data", "parameters", "state")
        + (("state_cell",) if mode == "lstm" else ())
        + (("sequence_length",) if use_sequence_length else ())
    )


def _types(x, lay, mode, use_sequence_length, p, train):
    """Types of the inputs after data, and of all outputs."""
    n_states = lay.layers * lay.directions
    state = Type((n_states, lay.batch, lay.out), x.dtype)
    cell = [Type((n_states, lay.batch, lay.hidden), x.dtype)] if mode == "lstm" else []
    ins = [Type((total(lay.parameter_shapes()),), x.dtype), state, *cell]
    outs = [
        Type((lay.steps, lay.batch, lay.directions * lay.out), x.dtype),
        state,
        *cell,
        Type((total(lay.reserve_shapes(p)) if train else 0,), x.dtype),
    ]
    return ins + [Type((lay.batch,), "int32")] * use_sequence_length, outs


MAX_LAYERS = 1 << 12  # a plan lists every cell


def _check(ins, mode, state_size, num_layers, p, projection_size, **_):
    x = ins[0]
    if len(x.shape) != 3:
        raise ShapeError("RNN", f"data must be (time, batch, features), got {x.shape}")
    for name, value, low in (
        ("state_size", state_size, 1),
        ("num_layers", num_layers, 1),
        ("projection_size", projection_size or 1, 1),
    ):
        if value < low:
            raise OperatorError("RNN", f"{name} must be at least {low}, got {value}")
    if num_layers > MAX_LAYERS:
        raise OperatorError("RNN", f"num_layers must be at most {MAX_LAYERS}, got {num_layers}")
    if projection_size and mode != "lstm":
        raise OperatorError("RNN", f"projection_size is only for mode='lstm', got mode={mode!r}")
    if projection_size and projection_size >= state_size:
        raise OperatorError(
            "RNN",
            f"projection_size must be smaller than state_size, got {projection_size} and "
            f"{state_size}",
        )
    if not 0 <= p < 1:
        raise OperatorError("RNN", f"p must be in [0, 1), got {p}")


def infer_rnn(
    ins: Types,
    mode: str,
    use_sequence_length: bool,
    state_outputs: bool,
    p: float,
    train: bool,
    **attrs: Any,
) -> list[Type]:
    _check(ins, mode=mode, p=p, **attrs)
    x = ins[0]
    lay = layout(x.shape, mode, **attrs)
    want, outs = _types(x, lay, mode, use_sequence_length, p, train)
    names = input_names_of(mode, use_sequence_length)[1:]
    for t, w, name in zip(ins[1:], want, names):
        if t.shape != w.shape:
            note = (
                " for data "
                + str(x.shape)
                + (
                    f": every cell has {lay.rows} rows of weights and 2 x {lay.rows} biases"
                    if name == "parameters"
                    else ""
                )
            )
            raise ShapeError("RNN", f"{name} must have shape {w.shape}, got {t.shape}{note}")
    same_dtype(
        "RNN",
        [x, *(t for t, name in zip(ins[1:], names) if name != "sequence_length")],
        ("data", *names),
    )
    return outs if state_outputs else [outs[0], outs[-1]]


def _fill(ins, mode, use_sequence_length, p, **attrs):
    if ins[0] is None:
        return list(ins)
    _check(ins, mode=mode, p=p, **attrs)
    want, _ = _types(
        ins[0], layout(ins[0].shape, mode, **attrs), mode, use_sequence_length, p, False
    )
    return [ins[0], *(t or w for t, w in zip(ins[1:], want))]


def split_inputs(ins: Sequence[Array], mode: str, use_sequence_length: bool) -> tuple[Array, ...]:
    """(data, parameters, state, cell or None, sequence_length or None)."""
    rest = list(ins[3:])
    cell = rest.pop(0) if mode == "lstm" else None
    return (*ins[:3], cell, rest.pop(0) if use_sequence_length else None)


def running_steps(xp: Any, x: Array, length: Array | None) -> Array | None:
    return None if length is None else xp.arange(x.shape[0])[:, None] < length.astype("int64")


def clip_of(
    lstm_state_clip_min: float | None,
    lstm_state_clip_max: float | None,
    lstm_state_clip_nan: bool,
    **_: Any,
) -> Clip:
    return lstm_state_clip_min, lstm_state_clip_max, lstm_state_clip_nan


def _ref(xp, *ins, mode, p, state_outputs, use_sequence_length, rng, train, **attrs):
    x, params, state, cell, length = split_inputs(ins, mode, use_sequence_length)
    lay = layout(x.shape, mode, **attrs)
    p = p if train else 0.0

    def draw(shape):
        return (rng.random(shape, dtype="float32") >= p).astype(x.dtype) / (1 - p)

    y, hy, cy, blocks = forward_all(
        xp, x, params, state, cell, lay, running_steps(xp, x, length), clip_of(**attrs), p, draw
    )
    reserve = xp.concatenate([b.reshape(-1) for b in blocks]) if train else xp.zeros((0,), x.dtype)
    states = ([hy] if cy is None else [hy, cy]) if state_outputs else []
    return (y, *states, reserve)


def _n_visible(mode, state_outputs, **_):
    return 1 if not state_outputs else 3 if mode == "lstm" else 2


PARAMS = (
    Param("state_size", "int"),
    Param("num_layers", "int", limits=(0, MAX_LAYERS)),
    Param("bidirectional", "bool", False),
    Param("mode", tuple(GATES)),
    Param("p", "float", 0.0, limits=FRACTION),
    Param("state_outputs", "bool", False),
    Param("projection_size", "int?", None),
    Param("lstm_state_clip_min", "float?", None),
    Param("lstm_state_clip_max", "float?", None),
    Param("lstm_state_clip_nan", "bool", False),
    Param("use_sequence_length", "bool", False),
)


def _grad(F, dys, xs, ys, mode, state_outputs, p, use_sequence_length, train, **attrs):
    n_states = _n_visible(mode, True) - 1
    dstates = (
        dys[1 : 1 + n_states]
        if state_outputs
        else [F._zeros(shape=x.shape, dtype=x.dtype) for x in xs[2 : 2 + n_states]]
    )
    gs = F._rnn_grad(
        dys[0],
        *dstates,
        *xs,
        ys[-1],
        mode=mode,
        p=p if train else 0.0,
        use_sequence_length=use_sequence_length,
        **attrs,
    )
    return [*gs, None] if use_sequence_length else gs


def rnn_samples() -> tuple[Sample, ...]:
    made = []
    for mode, extra in (
        ("lstm", {}),
        ("gru", {}),
        ("rnn_tanh", {}),
        ("rnn_relu", {}),
        ("lstm", {"num_layers": 2, "bidirectional": True, "state_outputs": True}),
        ("gru", {"num_layers": 2, "bidirectional": True, "state_outputs": True}),
        ("rnn_tanh", {"num_layers": 2, "state_outputs": True}),
        ("lstm", {"projection_size": 2, "num_layers": 2, "state_outputs": True}),
        ("lstm", {"lstm_state_clip_min": -0.2, "lstm_state_clip_max": 0.2, "state_outputs": True}),
        ("lstm", {"num_layers": 2, "bidirectional": True, "use_sequence_length": True}),
        ("gru", {"bidirectional": True, "use_sequence_length": True, "state_outputs": True}),
        ("rnn_relu", {"num_layers": 2, "p": 0.5}),
    ):
        attrs: Attrs = {
            "mode": mode,
            "state_size": 3,
            "num_layers": 1,
            "bidirectional": False,
            "projection_size": None,
        } | extra
        lay = layout((3, 2, 4), **attrs)
        n = lay.layers * lay.directions
        ins = [(3, 2, 4), (total(lay.parameter_shapes()),), (n, 2, lay.out)]
        ins += [(n, 2, 3)] if mode == "lstm" else []
        ins += [values([2, 3], "int32")] if extra.get("use_sequence_length") else []
        made.append(sample(*ins, **attrs))
    return tuple(made)


operator(
    "RNN",
    aliases=("_npx_rnn",),
    inputs=("data", "parameters", "state", "state_cell", "sequence_length"),
    input_names=input_names_of,
    params=PARAMS,
    n_outputs=lambda **attrs: _n_visible(**attrs) + 1,
    n_visible=_n_visible,
    output_names=("output", "state_output", "statecell_output"),
    train_aware=True,
    random=lambda p, num_layers, train, **_: p > 0 and num_layers > 1 and train,
    infer=infer_rnn,
    fill=_fill,
    ref=_ref,
    grad=_grad,
    samples=rnn_samples(),
    doc=(
        "Recurrent layers over data (time, batch, features); state (layers * directions, batch,"
        " state_size or projection_size), state_cell (layers * directions, batch, state_size) for"
        " lstm. Output (time, batch, directions * state); state_outputs adds the last states. p is"
        " the dropout between layers while training. With sequence_length (batch,), outputs after"
        " the end are 0 and states stop there. The packing of `parameters` is described in"
        " kernels/ops/recurrent.py. Sources: Hochreiter and Schmidhuber 1997, Cho et al. 2014."
    ),
)


# The vector of parameters


def _concat_infer(ins, num_args, dim):
    if not ins:
        raise OperatorError("_rnn_param_concat", "needs at least one array")
    nd = len(ins[0].shape)
    axis = dim % nd if -nd <= dim < nd else -1
    first = ins[0].shape
    if axis < 0 or any(
        len(t.shape) != nd
        or t.shape[:axis] != first[:axis]
        or t.shape[axis + 1 :] != first[axis + 1 :]
        for t in ins
    ):
        raise ShapeError(
            "_rnn_param_concat",
            f"arrays must have equal shapes but for axis dim={dim}, got "
            f"{', '.join(str(t.shape) for t in ins)}",
        )
    size = sum(t.shape[axis] for t in ins)
    return [
        Type(
            (*first[:axis], size, *first[axis + 1 :]),
            same_dtype("_rnn_param_concat", ins, [f"arg{i}" for i in range(len(ins))]),
        )
    ]


def _concat_grad(F, dys, xs, ys, num_args, dim):
    gs, at = [], 0
    for x in xs:
        gs.append(F.slice_axis(dys[0], axis=dim, begin=at, end=at + x.shape[dim]))
        at += x.shape[dim]
    return gs


operator(
    "_rnn_param_concat",
    aliases=("_npi_rnn_param_concat",),
    inputs=("*data",),
    variadic_key="num_args",
    params=(Param("num_args", "int"), Param("dim", "int", 1)),
    infer=_concat_infer,
    ref=lambda xp, *xs, num_args, dim: xp.concatenate(xs, axis=dim),
    grad=_concat_grad,
    samples=(sample((3,), (5,), num_args=2, dim=0), sample((2, 3), (2, 1), (2, 2), num_args=3)),
    doc="Joins arrays along axis dim: the pieces of an RNN's parameter vector.",
)
