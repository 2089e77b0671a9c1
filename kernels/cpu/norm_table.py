"""Entries of the normalisations and of their fused backward operator, float32."""

from __future__ import annotations

from math import prod

from ..activations import NUMBERS
from ..native import Native
from ..ops.deprecated import relative_attrs
from ..shapes import lines, many_axes, one_axis
from .layout import cost
from .table import native

STEPS = 0.6  # per element: three passes of a few operations


def _float32(types):
    return all(t.dtype == "float32" for t in types)


def _rows(function, ins, outs, n_rows, n, n_params, by_column, eps):
    if n == 0 or n_rows == 0:
        return None
    fields = {"n_rows": n_rows, "n": n, "n_params": n_params, "by_column": by_column, "eps": eps}
    return Native(function, ("plk_row_norm", fields), cost(*ins, *outs, steps=STEPS * n_rows * n))


@native("LayerNorm")
def layer_norm_entry(op, ins, outs, attrs):
    shape = ins[0].shape
    if not _float32(ins) or one_axis(op.name, attrs["axis"], len(shape)) != len(shape) - 1:
        return None
    return _rows("plk_row_norm_run", ins, outs, prod(shape[:-1]), shape[-1], 1, True, attrs["eps"])


@native("GroupNorm", "InstanceNorm")
def group_norm_entry(op, ins, outs, attrs):
    n, channels, *space = ins[0].shape
    if not _float32(ins) or channels == 0:
        return None
    groups = attrs.get("num_groups", channels)
    return _rows(
        "plk_row_norm_run",
        ins,
        outs,
        n * groups,
        channels // groups * prod(space),
        groups,
        False,
        attrs["eps"],
    )


def _batch(op, function, ins, outs, shape, axis, **fields):
    n, channels, space = lines(op.name, shape, axis)
    if n * channels * space == 0:
        return None
    fields |= {"n": n, "channels": channels, "space": space}
    return Native(
        function, ("plk_batch_norm", fields), cost(*ins, *outs, steps=STEPS * prod(shape))
    )


@native("BatchNorm", "_contrib_SyncBatchNorm", "BatchNorm_v1")
def batch_norm_entry(op, ins, outs, attrs):
    shape = ins[0].shape
    shows_var = op.name != "BatchNorm" and attrs["output_mean_var"]
    attrs = relative_attrs(attrs)
    if shows_var or not _float32(ins):
        return None
    return _batch(
        op,
        "plk_batch_norm_run",
        ins,
        outs,
        shape,
        one_axis(op.name, attrs["axis"], len(shape)),
        eps=attrs["eps"],
        momentum=attrs["momentum"],
        fix_gamma=attrs["fix_gamma"],
        batch_stats=bool(attrs["train"] and not attrs["use_global_stats"]),
    )


@native("_batch_norm_add_relu")
def batch_norm_add_relu_entry(op, ins, outs, attrs):
    shape = ins[0].shape
    if not _float32(ins):
        return None
    axis = one_axis(op.name, attrs["axis"], len(shape))
    kept = ("eps", "momentum", "fix_gamma", "add")
    fields = {k: attrs[k] for k in kept} | {"act": NUMBERS["relu"] if attrs["relu"] else 0}
    return _batch(op, "plk_batch_norm_run", ins, outs, shape, axis, batch_stats=True, **fields)


@native("_batch_norm_act")
def batch_norm_act_entry(op, ins, outs, attrs):
    shape = ins[0].shape
    if not _float32(ins):
        return None
    axis = one_axis(op.name, attrs["axis"], len(shape))
    fields = {k: attrs[k] for k in ("eps", "momentum", "fix_gamma", "low", "high")}
    fields["act"] = NUMBERS[attrs["act"]]
    return _batch(op, "plk_batch_norm_run", ins, outs, shape, axis, batch_stats=True, **fields)


@native("_batch_norm_act_grad")
def batch_norm_act_grad_entry(op, ins, outs, attrs):
    shape = ins[1].shape
    if not _float32(ins):
        return None
    axis = one_axis(op.name, attrs["axis"], len(shape))
    fields = {k: attrs[k] for k in ("eps", "low", "high", "more")} | {"act": NUMBERS[attrs["act"]]}
    return _batch(op, "plk_batch_norm_act_backward", ins, outs, shape, axis, **fields)


@native("_batch_norm_relu_grad")
def batch_norm_relu_grad_entry(op, ins, outs, attrs):
    shape = ins[2].shape
    if not _float32(ins):
        return None
    axis = one_axis(op.name, attrs["axis"], len(shape))
    fields = {k: attrs[k] for k in ("eps", "add", "more")}
    return _batch(op, "plk_batch_norm_relu_backward", ins, outs, shape, axis, **fields)


@native("_norm_grad")
def norm_grad_entry(op, ins, outs, attrs):
    _dy, x, gamma, _mean, _ = ins
    shape, axes = x.shape, list(many_axes(op.name, attrs["axes"], len(x.shape)))
    if not _float32(ins) or not shape:
        return None
    others = [a for a in range(len(shape)) if a not in axes]
    held = [a for a, n in enumerate(gamma.shape) if n != 1]
    # by channel
    if len(others) == 1 and held in ([], others) and gamma.shape[others[0]] == shape[others[0]]:
        return _batch(op, "plk_batch_norm_backward", ins, outs, shape, others[0], eps=attrs["eps"])
    if axes != list(range(len(shape) - len(axes), len(shape))):
        return None
    n = prod(shape[a] for a in axes)
    if len(axes) == 1 and held in ([], axes) and gamma.shape[axes[0]] == n:
        return _rows(
            "plk_row_norm_backward", ins, outs, prod(shape[: axes[0]]), n, 1, True, attrs["eps"]
        )
    last = axes[0] - 1
    if held in ([], [last]) and gamma.shape[last] == shape[last]:
        return _rows(
            "plk_row_norm_backward",
            ins,
            outs,
            prod(shape[: axes[0]]),
            n,
            shape[last],
            False,
            attrs["eps"],
        )
    return None
