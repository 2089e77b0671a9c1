"""Convolutions of 16-bit floats and 8-bit integers on CPUs."""

from __future__ import annotations

from math import inf, prod

from ...engine import lib
from ..cpu.layout import FLOPS_PER_US, code, cost
from ..native import Native, Wanted
from ..ops.conv import Geometry
from ..record import HALVES, Attrs, Operator, Type, Types
from . import CPU, conv_fused, on_cpu
from .conv import geometry
from .conv_fused import act_fields, block, rectify
from .dense import MOST_STEPS

LEAST_FILTERS = 8  # of a group of 16-bit floats; others are computed in float32, as depthwise ones
MOST_SUMMED = 2**31 // (255 * 128) - 1  # products of uint8 and int8 that int32 holds


def _in_space(values, missing: int) -> list[int]:
    """Of one to three dimensions the last of three."""
    return [missing] * (3 - len(values)) + list(values)


def channels_last(ndim: int) -> str:
    """The layout that kernels for small numbers read: (n, *space, channels)."""
    return f"a{'cde'[: ndim - 2]}b"


def _panels(w: Type, x: str, g: Geometry) -> str:
    """The layout of weights that are read where they are; "": they are packed in each call."""
    per = lib.plk_narrow_per_unit(code(x), code(w.dtype))
    if g.groups > 1 or w.shape[1] % per:
        return ""
    units = f"{per}b" if per > 1 else ""
    return f"A{'cde'[: len(g.kernel)]}{'B' if per > 1 else 'b'}{2 * block()}a{units}"


def _native(g: Geometry, x: Type, w: Type, y: Type, ins: Types, **more) -> Native:
    n, channels, space = g.split(x.shape)
    _, filters, out = g.split(y.shape)
    steps = channels // g.groups * prod(g.kernel)
    per = lib.plk_narrow_per_unit(code(x.dtype), code(w.dtype))
    fields = {
        "n": n,
        "channels": channels,
        "filters": filters,
        "groups": g.groups,
        "size": _in_space(space, 1),
        "kernel": _in_space(g.kernel, 1),
        "out": _in_space(out, 1),
        "stride": _in_space(g.stride, 1),
        "dilate": _in_space(g.dilate, 1),
        "pad": _in_space(g.pad, 0),
        "dtype": code(x.dtype),
        "w_dtype": code(w.dtype),
        "bias_dtype": -1,
        "add_dtype": -1,
        "out_dtype": code(y.dtype),
        "x_last": bool(x.layout),
        "y_last": bool(y.layout),
        "columns": 2 * block() if w.layout else 0,
        "per_unit": per,
        "low": -inf,
        "high": inf,
        **more,
    }
    us = cost(*ins, y) + 2 + 2 * n * filters * prod(out) * steps / FLOPS_PER_US
    return Native("plk_narrow_conv_run", ("plk_narrow_conv", fields), us)


@on_cpu("Convolution")
def conv_narrow_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    dtype, g = ins[0].dtype, geometry(op.name, attrs)
    if g.channels_last or any(t.dtype != dtype for t in (*ins, *outs)):
        return None
    n, channels, space = g.split(ins[0].shape)
    _, filters, out = g.split(outs[0].shape)
    if 0 in (n, channels, filters, *space, *out) or len(space) > 3:
        return None
    if dtype in HALVES:
        fast = dtype == "bfloat16" and lib.plk_isa_has(lib.PLK_HAS_BF16)
        if not fast or filters // g.groups < LEAST_FILTERS:
            return None
    elif channels // g.groups * prod(g.kernel) > MOST_STEPS.get(dtype, -1):
        return None
    bias = -1 if attrs["no_bias"] else code(dtype)
    return _native(g, ins[0], ins[1], outs[0], ins, bias_dtype=bias)


# ---- with what follows ---------------------------------------------------------------------------


