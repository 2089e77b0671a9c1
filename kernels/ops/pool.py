"""Pooling in 1, 2 and 3 dimensions and adaptive average pooling.

Average and sum pooling are linear: `_pool_grad` is their transpose. Max pooling picks one element
of each window: `_pool_grad` scatters to it and `_pool_pick` gathers from it, each the other's
gradient.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...engine.error import OperatorError, ShapeError
from ..record import REACH, Param, Shape, Type, operator, sample, uniform
from ..shapes import must_be
from ..traits import Decomposition
from .conv import LAYOUTS


class Windows(NamedTuple):
    """Where the pooling windows lie: one entry per spatial axis."""

    size: Shape
    kernel: Shape
    stride: Shape
    pad: Shape
    out: Shape
    channels_last: bool

    def taps(self) -> Iterator[tuple[slice, ...]]:
        """For each kernel element: its offsets and its slices of the array that `grown` pads."""
        for tap in itertools.product(*map(range, self.kernel)):
            yield (
                slice(None),
                slice(None),
                *(slice(k, k + (o - 1) * s + 1, s) for k, o, s in zip(tap, self.out, self.stride)),
            )

    @property
    def grown(self) -> tuple[tuple[int, int], ...]:
        """Padding (before, after) of each axis under which every window lies inside."""
        return tuple(
            (p, max((o - 1) * s + k - n - p, 0))
            for n, k, s, p, o in zip(self.size, self.kernel, self.stride, self.pad, self.out)
        )


def windows(
    shape: Shape,
    kernel: Shape,
    pool_type: str,
    global_pool: bool,
    pooling_convention: str,
    stride: Shape,
    pad: Shape,
    layout: str | None,
    **_: Any,
) -> Windows:
    """Resolves the attributes for data of a shape. Raises OperatorError, ShapeError."""
    op = "Pooling"
    nd = len(shape) - 2
    if nd not in LAYOUTS:
        raise ShapeError(op, f"data must have 3, 4 or 5 dimensions, got {shape}")
    layout = layout or LAYOUTS[nd]
    if len(layout) != nd + 2:
        raise ShapeError(
            op,
            f"layout must have as many letters as data has dimensions, got {layout} and data"
            f" {shape}",
        )
    last = layout.endswith("C")
    size = tuple(shape[1:-1] if last else shape[2:])
    if global_pool:
        return Windows(size, size, (1,) * nd, (0,) * nd, (1,) * nd, last)
    stride, pad = tuple(stride) or (1,) * nd, tuple(pad) or (0,) * nd
    for name, value, low in (("kernel", kernel, 1), ("stride", stride, 1), ("pad", pad, 0)):
        if len(value) != nd or min(value) < low:
            raise OperatorError(
                op,
                f"{name} must have {nd} entries of at least {low} for data {shape}, got {value}",
                fix="set kernel, or global_pool=True" if name == "kernel" and not value else None,
            )
    if pooling_convention == "same":
        if any(pad):
            raise OperatorError(op, f"pad must be 0 with pooling_convention='same', got {pad}")
        out = tuple(-(-n // s) for n, s in zip(size, stride))
        pad = tuple(
            max((o - 1) * s + k - n, 0) // 2 for n, k, s, o in zip(size, kernel, stride, out)
        )
        return Windows(size, tuple(kernel), stride, pad, out, last)
    if any(k > n + 2 * p for k, n, p in zip(kernel, size, pad)):
        raise ShapeError(
            op,
            f"kernel must fit the padded data, got kernel {kernel}, data {shape} and pad {pad}",
            fix="use a smaller kernel, a larger pad, or global_pool=True",
        )
    if any(p >= k for k, p in zip(kernel, pad)):
        raise OperatorError(
            op, f"pad must be smaller than kernel, got pad {pad} and kernel {kernel}"
        )
    up = pooling_convention == "full"
    out = tuple(
        (n + 2 * p - k + (s - 1 if up else 0)) // s + 1
        for n, k, s, p in zip(size, kernel, stride, pad)
    )
    return Windows(size, tuple(kernel), stride, pad, out, last)


def _join(w, shape, space):
    return (shape[0], *space, shape[-1]) if w.channels_last else (*shape[:2], *space)


def _first(xp, w, x):
    return xp.moveaxis(x, -1, 1) if w.channels_last else x


def _last(xp, w, x):
    return xp.moveaxis(x, 1, -1) if w.channels_last else x


def _infer(ins, pool_type, p_value, global_pool, **attrs):
    x = ins[0]
    w = windows(x.shape, pool_type=pool_type, global_pool=global_pool, **attrs)
    if pool_type == "lp" and p_value not in (1, 2, 3):
        raise OperatorError(
            "Pooling", f"p_value must be 1, 2 or 3 with pool_type='lp', got {p_value}"
        )
    if pool_type != "sum" and pool_type != "lp" and 0 in w.size:
        raise ShapeError("Pooling", f"data must have no empty spatial axis, got {x.shape}")
    return [Type(_join(w, x.shape, w.out), x.dtype)]


def _counts(xp, w, count_include_pad, dtype):
    """Number of elements that each window averages over, shape out."""
    total = xp.ones((), dtype)
    for axis, (n, k, s, p, o) in enumerate(zip(w.size, w.kernel, w.stride, w.pad, w.out)):
        start = xp.arange(o) * s - p
        stop = xp.minimum(start + k, n + p)
        if count_include_pad is False:
            start, stop = xp.maximum(start, 0), xp.minimum(stop, n)
        total = total * (stop - start).reshape(-1, *[1] * (len(w.size) - 1 - axis))
    return xp.maximum(total, 1).astype(dtype)


def _padded(xp, w, x, value):
    return xp.pad(x, ((0, 0), (0, 0), *w.grown), constant_values=value)


def _lowest(xp, dtype):
    return False if dtype.kind == "b" else -xp.inf if dtype.kind == "f" else xp.iinfo(dtype).min


def _isnan(xp, x):
    return xp.isnan(x) if x.dtype.kind == "f" else xp.zeros(x.shape, bool)


def _best(xp, w, x):
    """Maxima of the windows and the number of the tap that holds each (the first of equals)."""
    x = _padded(xp, w, x, _lowest(xp, x.dtype))
    best, where = None, None
    for i, tap in enumerate(w.taps()):
        v = x[tap]
        if best is None:
            best, where = v.copy(), xp.zeros(v.shape, "int32")
        else:
            better = (v > best) | (_isnan(xp, v) & ~_isnan(xp, best))
            best, where = xp.where(better, v, best), xp.where(better, i, where)
    return best, where


def _ref(xp, x, *, pool_type, count_include_pad, p_value, **attrs):
    w = windows(x.shape, pool_type=pool_type, **attrs)
    x = _first(xp, w, x)
    if pool_type == "max":
        return _last(xp, w, _best(xp, w, x)[0])
    x = _padded(xp, w, x**p_value if pool_type == "lp" else x, 0)
    y = xp.zeros((*x.shape[:2], *w.out), x.dtype)
    for tap in w.taps():
        y = y + x[tap]
    if pool_type == "avg":
        n = _counts(xp, w, count_include_pad, y.dtype)
        y = y // n if y.dtype.kind in "iu" else y / n
    elif pool_type == "lp" and p_value > 1:
        y = xp.sqrt(y) if p_value == 2 else xp.cbrt(y)
    return _last(xp, w, y)


def _grad(F, dys, xs, ys, pool_type, p_value, **attrs):
    x, dy = xs[0], dys[0]
    attrs = {k: attrs[k] for k in _KEPT} | {"data_shape": x.shape}
    if pool_type == "max":
        return [F._pool_grad(dy, x, pool_type="max", **attrs)]
    if pool_type != "lp" or p_value == 1:
        return [F._pool_grad(dy, pool_type="avg" if pool_type == "avg" else "sum", **attrs)]
    zero = F._equal_scalar(ys[0], scalar=0.0)
    scaled = dy * (1.0 - zero) / ((ys[0] + zero) ** (p_value - 1))
    return [F._pool_grad(scaled, pool_type="sum", **attrs) * x ** (p_value - 1)]


_KEPT = (
    "kernel",
    "global_pool",
    "pooling_convention",
    "stride",
    "pad",
    "count_include_pad",
    "layout",
)
_PARAMS = (
    Param("kernel", "shape", (), limits=REACH),
    Param("pool_type", ("avg", "lp", "max", "sum"), "max"),
    Param("global_pool", "bool", False),
    Param("cudnn_off", "bool", False),
    Param("pooling_convention", ("full", "same", "valid"), "valid"),
    Param("stride", "shape", (), limits=REACH),
    Param("pad", "shape", (), limits=REACH),
    Param("p_value", "int?", None),
    Param("count_include_pad", "bool?", None),
    Param("layout", ("None", "NCDHW", "NCHW", "NCW", "NDHWC", "NHWC", "NWC"), None),
)

operator(
    "Pooling",
    aliases=("_npx_pooling",),
    params=_PARAMS,
    infer=_infer,
    ref=_ref,
    grad=_grad,
    samples=(
        sample((2, 3, 6, 5), kernel=(2, 2)),
        sample((2, 3, 7), kernel=(3,), stride=(2,), pad=(1,), pool_type="avg"),
        sample(
            (1, 2, 6, 6),
            kernel=(3, 3),
            stride=(2, 2),
            pad=(1, 1),
            pool_type="avg",
            pooling_convention="full",
        ),
        sample(
            (1, 2, 6, 5),
            kernel=(3, 2),
            stride=(2, 2),
            pad=(1, 1),
            pool_type="avg",
            pooling_convention="full",
            count_include_pad=False,
        ),
        sample((1, 2, 6, 6), kernel=(3, 3), stride=(2, 2), pad=(1, 1), pooling_convention="full"),
        sample((1, 2, 7), kernel=(3,), stride=(2,), pooling_convention="same"),
        sample((2, 3, 4, 5), kernel=(2, 3), pool_type="sum", stride=(1, 2)),
        sample((2, 3, 6), kernel=(3,), pool_type="lp", p_value=2, stride=(2,)),
        sample(uniform((2, 3, 6), 0.5, 2), kernel=(2,), pool_type="lp", p_value=3),
        sample((2, 3, 6), kernel=(2,), pool_type="lp", p_value=1),
        sample((2, 3, 4, 5), global_pool=True, pool_type="avg"),
        sample((2, 3, 4, 5), global_pool=True, kernel=(2, 2)),
        sample((2, 5, 4, 3), kernel=(2, 2), layout="NHWC", stride=(2, 2)),
        sample((2, 5, 3), kernel=(2,), layout="NWC", pool_type="avg"),
        sample((1, 2, 4, 3, 5), kernel=(2, 2, 2), stride=(2, 1, 1), pool_type="avg", pad=(1, 0, 1)),
        sample((1, 2, 4, 3, 5), kernel=(2, 2, 3), pad=(1, 1, 1)),
    ),
    doc=(
        "Reduces windows of data (N, C, *space) by max, avg, sum or lp (the p_value-th root of the"
        " sum of powers). valid: out = floor((size + 2 pad - kernel) / stride) + 1, full: ceil,"
        " same: ceil(size / stride)."
    ),
)


def _grad_infer(ins, pool_type, data_shape, **attrs):
    if ins[0].shape != _join(
        w := windows(data_shape, pool_type=pool_type, **attrs), data_shape, w.out
    ):
        raise ShapeError(
            "_pool_grad",
            f"dy must have the shape of the output, got dy {ins[0].shape} for data {data_shape}",
        )
    if pool_type == "max":
        must_be("_pool_grad", "data", ins[1], data_shape)
    return [Type(data_shape, ins[0].dtype)]


def _grad_ref(xp, dy, x=None, *, pool_type, count_include_pad, data_shape, **attrs):
    w = windows(data_shape, pool_type=pool_type, **attrs)
    dy = _first(xp, w, dy)
    if pool_type == "avg":
        dy = dy / _counts(xp, w, count_include_pad, dy.dtype)
    dx = xp.zeros((*dy.shape[:2], *(a + n + b for n, (a, b) in zip(w.size, w.grown))), dy.dtype)
    where = _best(xp, w, _first(xp, w, x))[1] if pool_type == "max" else None
    for i, tap in enumerate(w.taps()):
        dx[tap] += dy if where is None else dy * (where == i)
    return _last(xp, w, dx[(..., *(slice(p, p + n) for n, p in zip(w.size, w.pad)))])


def _grad_grad(F, dys, xs, ys, pool_type, data_shape, **attrs):
    a = dys[0]
    if pool_type == "max":
        return [F._pool_pick(xs[1], a, **attrs), None]
    return [F.Pooling(a, pool_type=pool_type, **attrs)]


def _grad_inputs(pool_type, **_):
    return ("dy", "data") if pool_type == "max" else ("dy",)


_WINDOW_PARAMS = tuple(p for p in _PARAMS if p.name in _KEPT)

operator(
    "_pool_grad",
    inputs=("dy", "data"),
    input_names=_grad_inputs,
    params=(
        *_WINDOW_PARAMS,
        Param("pool_type", ("avg", "max", "sum"), "max"),
        Param("data_shape", "shape"),
    ),
    infer=_grad_infer,
    ref=_grad_ref,
    grad=_grad_grad,
    samples=(
        sample((1, 2, 3, 2), (1, 2, 6, 5), kernel=(2, 2), stride=(2, 2), data_shape=(1, 2, 6, 5)),
        sample(
            (1, 2, 4), kernel=(3,), stride=(2,), pad=(1,), pool_type="avg", data_shape=(1, 2, 7)
        ),
        sample((1, 3, 2), kernel=(2,), pool_type="sum", layout="NWC", data_shape=(1, 4, 2)),
    ),
    doc="Gradient of Pooling (max, avg, sum) with respect to its data.",
)


def _pick_infer(ins, **attrs):
    return [Type(_infer(ins[:1], pool_type="max", p_value=None, **attrs)[0].shape, ins[1].dtype)]


def _pick_ref(xp, x, value, **attrs):
    w = windows(x.shape, pool_type="max", **attrs)
    where = _best(xp, w, _first(xp, w, x))[1]
    value = _padded(xp, w, _first(xp, w, value), 0)
    y = xp.zeros(where.shape, value.dtype)
    for i, tap in enumerate(w.taps()):
        y = y + value[tap] * (where == i)
    return _last(xp, w, y)


operator(
    "_pool_pick",
    inputs=("data", "value"),
    params=_WINDOW_PARAMS,
    infer=_pick_infer,
    ref=_pick_ref,
    grad=lambda F, dys, xs, ys, **attrs: [
        None,
        F._pool_grad(dys[0], xs[0], pool_type="max", data_shape=xs[0].shape, **attrs),
    ],
    samples=(
        sample((1, 2, 6, 5), (1, 2, 6, 5), kernel=(2, 2), stride=(2, 2)),
        sample((1, 5, 2), (1, 5, 2), kernel=(3,), pad=(1,), layout="NWC"),
    ),
    doc="The elements of value at the places where max Pooling of data finds its maxima.",
)


def _adaptive_out(output_size):
    size = tuple(output_size or (1,))
    if len(size) > 2 or min(size) < 1:
        raise OperatorError(
            "_contrib_AdaptiveAvgPooling2D",
            f"output_size must be 1 or 2 positive numbers, got {output_size}",
        )
    return size * 2 if len(size) == 1 else size


def _adaptive_infer(ins, output_size):
    x = ins[0]
    if len(x.shape) != 4 or 0 in x.shape[2:]:
        raise ShapeError(
            "_contrib_AdaptiveAvgPooling2D",
            f"data must be (N, C, H, W) and not empty, got {x.shape}",
        )
    return [Type((*x.shape[:2], *_adaptive_out(output_size)), x.dtype)]


def _averages(xp, n_in, n_out, dtype):
    """Matrix (n_out, n_in): row i averages the elements floor(i n_in / n_out) .. ceil((i + 1) n_in
    / n_out)."""
    i, j = xp.arange(n_out)[:, None], xp.arange(n_in)
    start, stop = i * n_in // n_out, -(-(i + 1) * n_in // n_out)
    return (((j >= start) & (j < stop)) / (stop - start)).astype(dtype)


def _adaptive_ref(xp, x, *, output_size):
    h, w = _adaptive_out(output_size)
    return _averages(xp, x.shape[2], h, x.dtype) @ x @ _averages(xp, x.shape[3], w, x.dtype).T


def _adaptive_body(F, x, output_size):
    """Windows of one size are pooling."""
    out, space = _adaptive_out(output_size), x.shape[2:]
    if 0 in x.shape or space[0] % out[0] or space[1] % out[1]:
        return None
    if out == (1, 1):
        return [F.mean(x, axis=(2, 3), keepdims=True)]
    kernel = (space[0] // out[0], space[1] // out[1])
    return [F.Pooling(x, kernel=kernel, stride=kernel, pool_type="avg")]


def _adaptive_grad_body(F, dy, data_shape):
    (n, c, h, w), space = dy.shape, data_shape[2:]
    if 0 in data_shape or space[0] % h or space[1] % w:
        return None
    kh, kw = space[0] // h, space[1] // w
    dy = F.reshape_to(F._mul_scalar(dy, scalar=1 / (kh * kw)), shape=(n, c, h, 1, w, 1))
    return [F.reshape_to(F.broadcast_to(dy, shape=(n, c, h, kh, w, kw)), shape=data_shape)]


def _adaptive_grad_infer(ins, data_shape):
    dy, op = ins[0], "_adaptive_avg_pool_grad"
    if len(data_shape) != 4:
        raise ShapeError(op, f"data_shape must be (N, C, H, W), got {data_shape}")
    must_be(op, "dy", dy, (*data_shape[:2], *dy.shape[2:4]))
    return [Type(data_shape, dy.dtype)]


def _adaptive_grad_ref(xp, dy, *, data_shape):
    h, w = data_shape[2:]
    return _averages(xp, h, dy.shape[2], dy.dtype).T @ dy @ _averages(xp, w, dy.shape[3], dy.dtype)


operator(
    "_contrib_AdaptiveAvgPooling2D",
    params=(Param("output_size", "shape", ()),),
    infer=_adaptive_infer,
    ref=_adaptive_ref,
    traits=(Decomposition(_adaptive_body),),
    grad=lambda F, dys, xs, ys, output_size: [
        F._adaptive_avg_pool_grad(dys[0], data_shape=xs[0].shape)
    ],
    samples=(
        sample((2, 3, 5, 6)),
        sample((1, 2, 5, 6), output_size=(2, 4)),
        sample((1, 2, 4, 7), output_size=(3,)),
        sample((1, 1, 2, 3), output_size=(4, 5)),
    ),
    doc=(
        "Averages (N, C, H, W) down (or up) to output_size (H', W') with windows of nearly equal"
        " size. output_size: one or two numbers, default 1 x 1."
    ),
)

operator(
    "_adaptive_avg_pool_grad",
    inputs=("dy",),
    params=(Param("data_shape", "shape"),),
    infer=_adaptive_grad_infer,
    ref=_adaptive_grad_ref,
    traits=(Decomposition(_adaptive_grad_body),),
    grad=lambda F, dys, xs, ys, data_shape: [
        F._contrib_AdaptiveAvgPooling2D(dys[0], output_size=xs[0].shape[2:])
    ],
    samples=(sample((1, 2, 2, 4), data_shape=(1, 2, 5, 6)),),
    doc="Gradient of AdaptiveAvgPooling2D with respect to its data.",
)
