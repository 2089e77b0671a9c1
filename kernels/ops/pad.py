"""Padding and diagonals."""

from __future__ import annotations

from ...engine.error import ShapeError
from ..record import Param, sample
from ..scalar import element
from ..shapes import one_axis
from .shape import mover


def _pads(shape, mode, pad_width):
    if len(pad_width) != 2 * len(shape) or any(p < 0 for p in pad_width):
        raise ShapeError(
            "Pad",
            f"pad_width must hold two sizes, not negative, for each axis, got {pad_width} and data"
            f" {shape}",
        )
    pads = tuple(zip(pad_width[::2], pad_width[1::2]))
    for n, p in zip(shape, pads):
        if (mode == "reflect" and max(p) > max(n - 1, 0)) or (mode == "edge" and n == 0 and max(p)):
            raise ShapeError(
                "Pad",
                f"mode {mode} must pad an axis of size {n} by less, got pad_width {pad_width}",
            )
    return pads


def _padded(shape, mode, pad_width, constant_value=0.0):
    return tuple(n + a + b for n, (a, b) in zip(shape, _pads(shape, mode, pad_width)))


def _pad_ref(xp, x, mode, pad_width, constant_value):
    pads = _pads(x.shape, mode, pad_width)
    if mode == "constant":
        value = element(x.dtype, constant_value)
        return xp.pad(x, pads, mode="constant", constant_values=value)
    return xp.pad(x, pads, mode=mode) if pads else x


def _pad_grad(F, dy, x, mode, pad_width, constant_value):
    if mode != "constant":
        return F._pad_grad(dy, mode=mode, pad_width=pad_width, shape=x.shape)
    if not pad_width:
        return dy
    begin = pad_width[::2]
    return F.slice(dy, begin=begin, end=tuple(b + n for b, n in zip(begin, x.shape)))


def _pad_back_ref(xp, dy, mode, pad_width, shape):
    for axis, (n, (a, b)) in enumerate(zip(shape, _pads(shape, mode, pad_width))):
        where = xp.arange(-a, n + b)  # the source of each padded position
        last = n - 1
        where = xp.clip(where, 0, last) if mode == "edge" else last - xp.abs(last - xp.abs(where))
        copies = (where[:, None] == xp.arange(n)).astype(dy.dtype)
        dy = xp.moveaxis(xp.tensordot(dy, copies, axes=((axis,), (0,))), -1, axis)
    return dy


MODES = ("constant", "edge", "reflect")
PAD_WIDTHS = (0, 0, 1, 0, 2, 1)
mover(
    "Pad",
    _padded,
    _pad_ref,
    _pad_grad,
    aliases=("pad",),
    params=(
        Param("mode", MODES),
        Param("pad_width", "shape"),
        Param("constant_value", "float", 0.0, dynamic=True),
    ),
    samples=tuple(sample((2, 3, 4), mode=m, pad_width=PAD_WIDTHS) for m in MODES)
    + (sample((2, 3), mode="constant", pad_width=(1, 1, 0, 2), constant_value=2.5),),
    doc=(
        "data with a border: pad_width = (before, after) for each axis; a constant, the edge, or a"
        " mirror image."
    ),
)
mover(
    "_pad_grad",
    lambda x, mode, pad_width, shape: shape,
    _pad_back_ref,
    lambda F, dy, x, mode, pad_width, shape: F.Pad(dy, mode=mode, pad_width=pad_width),
    params=(Param("mode", MODES), Param("pad_width", "shape"), Param("shape", "shape")),
    samples=tuple(
        sample((2, 4, 7), mode=m, pad_width=PAD_WIDTHS, shape=(2, 3, 4)) for m in MODES[1:]
    ),
    doc="The gradient of Pad with mode edge or reflect.",
)


def _diagonal(shape, k, axis1, axis2):
    """(first row, first column, length) of a diagonal and the two axes."""
    a, b = one_axis("diag", axis1, len(shape)), one_axis("diag", axis2, len(shape))
    if a == b:
        raise ShapeError("diag", f"axis1 and axis2 must differ, got {axis1} and {axis2}")
    n = min(shape[a] + min(k, 0), shape[b] - max(k, 0))
    if n < 0:
        raise ShapeError("diag", f"diagonal {k} must lie inside data {shape}")
    return max(-k, 0), max(k, 0), n, a, b


def _diag_shape(shape, k, axis1, axis2):
    if len(shape) == 0:
        raise ShapeError("diag", "data must have at least one axis, got ()")
    if len(shape) == 1:
        return (shape[0] + abs(k),) * 2
    _, _, n, a, b = _diagonal(shape, k, axis1, axis2)
    return (*(s for i, s in enumerate(shape) if i not in (a, b)), n)


def _diag_ref(xp, x, k, axis1, axis2):
    return xp.diag(x, k) if x.ndim == 1 else xp.diagonal(x, k, axis1, axis2)


def _diag_back_ref(xp, dy, k, axis1, axis2, shape):
    row, column, n, a, b = _diagonal(shape, k, axis1, axis2)
    out = xp.zeros(shape, dtype=dy.dtype)
    xp.moveaxis(out, (a, b), (-2, -1))[..., row + xp.arange(n), column + xp.arange(n)] = dy
    return out


DIAGONAL = (Param("k", "int", 0), Param("axis1", "int", 0), Param("axis2", "int", 1))
mover(
    "diag",
    _diag_shape,
    _diag_ref,
    lambda F, dy, x, **attrs: (
        F.diag(dy, k=attrs["k"]) if len(x.shape) == 1 else F._diag_grad(dy, shape=x.shape, **attrs)
    ),
    params=DIAGONAL,
    samples=(
        sample((3, 4)),
        sample((3, 4), k=1),
        sample((3, 4), k=-1),
        sample((3,), k=1),
        sample((2, 3, 4), axis1=-1, axis2=0),
    ),
    doc=(
        "The k-th diagonal over two axes, as the last axis; of a vector, the matrix with that"
        " diagonal."
    ),
)
mover(
    "_diag_grad",
    lambda x, k, axis1, axis2, shape: shape,
    _diag_back_ref,
    lambda F, dy, x, k, axis1, axis2, shape: F.diag(dy, k=k, axis1=axis1, axis2=axis2),
    params=(*DIAGONAL, Param("shape", "shape")),
    samples=(sample((3,), shape=(3, 4)), sample((2, 4), k=1, shape=(4, 5, 2))),
    doc="The gradient of diag: zeros but for the diagonal.",
)