def _layouts(g: Geometry, ins: Types, y: Type, addend: int) -> Wanted:
    """Channels last, weights in panels. addend: the number of the input that is like the result."""
    tags = [channels_last(len(t.shape)) if prod(t.shape[2:]) > 1 else "" for t in (ins[0], y)]
    rest = [tags[1] if i == addend else "" for i in range(2, len(ins))]
    return Wanted((tags[0], _panels(ins[1], ins[0].dtype, g), *rest), (tags[1],))


def _readable(g: Geometry, ins: Types, y: Type, addend: int) -> bool:
    """Can the kernel read arrays with these layouts?"""
    last = channels_last(len(y.shape))
    found = {ins[0].layout, y.layout} <= {"", last} and (
        len(ins) <= addend or ins[addend].layout == y.layout
    )
    return found and ins[1].layout in ("", _panels(ins[1], ins[0].dtype, g))


def suits_brain(ins: Types, outs: Types, attrs: Attrs) -> bool:
    """Is a `_conv` of bfloat16 computed as such, with its channels last?"""
    g = geometry("_conv", attrs)
    if g.channels_last or len(g.kernel) > 2 or any(0 in t.shape for t in (*ins, *outs)):
        return False
    same = {t.dtype for t in (ins[0], ins[1], *ins[3:], *outs)} == {"bfloat16"}
    fast = lib.plk_isa_has(lib.PLK_HAS_BF16) and g.groups == 1 and outs[0].shape[1] >= LEAST_FILTERS
    if not (fast and same and ins[2].dtype in ("bfloat16", "float32")):
        return False
    # Winograd's algorithm in float32 takes a quarter of the products, and these half as long
    wide_ins, wide_outs = ([t._replace(dtype="float32") for t in x] for x in (ins, outs))
    if not conv_fused.suits_winograd(wide_ins, wide_outs, attrs):
        return True
    winograd, direct = conv_fused.winograd_work(wide_ins, wide_outs)
    casts_us = cost(ins[0], wide_ins[0], outs[0], wide_outs[0])
    products = 8 if lib.plk_isa_has(lib.PLK_HAS_AMX) else 2  # of bfloat16 for one of float32
    return 2 * (direct / products - winograd) / FLOPS_PER_US < casts_us


@CPU.wants("_conv")
def conv_wants(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Wanted | None:
    if suits_brain(ins, outs, attrs):
        return _layouts(geometry("_conv", attrs), ins, outs[0], 3)
    return conv_fused.conv_wants(op, ins, outs, attrs)


@on_cpu("_conv", layouts=True)
def conv_brain_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    y = outs[0]
    if y.dtype != "bfloat16" or not suits_brain(ins, outs, attrs):
        return None
    g, more = geometry("_conv", attrs), act_fields(attrs)
    if not _readable(g, ins, y, 3):
        return None
    if rectify(attrs) == lib.PLK_RELU:
        more = {"low": 0.0}
    if attrs["add"]:
        more["add_dtype"] = code("bfloat16")
    return _native(g, ins[0], ins[1], y, ins, bias_dtype=code(ins[2].dtype), **more)


def _taps(attrs: Attrs) -> Geometry:
    return geometry("_conv_int8", {**attrs, "layout": None})


@CPU.wants("_conv_int8")
def conv_int8_wants(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Wanted | None:
    return _layouts(_taps(attrs), ins, outs[0], 4)


@on_cpu("_conv_int8", layouts=True)
def conv_int8_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, w, y, g = ins[0], ins[1], outs[0], _taps(attrs)
    steps = w.shape[1] * prod(g.kernel)
    if any(0 in t.shape for t in (*ins, y)) or steps > MOST_SUMMED or not _readable(g, ins, y, 4):
        return None
    if y.dtype == "int32":
        return _native(g, x, w, y, ins, bias_dtype=code("int32"))
    more: dict = {"scaled": True, "bias_dtype": code("float32")}
    if attrs["add"]:
        if ins[4].dtype == "float64":
            return None
        more |= {"add_dtype": code(ins[4].dtype), "add_scaled": True}
    if attrs["relu"]:
        more["low"] = 0.0
    return _native(g, x, w, y, ins, **more)
