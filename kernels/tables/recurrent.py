"""The fused RNN and its gradient."""

from __future__ import annotations

from math import inf, nan, prod

from ...engine import lib
from .. import cuda
from ..cpu.layout import FLOPS_PER_US, code, cost
from ..native import Native
from ..ops.recurrent_cells import GATES, SPARE, layout
from ..record import Attrs, Operator, Types
from . import on_cpu, on_cuda

SUFFIXES = {"float32": "", "float64": "_f64"}
LENGTH_DTYPES = ("float32", "float64", "int32", "int64")
MODES = {
    "rnn_relu": lib.PLK_RNN_RELU,
    "rnn_tanh": lib.PLK_RNN_TANH,
    "lstm": lib.PLK_LSTM,
    "gru": lib.PLK_GRU,
}


def _rnn(function, x, length, attrs, types, keep, p, passes):
    lengths = attrs["use_sequence_length"]
    if x.dtype not in SUFFIXES or 0 in x.shape or (lengths and length.dtype not in LENGTH_DTYPES):
        return None
    lay = layout(x.shape, **attrs)
    low, high = attrs["lstm_state_clip_min"], attrs["lstm_state_clip_max"]
    clip = low is not None or high is not None
    fields = {
        "steps": lay.steps,
        "batch": lay.batch,
        "inputs": lay.inputs,
        "hidden": lay.hidden,
        "out": lay.out,
        "spare": SPARE,
        "mode": MODES[lay.mode],
        "layers": lay.layers,
        "directions": lay.directions,
        "state_outputs": attrs.get("state_outputs", False),
        "keep": keep,
        "lengths": lengths,
        "length_dtype": code(length.dtype) if lengths else 0,
        "clip": clip,
        "p": p,
        "clip_min": -inf if low is None else low,
        "clip_max": inf if high is None else high,
        "clip_nan": (high if high is not None else low)
        if clip and attrs["lstm_state_clip_nan"]
        else nan,
    }
    weights = sum(k + lay.out for _, _, k in lay.cells) * GATES[lay.mode] * lay.hidden
    us = cost(*types) + passes * 2 * lay.steps * lay.batch * weights / FLOPS_PER_US
    return Native(
        function + SUFFIXES[x.dtype], ("plk_rnn", fields), us + 2.0 * lay.steps * len(lay.cells)
    )


@on_cpu("RNN")
def rnn_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    train = bool(attrs["train"])
    return _rnn(
        "plk_rnn_run", ins[0], ins[-1], attrs, (*ins, *outs), train, attrs["p"] if train else 0.0, 1
    )


def _data(ins, attrs) -> int | None:
    """The index of the data among a gradient's inputs; None: the forward pass kept no reserve, so
    the reference runs it again."""
    if prod(ins[-1].shape) == 0:
        return None
    return 3 if attrs["mode"] == "lstm" else 2


@on_cpu("_rnn_grad")
def rnn_grad_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    at = _data(ins, attrs)
    if at is None:
        return None
    return _rnn("plk_rnn_backward", ins[at], ins[-2], attrs, (*ins, *outs), True, attrs["p"], 2)


@on_cuda("RNN")
def rnn_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return cuda.recurrent_plan.forward(ins, outs, attrs)


@on_cuda("_rnn_grad")
def rnn_grad_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    at = _data(ins, attrs)
    return None if at is None else cuda.recurrent_plan.backward(ins, outs, attrs, at)
