"""Convolution and its gradients in 1, 2 and 3 dimensions.

Three bilinear operators close under differentiation, so gradients of every order exist:
y = Convolution(x, w), dx = _conv_grad_data(dy, w), dw = _conv_grad_weight(dy, x).
Deconvolution(x, w) is _conv_grad_data(x, w) with its own output shape: deconv.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from ...engine.error import OperatorError, ShapeError
from ..record import COUNT, REACH, Array, Attrs, Fill, Param, Shape, Type, Types, operator, sample
from ..shapes import must_be, same_dtype
from ..traits import Convolution
from .dense import nearest, product

LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


class Geometry(NamedTuple):
    """The resolved attributes of one convolution; every field but the last two has one entry per
    spatial axis."""

    kernel: Shape
    stride: Shape
    dilate: Shape
    pad: Shape
    groups: int
    channels_last: bool

    @property
    def reach(self) -> Shape:
        """Extent of the dilated kernel."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilate))

    def split(self, shape: Sequence[int]) -> tuple[int, int, Shape]:
        """A shape as (batch or filters, channels, spatial sizes)."""
        if self.channels_last:
            return shape[0], shape[-1], tuple(shape[1:-1])
        return shape[0], shape[1], tuple(shape[2:])

    def join(self, n: int, channels: int, space: Sequence[int]) -> Shape:
        return (n, *space, channels) if self.channels_last else (n, channels, *space)

    def conv_out(self, space: Sequence[int]) -> Shape:
        return tuple(
            (n + 2 * p - r) // s + 1 for n, p, r, s in zip(space, self.pad, self.reach, self.stride)
        )


def geometry(
    op: str,
    kernel: Shape,
    stride: Shape,
    dilate: Shape,
    pad: Shape,
    num_group: int,
    layout: str | None,
) -> Geometry:
    """Fills defaults and checks attributes. Raises OperatorError."""
    nd = len(kernel)
    if nd not in LAYOUTS:
        raise OperatorError(op, f"kernel must have 1, 2 or 3 entries, got {kernel}")
    layout = layout or LAYOUTS[nd]
    if len(layout) != nd + 2:
        raise OperatorError(
            op,
            f"layout must have len(kernel) + 2 = {nd + 2} letters, got {layout} for kernel"
            f" {kernel}",
            fix=f"set layout='{LAYOUTS[nd]}'",
        )
    full = {}
    for name, value, default, low in (
        ("kernel", kernel, 1, 1),
        ("stride", stride, 1, 1),
        ("dilate", dilate, 1, 1),
        ("pad", pad, 0, 0),
    ):
        full[name] = tuple(value) or (default,) * nd
        if len(full[name]) != nd or min(full[name]) < low:
            raise OperatorError(
                op,
                f"{name} must have {nd} entries of at least {low} for kernel {kernel}, got {value}",
            )
    if num_group < 1:
        raise OperatorError(op, f"num_group must be at least 1, got {num_group}")
    return Geometry(**full, groups=num_group, channels_last=layout.endswith("C"))


def check_ndim(op: str, name: str, t: Type, g: Geometry, layout: str | None) -> None:
    nd = len(g.kernel)
    if len(t.shape) != nd + 2:
        raise ShapeError(
            op,
            f"{name} must have {nd + 2} dimensions ({layout or LAYOUTS[nd]}) for kernel {g.kernel},"
            f" got {name} {t.shape}",
            fix=(
                "add the missing axes, e.g. expand_dims(axis=0)" if len(t.shape) == nd + 1 else None
            ),
        )


def check_weight(op: str, got: Type, want: Shape, x: Type, note: str, g: Geometry) -> None:
    if got.shape != want:
        raise ShapeError(
            op,
            f"weight must have shape {note} = {want}, got data {x.shape} and weight {got.shape}",
            fix="weight follows layout: it has its channels last too" if g.channels_last else None,
        )


def check_bias(op: str, ins: Types, num_filter: int, no_bias: bool) -> None:
    if not no_bias and ins[2].shape != (num_filter,):
        raise ShapeError(
            op, f"bias must have shape (num_filter,) = ({num_filter},), got {ins[2].shape}"
        )


def groups_divide(op: str, g: Geometry, channels: int, num_filter: int) -> None:
    if channels % g.groups or num_filter % g.groups:
        raise ShapeError(
            op,
            f"num_group must divide the channels and num_filter, got num_group={g.groups}, "
            f"{channels} channels and num_filter={num_filter}",
        )


