"""Sparse kernels of sums, means and norms, and of operators that need dense values anyway."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ...kernels.record import lookup
from ...kernels.shapes import many_axes
from ..invoke import invoke
from . import sparse_array as arrays
from .storage import DENSE, gradient_of, kernel
from .structure import places_of, rows_of, scatter


def _axes(x, axis, exclude=False) -> tuple[int, ...]:
    return many_axes("sum", axis, len(x.shape), exclude)


def _sum(x, values, axes, keepdims):
    """The sum along axes of x with its stored values replaced by `values`."""
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    places = places_of(x)
    kept = shape if keepdims else tuple(n for i, n in enumerate(x.shape) if i not in axes) or (1,)
    if len(axes) == len(x.shape):
        found = invoke(lookup("sum"), (values,), {})
    elif x.stype == "csr":
        at = rows_of(x) if axes == (1,) else places
        found = scatter(values, at, prod(kept))
    elif 0 in axes:
        found = invoke(lookup("sum"), (values,), {"axis": axes})
    else:
        rows = invoke(lookup("sum"), (values,), {"axis": axes, "keepdims": True})
        found = scatter(rows, places, x.shape[0])
    return invoke(lookup("reshape_to"), (found,), {"shape": kept})


def _dense(stypes, attrs):
    return DENSE


@kernel("sum", rule=_dense)
def _sum_run(attrs, x):
    return _sum(x, x._parts[0], _axes(x, attrs["axis"], attrs["exclude"]), attrs["keepdims"])


@kernel("mean", rule=_dense)
def _mean(attrs, x):
    axes = _axes(x, attrs["axis"], attrs["exclude"])
    total = _sum(x, x._parts[0], axes, attrs["keepdims"])
    return total / prod(x.shape[i] for i in axes)


@kernel("norm", rule=lambda stypes, attrs: DENSE if attrs["out_dtype"] is None else None)
def _norm(attrs, x):
    if attrs["ord"] == 2:
        values = invoke(lookup("square"), (x._parts[0],), {})
        return invoke(
            lookup("sqrt"), (_sum(x, values, _axes(x, attrs["axis"]), attrs["keepdims"]),), {}
        )
    values = invoke(lookup("abs"), (x._parts[0],), {})
    return _sum(x, values, _axes(x, attrs["axis"]), attrs["keepdims"])


def _rows_kept(stypes, attrs):
    if stypes[0] == "csr":
        return DENSE
    axis = attrs["axis"]
    one = axis in (1, -1, (1,), (-1,)) and not attrs["exclude"]
    return "row_sparse" if one and attrs["keepdims"] else DENSE


@kernel("_square_sum", rule=_rows_kept)
def _square_sum(attrs, x):
    values = invoke(lookup("square"), (x._parts[0],), {})
    axes = _axes(x, attrs["axis"], attrs["exclude"])
    if axes == (1,) and attrs["keepdims"] and x.stype == "row_sparse" and len(x.shape) == 2:
        found = invoke(lookup("sum"), (values,), {"axis": (1,), "keepdims": True})
        return arrays.row_sparse((x.shape[0], 1), found, x._parts[1])
    return _sum(x, values, axes, attrs["keepdims"])


@gradient_of("_square_sum")
def _square_sum_grad(F, dys, xs, ys, wanted, axis, exclude, **_):
    x, dy, axes = xs[0], dys[0], _axes(xs[0], axis, exclude)
    if x.stype == dy.stype == "row_sparse" and axes == (1,):
        x = F._sparse_retain(x, dy.indices)  # only the rows of the head gradient
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    dy = F.reshape_to(dy.tostype(DENSE), shape=shape)
    return [F.elemwise_mul(x, F.broadcast_to(dy, shape=x.shape)) * 2]


def made_dense(name: str) -> Callable:
    """The kernel that makes every input dense, for operators that do so in MXNet too: without a
    warning."""
    op = lookup(name)

    def run(attrs, *xs):
        dense = [x.tostype(DENSE) for x in xs]
        given = {k: v for k, v in attrs.items() if k != "train"}
        return invoke(op, dense, given)

    return run


for _name in (
    "where",
    "LinearRegressionOutput",
    "LogisticRegressionOutput",
    "MAERegressionOutput",
):
    kernel(_name, rule=_dense)(made_dense(_name))
