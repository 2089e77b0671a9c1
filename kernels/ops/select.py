"""where, a choice between two arrays, and add_n, the sum of many."""

from __future__ import annotations

from ...engine.error import ShapeError
from ..loops import add_n_form, where_form
from ..pointwise import sum_to
from ..record import (
    Param,
    Type,
    elementwise,
    operator,
    sample,
    values,
)
from ..shapes import broadcast_shapes, condition_shape, describe, same_dtype
from ..traits import LoopForm, Select, Sum


def _where_infer(ins):
    names = ("condition", "x", "y")
    dtype = same_dtype("where", ins[1:], names[1:])
    condition, x = ins[0].shape, ins[1].shape
    if len(condition) == 1 < len(x) and condition[0] not in (1, x[0]):
        raise ShapeError(
            "where",
            f"a condition of one axis must have x.shape[0] elements, got {describe(ins, names)}",
        )
    condition = Type(condition_shape(condition, x), ins[0].dtype)
    return [Type(broadcast_shapes("where", [condition, *ins[1:]], names), dtype)]


def _where_grad(F, dys, xs, ys):
    dy, condition = dys[0], xs[0]
    shape = condition_shape(condition.shape, xs[1].shape)
    if shape != condition.shape:
        condition = F.reshape_to(condition, shape=shape)
    zero = F.zeros_like(dy)
    return [
        None,
        sum_to(F, F.where(condition, dy, zero), xs[1].shape),
        sum_to(F, F.where(condition, zero, dy), xs[2].shape),
    ]


def _where_fill(ins):
    known = ins[1] or ins[2] or ins[0]
    return [ins[0] or known, ins[1] or known, ins[2] or known]


operator(
    "where",
    traits=(Select(), LoopForm(where_form, mixed=(0,))),
    aliases=("_sparse_where",),
    inputs=("condition", "x", "y"),
    infer=_where_infer,
    fill=_where_fill,
    ref=lambda xp, condition, x, y: xp.where(
        condition.reshape(condition_shape(condition.shape, x.shape)) != 0, x, y
    ),
    grad=_where_grad,
    inplace=((1, 0), (2, 0)),
    samples=(
        sample(values([[1, 0, 1], [0, 0, 2]]), (2, 3), (2, 3)),
        sample(values([1, 0]), (2, 3), (2, 3)),
        sample(values([[1], [0]]), (2, 3), (1, 3)),
    ),
    doc="x where condition is not 0, else y. A 1-D condition of x.shape[0] elements chooses rows.",
)


def _add_n_infer(ins, num_args):
    if not ins:
        raise ShapeError("add_n", "at least one array must be given, got 0")
    names = [f"arg{i}" for i in range(len(ins))]
    if any(t.shape != ins[0].shape for t in ins):
        raise ShapeError("add_n", f"shapes must be equal, got {describe(ins, names)}")
    return [Type(ins[0].shape, same_dtype("add_n", ins, names))]


def _add_n_ref(xp, *xs, num_args):
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


operator(
    "add_n",
    aliases=("ElementWiseSum", "_sparse_ElementWiseSum", "_sparse_add_n"),
    inputs=("*args",),
    variadic_key="num_args",
    params=(Param("num_args", "int"),),
    infer=_add_n_infer,
    fill=elementwise,
    ref=_add_n_ref,
    grad=lambda F, dys, xs, ys, num_args: [dys[0]] * len(xs),
    traits=(Sum(), LoopForm(add_n_form)),
    inplace=((0, 0),),
    samples=(sample((3, 4), (3, 4), (3, 4), num_args=3), sample((2,), num_args=1)),
    doc="The sum of arrays of one shape.",
)
