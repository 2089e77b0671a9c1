"""Arrays made from nothing but attributes, and ranges shaped like another array."""

from __future__ import annotations

import math

from ...engine.error import OperatorError
from ..loops import constant_form
from ..record import DTYPES, FLOATS, LARGE, Param, Type, operator, sample
from ..shapes import one_axis
from ..traits import Constant, LoopForm

SHAPE, CTX, DTYPE = (
    Param("shape", "shape", ()),
    Param("ctx", "context", ""),
    Param("dtype", "dtype", "float32"),
)


def _shaped(ins, shape, ctx, dtype, **_):
    if any(n < 0 for n in shape):
        raise OperatorError("creation", f"shape must not be negative, got {shape}")
    return [Type(shape, dtype)]


def _filled(name, value, doc):
    operator(
        name,
        inputs=(),
        params=(SHAPE, CTX, DTYPE),
        infer=_shaped,
        doc=doc,
        traits=(Constant(float(value)), LoopForm(constant_form)),
        ref=lambda xp, shape, ctx, dtype: xp.full(shape, value),
        samples=(sample(shape=(2, 3)), sample(shape=(2,), dtype="int32"), sample(shape=(0, 3))),
    )


_filled("_zeros", 0, "Zeros of a shape and dtype.")
_filled("_ones", 1, "Ones of a shape and dtype.")
operator(
    "_full",
    traits=(Constant(), LoopForm(constant_form)),
    inputs=(),
    infer=_shaped,
    params=(SHAPE, CTX, DTYPE, Param("value", "float", dynamic=True)),
    ref=lambda xp, shape, ctx, dtype, value: xp.full(shape, value),
    samples=(
        sample(shape=(2, 3), value=1.5),
        sample(shape=(2,), dtype="int32", value=2.7),
        sample(shape=(), value=3),
    ),
    doc="One value in every element.",
)
operator(
    "_zeros_without_dtype",
    inputs=(),
    params=(Param("shape", "shape?", None), CTX, Param("dtype", "int", -1)),
    traits=(Constant(0.0),),
    infer=lambda ins, shape, ctx, dtype: [
        Type(shape or (), DTYPES[dtype] if 0 <= dtype < len(DTYPES) else "float32")
    ],
    ref=lambda xp, shape, ctx, dtype: xp.zeros(shape or ()),
    samples=(sample(shape=(2, 3)), sample(shape=(2,), dtype=1)),
    doc="Zeros; dtype: MXNet's number of it, -1: float32.",
)


def arange_count(start: float, stop: float | None, step: float, repeat: int) -> tuple[float, int]:
    """(first value, number of distinct values)."""
    if stop is None:
        start, stop = 0.0, start
    if step == 0:
        raise OperatorError("_arange", "step must not be 0")
    if not all(map(math.isfinite, (start, stop, step))):
        raise OperatorError(
            "_arange", f"start, stop and step must be finite, got {start}, {stop} and {step}"
        )
    if repeat < 1:
        raise OperatorError("_arange", f"repeat must be positive, got {repeat}")
    return start, max(math.ceil((stop - start) / step), 0)


def _arange_infer(ins, start, stop, step, repeat, infer_range, ctx, dtype):
    return [Type((arange_count(start, stop, step, repeat)[1] * repeat,), dtype)]


def _arange_ref(xp, start, stop, step, repeat, infer_range, ctx, dtype):
    first, count = arange_count(start, stop, step, repeat)
    if dtype not in FLOATS:  # MXNet computes whole ranges in whole numbers
        first, step = int(first), int(step)
    return xp.repeat(first + xp.arange(count) * step, repeat)


operator(
    "_arange",
    inputs=(),
    infer=_arange_infer,
    ref=_arange_ref,
    params=(
        Param("start", "float"),
        Param("stop", "float?", None),
        Param("step", "float", 1.0),
        Param("repeat", "int", 1),
        Param("infer_range", "bool", False),
        CTX,
        DTYPE,
    ),
    samples=(
        sample(start=4),
        sample(start=1, stop=3, step=0.7),
        sample(start=0, stop=3, repeat=2, dtype="int32"),
        sample(start=3, stop=0, step=-1),
        sample(start=2, stop=1),
    ),
    doc=(
        "start, start + step, ... below stop, each `repeat` times; from 0 to start where stop is"
        " None."
    ),
)


