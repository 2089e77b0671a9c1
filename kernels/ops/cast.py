"""Casts, and shapes as arrays."""

from __future__ import annotations

from ..loops import same_form
from ..record import COUNT, DTYPES, Param, Type, operator, sample
from ..traits import (
    Cast,
    Decomposition,
    Identity,
    LoopForm,
    PrecisionCast,
)


def _cast_ref(xp, x, dtype):
    # through int64, so that -1.5 becomes 255 and not an undefined value
    return (
        x.astype(xp.int64)
        if x.dtype.kind == "f" and dtype in ("uint8", "int8", "int16", "uint16", "uint32")
        else x
    )


AMP_DTYPES = ("float16", "bfloat16", "float32")  # narrow first; mixed precision casts no others


def _amp_type(t, dtype):
    return Type(t.shape, dtype if t.dtype in AMP_DTYPES else t.dtype)


operator(
    "Cast",
    traits=(Cast(), Identity(), LoopForm(same_form, mixed=(0,))),
    aliases=("_npi_cast", "_npx_cast", "cast"),
    params=(Param("dtype", "dtype"),),
    infer=lambda ins, dtype: [Type(ins[0].shape, dtype)],
    ref=_cast_ref,
    grad=lambda F, dys, xs, ys, dtype: [F.Cast(dys[0], dtype=xs[0].dtype)],
    samples=tuple(sample((3, 4), dtype=d) for d in DTYPES),
    doc=(
        "x converted to a dtype: floats to integers towards 0, integers to smaller ones modulo"
        " their range."
    ),
)
operator(
    "amp_cast",
    traits=(Cast(), LoopForm(same_form, mixed=(0,)), PrecisionCast()),
    params=(Param("dtype", "dtype"),),
    infer=lambda ins, dtype: [_amp_type(ins[0], dtype)],
    ref=lambda xp, x, dtype: x,
    grad=lambda F, dys, xs, ys, dtype: [F.Cast(dys[0], dtype=xs[0].dtype)],
    samples=(sample((3, 4), dtype="float16"), sample((3,), dtype="float32")),
    doc=(
        "float16, bfloat16 or float32 x converted to another of these dtypes; others stay. Placed"
        " by mixed precision."
    ),
)


def _multicast_infer(ins, num_outputs, cast_narrow):
    narrow = [t.dtype for t in ins if t.dtype in AMP_DTYPES]
    if not narrow:
        return list(ins)
    dtype = (min if cast_narrow else max)(narrow, key=AMP_DTYPES.index)
    return [_amp_type(t, dtype) for t in ins]


operator(
    "amp_multicast",
    inputs=("*data",),
    variadic_key="num_outputs",
    params=(Param("num_outputs", "int", limits=COUNT), Param("cast_narrow", "bool", False)),
    infer=_multicast_infer,
    n_outputs=lambda num_outputs, cast_narrow: num_outputs,
    ref=lambda xp, *xs, num_outputs, cast_narrow: xs,
    traits=(Decomposition(lambda F, *xs, **_: list(xs)), PrecisionCast()),
    grad=lambda F, dys, xs, ys, num_outputs, cast_narrow: [
        dy if dy is None else F.Cast(dy, dtype=x.dtype) for dy, x in zip(dys, xs)
    ],
    samples=(sample((3, 4), (2,), num_outputs=2), sample((3,), num_outputs=1, cast_narrow=True)),
    doc=(
        "float16, bfloat16 and float32 arrays converted to the widest of these dtypes among them,"
        " or the narrowest; others stay."
    ),
)
operator(
    "shape_array",
    aliases=("_npx_shape_array",),
    infer=lambda ins: [Type((len(ins[0].shape),), "int64")],
    ref=lambda xp, x: xp.asarray(x.shape, dtype=xp.int64),
    samples=(sample((3, 4)), sample((2, 1, 5))),
    doc="The shape of x as an int64 array (ndim,).",
)
operator(
    "size_array",
    infer=lambda ins: [Type((1,), "int64")],
    ref=lambda xp, x: xp.asarray([x.size], dtype=xp.int64),
    samples=(sample((3, 4)), sample((2, 1, 5))),
    doc="The number of elements of x as an int64 array (1,).",
)