def _conv_weight(g, channels, num_filter):
    return g.join(num_filter, channels // g.groups, g.kernel)


def deconv_weight(g: Geometry, channels: int, num_filter: int) -> Shape:
    return g.join(channels, num_filter // g.groups, g.kernel)


def _conv_infer(ins, kernel, stride, dilate, pad, num_filter, num_group, no_bias, layout, **_):
    g = geometry("Convolution", kernel, stride, dilate, pad, num_group, layout)
    x = ins[0]
    check_ndim("Convolution", "data", x, g, layout)
    n, channels, space = g.split(x.shape)
    groups_divide("Convolution", g, channels, num_filter)
    note = (
        "(num_filter, *kernel, channels / num_group)"
        if g.channels_last
        else "(num_filter, channels / num_group, *kernel)"
    )
    check_weight("Convolution", ins[1], _conv_weight(g, channels, num_filter), x, note, g)
    check_bias("Convolution", ins, num_filter, no_bias)
    if any(r > s + 2 * p for r, s, p in zip(g.reach, space, g.pad)):
        raise ShapeError(
            "Convolution",
            f"the dilated kernel must fit the padded input, got kernel extent {g.reach}, "
            f"data {x.shape}, pad {g.pad}",
            fix="use a smaller kernel or dilate, or a larger pad",
        )
    return [
        Type(
            g.join(n, num_filter, g.conv_out(space)),
            same_dtype("Convolution", ins, ("data", "weight", "bias")),
        )
    ]


def fill_parameters(weight_shape: Callable[[Geometry, int, int], Shape]) -> Fill:
    def fill(ins, kernel, stride, dilate, pad, num_filter, num_group, no_bias, layout, **_):
        ins = list(ins)
        if ins[0] is not None:
            g = geometry("Convolution", kernel, stride, dilate, pad, num_group, layout)
            check_ndim("Convolution", "data", ins[0], g, layout)
            ins[1] = ins[1] or Type(
                weight_shape(g, g.split(ins[0].shape)[1], num_filter), ins[0].dtype
            )
            if not no_bias:
                ins[2] = ins[2] or Type((num_filter,), ins[0].dtype)
        return ins

    return fill


def _first(xp, g, x):
    return xp.moveaxis(x, -1, 1) if g.channels_last else x


def _last(xp, g, x):
    return xp.moveaxis(x, 1, -1) if g.channels_last else x


def columns(xp: Any, g: Geometry, x: Array) -> Array:
    """Padded NC* data -> (N, groups, channels / groups * prod(kernel), prod(out))."""
    x = xp.pad(x, ((0, 0), (0, 0), *((p, p) for p in g.pad)))
    nd = len(g.kernel)
    windows = xp.lib.stride_tricks.sliding_window_view(x, g.reach, axis=tuple(range(2, 2 + nd)))
    windows = windows[
        (..., *(slice(None, None, s) for s in g.stride), *(slice(None, None, d) for d in g.dilate))
    ]
    windows = xp.moveaxis(windows, range(-nd, 0), range(2, 2 + nd))
    n, c = x.shape[:2]
    return windows.reshape(n, g.groups, c // g.groups * prod(g.kernel), prod(windows.shape[-nd:]))


def conv_forward(xp: Any, g: Geometry, x: Array, w: Array) -> Array:
    x, w = _first(xp, g, x), _first(xp, g, w)
    f, out = w.shape[0], g.conv_out(x.shape[2:])
    y = product(xp, w.reshape(g.groups, f // g.groups, prod(w.shape[1:])), columns(xp, g, x))
    return _last(xp, g, y.reshape(x.shape[0], f, *out))


def add_columns(xp: Any, g: Geometry, cols: Array, shape: Shape) -> Array:
    """The transpose of columns: (N, channels * prod(kernel), *out) added up on data of this NC*
    shape."""
    n, channels, *space = shape
    out = cols.shape[2:]
    cols = cols.reshape(n, channels, *g.kernel, *out)
    padded = tuple(
        max(s + 2 * p, (o - 1) * t + r)
        for s, p, o, t, r in zip(space, g.pad, out, g.stride, g.reach)
    )
    dx = xp.zeros((n, channels, *padded), cols.dtype)
    for tap in itertools.product(*map(range, g.kernel)):
        at = tuple(
            slice(k * d, k * d + (o - 1) * s + 1, s)
            for k, d, o, s in zip(tap, g.dilate, out, g.stride)
        )
        if 0 not in out:
            dx[(..., *at)] += cols[(slice(None), slice(None), *tap)]
    return dx[(..., *(slice(p, p + s) for p, s in zip(g.pad, space)))]


def conv_grad_data(xp: Any, g: Geometry, dy: Array, w: Array, data_shape: Shape) -> Array:
    dy, w = _first(xp, g, dy), _first(xp, g, w)
    n, channels, space = g.split(data_shape)
    f, out = w.shape[0], dy.shape[2:]
    w = w.reshape(g.groups, f // g.groups, prod(w.shape[1:]))
    cols = xp.swapaxes(w, 1, 2) @ dy.reshape(n, g.groups, f // g.groups, prod(out))
    cols = cols.reshape(n, channels * prod(g.kernel), *out)
    return _last(xp, g, add_columns(xp, g, cols, (n, channels, *space)))


def conv_grad_weight(xp: Any, g: Geometry, dy: Array, x: Array, weight_shape: Shape) -> Array:
    dy, x = _first(xp, g, dy), _first(xp, g, x)
    f, per_group, _ = g.split(weight_shape)
    dy = dy.reshape(dy.shape[0], g.groups, f // g.groups, prod(dy.shape[2:]))
    dw = (dy @ xp.swapaxes(columns(xp, g, x), 2, 3)).sum(axis=0)
    return _last(xp, g, dw.reshape(f, per_group, *g.kernel))


def plus_bias(g: Geometry, y: Array, bias: Array) -> Array:
    return y + (bias if g.channels_last else bias.reshape(-1, *[1] * len(g.kernel)))


def bias_grad(F: Any, g: Geometry, dy: Array) -> Array:
    return F.sum(
        dy,
        axis=tuple(
            a for a in range(len(dy.shape)) if a != (len(dy.shape) - 1 if g.channels_last else 1)
        ),
    )


def _conv_ref(xp, x, w, bias=None, *, kernel, stride, dilate, pad, num_group, no_bias, layout, **_):
    g = geometry("Convolution", kernel, stride, dilate, pad, num_group, layout)
    y = conv_forward(xp, g, x, w)
    return nearest(xp, y if no_bias else plus_bias(g, y, bias), x)


def taps_of(
    kernel: Shape, stride: Shape, dilate: Shape, pad: Shape, num_group: int, layout: str | None
) -> Attrs:
    return {
        "kernel": kernel,
        "stride": stride,
        "dilate": dilate,
        "pad": pad,
        "num_group": num_group,
        "layout": layout,
    }


def _conv_grad(F, dys, xs, ys, kernel, stride, dilate, pad, num_group, no_bias, layout, **_):
    x, w, dy = xs[0], xs[1], dys[0]
    taps = taps_of(kernel, stride, dilate, pad, num_group, layout)
    gs = [
        F._conv_grad_data(dy, w, data_shape=x.shape, **taps),
        F._conv_grad_weight(dy, x, weight_shape=w.shape, **taps),
    ]
    return gs if no_bias else gs + [bias_grad(F, geometry("Convolution", **taps), dy)]


TAPS = (
    Param("kernel", "shape", limits=REACH),
    Param("stride", "shape", (), limits=REACH),
    Param("dilate", "shape", (), limits=REACH),
    Param("pad", "shape", (), limits=REACH),
)
_LAYOUT = Param("layout", ("None", "NCDHW", "NCHW", "NCW", "NDHWC", "NHWC", "NWC"), None)
TUNE = (
    Param("cudnn_tune", ("None", "fastest", "limited_workspace", "off"), None),
    Param("cudnn_off", "bool", False),
    _LAYOUT,
)


def conv_inputs(no_bias: bool, **_: Any) -> tuple[str, ...]:
    return ("data", "weight") if no_bias else ("data", "weight", "bias")


operator(
    "Convolution",
    traits=(Convolution(),),
    aliases=("_npx_convolution", "Convolution_v1"),
    inputs=("data", "weight", "bias"),
    input_names=conv_inputs,
    params=(
        *TAPS,
        Param("num_filter", "int"),
        Param("num_group", "int", 1, limits=COUNT),
        Param("workspace", "int", 1024),
        Param("no_bias", "bool", False),
        *TUNE,
    ),
    infer=_conv_infer,
    fill=fill_parameters(_conv_weight),
    ref=_conv_ref,
    grad=_conv_grad,
    samples=(
        sample((2, 3, 7), (4, 3, 3), (4,), kernel=(3,), num_filter=4),
        sample(
            (2, 4, 9),
            (4, 2, 3),
            kernel=(3,),
            num_filter=4,
            num_group=2,
            stride=(2,),
            pad=(2,),
            dilate=(2,),
            no_bias=True,
        ),
        sample(
            (2, 3, 6, 5), (4, 3, 3, 2), (4,), kernel=(3, 2), num_filter=4, stride=(2, 1), pad=(1, 0)
        ),
        sample(
            (1, 4, 5, 5), (4, 1, 3, 3), (4,), kernel=(3, 3), num_filter=4, num_group=4, pad=(1, 1)
        ),
        sample((2, 3, 4, 4), (2, 3, 1, 1), kernel=(1, 1), num_filter=2, no_bias=True),
        sample(
            (2, 6, 5, 3),
            (4, 3, 2, 3),
            (4,),
            kernel=(3, 2),
            num_filter=4,
            layout="NHWC",
            stride=(2, 1),
        ),
        sample(
            (1, 2, 4, 4, 3), (2, 2, 2, 3, 2), (2,), kernel=(2, 3, 2), num_filter=2, pad=(1, 1, 0)
        ),
        sample(
            (1, 4, 3, 3, 2),
            (2, 2, 2, 2, 2),
            kernel=(2, 2, 2),
            num_filter=2,
            layout="NDHWC",
            no_bias=True,
        ),
    ),
    doc=(
        "Cross-correlation in 1 to 3 dimensions. data (N, C, *space), weight (num_filter, C /"
        " num_group, *kernel), bias (num_filter,); out = floor((size + 2 pad - dilate (kernel - 1)"
        " - 1) / stride) + 1. Layouts that end in C have the channels of data, weight and output"
        " last."
    ),
)


def _check_grad(op, dy, data_shape, weight_shape, dtype, **taps):
    """dy must be what Convolution gives for this data and weight: kernels rely on it. Raises
    ShapeError."""
    ins = [Type(data_shape, dtype), Type(weight_shape, dtype)]
    must_be(
        op, "dy", dy, _conv_infer(ins, num_filter=weight_shape[0], no_bias=True, **taps)[0].shape
    )


def _grad_data_infer(ins, data_shape, **taps):
    dy, weight = ins
    _check_grad("_conv_grad_data", dy, data_shape, weight.shape, dy.dtype, **taps)
    return [Type(data_shape, dy.dtype)]


def _grad_data_ref(xp, dy, w, *, data_shape, **taps):
    return conv_grad_data(xp, geometry("_conv_grad_data", **taps), dy, w, data_shape)


def _grad_data_grad(F, dys, xs, ys, data_shape, **taps):
    dy, w, a = xs[0], xs[1], dys[0]
    return [
        F.Convolution(a, w, num_filter=w.shape[0], no_bias=True, **taps),
        F._conv_grad_weight(dy, a, weight_shape=w.shape, **taps),
    ]


def _grad_weight_infer(ins, weight_shape, **taps):
    dy, data = ins
    _check_grad("_conv_grad_weight", dy, data.shape, weight_shape, dy.dtype, **taps)
    return [Type(weight_shape, dy.dtype)]


def _grad_weight_ref(xp, dy, x, *, weight_shape, **taps):
    return conv_grad_weight(xp, geometry("_conv_grad_weight", **taps), dy, x, weight_shape)


def _grad_weight_grad(F, dys, xs, ys, weight_shape, **taps):
    dy, x, a = xs[0], xs[1], dys[0]
    return [
        F.Convolution(x, a, num_filter=a.shape[0], no_bias=True, **taps),
        F._conv_grad_data(dy, a, data_shape=x.shape, **taps),
    ]


operator(
    "_conv_grad_data",
    inputs=("dy", "weight"),
    params=(
        *TAPS,
        Param("num_group", "int", 1, limits=COUNT),
        _LAYOUT,
        Param("data_shape", "shape"),
    ),
    infer=_grad_data_infer,
    ref=_grad_data_ref,
    grad=_grad_data_grad,
    samples=(
        sample(
            (2, 4, 3),
            (4, 2, 3),
            kernel=(3,),
            num_group=2,
            stride=(2,),
            pad=(1,),
            data_shape=(2, 4, 6),
        ),
        sample(
            (2, 4, 3, 3),
            (4, 3, 3, 2),
            kernel=(3, 2),
            stride=(2, 1),
            pad=(1, 0),
            data_shape=(2, 3, 6, 4),
        ),
        sample((1, 3, 4, 2), (2, 2, 2, 3), kernel=(2, 2), layout="NHWC", data_shape=(1, 4, 5, 3)),
    ),
    doc="Gradient of Convolution with respect to its data, which has shape data_shape.",
)

operator(
    "_conv_grad_weight",
    inputs=("dy", "data"),
    params=(
        *TAPS,
        Param("num_group", "int", 1, limits=COUNT),
        _LAYOUT,
        Param("weight_shape", "shape"),
    ),
    infer=_grad_weight_infer,
    ref=_grad_weight_ref,
    grad=_grad_weight_grad,
    samples=(
        sample(
            (2, 4, 3),
            (2, 4, 6),
            kernel=(3,),
            num_group=2,
            stride=(2,),
            pad=(1,),
            weight_shape=(4, 2, 3),
        ),
        sample(
            (2, 4, 3, 3),
            (2, 3, 6, 4),
            kernel=(3, 2),
            stride=(2, 1),
            pad=(1, 0),
            weight_shape=(4, 3, 3, 2),
        ),
        sample((1, 3, 4, 2), (1, 4, 5, 3), kernel=(2, 2), layout="NHWC", weight_shape=(2, 2, 2, 3)),
    ),
    doc="Gradient of Convolution with respect to its weight, which has shape weight_shape.",
)
