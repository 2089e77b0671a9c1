"""Normalizations, the operators fused with them, and their gradients."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from .. import cuda
from ..activations import NUMBERS
from ..cpu.layout import code, cost
from ..native import Native
from ..ops.deprecated import relative_attrs
from ..record import HALVES, Attrs, Operator, Types
from ..shapes import lines, many_axes, one_axis
from . import on_cpu, on_cuda

STEPS = 0.6  # time per element: three passes of a few operations each


class Rows(NamedTuple):
    """n_rows rows of n elements; each row is normalized. Row i uses parameter i % n_params for all
    its elements; by_column: there is a parameter for each column instead."""

    n_rows: int
    n: int
    n_params: int = 1
    by_column: bool = True


def _layer_rows(op, x, attrs) -> Rows | None:
    shape = x.shape
    if one_axis(op.name, attrs["axis"], len(shape)) != len(shape) - 1:
        return None
    return Rows(prod(shape[:-1]), shape[-1])


def _group_rows(x, attrs) -> Rows | None:
    n, channels, *space = x.shape
    groups = attrs.get("num_groups", channels)
    if channels == 0 or groups == 0:
        return None
    return Rows(n * groups, channels // groups * prod(space), groups, False)


def _axis(op, x, attrs) -> int:
    return one_axis(op.name, attrs["axis"], len(x.shape))


def _moments(op, attrs) -> dict | None:
    """The attributes of a batch normalisation, with `batch_stats`: are they of this batch? None
    where a relative of BatchNorm shows the variance."""
    if op.name != "BatchNorm" and attrs["output_mean_var"]:
        return None
    attrs = relative_attrs(attrs)
    return attrs | {"batch_stats": bool(attrs["train"] and not attrs["use_global_stats"])}


def _normalised(op, x, gamma, attrs) -> Rows | int | None:
    """What a _norm_grad reduces over: rows, or all axes but one; None: neither."""
    shape, axes = x.shape, list(many_axes(op.name, attrs["axes"], len(x.shape)))
    if not shape:
        return None
    others = [a for a in range(len(shape)) if a not in axes]
    held = [a for a, n in enumerate(gamma.shape) if n != 1]
    if len(others) == 1 and held in ([], others) and gamma.shape[others[0]] == shape[others[0]]:
        return others[0]
    if axes != list(range(len(shape) - len(axes), len(shape))):
        return None
    first = axes[0] if axes else len(shape)
    n_rows, n = prod(shape[:first]), prod(shape[a] for a in axes)
    if len(axes) == 1 and held in ([], axes) and gamma.shape[first] == n:
        return Rows(n_rows, n)
    if held in ([], [first - 1]) and gamma.shape[first - 1] == shape[first - 1]:
        return Rows(n_rows, n, shape[first - 1], False)
    return None


# ---- CPU: float32 --------------------------------------------------------------------------------


def _rows(function: str, ins, outs, rows: Rows | None, eps: float) -> Native | None:
    dtype = ins[0].dtype
    forward = function == "plk_row_norm_run"
    if rows is None or 0 in rows[:2] or any(t.dtype != dtype for t in (*ins, *outs)):
        return None
    if dtype != "float32" and not (forward and dtype in HALVES):
        return None
    us = cost(*ins, *outs, steps=STEPS * rows.n_rows * rows.n)
    return Native(
        function, ("plk_row_norm", {**rows._asdict(), "dtype": code(dtype), "eps": eps}), us
    )


def _float32(types) -> bool:
    return all(t.dtype == "float32" for t in types)


@on_cpu("LayerNorm")
def layer_norm_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _rows("plk_row_norm_run", ins, outs, _layer_rows(op, ins[0], attrs), attrs["eps"])


@on_cpu("GroupNorm", "InstanceNorm")
def group_norm_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _rows("plk_row_norm_run", ins, outs, _group_rows(ins[0], attrs), attrs["eps"])


def _batch(op, function: str, ins, outs, x, axis: int, attrs, *names, **fields) -> Native | None:
    """names: the attributes that are fields of plk_batch_norm."""
    n, channels, space = lines(op.name, x.shape, axis)
    if n * channels * space == 0 or not _float32(ins):
        return None
    fields |= {"n": n, "channels": channels, "space": space, **{k: attrs[k] for k in names}}
    us = cost(*ins, *outs, steps=STEPS * prod(x.shape))
    return Native(function, ("plk_batch_norm", fields), us)


FORWARD = ("eps", "momentum", "fix_gamma")


@on_cpu("BatchNorm", "_contrib_SyncBatchNorm", "BatchNorm_v1")
def batch_norm_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    given = _moments(op, attrs)
    if given is None:
        return None
    call = (op, "plk_batch_norm_run", ins, outs, ins[0], _axis(op, ins[0], given), given)
    return _batch(*call, *FORWARD, "batch_stats")


@on_cpu("_batch_norm_add_relu")
def batch_norm_add_relu_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call = (op, "plk_batch_norm_run", ins, outs, ins[0], _axis(op, ins[0], attrs), attrs)
    act = NUMBERS["relu"] if attrs["relu"] else 0
    return _batch(*call, *FORWARD, "add", batch_stats=True, act=act)


@on_cpu("_batch_norm_act")
def batch_norm_act_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call = (op, "plk_batch_norm_run", ins, outs, ins[0], _axis(op, ins[0], attrs), attrs)
    return _batch(*call, *FORWARD, "low", "high", batch_stats=True, act=NUMBERS[attrs["act"]])


@on_cpu("_batch_norm_act_grad")
def batch_norm_act_grad_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call = (op, "plk_batch_norm_act_backward", ins, outs, ins[1], _axis(op, ins[1], attrs), attrs)
    return _batch(*call, "eps", "low", "high", "more", act=NUMBERS[attrs["act"]])


@on_cpu("_batch_norm_relu_grad")
def batch_norm_relu_grad_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call = (op, "plk_batch_norm_relu_backward", ins, outs, ins[2], _axis(op, ins[2], attrs), attrs)
    return _batch(*call, "eps", "add", "more")


@on_cpu("_norm_grad")
def norm_grad_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, over = ins[1], _normalised(op, ins[1], ins[2], attrs)
    if isinstance(over, int):
        return _batch(op, "plk_batch_norm_backward", ins, outs, x, over, attrs, "eps")
    return _rows("plk_row_norm_backward", ins, outs, over, attrs["eps"])


# ---- CUDA ----------------------------------------------------------------------------------------


@on_cuda("LayerNorm")
def layer_norm_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    rows = _layer_rows(op, ins[0], attrs)
    return rows and cuda.norm_plan.rows_forward(ins, outs, *rows, attrs["eps"])


@on_cuda("GroupNorm", "InstanceNorm")
def group_norm_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    rows = _group_rows(ins[0], attrs)
    return rows and cuda.norm_plan.rows_forward(ins, outs, *rows, attrs["eps"])


@on_cuda("L2Normalization")
def l2_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, mode = ins[0], attrs["mode"]
    if mode == "channel" and len(x.shape) > 2:
        return None
    return cuda.norm_plan.l2_rows(x, 2 if mode == "spatial" else 1, attrs["eps"])


@on_cuda("BatchNorm", "_contrib_SyncBatchNorm", "BatchNorm_v1")
def batch_norm_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    given = _moments(op, attrs)
    if given is None:
        return None
    call = (ins, outs, _axis(op, ins[0], given), given)
    return cuda.norm_plan.batch(*call, given["batch_stats"])


@on_cuda("_batch_norm_add_relu")
def batch_norm_add_relu_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call = (ins, outs, _axis(op, ins[0], attrs), attrs)
    return cuda.norm_plan.batch(*call, True, attrs["add"], attrs["relu"])


@on_cuda("_batch_norm_relu_grad")
def batch_norm_relu_grad_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    more, give = 6 if attrs["more"] else None, 3 if attrs["add"] else None
    call = (ins, outs, _axis(op, ins[2], attrs), 0, 1, 2, 3, 4, 5, more, give)
    return cuda.norm_plan.batch_backward(*call)


@on_cuda("_norm_grad")
def norm_grad_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    over = _normalised(op, ins[1], ins[2], attrs)
    if isinstance(over, int):
        return cuda.norm_plan.batch_backward(ins, outs, over, 0, None, 1, 2, 3, 4, None, None)
    return over and cuda.norm_plan.rows_backward(ins, outs, *over)
