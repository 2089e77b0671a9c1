"""Products of bytes with what follows them as one operator: what quantized layers decompose to."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...engine.error import DTypeError, OperatorError, ShapeError
from ..record import COUNT, Attrs, Param, Type, Types, operator, sample, uniform, values
from ..shapes import must_be
from .conv import TAPS, Geometry, conv_forward, geometry

NAME = "_conv_int8"
OUT = ("float32", "int32", "int8", "uint8")
_BOUNDS = {"int8": (-128, 127), "uint8": (0, 255)}


def _names(out_type: str, add: bool, **_: Any) -> tuple[str, ...]:
    if out_type == "int32":
        return ("data", "weight", "bias")
    more = ("addend", "addend_scale") if add else ()
    return ("data", "weight", "scale", "shift", *more)


def taps_of(attrs: Attrs) -> Geometry:
    taps = {k: attrs[k] for k in ("kernel", "stride", "dilate", "pad", "num_group")}
    return geometry(NAME, **taps, layout=None)


def _infer(ins: Types, **attrs: Any) -> list[Type]:
    x, w = ins[:2]
    g, filters, out = taps_of(attrs), attrs["num_filter"], attrs["out_type"]
    if x.dtype not in ("int8", "uint8") or w.dtype != "int8":
        raise DTypeError(
            NAME, f"data must be int8 or uint8 and weight int8, got {x.dtype} and {w.dtype}"
        )
    if len(x.shape) != len(g.kernel) + 2:
        raise ShapeError(NAME, f"data must have {len(g.kernel) + 2} dimensions, got {x.shape}")
    n, channels, space = g.split(x.shape)
    if channels % g.groups or filters % g.groups:
        raise ShapeError(
            NAME,
            f"num_group must divide the channels and num_filter, got num_group={g.groups},"
            f" {channels} channels and num_filter={filters}",
        )
    must_be(NAME, "weight", w, (filters, channels // g.groups, *g.kernel))
    if any(r > s + 2 * p for r, s, p in zip(g.reach, space, g.pad)):
        raise ShapeError(NAME, f"the kernel must fit the padded input, got {g.reach} and {x.shape}")
    y = g.join(n, filters, g.conv_out(space))
    if out == "int32":
        if attrs["add"] or attrs["relu"]:
            raise OperatorError(NAME, "sums in int32 take no addend and no relu")
        must_be(NAME, "bias", ins[2], (filters,))
        return [Type(y, "int32")]
    for name, t, shape in zip(
        ("scale", "shift", "addend", "addend_scale"), ins[2:], ((filters,), (filters,), y, (1,))
    ):
        must_be(NAME, name, t, shape)
        if name != "addend" and t.dtype != "float32":
            raise DTypeError(NAME, f"{name} must be float32, got {t.dtype}")
    return [Type(y, out)]


def _ref(xp, x, w, *more, num_filter, add, relu, out_type, **taps):
    g = taps_of(taps)
    acc = conv_forward(xp, g, x.astype("float64"), w.astype("float64"))  # exact below 2**53
    by_filter = lambda v: v.reshape(-1, *[1] * len(g.kernel))
    if out_type == "int32":
        return xp.clip(acc + by_filter(more[0].astype("float64")), -(2**31), 2**31 - 1)
    scale, shift = map(by_filter, more[:2])
    y = acc.astype("float32") * scale + shift
    if add:
        y = y + more[2].astype("float32") * more[3]
    y = xp.maximum(y, np.float32(0)) if relu else y
    return y if out_type == "float32" else xp.clip(xp.rint(y), *_BOUNDS[out_type])


_IMAGE = values(
    [[[[1, 2, 255], [128, 0, 7], [9, 4, 3]], [[5, 6, 7], [8, 200, 1], [3, 2, 1]]]], "uint8"
)
_SIGNED = values([[[[1, -2, 127], [-128, 0, 7]], [[5, 6, -7], [8, 20, 1]]]], "int8")
_W22 = values([[[[1, -2], [3, 4]], [[5, 127], [-6, 0]]]] * 3, "int8")
_W11 = values([[[[3]]], [[[-127]]]], "int8")
_SCALES = uniform((3,), 0.001, 0.01), uniform((3,), -9, 9)

operator(
    NAME,
    inputs=("data", "weight", "scale", "shift", "addend", "addend_scale"),
    input_names=_names,
    params=(
        *TAPS,
        Param("num_filter", "int"),
        Param("num_group", "int", 1, limits=COUNT),
        Param("add", "bool", False),
        Param("relu", "bool", False),
        Param("out_type", OUT, "int8"),
    ),
    infer=_infer,
    ref=_ref,
    samples=(
        *(
            sample(_IMAGE, _W22, *_SCALES, kernel=(2, 2), num_filter=3, out_type=o)
            for o in OUT
            if o != "int32"
        ),
        sample(
            *(_IMAGE, _W22, values([5, -6, 7], "int32")),
            kernel=(2, 2),
            num_filter=3,
            out_type="int32",
        ),
        sample(_SIGNED, _W22, *_SCALES, kernel=(2, 2), pad=(1, 1), num_filter=3, relu=True),
        sample(
            *(_SIGNED, _W11, uniform((2,), 0.1, 1), uniform((2,), -9, 9), _SIGNED, values([0.5])),
            kernel=(1, 1),
            num_filter=2,
            num_group=2,
            add=True,
            relu=True,
            out_type="uint8",
        ),
        sample(
            *(_SIGNED, _W11, uniform((2,), 0.1, 1), uniform((2,), -9, 9)),
            *(uniform((1, 2, 1, 2), -1, 1), values([3.0])),
            kernel=(1, 1),
            stride=(2, 2),
            num_filter=2,
            num_group=2,
            add=True,
            out_type="float32",
        ),
    ),
    doc=(
        "The convolution of bytes (channels first), summed in int32: sum * scale + shift for each"
        " filter, + addend * addend_scale, at least 0 with `relu`, rounded to nearest even and cut"
        " to what `out_type` holds; out_type='int32': sum + bias. Only decompositions and passes"
        " make it."
    ),
)


def product_of_rows(F: Any, x: Any, w: Any, more: list, n: int, flatten: bool, **attrs: Any) -> Any:
    """A dense layer of bytes: a convolution of images with one pixel. more: as _conv_int8 has it
    behind the weight."""
    rows = x.shape[:1] if flatten else x.shape[:-1]
    k = prod(x.shape[1:]) if flatten else x.shape[-1]
    image = F.reshape_to(x, shape=(prod(rows), k, 1))
    w = F.reshape_to(w, shape=(n, k, 1))
    y = F._conv_int8(image, w, *more, kernel=(1,), num_filter=n, **attrs)
    return F.reshape_to(y, shape=(*rows, n))
