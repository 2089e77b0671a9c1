"""Entries of the softmax family, float32."""

from __future__ import annotations

from math import prod

from ..native import Native
from ..shapes import lines
from .layout import cost
from .table import native

LENGTH_BYTES = {"int32": 4, "int64": 8}
STEPS = 1.5  # per element: an exponential and three passes


def _native(op, function, ins, outs, axis, log, scale=1.0, length_bytes=0):
    shape = ins[0].shape
    fields = {
        **lines(op.name, shape, axis)._asdict(),
        "log": log,
        "scale": scale,
        "length_bytes": length_bytes,
    }
    return Native(function, ("plk_softmax", fields), cost(*ins, *outs, steps=STEPS * prod(shape)))


@native("softmax", "softmin", "log_softmax")
def softmax_entry(op, ins, outs, attrs):
    x = ins[0]
    if x.dtype != "float32" or outs[0].dtype != "float32" or not x.shape:
        return None
    lengths = LENGTH_BYTES.get(ins[1].dtype) if attrs["use_length"] and len(ins) > 1 else 0
    if lengths is None or attrs["temperature"] == 0:
        return None
    scale = 1.0 / (1.0 if attrs["temperature"] is None else attrs["temperature"])
    return _native(
        op,
        "plk_softmax_run",
        ins,
        outs,
        attrs["axis"],
        op.name == "log_softmax",
        -scale if op.name == "softmin" else scale,
        lengths,
    )


@native("SoftmaxActivation")
def softmax_activation_entry(op, ins, outs, attrs):
    x = ins[0]
    if x.dtype != "float32":
        return None
    axis = 1 if attrs["mode"] == "channel" else -1
    return _native(op, "plk_softmax_run", ins, outs, axis, False)


@native("SoftmaxOutput")
def softmax_output_entry(op, ins, outs, attrs):
    x = ins[0]
    if x.dtype != "float32":
        return None
    if attrs["multi_output"] or attrs["preserve_shape"]:
        axis = 1 if attrs["multi_output"] else -1
        return _native(op, "plk_softmax_output", ins, outs, axis, False)
    flat = [x._replace(shape=(x.shape[0], prod(x.shape[1:])))]
    return _native(op, "plk_softmax_output", flat, outs, 1, False)


@native("_softmax_grad", "_log_softmax_grad")
def softmax_grad_entry(op, ins, outs, attrs):
    if any(t.dtype != "float32" for t in ins) or not ins[0].shape:
        return None
    is_log = op.name == "_log_softmax_grad"
    return _native(op, "plk_softmax_backward", ins, outs, attrs["axis"], is_log)
