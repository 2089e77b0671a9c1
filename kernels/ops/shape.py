"""Reshape, transpose, repeat, broadcast, pad, diagonals: operators that move elements and compute
nothing."""

from __future__ import annotations

from math import prod

from ...engine.error import ShapeError
from ..pointwise import sum_to
from ..record import LARGE, Param, Type, operator, sample
from ..scalar import element
from ..shapes import many_axes, one_axis
from .reduce import reduced_shape


def mover(name, shape_of, ref, grad, **fields):
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


def reshape_shape(shape, target, reverse=False) -> tuple[int, ...]:
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
    view=True,
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
    view=True,
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
    view=True,
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
    view=True,
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
    aliases=("_npi_expand_dims",),
    view=True,
    samples=(sample((2, 3), axis=0), sample((2, 3), axis=-1)),
    doc="A new axis of size 1 at `axis`.",
)


def _squeezed(shape, axis):
    if axis is None:
        axes = [i for i, n in enumerate(shape) if n == 1]
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
    view=True,
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
    aliases=("_npi_swapaxes", "swapaxes"),
    params=(Param("dim1", "int", 0), Param("dim2", "int", 0)),
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


# ---- repeat and broadcast ------------------------------------------------------------------------
def _tiled(shape, reps):
    n = max(len(shape), len(reps))
    if any(r < 0 for r in reps):
        raise ShapeError("tile", f"reps must not be negative, got {reps}")
    return (1,) * (n - len(shape)) + tuple(shape), (1,) * (n - len(reps)) + tuple(reps)


def _tile_grad(F, dy, x, reps):
    shape, reps = _tiled(x.shape, reps)
    parts = F.reshape_to(dy, shape=tuple(v for pair in zip(reps, shape) for v in pair))
    return (
        F.reshape_to(F.sum(parts, axis=tuple(range(0, 2 * len(shape), 2))), shape=x.shape)
        if shape
        else dy
    )


mover(
    "tile",
    lambda x, reps: [n * r for n, r in zip(*_tiled(x, reps))],
    lambda xp, x, reps: xp.tile(x, reps),
    _tile_grad,
    aliases=("_npi_tile",),
    params=(Param("reps", "shape"),),
    samples=(sample((2, 3), reps=(2,)), sample((3,), reps=(2, 1, 3)), sample((2, 3), reps=(2, 2))),
    doc="data repeated as a whole, reps[i] times along axis i, aligned at the last axes.",
)


def _repeat_axis(shape, repeats, axis):
    if repeats < 0:
        raise ShapeError("repeat", f"repeats must not be negative, got {repeats}")
    return axis if axis is None else one_axis("repeat", axis, len(shape))


def _repeated(shape, repeats, axis):
    axis = _repeat_axis(shape, repeats, axis)
    return (
        (prod(shape) * repeats,)
        if axis is None
        else (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :])
    )


def _repeat_grad(F, dy, x, repeats, axis):
    shape, axis = tuple(x.shape), _repeat_axis(x.shape, repeats, axis)
    split = (
        (prod(shape), repeats)
        if axis is None
        else (*shape[: axis + 1], repeats, *shape[axis + 1 :])
    )
    return F.reshape_to(
        F.sum(F.reshape_to(dy, shape=split), axis=(1 if axis is None else axis + 1,)), shape=shape
    )


mover(
    "repeat",
    _repeated,
    lambda xp, x, repeats, axis: xp.repeat(x, repeats, axis=axis),
    _repeat_grad,
    aliases=("_np_repeat",),
    params=(Param("repeats", "int", limits=LARGE), Param("axis", "int?", None)),
    samples=(
        sample((2, 3), repeats=2),
        sample((2, 3), repeats=3, axis=-1),
        sample((2, 3), repeats=1, axis=0),
    ),
    doc="Each element repeated along an axis, or in the flattened array where axis is None.",
)


def _spread_shape(op, shape, target):
    if len(shape) > len(target):
        raise ShapeError(op, f"shape must have at least data's {len(shape)} axes, got {target}")
    source = (1,) * (len(target) - len(shape)) + tuple(shape)
    out = tuple(s if t == 0 else t for s, t in zip(source, target))
    if any(s not in (1, t) or t < 0 for s, t in zip(source, out)):
        raise ShapeError(
            op,
            f"each axis must be equal or 1 in data, got data {shape} and shape {target}",
            fix="broadcasting aligns the last axes: reshape data first",
        )
    return out