def _linspace_infer(ins, start, stop, num, endpoint, ctx, dtype):
    if num < 0:
        raise OperatorError("_linspace", f"num must not be negative, got {num}")
    return [Type((num,), dtype)]


def _linspace_ref(xp, start, stop, num, endpoint, ctx, dtype):
    return start + xp.arange(num) * ((stop - start) / max(num - 1 if endpoint else num, 1))


operator(
    "_linspace",
    aliases=("_npi_linspace",),
    inputs=(),
    infer=_linspace_infer,
    ref=_linspace_ref,
    params=(
        Param("start", "float"),
        Param("stop", "float"),
        Param("num", "int", limits=LARGE),
        Param("endpoint", "bool", True),
        CTX,
        DTYPE,
    ),
    samples=(
        sample(start=0, stop=1, num=5),
        sample(start=2, stop=0, num=4, endpoint=False),
        sample(start=3, stop=4, num=1),
    ),
    doc="num values from start to stop, evenly spaced; stop itself is the last where endpoint.",
)


def _eye_infer(ins, N, M, k, ctx, dtype):
    if N < 0:
        raise OperatorError("_eye", f"N must not be negative, got N {N}")
    return [Type((N, M if M > 0 else N), dtype)]


operator(
    "_eye",
    inputs=(),
    infer=_eye_infer,
    ref=lambda xp, N, M, k, ctx, dtype: xp.eye(N, M if M > 0 else N, k),
    params=(
        Param("N", "int", limits=LARGE),
        Param("M", "int", 0, limits=LARGE),
        Param("k", "int", 0, limits=LARGE),
        CTX,
        DTYPE,
    ),
    samples=(sample(N=3), sample(N=2, M=4, k=1), sample(N=3, k=-1, dtype="int32")),
    doc="(N, M) with ones on the k-th diagonal; M = 0 means N.",
)


def _range_axis(ins_shape, axis):
    return None if axis is None else one_axis("_contrib_arange_like", axis, len(ins_shape))


def _arange_like_infer(ins, start, step, repeat, ctx, axis):
    shape, axis = ins[0].shape, _range_axis(ins[0].shape, axis)
    return [Type(shape if axis is None else (shape[axis],), ins[0].dtype)]


def _arange_like_ref(xp, x, start, step, repeat, ctx, axis):
    axis = _range_axis(x.shape, axis)
    shape = x.shape if axis is None else (x.shape[axis],)
    if x.dtype.kind != "f":
        start, step = int(start), int(step)
    return (start + (xp.arange(math.prod(shape)) // repeat) * step).reshape(shape)


operator(
    "_contrib_arange_like",
    aliases=("_npx_arange_like",),
    infer=_arange_like_infer,
    ref=_arange_like_ref,
    params=(
        Param("start", "float", 0.0),
        Param("step", "float", 1.0),
        Param("repeat", "int", 1),
        CTX,
        Param("axis", "int?", None),
    ),
    samples=(sample((2, 3)), sample((2, 3, 4), axis=-1, start=1, step=0.5), sample((5,), repeat=2)),
    doc="A range of data's shape, or of the length of one axis; each value `repeat` times.",
)


def _index_array_infer(ins, axes):
    shape = ins[0].shape
    for axis in axes or ():
        one_axis("_contrib_index_array", axis, len(shape))
    return [Type((*shape, len(shape) if axes is None else len(axes)), "int64")]


def _index_array_ref(xp, x, axes):
    if axes is None:
        axes = range(x.ndim)
    if not len(axes):
        return xp.zeros((*x.shape, 0))
    grids = xp.indices(x.shape)
    return xp.stack([grids[one_axis("_contrib_index_array", a, x.ndim)] for a in axes], axis=-1)


operator(
    "_contrib_index_array",
    params=(Param("axes", "shape?", None),),
    infer=_index_array_infer,
    ref=_index_array_ref,
    samples=(sample((3, 2)), sample((3, 2, 4), axes=(2, 0))),
    doc="The index of each element along the axes, as int64: (*data.shape, number of axes).",
)
