"""Matrix products with what follows them: what passes make of FullyConnected and dot."""

from __future__ import annotations

from ...engine.error import OperatorError, ShapeError
from ..activations import ACTIVATIONS, OF_PRODUCTS, SLOPES
from ..record import Operator, Param, Type, operator, sample, uniform
from ..shapes import same_dtype
from ..traits import Activates
from .dense import nearest, product


def activation_of(op: Operator, attrs: dict) -> str | None:
    """The name in OF_PRODUCTS of what a call computes; None where it is something else."""
    activates = op.trait(Activates)
    act = None if activates is None else activates.of(**attrs)
    return act.name if act is not None and act.name in OF_PRODUCTS else None


def _sizes(op, a, b, transpose_a, transpose_b):
    """m, n, k of a product of two matrices."""
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise ShapeError(op, f"operands must be matrices, got {a.shape} and {b.shape}")
    m, k = a.shape[::-1] if transpose_a else a.shape
    k2, n = b.shape[::-1] if transpose_b else b.shape
    if k != k2:
        raise ShapeError(op, f"contracted axes must be equal, got {a.shape} and {b.shape}")
    return m, n, k


def _infer(ins, transpose_a, transpose_b, scale, act, bias, residual, keep, slope):
    m, n, _ = _sizes("_dense", ins[0], ins[1], transpose_a, transpose_b)
    if bias and ins[2].shape != (n,):
        raise ShapeError("_dense", f"bias must have shape ({n},), got {ins[2].shape}")
    if slope and not residual:
        raise OperatorError("_dense", f"slope {slope!r} needs a residual to be taken at")
    if residual and ins[-1].shape != (m, n):
        raise ShapeError("_dense", f"residual must have shape {(m, n)}, got {ins[-1].shape}")
    return [Type((m, n), same_dtype("_dense", ins, _names(bias, residual)))] * (1 + keep)


def _names(bias, residual, **_):
    return ("lhs", "rhs") + (("bias",) if bias else ()) + (("residual",) if residual else ())


def _ref(xp, a, b, *more, transpose_a, transpose_b, scale, act, bias, residual, keep, slope):
    pre = scale * product(xp, a.T if transpose_a else a, b.T if transpose_b else b)
    if bias:
        pre = pre + more[0]
    y = pre if act is None else ACTIVATIONS[act].value(xp, pre)
    if slope:
        y = y * ACTIVATIONS[slope].slope(xp, more[-1])
    elif residual:
        y = y + more[-1]
    y, pre = nearest(xp, y, a), nearest(xp, pre, a)
    return (y, pre) if keep else y


_TRANSPOSES = (Param("transpose_a", "bool", False), Param("transpose_b", "bool", False))

operator(
    "_dense",
    inputs=("lhs", "rhs", "bias", "residual"),
    input_names=_names,
    params=(
        *_TRANSPOSES,
        Param("scale", "float", 1.0),
        Param("act", ("None", *OF_PRODUCTS), None),
        Param("bias", "bool", False),
        Param("residual", "bool", False),
        Param("keep", "bool", False),
        Param("slope", ("None", *SLOPES), None),
    ),
    n_outputs=lambda keep, **_: 1 + keep,
    output_names=("output", "activated"),
    infer=_infer,
    ref=_ref,
    samples=(
        *(
            sample((7, 5), uniform((18, 5), -2, 2), (18,), transpose_b=True, bias=True, act=a)
            for a in OF_PRODUCTS
        ),
        sample((5, 7), (5, 4), (7, 4), transpose_a=True, residual=True, scale=-0.5),
        *(
            sample((m, 5), (5, 18), uniform((m, 18), -3, 3), residual=True, slope=s)
            for s in SLOPES
            for m in (2, 13)
        ),
        sample((6, 5), (5, 16), (16,), (6, 16), act="tanh", bias=True, residual=True, keep=True),
        sample(
            (2, 5),
            (3, 5),
            (3,),
            (2, 3),
            act="relu",
            bias=True,
            residual=True,
            keep=True,
            transpose_b=True,
        ),
    ),
    doc=(
        "act(scale lhs . rhs + bias) + residual of matrices; keep: what act is applied to is the"
        " second output; slope: not + residual, but times the slope of an activation there. Only"
        " passes make it: gradients are taken before."
    ),
)


def _sum_infer(ins, transpose_b):
    m, n, _ = _sizes("_dot_sum", ins[0], ins[1], True, transpose_b)
    dtype = same_dtype("_dot_sum", ins, ("lhs", "rhs"))
    return [Type((m, n), dtype), Type((m,), dtype)]


operator(
    "_dot_sum",
    inputs=("lhs", "rhs"),
    params=(Param("transpose_b", "bool", False),),
    n_outputs=2,
    output_names=("product", "sum"),
    infer=_sum_infer,
    ref=lambda xp, a, b, *, transpose_b: (a.T @ (b.T if transpose_b else b), a.sum(axis=0)),
    samples=(
        sample((9, 5), (9, 4)),
        sample((300, 3), (300, 2)),
        sample((7, 20), (33, 7), transpose_b=True),
    ),
    doc=(
        "lhs^T . rhs and the sums of lhs's columns: the gradients of a dense layer's weight and"
        " bias in one pass over lhs. Only passes make it."
    ),
)