mover(
    "broadcast_to",
    lambda x, shape: _spread_shape("broadcast_to", x, shape),
    lambda xp, x, shape: xp.broadcast_to(x, _spread_shape("broadcast_to", x.shape, shape)),
    lambda F, dy, x, shape: sum_to(F, dy, x.shape),
    params=(Param("shape", "shape", ()),),
    samples=(
        sample((1, 3, 1), shape=(2, 3, 4)),
        sample((1, 3), shape=(2, 0)),
        sample((3,), shape=(2, 3)),
    ),
    doc="data repeated along its axes of size 1 to a shape; a 0 keeps data's size.",
)


def _broadcast_like(op, lhs, rhs, lhs_axes, rhs_axes):
    if lhs_axes is None or rhs_axes is None:
        target = tuple(rhs)
        if len(target) < len(lhs):
            raise ShapeError(op, f"rhs must have at least lhs's axes, got lhs {lhs} and rhs {rhs}")
    else:
        if not lhs_axes or not rhs_axes or len(lhs_axes) != len(rhs_axes):
            raise ShapeError(
                op, f"lhs_axes and rhs_axes must have one length, got {lhs_axes} and {rhs_axes}"
            )
        target = list(lhs)
        for a, b in zip(lhs_axes, rhs_axes):
            target[one_axis(op, a, len(lhs))] = rhs[one_axis(op, b, len(rhs))]
    source = (1,) * (len(target) - len(lhs)) + tuple(lhs)
    if any(s not in (1, t) for s, t in zip(source, target)):
        raise ShapeError(
            op, f"each axis of lhs must be equal to rhs's or 1, got lhs {lhs} and rhs {rhs}"
        )
    return tuple(target)


operator(
    "broadcast_like",
    inputs=("lhs", "rhs"),
    params=(Param("lhs_axes", "shape?", None), Param("rhs_axes", "shape?", None)),
    infer=lambda ins, **attrs: [
        Type(_broadcast_like("broadcast_like", ins[0].shape, ins[1].shape, **attrs), ins[0].dtype)
    ],
    ref=lambda xp, lhs, rhs, **attrs: xp.broadcast_to(
        lhs, _broadcast_like("broadcast_like", lhs.shape, rhs.shape, **attrs)
    ),
    grad=lambda F, dys, xs, ys, **attrs: [sum_to(F, dys[0], xs[0].shape), None],
    samples=(
        sample((1, 3, 1), (2, 3, 4)),
        sample((1, 3, 1), (5, 6), lhs_axes=(0, -1), rhs_axes=(0, 1)),
    ),
    doc=(
        "lhs repeated along its axes of size 1 to the shape of rhs, or to some of rhs's axes (both"
        " lhs_axes and rhs_axes given)."
    ),
)


def _broadcast_axis(shape, axis, size):
    if len(axis) != len(size):
        raise ShapeError(
            "broadcast_axis", f"axis and size must have one length, got {axis} and {size}"
        )
    out = list(shape)
    for a, n in zip(axis, size):
        i = one_axis("broadcast_axis", a, len(shape))
        if shape[i] != 1 or n < 0:
            raise ShapeError(
                "broadcast_axis", f"axis {i} must have size 1, got data {shape} and size {n}"
            )
        out[i] = n
    return tuple(out)


mover(
    "broadcast_axis",
    _broadcast_axis,
    lambda xp, x, **attrs: xp.broadcast_to(x, _broadcast_axis(x.shape, **attrs)),
    lambda F, dy, x, axis, size: sum_to(F, dy, x.shape),
    aliases=("broadcast_axes",),
    params=(Param("axis", "shape", ()), Param("size", "shape", ())),
    samples=(sample((1, 3, 1), axis=(0, 2), size=(2, 4)), sample((1, 3, 1), axis=-1, size=5)),
    doc="data repeated along given axes of size 1.",
)


# ---- pad and diagonals ---------------------------------------------------------------------------
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
