"""Operators of mx.np whose references NumPy computes by itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import FUNCTIONS, gather
from ..graph import Graph, broadcast
from ..rule import rule, without
from ..tensors import Tensor, ufunc
from .moves import bounded


@rule("_npi_take")
def take(g: Graph, a: Tensor, indices: Tensor, *, axis: int | None, mode: str) -> Tensor:
    if axis is None:
        a, axis = g.reshape(a, (-1,)), 0
    axis %= a.ndim
    return gather(g, a, bounded(g, indices, a.shape[axis], mode), axis)


@rule("_npi_take_along_axis")
def take_along_axis(g: Graph, a: Tensor, indices: Tensor, *, axis: int | None) -> Tensor:
    if axis is None:
        a, axis = g.reshape(a, (-1,)), 0
    return FUNCTIONS["take_along_axis"](g, a, indices, axis)


@rule("_put_along_axis")
def put_along_axis(g: Graph, x: Tensor, indices: Tensor, *, axis: int, size: int) -> Tensor:
    """Sums of what goes to one place, in zeros."""
    g.need(16, "ScatterElements with reduction=add")
    axis %= x.ndim
    zeros = FUNCTIONS["filled"](g, (*x.shape[:axis], size, *x.shape[axis + 1 :]), 0, x.dtype)
    at = g.expand(g.cast(indices, "int64"), x.shape)
    return g.ScatterElements(zeros, at, x, axis=axis, reduction="add")


@rule("_npi_choose")
def choose(g: Graph, at: Tensor, *choices: Tensor, mode: str, **_: Any) -> Tensor:
    shape = g.outs[0].shape
    wide = [g.expand(g.cast(c, g.outs[0].dtype), shape) for c in choices]
    stacked = FUNCTIONS["stack"](g, wide, 0)
    places = g.expand(bounded(g, at, len(choices), mode), shape)
    found = FUNCTIONS["take_along_axis"](g, stacked, g.unsqueeze(places, [0]), 0)
    return g.squeeze(found, [0])


def _before(g: Graph, a: Tensor, v: Tensor, right: bool) -> Tensor:
    """How many elements of a are before each of v."""
    wide = g.unsqueeze(v, [-1])
    return FUNCTIONS["sum"](g, g.cast(a <= wide if right else a < wide, "int64"), -1)


@rule("_searchsorted", "_npi_searchsorted")
def searchsorted(g: Graph, a: Tensor, v: Tensor, *, side: str) -> Tensor:
    return _before(g, a, v, side == "right")


@rule("_npi_digitize")
def digitize(g: Graph, x: Tensor, bins: Tensor, *, right: bool) -> Tensor:
    """Bins may rise or fall: of falling ones the other end counts."""
    rising = bins[0] <= bins[-1]
    wide = g.unsqueeze(x, [-1])
    count = lambda hit: FUNCTIONS["sum"](g, g.cast(hit, "int64"), -1)
    up = count(bins < wide if right else bins <= wide)
    down = count(bins >= wide if right else bins > wide)
    return g.where(rising, up, down)


@rule("_npi_isin")
def isin(g: Graph, x: Tensor, among: Tensor, *, invert: bool) -> Tensor:
    found = FUNCTIONS["any"](g, g.unsqueeze(x, [-1]) == g.reshape(among, (-1,)), -1)
    return ~found if invert else found


@rule("_npi_average")
def average(
    g: Graph, a: Tensor, weights: Tensor | None = None, *, axis: Any, returned: bool,
    keepdims: bool, **_: Any,
) -> list[Tensor]:  # fmt: skip
    dtype = g.outs[0].dtype
    a = g.cast(a, dtype)
    if weights is None:
        weights = FUNCTIONS["filled"](g, a.shape, 1, dtype)
    elif weights.shape != a.shape:  # of one axis
        weights = g.reshape(weights, [-1 if i == axis % a.ndim else 1 for i in range(a.ndim)])
    weights = g.expand(g.cast(weights, dtype), a.shape)
    total = FUNCTIONS["sum"](g, weights, axis, keepdims=keepdims)
    made = FUNCTIONS["sum"](g, a * weights, axis, keepdims=keepdims) / total
    return [made, total][: 1 + returned]


@rule("_npi_tril", "_npi_triu")
def triangle(g: Graph, x: Tensor, *, k: int) -> Tensor:
    name = g.call.operation.name.removeprefix("_npi_")
    x = x if x.ndim > 1 else g.expand(x, (x.shape[0], x.shape[0]))
    return FUNCTIONS[name](g, x, k)


@rule("_npi_ptp")
def ptp(g: Graph, x: Tensor, *, axis: Any, keepdims: bool) -> Tensor:
    high, low = (FUNCTIONS[k](g, x, axis, keepdims=keepdims) for k in ("max", "min"))
    return high - low


@rule("_npi_isclose")
def isclose(g: Graph, a: Tensor, b: Tensor, *, rtol: float, atol: float, equal_nan: bool) -> Tensor:
    dtype = np.result_type(a.dtype, b.dtype, np.float32)
    a, b = g.cast(a, dtype), g.cast(b, dtype)
    near = (abs(a - b) <= atol + rtol * abs(b)) & np.isfinite(b) | (a == b)
    return near | (np.isnan(a) & np.isnan(b)) if equal_nan else near


@rule("_npi_real")
def real(g: Graph, x: Tensor) -> Tensor:
    return x


@rule("_npi_reciprocal")
def reciprocal(g: Graph, x: Tensor) -> Tensor:
    return 1.0 / x if x.dtype.kind == "f" else 1 // x


@rule("_npi_divmod")
def divmod_(g: Graph, x: Tensor, y: Tensor) -> list[Tensor]:
    return [x // y, x % y]


@rule("_npi_modf")
def modf(g: Graph, x: Tensor) -> list[Tensor]:
    x = g.cast(x, g.outs[0].dtype)
    infinite = ufunc(np.isinf, x)
    whole = g.where(infinite, x, np.trunc(x))
    rest = g.where(infinite, g.tensor(0.0, x), x - whole)
    return [ufunc(np.copysign, rest, x), whole]


@rule("_npi_hsplit", "_npi_dsplit")
def split(g: Graph, x: Tensor, **_: Any) -> list[Tensor]:
    axis = 2 if g.call.operation.name == "_npi_dsplit" else 1 if x.ndim > 1 else 0
    return g.split(x, axis, [int(o.shape[axis]) for o in g.outs])


@rule("_npi_trapezoid")
def trapezoid(
    g: Graph, y: Tensor, x: Tensor | None = None, *, dx: float, axis: int, **_: Any
) -> Tensor:
    dtype = g.outs[0].dtype
    y = FUNCTIONS["moveaxis"](g, g.cast(y, dtype), axis, -1)
    step: Any = dx
    if x is not None:
        x = g.cast(x, dtype)
        x = x if x.ndim == 1 else FUNCTIONS["moveaxis"](g, x, axis, -1)
        step = x[..., 1:] - x[..., :-1]
    return FUNCTIONS["sum"](g, step * (y[..., 1:] + y[..., :-1]) / 2.0, -1)


@rule("_npi_vander")
def vander(g: Graph, x: Tensor, *, N: int | None, increasing: bool) -> Tensor:
    n = x.shape[0] if N is None else N
    powers = np.arange(n) if increasing else np.arange(n)[::-1]
    wide = g.unsqueeze(g.cast(x, g.outs[0].dtype), [1])
    shape = broadcast(wide.shape, powers.shape)
    return g.Pow(wide, g.tensor(powers.astype(wide.dtype)), shape=shape)


@rule("fill_element_0index")
def fill_element(g: Graph, x: Tensor, values: Tensor, columns: Tensor) -> Tensor:
    at = g.unsqueeze(g.cast(columns, "int64"), [1])
    return g.ScatterElements(x, at, g.unsqueeze(values, [1]), axis=1)


without(
    "ONNX factors and inverts no matrices",
    "_npi_cholesky _npi_cond _npi_eig _npi_eigh _npi_eigvals _npi_eigvalsh _npi_inv _npi_lstsq"
    " _npi_matrix_rank _npi_pinv _npi_pinv_scalar_rcond _npi_qr _npi_solve _npi_svd"
    " _npi_tensorinv _npi_tensorsolve _npi_matrix_power",
)
without(
    "the shape of its result depends on values",
    "_npi_bincount _npi_intersect1d _npi_setdiff1d _npi_setxor1d _npi_union1d _npi_unique"
    " _npx_nonzero",
)
without(
    "ONNX has no operator that looks at the bits of floats",
    "_npi_nextafter _npi_nextafter_scalar _npi_rnextafter_scalar _npi_spacing",
)
without(
    "ONNX has no greatest common divisor",
    "_npi_gcd _npi_gcd_scalar _npi_lcm _npi_lcm_scalar _npi_rgcd_scalar _npi_rlcm_scalar",
)
without("it looks at values to check them", "_npx_constraint_check")
without("it has no rule", "_npi_i0 _bessel_i _polygamma _gamma_slope")
