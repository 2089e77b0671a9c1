"""NumPy's functions that are made of others."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import FUNCTIONS, concatenate, function, gather
from .graph import Graph
from .tensors import Tensor, Untraceable


def _ndims(g: Graph, x: Any, n: int) -> Tensor:
    """x with at least n axes; new ones first, and for 3 one last."""
    x = g.tensor(x)
    if n == 3 and 0 < x.ndim < 3:
        return g.unsqueeze(x, [0, 2] if x.ndim == 1 else [2])
    return g.unsqueeze(x, range(max(n - x.ndim, 0)))


def _of_each(n: int) -> Any:
    def apply(g: Graph, *xs: Any) -> Any:
        made = [_ndims(g, x, n) for x in xs]
        return made[0] if len(made) == 1 else made

    return apply


for _n in (1, 2, 3):
    function(f"atleast_{_n}d")(_of_each(_n))
function("vstack")(lambda g, xs, **_: concatenate(g, [_ndims(g, x, 2) for x in xs], 0))
function("dstack")(lambda g, xs: concatenate(g, [_ndims(g, x, 3) for x in xs], 2))
function("ndim")(lambda g, x: x.ndim)
function("shape")(lambda g, x: x.shape)
function("size")(lambda g, x, axis=None: x.size if axis is None else x.shape[axis])
function("result_type")(
    lambda g, *xs: np.result_type(*(x.dtype if isinstance(x, Tensor) else x for x in xs))
)
function("isreal")(lambda g, x: np.ones_like(x, bool))
function("isposinf")(lambda g, x, out=None: x == np.inf)
function("isneginf")(lambda g, x, out=None: x == -np.inf)
function("diagflat")(lambda g, x, k=0: np.diag(x.reshape(-1), k))
function("inner")(
    lambda g, x, y: np.tensordot(x, y, (-1, -1)) if np.ndim(x) and np.ndim(y) else x * y
)
function("vdot")(lambda g, x, y: np.sum(x.reshape(-1) * y.reshape(-1)))
function("sinc")(
    lambda g, x: np.where(x == 0, 1.0, np.sin(np.pi * x) / np.where(x == 0, 1.0, np.pi * x))
)


@function("hstack")
def _hstack(g: Graph, xs: Any, **_: Any) -> Tensor:
    made = [_ndims(g, x, 1) for x in xs]
    return concatenate(g, made, 0 if made[0].ndim == 1 else 1)


@function("column_stack")
def _column_stack(g: Graph, xs: Any) -> Tensor:
    made = [g.tensor(x) for x in xs]
    return concatenate(g, [x if x.ndim == 2 else g.reshape(x, (-1, 1)) for x in made], 1)


@function("trace")
def _trace(
    g: Graph,
    x: Tensor,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: Any = None,
    **_: Any,
) -> Tensor:
    return FUNCTIONS["sum"](g, FUNCTIONS["diagonal"](g, x, offset, axis1, axis2), -1, dtype)


@function("diff")
def _diff(
    g: Graph, x: Tensor, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None
) -> Tensor:
    if not (isinstance(prepend, (Tensor, type(None))) and isinstance(append, (Tensor, type(None)))):
        prepend = append = None
    parts = [p for p in (prepend, x, append) if p is not None]
    x = concatenate(g, parts, axis) if len(parts) > 1 else x
    at = [slice(None)] * x.ndim
    for _ in range(n):
        later, before = list(at), list(at)
        later[axis], before[axis] = slice(1, None), slice(None, -1)
        later_x, before_x = x[tuple(later)], x[tuple(before)]
        x = later_x != before_x if x.dtype == np.bool_ else later_x - before_x
    return x


@function("rot90")
def _rot90(g: Graph, x: Tensor, k: int = 1, axes: Any = (0, 1)) -> Tensor:
    for _ in range(k % 4):
        x = FUNCTIONS["flip"](g, np.swapaxes(x, *axes), axes[0])
    return x


@function("rollaxis")
def _rollaxis(g: Graph, x: Tensor, axis: int, start: int = 0) -> Tensor:
    axis, start = axis % x.ndim, start + x.ndim if start < 0 else start
    return FUNCTIONS["moveaxis"](g, x, axis, start - (axis < start))


@function("kron")
def _kron(g: Graph, x: Any, y: Any) -> Tensor:
    x, y = g.tensor(x), g.tensor(y)
    n = max(x.ndim, y.ndim)
    x, y = _ndims(g, x, 0), _ndims(g, y, 0)
    x, y = (g.unsqueeze(v, range(n - v.ndim)) for v in (x, y))
    wide = g.unsqueeze(x, range(1, 2 * n, 2)) * g.unsqueeze(y, range(0, 2 * n, 2))
    return g.reshape(wide, [a * b for a, b in zip(x.shape, y.shape)])


@function("polyval")
def _polyval(g: Graph, p: Any, x: Any) -> Tensor:
    made = g.tensor(x) * 0
    for i in range(p.shape[0]):
        made = made * x + p[i]
    return made


def _nan_as(kind: str, value: float) -> Any:
    """A reduction that leaves out NaN, by a value that does not count; NaN where all are."""

    def apply(g: Graph, x: Tensor, axis: Any = None, keepdims: bool = False, **_: Any) -> Tensor:
        if x.dtype.kind != "f":
            return FUNCTIONS[kind](g, x, axis, keepdims=keepdims)
        made = FUNCTIONS[kind](g, np.where(np.isnan(x), value, x), axis, keepdims=keepdims)
        every = FUNCTIONS["all"](g, np.isnan(x), axis, keepdims=keepdims)
        return FUNCTIONS["where"](g, every, np.nan, made)

    return apply


function("nanmax")(_nan_as("max", -np.inf))
function("nanmin")(_nan_as("min", np.inf))


@function("nanmean")
def _nanmean(g: Graph, x: Tensor, axis: Any = None, keepdims: bool = False, **_: Any) -> Tensor:
    counts = np.sum((~np.isnan(x)).astype(x.dtype), axis, keepdims=keepdims)
    return np.nansum(x, axis, keepdims=keepdims) / counts


@function("nanvar")
def _nanvar(
    g: Graph, x: Tensor, axis: Any = None, ddof: int = 0, keepdims: bool = False, **_: Any
) -> Tensor:
    counts = np.sum((~np.isnan(x)).astype(x.dtype), axis, keepdims=keepdims)
    apart = x - _nanmean(g, x, axis, True)
    return np.nansum(apart * apart, axis, keepdims=keepdims) / (counts - float(ddof))


function("nanstd")(lambda g, x, *args, **kwargs: np.sqrt(_nanvar(g, x, *args, **kwargs)))
function("nancumsum")(
    lambda g, x, axis=None, dtype=None, **_: np.cumsum(
        np.where(np.isnan(x), 0.0, x) if x.dtype.kind == "f" else x, axis, dtype
    )
)


@function("cumprod")
def _cumprod(g: Graph, x: Any, axis: int | None = None, dtype: Any = None, **_: Any) -> Tensor:
    """By doubling: after each step an element is the product of 1, 2, 4 ... up to its own."""
    if axis is None:
        x, axis = np.reshape(x, (-1,)), 0
    x = x if dtype is None else x.astype(dtype)
    axis, step = axis % x.ndim, 1
    part = lambda begin, end: x[(*(slice(None),) * axis, slice(begin, end))]
    while step < x.shape[axis]:
        n = x.shape[axis]
        x = np.concatenate([part(0, step), part(step, n) * part(0, n - step)], axis)
        step *= 2
    return x


@function("isin")
def _isin(g: Graph, x: Tensor, tests: Tensor, invert: bool = False, **_: Any) -> Tensor:
    found = np.any(np.expand_dims(x, -1) == np.reshape(tests, (-1,)), axis=-1)
    return ~found if invert else found


@function("average")
def _average(g: Graph, x: Tensor, axis: Any = None, weights: Any = None, **_: Any) -> Tensor:
    if weights is None:
        return np.mean(x, axis)
    return np.sum(x * weights, axis) / np.sum(weights, axis)


@function("norm")
def _norm(g: Graph, x: Tensor, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    if axis is None and ord is None:
        return np.sqrt(np.sum(x * x, keepdims=keepdims))
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if np.ndim(axis) == 0 else tuple(axis)
    total = lambda v, a=axes: FUNCTIONS["sum"](g, v, a, keepdims=keepdims)
    if len(axes) == 1:
        if ord is None or ord == 2:
            return np.sqrt(total(x * x))
        if ord in (np.inf, -np.inf):
            return (np.max if ord > 0 else np.min)(abs(x), axes, keepdims=keepdims)
        if ord == 0:
            return total((x != 0).astype(x.dtype))
        return total(abs(x) ** ord) ** (1 / ord)
    if ord in (None, "fro"):
        return np.sqrt(total(x * x))
    sums = {1: 0, -1: 0, np.inf: 1, -np.inf: 1}
    if ord not in sums:
        raise Untraceable(f"norm with ord={ord}")
    inner = axes[sums[ord]]
    made = np.sum(abs(x), inner, keepdims=True)
    made = (np.max if ord > 0 else np.min)(made, axes[1 - sums[ord]], keepdims=True)
    return made if keepdims else np.squeeze(made, axes)


@function("cross")
def _cross(
    g: Graph, x: Any, y: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Tensor:
    axisa, axisb, axisc = (axis,) * 3 if axis is not None else (axisa, axisb, axisc)
    moved = FUNCTIONS["moveaxis"]
    x, y = moved(g, g.tensor(x), axisa, -1), moved(g, g.tensor(y), axisb, -1)
    a, b = ([v[..., i] for i in range(v.shape[-1])] for v in (x, y))
    if len(a) == len(b) == 2:
        return a[0] * b[1] - a[1] * b[0]
    a, b = (v + [v[0] * 0] * (3 - len(v)) for v in (a, b))
    parts = [a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)]
    return moved(g, FUNCTIONS["stack"](g, parts, -1), -1, axisc)


@function("sliding_window_view")
def _windows(g: Graph, x: Tensor, window_shape: Any, axis: Any = None) -> Tensor:
    """All windows, their elements along new last axes."""
    sizes = [window_shape] if np.ndim(window_shape) == 0 else list(window_shape)
    axes = range(x.ndim) if axis is None else [axis] if np.ndim(axis) == 0 else axis
    for a, k in zip([a % x.ndim for a in axes], sizes):
        at = np.arange(x.shape[a] - k + 1)[:, None] + np.arange(k)
        x = FUNCTIONS["moveaxis"](g, gather(g, x, g.tensor(at), a), a + 1, -1)
    return x
