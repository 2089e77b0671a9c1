"""Launches of convolutions, both ways: products of gathered operands (conv.cu), and a direct kernel
where every channel has filters of its own."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from ...engine import cuda, ffi, lib
from ..activations import NUMBERS
from ..cpu.layout import code
from ..native import Native
from ..ops import conv, conv_fused
from ..record import FLOATS, Type
from ..shapes import contiguous
from ..traits import Activates
from . import matmul_plan
from .launch import Argument, Float32, Int32, Int64, Launch, Launches, Struct
from .layout import THREADS, TYPES, ceil_div, divisor
from .matmul_plan import (
    NOWHERE,
    ScratchSpace,
    grid_of,
    location,
    rounds_to_tf32,
    slices,
    steps,
    total_type,
    unit,
)


class Array(NamedTuple):
    """Images or filters in memory: sizes, and steps in elements; axes filled to 2 or 3 in front."""

    n: int
    channels: int
    space: tuple[int, ...]
    step: int
    channel_step: int
    point_step: int

    @property
    def points(self) -> int:
        return prod(self.space)

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(s * self.point_step for s in contiguous(self.space))


def _array(n, channels, space, last: bool, nd: int) -> Array:
    points = prod(space)
    full = (1,) * (nd - len(space)) + tuple(space)
    steps_of = (channels * points, 1, channels) if last else (channels * points, points, 1)
    return Array(n, channels, full, *steps_of)


class Convolution(NamedTuple):
    """y of x with w; groups is of the channels, nd the number of axes that kernels see."""

    g: conv.Geometry
    x: Array
    w: Array  # n: filters, channels: of one group
    y: Array
    nd: int

    def filled(self, name: str, default: int) -> tuple[int, ...]:
        value = getattr(self.g, name)
        return (default,) * (self.nd - len(value)) + tuple(value)


def convolution(
    g: conv.Geometry,
    x_shape: Sequence[int],
    filters: int,
    out: Sequence[int],
    weight_last: bool,
    nd: int = 0,
) -> Convolution | None:
    """A convolution; None where numbers do not fit 31 bits, or nothing is there."""
    n, channels, space = g.split(x_shape)
    nd = nd or max(2, len(space))
    sizes = (n, channels, filters, *space, *out)
    largest = max(prod((n, channels, *space)), prod((n, filters, *out)))
    if 0 in sizes or largest >= 1 << 31 or channels * filters * prod(g.kernel) >= 1 << 31:
        return None
    x = _array(n, channels, space, g.channels_last, nd)
    y = _array(n, filters, out, g.channels_last, nd)
    w = _array(filters, channels // g.groups, g.kernel, weight_last, nd)
    return Convolution(g, x, w, y, nd)


# ---- the structs of conv.cu ----------------------------------------------------------------------


def _box(space) -> Struct:
    inner = [prod(space[d + 1 :]) for d in range(len(space) - 1)]
    return Struct(*(divisor(n, "int32_t") for n in (prod(space), *inner)))


def _images(a: Array) -> Struct:
    numbers = (a.channel_step, *a.steps, *a.space)
    return Struct(Int64(a.step), *map(Int32, numbers))


def _taps(c: Convolution) -> Struct:
    names = (("stride", 1), ("dilate", 1), ("pad", 0))
    numbers = [n for name, default in names for n in c.filled(name, default)]
    by = [divisor(n, "int32_t") for n in c.filled("stride", 1)]
    return Struct(*map(Int32, numbers), *by)


def _gathered(p, a: Array, box, c: Convolution, n: int, n_k: int) -> Struct:
    """Windows or Seen."""
    kernel = _box(c.w.space)
    return Struct(p, _images(a), box, kernel, _taps(c), Int32(n), Int32(n_k))


def _folded(p, step, outer_step, inner_step, inner, n, n_k) -> Struct:
    return Struct(
        *(p, Int64(step), Int64(outer_step), *map(Int32, (inner_step, n, n_k))),
        divisor(inner, "int32_t"),
    )


FORWARD, DATA, WEIGHT = "forward", "data", "weight"


def _matmul(kind: str, c: Convolution, dtype: str, a, b, y, finish) -> Native | None:
    """The convolution as a product. a, b: w and x, w and dy, or dy and x. finish: (bias, addend,
    act, low, high)."""
    groups, T, nd = c.g.groups, TYPES[dtype], c.nd
    filters, channels, taps = c.y.channels // groups, c.w.channels, c.w.points
    of_w = (filters * c.w.step, channels * c.x.channel_step, filters * c.y.channel_step)
    if kind == FORWARD:
        m, n, k = filters, c.x.n * c.y.points, channels * taps
        left = _folded(a, c.w.step, c.w.channel_step, c.w.point_step, taps, m, k)
        right = _gathered(b, c.x, _box(c.y.space), c, n, k)
        types = f"Folded<{T}, true>, Windows<{T}, {nd}, false, false>"
        place = (c.y.channel_step, c.y.step, c.y.point_step, c.y.points)
        group_steps, per_group = of_w, filters
    elif kind == DATA:
        m, n, k = channels, c.x.n * c.x.points, filters * taps
        left = _folded(a, c.w.channel_step, c.w.step, c.w.point_step, taps, m, k)
        right = _gathered(b, c.y, _box(c.x.space), c, n, k)
        types = f"Folded<{T}, true>, Seen<{T}, {nd}, false>"
        place = (c.x.channel_step, c.x.step, c.x.point_step, c.x.points)
        group_steps, per_group = (of_w[0], of_w[2], of_w[1]), channels
    else:
        m, n, k = filters, channels * taps, c.x.n * c.y.points
        left = _folded(a, c.y.channel_step, c.y.step, c.y.point_step, c.y.points, m, k)
        right = _gathered(b, c.x, _box(c.y.space), c, n, k)
        types = f"Folded<{T}, true>, Windows<{T}, {nd}, true, true>"
        place = (c.w.step, c.w.channel_step, c.w.point_step, taps)
        group_steps, per_group = (of_w[2], of_w[1], of_w[0]), filters
    if max(n, k) >= 1 << 31 or groups > 65535:
        return None
    scratch, (name, side, depth) = ScratchSpace(), unit(dtype, m, n, groups)
    tiles = ceil_div(m, side) * ceil_div(n, side)
    n_slices, each = slices(tiles * groups, k, depth)
    partial = scratch.take_array("float64", n_slices, groups, m, n) if n_slices > 1 else NOWHERE
    bias, addend, act, low, high = finish
    row, outer, inner, inner_n = place
    out = Struct(
        *(y, bias or NOWHERE, addend or NOWHERE, partial, Int64(row), Int64(outer)),
        *map(Int32, (inner, act, m, n)),
        divisor(inner_n, "int32_t"),
        *map(Float32, (low, high)),
    )
    group = Struct(*map(Int64, group_steps), Int32(per_group), Int32(each))
    grid = (tiles, groups, n_slices)
    function = f"convolve<{name}, {types}, {T}>"
    found = [Launch("conv.cu", function, grid, (THREADS,), [left, right, out, group])]
    if n_slices > 1:
        add = f"slices_place<{T}, {total_type(dtype)}>"
        blocks = (*grid_of(m * n), groups)
        found.append(Launch("conv.cu", add, blocks, (THREADS,), (out, group, Int32(n_slices))))
    return steps(found, scratch)


def _depthwise(kind: str, c: Convolution, dtype: str, arrays, finish, last: bool) -> Native | None:
    """Every channel has filters of its own; c has three axes. arrays: Buffers of the kernel."""
    T, (bias, addend, act, low, high) = TYPES[dtype], finish
    boxes = (("kernel", 1), ("stride", 1), ("dilate", 1), ("pad", 0))
    numbers = [*c.x.space, *c.y.space]
    numbers += [n for name, default in boxes for n in c.filled(name, default)]
    struct = Struct(
        *map(Int32, (c.x.n, c.x.channels, c.y.channels // c.x.channels, *numbers, act)),
        *(Int64(c.x.step), Int64(c.y.step)),
        *map(Int32, (c.x.channel_step, c.y.channel_step, *c.x.steps, *c.y.steps)),
        *map(Int32, (c.w.step, *c.w.steps)),
        *map(Float32, (low, high)),
    )
    if kind == WEIGHT:
        grid, name = (c.y.channels, c.w.points), f"depthwise_weight<{T}>"
        if c.w.points > 65535:
            return None
        return steps([Launch("conv.cu", name, grid, (256,), [*arrays, struct])], ScratchSpace())
    shown = (bias or NOWHERE,) if kind == DATA else (bias or NOWHERE, addend or NOWHERE)
    size = c.x.n * (c.x.channels * c.x.points if kind == DATA else c.y.channels * c.y.points)
    name = f"depthwise_data<{T}>" if kind == DATA else f"depthwise<{T}>"
    *given, y = arrays
    arguments = [*given, *shown, y, struct, Int32(last)]
    return steps([Launch("conv.cu", name, grid_of(size), (THREADS,), arguments)], ScratchSpace())


PLAIN = (None, None, 0, 0.0, 0.0)


def run(
    kind: str,
    g: conv.Geometry,
    x_shape: Sequence[int],
    y_shape: Sequence[int],
    types: Sequence[Type],
    a: Argument,
    b: Argument,
    y: Argument,
    finish: Any = PLAIN,
    weight_last: bool | None = None,
) -> Native | None:
    """The kernel of one convolution, by whatever is the fastest that is there. x_shape, y_shape: of
    its data and result; a, b, y: what is multiplied and what comes of it: (w, x, y), (w, dy, dx) or
    (dy, x, dw)."""
    dtype = types[0].dtype
    _, filters, out = g.split(y_shape)
    if dtype not in FLOATS or any(t.dtype != dtype for t in types):
        return None
    last = g.channels_last if weight_last is None else weight_last
    c = convolution(g, x_shape, filters, out, last)
    if c is None or tuple(out) != tuple(g.conv_out(g.split(x_shape)[2])):
        return None
    if g.groups > 1 and g.groups == c.x.channels:
        deep = convolution(g, x_shape, filters, out, last, 3)
        assert deep is not None
        arrays = (b, a, y) if kind != WEIGHT else (a, b, y)
        found = _depthwise(kind, deep, dtype, arrays, finish, g.channels_last)
        if found is not None:
            return found
    own = _matmul(kind, c, dtype, a, b, y, finish)
    if own is None or last != g.channels_last or not has_cudnn():
        return own
    return _library(kind, c, dtype, a, b, y, finish, own)


# ---- cuDNN ---------------------------------------------------------------------------------------


def has_cudnn() -> bool:
    """Is there a cuDNN?"""
    path = None if matmul_plan.FORCE_OWN else cuda.find("cudnn")
    return path is not None and bool(lib.plk_cudnn_load(path.encode()))


class Cudnn(NamedTuple):
    """A convolution by cuDNN: the fields of plk_cudnn, what runs where it refuses, what follows."""

    fields: dict
    own: Launches
    after: Launches | None

    @property
    def steps(self) -> tuple:
        """What of it are launches of ours."""
        return (*self.own.steps, *(self.after.steps if self.after else ()))

    def on(self, device: int) -> tuple[Any, Any]:
        state = lib.plk_cudnn_new()
        if not state:
            raise MemoryError
        owners = [ffi.gc(ffi.cast("void *", state), _free)]
        launched = {}
        for name, each in (("otherwise", self.own), ("after", self.after)):
            if each is not None:
                launched[name], owner = each.on(device)
                owners += [launched[name], owner]
        return ffi.new("plk_cudnn *", {**self.fields, **launched, "state": state}), owners


def _free(state, free=lib.plk_cudnn_free, cast=ffi.cast) -> None:
    """At exit, too, when the names of this module are gone."""
    free(int(cast("uintptr_t", state)))


def _library(kind, c: Convolution, dtype, a, b, y, finish, own: Native) -> Native:
    left, right = (a, b) if kind == WEIGHT else (b, a)
    bias, addend, act, low, high = finish
    inside = kind == FORWARD and bias is not None and act == NUMBERS["relu"]
    after = None
    if not inside and (bias or addend or act):
        out = c.x if kind == DATA else c.y
        numbers = [*map(Int32, (out.channel_step, out.channels, act)), *map(Float32, (low, high))]
        size = out.n * out.channels * out.points
        arguments = [bias or NOWHERE, addend or NOWHERE, y, Int64(size), *numbers]
        name = f"follow<{TYPES[dtype]}>"
        after = Launches([Launch("conv.cu", name, grid_of(size), (THREADS,), arguments)])
    fields = {
        "kind": (FORWARD, DATA, WEIGHT).index(kind),
        **{"dtype": code(dtype), "nd": c.nd, "channels_last": c.g.channels_last},
        **{"tf32": rounds_to_tf32(), "groups": c.g.groups, "act": inside},
        **{k: (v.n, v.channels, *v.space) for k, v in (("x", c.x), ("w", c.w), ("y", c.y))},
        "x_steps": (c.x.step, c.x.channel_step, *c.x.steps),
        "y_steps": (c.y.step, c.y.channel_step, *c.y.steps),
        **{k: c.filled(k, d) for k, d in (("pad", 0), ("stride", 1), ("dilate", 1))},
        **{"left": location(left), "right": location(right), "out": location(y)},
        "bias": location(bias if inside else None),
        "addend": location(addend if inside else None),
    }
    return Native("plk_cudnn_run", Cudnn(fields, own.params, after), 2 * own.cost_us)


def activation(act: str, act_attrs: str) -> tuple[int, float, float] | None:
    """(number in matmul.cuh, its two parameters) of what a `_conv` ends in; None: not there."""
    found = conv_fused.activation(act, act_attrs)
    if found is None:
        return 0, 0.0, 0.0
    op, attrs = found
    activates = op.trait(Activates)
    applied = None if activates is None else activates.of(**attrs)
    if applied is None or not all(isinstance(n, float | int) for n in applied[1:]):
        return None
    return NUMBERS[applied.name], float(applied.low), float(applied.high)
