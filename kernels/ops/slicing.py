"""Slices of an array and their assignment; joining and splitting along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index as as_int
from typing import Any

from ...engine.error import OperatorError, ShapeError
from ..extent import any_size, is_unknown
from ..pointwise import sum_to
from ..record import COUNT, LARGE, REQUIRED, Param, Shape, Type, operator, same_fill, sample
from ..scalar import element
from ..shapes import describe, one_axis, same_dtype, strides
from ..traits import Join, Part, Section
from .shape import mover

ALL = slice(None)
Ends = Sequence[int | None]  # of slices, one for each axis; None: the axis' own end


# ---- slice ---------------------------------------------------------------------------------------
def slices(op: str, shape: Shape, begin: Ends, end: Ends, step: Ends = ()) -> tuple[slice, ...]:
    """Python slices for each axis of a shape. Raises ShapeError."""
    if len(begin) != len(end) or (step and len(step) != len(begin)) or len(begin) > len(shape):
        raise ShapeError(
            op,
            f"begin, end and step must have one length, at most data's axes, got begin {begin}, end"
            f" {end}, step {step} and data {shape}",
        )
    steps = step or (None,) * len(begin)
    if 0 in steps:
        raise ShapeError(op, f"step must not be 0, got {step}")
    return tuple(slice(*t) for t in zip(begin, end, steps)) + (ALL,) * (len(shape) - len(begin))


def sliced(op: str, shape: Shape, begin: Ends, end: Ends, step: Ends = ()) -> tuple[int, ...]:
    return tuple(
        n if s == ALL else any_size(n) if is_unknown(n) else _length(s, n)
        for s, n in zip(slices(op, shape, begin, end, step), shape)
    )


def _length(s: slice, n: int) -> int:
    """len(range(*s.indices(n))), which cannot be had of a Size."""
    step = 1 if s.step is None else s.step
    low, high = (0, n) if step > 0 else (-1, n - 1)

    def place(given: int | None, default: int) -> int:
        return default if given is None else min(max(given + n if given < 0 else given, low), high)

    first, last = (low, high) if step > 0 else (high, low)
    span = place(s.stop, last) - place(s.start, first)
    return max((span + step + (-1 if step > 0 else 1)) // step, 0)


def part(
    op: str, shape: Shape, begin: Ends, end: Ends, step: Ends = ()
) -> tuple[Shape, Shape, int]:
    """What x[begin:end:step] is for `_strided`: (sizes, steps, at)."""
    n_axes = len(begin)
    if n_axes != len(end) or n_axes > len(shape) or step and (len(step) != n_axes or 0 in step):
        slices(op, shape, begin, end, step)  # says what is wrong
    sizes, steps, at = list(shape), list(strides(shape)), 0
    for axis in range(n_axes):
        span = slice(begin[axis], end[axis], step[axis] if step else None)
        first, last, k = span.indices(shape[axis])
        sizes[axis] = len(range(first, last, k))
        at += first * steps[axis]
        steps[axis] *= k
    return tuple(sizes), tuple(steps), at if 0 not in sizes else 0


SPAN = (Param("begin", "shape"), Param("end", "shape"), Param("step", "shape", ()))


def _slice_back_ref(xp, dy, begin, end, step, shape):
    out = xp.zeros(shape, dtype=dy.dtype)
    out[slices("_slice_grad", shape, begin, end, step)] = dy
    return out


def _slice_back_shape(x, begin, end, step, shape):
    if sliced("_slice_grad", shape, begin, end, step) != x:
        raise ShapeError(
            "_slice_grad",
            f"data must have the slice's shape {sliced('_slice_grad', shape, begin, end, step)},"
            f" got {x}",
        )
    return shape


mover(
    "slice",
    lambda x, **span: sliced("slice", x, **span),
    lambda xp, x, **span: x[slices("slice", x.shape, **span)],
    lambda F, dy, x, **span: F._slice_grad(dy, shape=x.shape, **span),
    traits=(Part(lambda shape, begin, end, step: part("slice", shape, begin, end, step)),),
    params=SPAN,
    aliases=("_npi_slice", "_npx_slice", "_sparse_slice", "crop"),
    samples=(
        sample((3, 4), begin=(0, 1), end=(2, 3)),
        sample((3, 4, 5), begin=(None, -3), end=(None, None)),
        sample((3, 4, 5), begin=(None, 2, 3), end=(None, 0, None), step=(None, -1, -2)),
        sample((6,), begin=1, end=6, step=2),
    ),
    doc="data[begin:end:step] along the first axes, with Python's rules; None is the default.",
)
mover(
    "_slice_grad",
    _slice_back_shape,
    _slice_back_ref,
    lambda F, dy, x, begin, end, step, shape: F.slice(dy, begin=begin, end=end, step=step),
    params=(*SPAN, Param("shape", "shape")),
    samples=(
        sample((2, 2), begin=(0, 1), end=(2, 3), shape=(3, 4)),
        sample((2,), begin=(3,), end=(None,), step=(-2,), shape=(4,)),
    ),
    doc="Zeros of a shape with data at [begin:end:step].",
)


def _axis_range(op, shape, axis, begin, end):
    """(axis, first, last) of a range of an axis. Raises ShapeError."""
    axis = one_axis(op, axis, len(shape))
    n = shape[axis]
    first, last = (
        begin + n if begin < 0 else begin,
        n if end is None else end + n if end < 0 else end,
    )
    if not 0 <= first <= last <= n:
        raise ShapeError(
            op, f"begin and end must be a range of axis {axis} of size {n}, got {begin} and {end}"
        )
    return axis, first, last


def _axis_span(op, shape, axis, begin, end):
    axis, first, last = _axis_range(op, shape, axis, begin, end)
    return {"begin": (None,) * axis + (first,), "end": (None,) * axis + (last,)}


def _axis_shape(shape, axis, begin, end):
    axis, first, last = _axis_range("slice_axis", shape, axis, begin, end)
    return (*shape[:axis], last - first, *shape[axis + 1 :])


def _axis_section(shape, index, axis, begin, end):
    axis, first, last = _axis_range("slice_axis", shape, axis, begin, end)
    return axis, first, last - first, False


def _axis_part(shape, axis, begin, end):
    axis = one_axis("slice_axis", axis, len(shape))
    n, first = shape[axis], as_int(begin)
    last = n if end is None else as_int(end)
    first, last = first + n if first < 0 else first, last + n if last < 0 else last
    if not 0 <= first < last <= n:
        return part("slice_axis", shape, **_axis_span("slice_axis", shape, axis, begin, end))
    steps = strides(shape)
    return (*shape[:axis], last - first, *shape[axis + 1 :]), steps, first * steps[axis]


mover(
    "slice_axis",
    _axis_shape,
    lambda xp, x, **attrs: x[
        slices("slice_axis", x.shape, **_axis_span("slice_axis", x.shape, **attrs))
    ],
    lambda F, dy, x, **attrs: F._slice_grad(
        dy, shape=x.shape, **_axis_span("slice_axis", x.shape, **attrs)
    ),
    traits=(Part(_axis_part), Section(_axis_section)),
    params=(
        Param("axis", "int"),
        Param("begin", "int", limits=LARGE),
        Param("end", "int?", REQUIRED, limits=LARGE),
    ),
    samples=(
        sample((3, 4), axis=1, begin=1, end=3),
        sample((3, 4), axis=-1, begin=-2, end=None),
        sample((3, 4), axis=0, begin=0, end=-1),
    ),
    doc="data[begin:end] along one axis; end None is the axis' end.",
)


def _like_shape(shape, like, axes):
    """The shape of data with the sizes of shape_like along axes. Raises ShapeError."""
    if not axes and len(shape) != len(like):
        raise ShapeError(
            "slice_like",
            f"data and shape_like must have as many axes where axes is empty, got {shape} and"
            f" {like}",
        )
    out = list(shape)
    for a in axes or range(len(shape)):
        i, j = one_axis("slice_like", a, len(shape)), one_axis("slice_like", a, len(like))
        if like[j] > shape[i]:
            raise ShapeError(
                "slice_like",
                f"shape_like must not be larger than data along axis {i}, got data {shape} and "
                f"shape_like {like}",
            )
        out[i] = like[j]
    return tuple(out)


def _like_span(shape, like, axes):
    return {"begin": (None,) * len(shape), "end": _like_shape(shape, like, axes)}


operator(
    "slice_like",
    inputs=("data", "shape_like"),
    params=(Param("axes", "shape", ()),),
    infer=lambda ins, axes: [Type(_like_shape(ins[0].shape, ins[1].shape, axes), ins[0].dtype)],
    ref=lambda xp, x, like, axes: x[
        slices("slice_like", x.shape, **_like_span(x.shape, like.shape, axes))
    ],
    grad=lambda F, dys, xs, ys, axes: [
        F._slice_grad(dys[0], shape=xs[0].shape, **_like_span(xs[0].shape, xs[1].shape, axes)),
        None,
    ],
    samples=(sample((3, 4), (2, 3)), sample((2, 3, 4), (5, 2, 3), axes=(1, -1))),
    doc="The first elements of data along axes, as many as shape_like has.",
)


def _assign_infer(ins, **span):
    target = sliced("_slice_assign", ins[0].shape, **span)
    same_dtype("_slice_assign", ins, ("lhs", "rhs"))
    rhs = ins[1].shape
    if len(rhs) > len(target) or any(
        n not in (1, t) for n, t in zip(reversed(rhs), reversed(target))
    ):
        raise ShapeError(
            "_slice_assign",
            f"rhs must fit the slice {target} of lhs, got {describe(ins, ('lhs', 'rhs'))}",
        )
    return [ins[0]]


def _assign_ref(xp, lhs, rhs, **span):
    out = lhs.copy()
    out[slices("_slice_assign", lhs.shape, **span)] = rhs
    return out


def _assigned(shape, **span):
    slices("_slice_assign_scalar", shape, **span)
    return shape


def _assign_number_ref(xp, x, scalar, **span):
    out = x.copy()
    out[slices("_slice_assign_scalar", x.shape, **span)] = element(x.dtype, scalar)
    return out


operator(
    "_slice_assign",
    aliases=("_crop_assign", "_npi_slice_assign"),
    inputs=("lhs", "rhs"),
    params=SPAN,
    infer=_assign_infer,
    ref=_assign_ref,
    inplace=((0, 0),),
    grad=lambda F, dys, xs, ys, **span: [
        F._slice_assign_scalar(dys[0], scalar=0.0, **span),
        sum_to(F, F.slice(dys[0], **span), xs[1].shape),
    ],
    samples=(
        sample((3, 4), (2, 2), begin=(0, 1), end=(2, 3)),
        sample((3, 4), (4,), begin=(None,), end=(None,), step=(-2,)),
    ),
    doc="lhs with [begin:end:step] replaced by rhs, which broadcasts.",
)
mover(
    "_slice_assign_scalar",
    lambda x, scalar, **span: _assigned(x, **span),
    _assign_number_ref,
    lambda F, dy, x, scalar, **span: F._slice_assign_scalar(dy, scalar=0.0, **span),
    aliases=("_crop_assign_scalar", "_npi_slice_assign_scalar"),
    inplace=((0, 0),),
    params=(Param("scalar", "float", 0.0, dynamic=True), *SPAN),
    samples=(
        sample((3, 4), scalar=2.5, begin=(0, 1), end=(2, 3)),
        sample((3, 4), scalar=1, begin=(None,), end=(None,), step=(2,)),
    ),
    doc="data with [begin:end:step] replaced by a number.",
)


# ---- join and split ------------------------------------------------------------------------------
def _joined(op, ins, axis_attr):
    if not ins:
        raise ShapeError(op, "at least one array must be given, got 0")
    same_dtype(op, ins, [f"arg{i}" for i in range(len(ins))])
    return one_axis(op, axis_attr, len(ins[0].shape), op == "stack")


def _concat_infer(ins, num_args, dim):
    axis = _joined("Concat", ins, dim)
    first = ins[0].shape
    for t in ins:
        if len(t.shape) != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(t.shape, first)) if i != axis
        ):
            raise ShapeError(
                "Concat",
                f"shapes must be equal but for axis {axis}, got "
                f"{describe(ins, [f'arg{i}' for i in range(len(ins))])}",
            )
    return [
        Type(first[:axis] + (sum(t.shape[axis] for t in ins),) + first[axis + 1 :], ins[0].dtype)
    ]


def _concat_grad(F, dys, xs, ys, num_args, dim):
    axis, at, out = one_axis("Concat", dim, len(xs[0].shape)), 0, []
    for x in xs:
        out.append(F.slice_axis(dys[0], axis=axis, begin=at, end=at + x.shape[axis]))
        at += x.shape[axis]
    return out


operator(
    "Concat",
    aliases=("_sparse_concat", "concat"),
    traits=(Join("dim"),),
    inputs=("*data",),
    variadic_key="num_args",
    params=(Param("num_args", "int"), Param("dim", "int", 1)),
    infer=_concat_infer,
    grad=_concat_grad,
    ref=lambda xp, *xs, num_args, dim: xp.concatenate(xs, axis=dim),
    samples=(
        sample((2, 3), (2, 1), (2, 2), num_args=3),
        sample((2, 3), (1, 3), num_args=2, dim=0),
        sample((2, 3, 4), (2, 3, 1), num_args=2, dim=-1),
        sample((2, 3), num_args=1),
    ),
    doc="Arrays joined along an axis (dim).",
)


def _stack_infer(ins, axis, num_args):
    axis = _joined("stack", ins, axis)
    first = ins[0].shape
    if any(t.shape != first for t in ins):
        raise ShapeError(
            "stack",
            f"shapes must be equal, got {describe(ins, [f'arg{i}' for i in range(len(ins))])}",
        )
    return [Type(first[:axis] + (len(ins),) + first[axis:], ins[0].dtype)]


def _stack_grad(F, dys, xs, ys, axis, num_args):
    axis = one_axis("stack", axis, len(xs[0].shape), 1)
    return [
        F.reshape_to(F.slice_axis(dys[0], axis=axis, begin=i, end=i + 1), shape=x.shape)
        for i, x in enumerate(xs)
    ]


operator(
    "stack",
    inputs=("*data",),
    traits=(Join("axis", stacks=True),),
    variadic_key="num_args",
    params=(Param("axis", "int", 0), Param("num_args", "int")),
    infer=_stack_infer,
    fill=same_fill,
    ref=lambda xp, *xs, axis, num_args: xp.stack(xs, axis=axis),
    grad=_stack_grad,
    samples=(
        sample((2, 3), (2, 3), num_args=2),
        sample((2, 3), (2, 3), (2, 3), num_args=3, axis=-1),
    ),
    doc="Arrays of one shape joined along a new axis.",
)


def _split_parts(op, shape, axis, starts, squeeze_axis):
    """(axis, [(begin, end)], shapes)"""
    axis = one_axis(op, axis, len(shape))
    n = shape[axis]
    spans = list(zip(starts, (*starts[1:], n)))
    if any(not 0 <= a <= b <= n for a, b in spans):
        raise ShapeError(
            op, f"indices must ascend within axis {axis} of size {n}, got {tuple(starts)}"
        )
    if squeeze_axis and any(b - a != 1 for a, b in spans):
        raise ShapeError(
            op,
            f"squeeze_axis needs parts of size 1 along axis {axis} of size {n}, got {len(spans)}"
            " parts",
        )
    shapes = [
        shape[:axis] + (() if squeeze_axis else (b - a,)) + shape[axis + 1 :] for a, b in spans
    ]
    return axis, spans, shapes


MAX_PARTS = 1 << 16  # each is an array


def _even_starts(op, shape, axis, parts):
    n = shape[one_axis(op, axis, len(shape))]
    if parts < 1 or n % parts:
        raise ShapeError(
            op,
            f"axis {axis} of size {n} must be divisible into {parts} equal parts, got data {shape}",
        )
    return _starts(op, n, parts)


def _starts(op, n, parts):
    """Where parts begin of which the first are longer by 1 if they cannot be equal."""
    if parts > MAX_PARTS:
        raise OperatorError(op, f"at most {MAX_PARTS} parts can be made, got {parts}")
    each, longer = divmod(n, parts)
    return tuple(i * each + min(i, longer) for i in range(parts))


def splitter(
    name: str, starts_of: Callable[..., Sequence[int]], n_outputs: Callable[..., int], **fields: Any
) -> None:
    """Registers a split. starts_of: (shape, **attrs) -> where the parts begin along
    attrs['axis']."""

    def parts(shape, axis, squeeze_axis, **attrs):
        return _split_parts(name, shape, axis, starts_of(shape, axis=axis, **attrs), squeeze_axis)

    def ref(xp, x, **attrs):
        axis, spans, shapes = parts(x.shape, **attrs)
        return tuple(
            x[(slice(None),) * axis + (slice(a, b),)].reshape(s) for (a, b), s in zip(spans, shapes)
        )

    def grad(F, dys, xs, ys, **attrs):
        axis = parts(tuple(xs[0].shape), **attrs)[0]
        pieces = [F.zeros_like(y) if dy is None else dy for dy, y in zip(dys, ys)]
        if attrs["squeeze_axis"]:
            return [F.stack(*pieces, axis=axis, num_args=len(pieces))]
        return [F.Concat(*pieces, dim=axis, num_args=len(pieces)) if len(pieces) > 1 else pieces[0]]

    def section(shape, index, **attrs):
        axis, spans, _ = parts(shape, **attrs)
        first, last = spans[index]
        return axis, first, last - first, attrs["squeeze_axis"]

    operator(
        name,
        traits=(Section(section),),
        infer=lambda ins, **attrs: [Type(s, ins[0].dtype) for s in parts(ins[0].shape, **attrs)[2]],
        ref=ref,
        grad=grad,
        n_outputs=n_outputs,
        **fields,
    )


def _v2_starts(shape, axis, indices, sections):
    if sections > 0:
        return _starts("_split_v2", shape[one_axis("_split_v2", axis, len(shape))], sections)
    if not indices or indices[0] != 0:
        raise OperatorError("_split_v2", f"indices must begin with 0, got {indices}")
    return indices


splitter(
    "SliceChannel",
    lambda shape, axis, num_outputs: _even_starts("SliceChannel", shape, axis, num_outputs),
    lambda num_outputs, **_: num_outputs,
    aliases=("split",),
    output_names=("output0",),
    params=(
        Param("num_outputs", "int", limits=COUNT),
        Param("axis", "int", 1),
        Param("squeeze_axis", "bool", False),
    ),
    samples=(
        sample((2, 6), num_outputs=3),
        sample((2, 3, 4), num_outputs=3, squeeze_axis=True),
        sample((2, 3), num_outputs=1, axis=0),
        sample((2, 4), num_outputs=2, axis=-1),
    ),
    doc="Equal parts along an axis; squeeze_axis drops the axis where the parts have size 1.",
)
splitter(
    "_split_v2",
    _v2_starts,
    lambda indices, axis, squeeze_axis, sections: sections if sections > 0 else len(indices),
    aliases=("_npi_split",),
    params=(
        Param("indices", "shape"),
        Param("axis", "int", 1),
        Param("squeeze_axis", "bool", False),
        Param("sections", "int", 0, limits=COUNT),
    ),
    samples=(
        sample((2, 5), indices=(0, 1, 3)),
        sample((4, 2), indices=(), axis=0, sections=2),
        sample((2, 3), indices=(), sections=3, squeeze_axis=True),
        sample((2, 5), indices=(), sections=3),
    ),
    doc=(
        "Parts along an axis that begin at `indices` (the first is 0), or `sections` parts, the"
        " first of which are longer by 1 where they cannot be equal."
    ),
)
