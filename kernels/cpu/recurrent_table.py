"""Entries of the fused RNN and its gradient: float32 without projection, clipping or sequence
lengths."""

from __future__ import annotations

from math import prod

from ...engine import lib
from ..native import Native, native
from ..ops.recurrent import GATES, layout
from .layout import FLOPS_PER_US, cost

MODES = {
    "rnn_relu": lib.PLK_RNN_RELU,
    "rnn_tanh": lib.PLK_RNN_TANH,
    "lstm": lib.PLK_LSTM,
    "gru": lib.PLK_GRU,
}


def _rnn(function, x, attrs, types, keep, p, passes):
    plain = (
        attrs["projection_size"] is None
        and not attrs["use_sequence_length"]
        and attrs["lstm_state_clip_min"] is None
        and attrs["lstm_state_clip_max"] is None
    )
    if not plain or any(t.dtype != "float32" for t in types) or 0 in x.shape:
        return None
    lay = layout(
        x.shape,
        **{
            k: attrs[k]
            for k in ("mode", "state_size", "num_layers", "bidirectional", "projection_size")
        },
    )
    fields = {
        "steps": lay.steps,
        "batch": lay.batch,
        "inputs": lay.inputs,
        "hidden": lay.hidden,
        "mode": MODES[lay.mode],
        "layers": lay.layers,
        "directions": lay.directions,
        "state_outputs": attrs.get("state_outputs", False),
        "keep": keep,
        "p": p,
    }
    weights = sum(k + lay.hidden for _, _, k in lay.cells) * GATES[lay.mode] * lay.hidden
    us = cost(*types) + passes * 2 * lay.steps * lay.batch * weights / FLOPS_PER_US
    return Native(function, ("plk_rnn", fields), us + 2.0 * lay.steps * len(lay.cells))


@native("RNN")
def rnn_entry(op, ins, outs, attrs):
    train = bool(attrs["train"])
    from . import onednn

    onednn.load()
    return _rnn("plk_rnn_run", ins[0], attrs, (*ins, *outs), train, attrs["p"] if train else 0.0, 1)


@native("_rnn_grad")
def rnn_grad_entry(op, ins, outs, attrs):
    x = ins[3 if attrs["mode"] == "lstm" else 2]
    # recorded without a reserve: the reference runs forward again
    if prod(ins[-1].shape) == 0:
        return None
    return _rnn("plk_rnn_backward", x, attrs, (*ins, *outs), True, attrs["p"], 2)
