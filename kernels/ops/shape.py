"""Reshapes, other orders of axes and of elements: operators that move elements, and the one way to
register such."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ...engine.error import ShapeError
from ..record import LARGE, Array, Param, Ref, Shape, Type, operator, sample
from ..shapes import many_axes, one_axis
from ..traits import Permutation, SameMemory
from .reduce import reduced_shape


def mover(
    name: str,
    shape_of: Callable[..., Sequence[int]],
    ref: Ref,
    grad: Callable[..., Array],
    **fields: Any,
) -> None:
    """Registers an operator of one array. shape_of: (shape, **attrs) -> shape.  grad: (F, dy, x,
    **attrs) -> dx."""
    operator(
        name,
        infer=lambda ins, **attrs: [Type(tuple(shape_of(ins[0].shape, **attrs)), ins[0].dtype)],
        ref=ref,
        grad=lambda F, dys, xs, ys, **attrs: [grad(F, dys[0], xs[0], **attrs)],
        **fields,
    )


# ---- reshape -------------------------------------------------------------------------------------
def _infer_one(op, shape, target, size):
    """Replaces the one -1 of a target shape."""
    if any(n < -1 for n in target):
        raise ShapeError(op, f"sizes must be at least -1, got {target}")
    if target.count(-1) > 1:
        raise ShapeError(op, f"at most one size may be -1, got {target}")
    known = prod(n for n in target if n != -1)
    out = tuple((size // known if known else 0) if n == -1 else n for n in target)
    if prod(out) != size:
        raise ShapeError(
            op, f"the number of elements must stay {size}, got data {shape} and shape {target}"
        )
    return out


def reshape_shape(shape: Shape, target: Shape, reverse: bool = False) -> tuple[int, ...]:
    """The shape that MXNet's codes mean: 0 copy, -1 infer, -2 copy the rest, -3 merge two, -4 a b
    split. Raises ShapeError."""
    codes = target[::-1] if reverse else target
    words, i = [], 0
    while i < len(codes):
        width = 3 if codes[i] == -4 else 1
        words.append(tuple(codes[i : i + width]))
        i += width
    if words and words[-1][0] == -4 and len(words[-1]) < 3:
        where = "be preceded" if reverse else "be followed"
        raise ShapeError("Reshape", f"-4 must {where} by two sizes, got {target}")
    source = tuple(reversed(shape)) if reverse else tuple(shape)
    out: list[int] = []
    at = 0

    def take(code, n=1):
        nonlocal at
        if at + n > len(source):
            raise ShapeError(
                "Reshape",
                f"code {code} at position {len(out)} needs an axis that data {shape} has not, "
                f"got shape {target}",
            )
        at += n
        return source[at - n : at]

    for word in words:
        code = word[0]
        if code == 0:
            out += take(0)
        elif code == -1:
            out.append(-1)
            at += 1
        elif code == -2:
            out += take(-2, max(len(source) - at, 0))
        elif code == -3:
            out.append(prod(take(-3, 2)))
        elif code == -4:
            whole, (a, b) = take(-4)[0], word[1:]
            a, b = (
                (whole // b if a == -1 and b > 0 else a),
                (whole // a if b == -1 and a > 0 else b),
            )
            if a < 0 or b < 0 or a * b != whole:
                raise ShapeError(
                    "Reshape", f"-4 must split the axis of size {whole} into two, got {word[1:]}"
                )
            out += [a, b]
        else:
            out.append(code)
            at += 1
    return _infer_one(
        "Reshape", shape, tuple(reversed(out)) if reverse else tuple(out), prod(shape)
    )


def _reshape(shape, /, **attrs):
    target = attrs["target_shape"]
    if attrs["shape"] or not target:
        return reshape_shape(shape, attrs["shape"], attrs["reverse"])
    # the older parameters: 0 means infer, keep_highest keeps the first axis
    target = list(target)
    if attrs["keep_highest"] and shape:
        target[0] = shape[0]
    return _infer_one("Reshape", shape, tuple(n or -1 for n in target), prod(shape))


mover(
    "Reshape",
    _reshape,
    lambda xp, x, **attrs: x.reshape(_reshape(x.shape, **attrs)),
    lambda F, dy, x, **attrs: F.reshape_to(dy, shape=x.shape),
    aliases=("reshape",),
    traits=(SameMemory(),),
    params=(
        Param("shape", "shape", ()),
        Param("reverse", "bool", False),
        Param("target_shape", "shape", ()),
        Param("keep_highest", "bool", False),
    ),
    samples=(
        sample((2, 3, 4), shape=(0, -1)),
        sample((2, 3, 4), shape=(-3, 0)),
        sample((2, 3, 4), shape=(-4, 1, 2, -2)),
        sample((2, 3, 4), shape=(-1, 0), reverse=True),
        sample((2, 3, 4), target_shape=(0, 12), keep_highest=True),
    ),
    doc=(
        "data in another shape. Codes: 0 copy, -1 infer, -2 copy the rest, -3 merge two axes, -4 a"
        " b split one; reverse reads both shapes from the right."
    ),
)
mover(
    "reshape_to",
    lambda x, shape: _infer_one("reshape_to", x, shape, prod(x)),
    lambda xp, x, shape: x.reshape(_infer_one("reshape_to", x.shape, shape, x.size)),
    lambda F, dy, x, shape: F.reshape_to(dy, shape=x.shape),
    params=(Param("shape", "shape"),),
    traits=(SameMemory(),),
    samples=(sample((2, 6), shape=(3, 4)), sample((2, 6), shape=(4, -1)), sample((1,), shape=())),
    doc="data in exactly this shape; one size may be -1.",
)


def _reshape_like(lhs, rhs, lhs_begin, lhs_end, rhs_begin, rhs_end):
    def span(name, shape, begin, end):
        n = len(shape)
        begin, end = 0 if begin is None else begin, n if end is None else end
        begin, end = begin + n if begin < 0 else begin, end + n if end < 0 else end
        if not 0 <= begin <= end <= n:
            raise ShapeError(
                "reshape_like",
                f"{name}_begin and {name}_end must be a range of axes, got {begin}, {end} "
                f"and {name} {shape}",
            )
        return begin, end

    a, b = span("lhs", lhs, lhs_begin, lhs_end)
    c, d = span("rhs", rhs, rhs_begin, rhs_end)
    out = lhs[:a] + rhs[c:d] + lhs[b:]
    if prod(out) != prod(lhs):
        raise ShapeError(
            "reshape_like",
            f"the number of elements must stay {prod(lhs)}, got lhs {lhs} and rhs {rhs}",
        )
    return out


operator(
    "reshape_like",
    aliases=("_npx_reshape_like",),
    inputs=("lhs", "rhs"),
    traits=(SameMemory(),),
    params=tuple(Param(n, "int?", None) for n in ("lhs_begin", "lhs_end", "rhs_begin", "rhs_end")),
    infer=lambda ins, **attrs: [
        Type(_reshape_like(ins[0].shape, ins[1].shape, **attrs), ins[0].dtype)
    ],
    ref=lambda xp, lhs, rhs, **attrs: lhs.reshape(_reshape_like(lhs.shape, rhs.shape, **attrs)),
    grad=lambda F, dys, xs, ys, **attrs: [F.reshape_to(dys[0], shape=xs[0].shape), None],
    samples=(
        sample((2, 6), (3, 4)),
        sample((30, 7), (15, 2, 4), lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=-1),
    ),
    doc=(
        "lhs in the shape of rhs, or with the axes [lhs_begin, lhs_end) replaced by rhs's"
        " [rhs_begin, rhs_end)."
    ),
)
mover(
    "Flatten",
    lambda x: (x[0] if x else 1, prod(x[1:])),
    lambda xp, x: x.reshape(x.shape[0] if x.ndim else 1, prod(x.shape[1:])),
    lambda F, dy, x: F.reshape_to(dy, shape=x.shape),
    aliases=("_npx_batch_flatten", "flatten"),
    traits=(SameMemory(),),
    samples=(sample((2, 3, 4)), sample((3,))),
    doc="(N, ...) -> (N, the product of the rest).",
)


def _expanded(shape, axis):
    axis = one_axis("expand_dims", axis, len(shape), 1)
    return shape[:axis] + (1,) + shape[axis:]


mover(
    "expand_dims",
    _expanded,
    lambda xp, x, axis: x.reshape(_expanded(x.shape, axis)),
    lambda F, dy, x, axis: F.reshape_to(dy, shape=x.shape),
    params=(Param("axis", "int"),),
    traits=(SameMemory(),),
    samples=(sample((2, 3), axis=0), sample((2, 3), axis=-1)),
    doc="A new axis of size 1 at `axis`.",
)


def _squeezed(shape, axis):
    if axis is None:
        axes = tuple(i for i, n in enumerate(shape) if n == 1)
    else:
        axes = many_axes("squeeze", axis, len(shape)) if axis else ()
        bad = [i for i in axes if shape[i] != 1]
        if bad:
            raise ShapeError("squeeze", f"axis {bad[0]} must have size 1, got data {shape}")
    return reduced_shape(shape, axes, False)


mover(
    "squeeze",
    _squeezed,
    lambda xp, x, axis: x.reshape(_squeezed(x.shape, axis)),
    lambda F, dy, x, axis: F.reshape_to(dy, shape=x.shape),
    params=(Param("axis", "shape?", None),),
    traits=(SameMemory(),),
    samples=(sample((1, 3, 1)), sample((1, 3, 1), axis=-1), sample((1, 1))),
    doc="data without the axes of size 1, or without these ones; (1,) if none is left.",
)


# ---- order of axes and elements ------------------------------------------------------------------
def _order(ndim, axes):
    if not axes:
        return tuple(reversed(range(ndim)))
    order = tuple(one_axis("transpose", a, ndim) for a in axes)
    if sorted(order) != list(range(ndim)):
        raise ShapeError("transpose", f"axes must name each of the {ndim} axes once, got {axes}")
    return order


mover(
    "transpose",
    lambda x, axes: [x[a] for a in _order(len(x), axes)],
    lambda xp, x, axes: xp.transpose(x, _order(x.ndim, axes)),
    lambda F, dy, x, axes: F.transpose(dy, axes=_inverse(_order(len(x.shape), axes))),
    params=(Param("axes", "shape", ()),),
    traits=(Permutation(_order),),
    samples=(sample((2, 3, 4)), sample((2, 3, 4), axes=(1, 2, 0)), sample((5,))),
    doc="Axes in another order; reversed where axes is empty.",
)


def _inverse(order):
    return tuple(order.index(a) for a in range(len(order)))


def _swapped(ndim, dim1, dim2):
    order = list(range(ndim))
    a, b = one_axis("SwapAxis", dim1, ndim), one_axis("SwapAxis", dim2, ndim)
    if ndim:
        order[a], order[b] = b, a
    return order


mover(
    "SwapAxis",
    lambda x, dim1, dim2: [x[a] for a in _swapped(len(x), dim1, dim2)],
    lambda xp, x, dim1, dim2: xp.transpose(x, _swapped(x.ndim, dim1, dim2)),
    lambda F, dy, x, dim1, dim2: F.SwapAxis(dy, dim1=dim1, dim2=dim2),
    aliases=("swapaxes",),
    params=(Param("dim1", "int", 0), Param("dim2", "int", 0)),
    traits=(Permutation(_swapped),),
    samples=(sample((2, 3, 4), dim1=0, dim2=-1), sample((2, 3))),
    doc="Two axes exchanged.",
)


def _reversed(shape, axis):
    many_axes("reverse", axis, len(shape))
    return shape


mover(
    "reverse",
    _reversed,
    lambda xp, x, axis: xp.flip(x, axis=many_axes("reverse", axis, x.ndim)),
    lambda F, dy, x, axis: F.reverse(dy, axis=axis),
    aliases=("flip",),
    params=(Param("axis", "shape"),),
    samples=(sample((2, 3, 4), axis=1), sample((2, 3, 4), axis=(0, -1))),
    doc="Elements in reverse order along axes.",
)


def _block_axes(op, shape, block_size):
    if len(shape) != 4 or block_size < 1:
        raise ShapeError(
            op, f"data must be (N, C, H, W) and block_size positive, got {shape} and {block_size}"
        )


def _to_space(shape, block_size):
    _block_axes("depth_to_space", shape, block_size)
    n, c, h, w = shape
    if c % block_size**2:
        raise ShapeError(
            "depth_to_space",
            f"channels must be divisible by block_size^2, got {shape} and {block_size}",
        )
    return n, c // block_size**2, h * block_size, w * block_size


def _to_depth(shape, block_size):
    _block_axes("space_to_depth", shape, block_size)
    n, c, h, w = shape
    if h % block_size or w % block_size:
        raise ShapeError(
            "space_to_depth",
            f"height and width must be divisible by block_size, got {shape} and {block_size}",
        )
    return n, c * block_size**2, h // block_size, w // block_size


def _to_space_ref(xp, x, block_size):
    b, (n, c, h, w) = block_size, x.shape
    y = x.reshape(n, b, b, c // b**2, h, w)
    return xp.transpose(y, (0, 3, 4, 1, 5, 2)).reshape(_to_space(x.shape, b))


def _to_depth_ref(xp, x, block_size):
    b, (n, c, h, w) = block_size, x.shape
    y = x.reshape(n, c, h // b, b, w // b, b)
    return xp.transpose(y, (0, 3, 5, 1, 2, 4)).reshape(_to_depth(x.shape, b))


mover(
    "depth_to_space",
    _to_space,
    _to_space_ref,
    lambda F, dy, x, block_size: F.space_to_depth(dy, block_size=block_size),
    params=(Param("block_size", "int"),),
    samples=(sample((2, 8, 2, 3), block_size=2),),
    doc="Blocks of channels moved into space: (N, C b^2, H, W) -> (N, C, H b, W b).",
)
mover(
    "space_to_depth",
    _to_depth,
    _to_depth_ref,
    lambda F, dy, x, block_size: F.depth_to_space(dy, block_size=block_size),
    params=(Param("block_size", "int"),),
    samples=(sample((2, 2, 4, 6), block_size=2),),
    doc="Blocks of space moved into channels: (N, C, H b, W b) -> (N, C b^2, H, W).",
)


# ---- rolls ---------------------------------------------------------------------------------------
def _rolled_shape(shape, axis, shift):
    n = shape[one_axis("_rolled", axis, len(shape))]
    if not 0 <= shift <= n:
        raise ShapeError("_rolled", f"shift must be in [0, {n}], got {shift}")
    return shape


def _rolled_ref(xp, x, axis, shift):
    axis = one_axis("_rolled", axis, x.ndim)
    at = lambda begin, end: (*[slice(None)] * axis, slice(begin, end))
    n = x.shape[axis] - shift
    return xp.concatenate([x[at(n, None)], x[at(None, n)]], axis=axis)


mover(
    "_rolled",
    _rolled_shape,
    _rolled_ref,
    lambda F, dy, x, axis, shift: F._rolled(dy, axis=axis, shift=x.shape[axis] - shift),
    params=(Param("axis", "int"), Param("shift", "int", limits=LARGE)),
    samples=(sample((5,), axis=0, shift=2), sample((2, 3, 4), axis=1, shift=1)),
    doc="The last `shift` elements along an axis moved to its front.",
)
