"""Operators of MXNet's first years that old scripts still call, and a mask whose result's shape
depends on values."""

from __future__ import annotations

from ...engine.error import OperatorError, ShapeError
from ..record import Param, Type, ints, operator, sample, values
from ..shapes import must_be
from ..traits import Eager


def _onehot_infer(ins):
    if len(ins[0].shape) != 1 or len(ins[1].shape) != 2 or ins[0].shape[0] != ins[1].shape[0]:
        raise ShapeError(
            "_onehot_encode",
            f"lhs must be (n,) and rhs (n, classes), got {ins[0].shape} and {ins[1].shape}",
        )
    return [ins[1]]


operator(
    "_onehot_encode",
    inputs=("lhs", "rhs"),
    infer=_onehot_infer,
    ref=lambda xp, lhs, rhs: lhs.astype("int64")[:, None] == xp.arange(rhs.shape[1]),
    body=lambda F, lhs, rhs: [F.one_hot(lhs, depth=rhs.shape[1], dtype=rhs.dtype)],
    samples=(sample(ints((4,), 0, 3), (4, 3)), sample(values([0, 5, -1]), (3, 2))),
    doc="1 in the column lhs[i] of each row i, else 0, in rhs's shape and dtype.",
)


def _fill_infer(ins):
    if len(ins[0].shape) != 2:
        raise ShapeError("fill_element_0index", f"lhs needs 2 dimensions, got {ins[0].shape}")
    for t, name in ((ins[1], "mhs"), (ins[2], "rhs")):
        must_be("fill_element_0index", name, t, ins[0].shape[:1])
    return [ins[0]]


def _fill_ref(xp, lhs, mhs, rhs):
    at = rhs.astype("int64")
    if at.size and (at.min() < 0 or at.max() >= lhs.shape[1]):
        raise OperatorError(
            "fill_element_0index", f"rhs must be column numbers of lhs {lhs.shape}, got {at}"
        )
    y = xp.array(lhs)
    y[xp.arange(len(at)), at] = mhs
    return y


operator(
    "fill_element_0index",
    inputs=("lhs", "mhs", "rhs"),
    infer=_fill_infer,
    ref=_fill_ref,
    samples=(sample((4, 3), (4,), ints((4,), 0, 3)),),
    doc="lhs with lhs[i, rhs[i]] replaced by mhs[i].",
)


def _set_value_now(call, inputs, out, src):
    if not hasattr(out, "dtype"):
        raise OperatorError("_set_value", "needs the array to fill", fix="_set_value(1, out=x)")
    return call("_full", shape=out.shape, value=src, dtype=out.dtype, out=out)


operator(
    "_set_value",
    inputs=(),
    params=(Param("src", "float"),),
    infer=lambda ins, src: [Type((1,), "float32")],
    ref=lambda xp, *, src: xp.full((1,), src),
    traits=(Eager(_set_value_now),),
    samples=(sample(src=2.0),),
    doc="Fills the array `out` with a number.",
)
operator(
    "_NoGradient",
    inputs=(),
    infer=lambda ins: [Type((1,), "float32")],
    ref=lambda xp: xp.zeros((1,)),
    samples=(sample(),),
    doc="What stands in saved graphs where there is no gradient: a zero.",
)


def _allclose_infer(ins, rtol, atol, equal_nan):
    must_be("_contrib_allclose", "b", ins[1], ins[0].shape)
    return [Type((), "uint8")]


operator(
    "_contrib_allclose",
    inputs=("a", "b"),
    params=(
        Param("rtol", "float", 1e-5),
        Param("atol", "float", 1e-8),
        Param("equal_nan", "bool", True),
    ),
    infer=_allclose_infer,
    ref=lambda xp, a, b, *, rtol, atol, equal_nan: xp.asarray(
        xp.allclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    ),
    samples=(
        sample((3, 4), (3, 4)),
        sample(values([1.0, float("nan")]), values([1.000001, float("nan")])),
        sample(values([float("nan")]), values([float("nan")]), equal_nan=False),
        sample(values([1.0, 2.0]), values([1.1, 2.0]), rtol=0.2),
    ),
    doc="1 where |a - b| <= atol + rtol * |b| for all elements, else 0; shape (), uint8.",
)


# Rows chosen by a mask

_MASK = "_contrib_boolean_mask"


def _mask_check(ins, axis):
    data, index = ins[0].shape, ins[1].shape
    if axis != 0:
        raise OperatorError(_MASK, f"axis must be 0, got {axis}", fix="transpose data")
    if not data or len(index) != 1 or index[0] != data[0]:
        raise ShapeError(
            _MASK, f"index must have shape (data.shape[0],), got data {data} and index {index}"
        )


def _mask_infer(ins, axis):
    _mask_check(ins, axis)
    raise ShapeError(
        _MASK,
        "the shape of its result depends on the values of index",
        fix="call it outside symbols, or use where / SequenceMask",
    )


def _mask_now(call, inputs, out, axis):
    data, index = inputs
    _mask_check([Type(tuple(a.shape)) for a in inputs], axis)
    kept = call("_not_equal_scalar", index, scalar=0.0)
    n = int(call("sum", call("Cast", kept, dtype="int64")).asscalar())
    order = call("argsort", kept, is_ascend=False, dtype="int64")
    return call("take", data, call("slice_axis", order, axis=0, begin=0, end=n), axis=0, out=out)


operator(
    _MASK,
    aliases=("_npi_boolean_mask",),
    inputs=("data", "index"),
    params=(Param("axis", "int", 0),),
    infer=_mask_infer,
    ref=lambda xp, data, index, *, axis: data[index != 0],
    traits=(Eager(_mask_now),),
    samples=(sample((4, 3), values([0, 1, 0, 2])), sample((3,), values([0, 0, 0]))),
    doc="The rows data[i] with index[i] != 0; index (data.shape[0],).",
)
