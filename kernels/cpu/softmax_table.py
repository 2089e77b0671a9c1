"""Entries of the softmax family, float32."""

from __future__ import annotations

from math import prod

from ..native import Native
from ..shapes import one_axis
from .layout import cost
from .table import native

LENGTH_BYTES = {"int32": 4, "int64": 8}
STEPS = 1.5  # per element: an exponential and three passes


def _native(function, ins, outs, axis, log, scale=1.0, length_bytes=0):
    shape = ins[0].shape
    fields = {
        "outer": prod(shape[:axis]),
        "n": shape[axis],
        "inner": prod(shape[axis + 1 :]),
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
        "plk_softmax_run",
        ins,
        outs,
        one_axis(op.name, attrs["axis"], len(x.shape)),
        op.name == "log_softmax",
        -scale if op.name == "softmin" else scale,
        lengths,
    )


@native("SoftmaxActivation")
def softmax_activation_entry(op, ins, outs, attrs):
    x = ins[0]
    if x.dtype != "float32":
        return None
    return _native(
        "plk_softmax_run", ins, outs, 1 if attrs["mode"] == "channel" else len(x.shape) - 1, False
    )


@native("SoftmaxOutput")
def softmax_output_entry(op, ins, outs, attrs):
    x = ins[0]
    if x.dtype != "float32":
        return None
    if attrs["multi_output"] or attrs["preserve_shape"]:
        return _native(
            "plk_softmax_output", ins, outs, 1 if attrs["multi_output"] else len(x.shape) - 1, False
        )
    flat = [x._replace(shape=(x.shape[0], prod(x.shape[1:])))]
    return _native("plk_softmax_output", flat, outs, 1, False)


@native("_softmax_grad", "_log_softmax_grad")
def softmax_grad_entry(op, ins, outs, attrs):
    if any(t.dtype != "float32" for t in ins) or not ins[0].shape:
        return None
    axis = one_axis(op.name, attrs["axis"], len(ins[0].shape))
    return _native("plk_softmax_backward", ins, outs, axis, op.name == "_log_softmax_grad")
