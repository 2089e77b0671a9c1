"""Arrays made from nothing but attributes, under the names and defaults of mx.np."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....engine.error import ShapeError
from ...front import cast, dtype_of, front
from ...record import FLOATS, LARGE, Array, Param, Sample, sample
from .index import below
from .shape import broadcast

SHAPE, CTX = Param("shape", "shape", ()), Param("ctx", "context", "")
DTYPE, OR_GIVEN = Param("dtype", "dtype", "float32"), Param("dtype", "dtype?", None)


def _made(
    name: str,
    rule: Callable[..., Array],
    ref: Callable[..., Any],
    params: Sequence[Param],
    samples: Sequence[Sample],
    doc: str,
) -> None:
    """Registers a front without inputs. rule, ref: without ctx."""
    front(
        name,
        lambda F, ctx, **attrs: rule(F, ctx=ctx, **attrs),
        ref=lambda xp, ctx, **attrs: ref(**attrs),
        inputs=(),
        params=(*params, CTX),
        samples=tuple(samples),
        doc=doc,
    )


for _name, _of, _ref in (("zeros", "_zeros", np.zeros), ("ones", "_ones", np.ones)):
    _made(
        f"_npi_{_name}",
        lambda F, shape, dtype, ctx, of=_of: getattr(F, of)(shape=shape, dtype=dtype, ctx=ctx),
        lambda shape, dtype, ref=_ref: ref(shape, dtype),
        (SHAPE, DTYPE),
        (sample(shape=(2, 3)), sample(shape=(), dtype="int32"), sample(shape=(0, 3))),
        f"{_name.capitalize()} of a shape.",
    )
_made(
    "_npi_full",
    lambda F, shape, value, dtype, ctx: F._full(shape=shape, value=value, dtype=dtype, ctx=ctx),
    lambda shape, value, dtype: np.full(shape, value).astype(dtype),
    (SHAPE, Param("value", "float", dynamic=True), DTYPE),
    (sample(shape=(2, 3), value=1.5), sample(shape=(), value=3, dtype="int32")),
    "One value in every element.",
)
_made(
    "_npi_identity",
    lambda F, shape, dtype, ctx: F._eye(N=shape[0] if shape else 0, dtype=dtype, ctx=ctx),
    lambda shape, dtype: np.identity(shape[0], dtype),
    (SHAPE, DTYPE),
    (sample(shape=(3, 3)),),
    "The unit matrix of a shape (n, n).",
)


def _eye(F: Any, N: int, M: int | None, k: int, dtype: str, ctx: Any) -> Array:
    columns = N if M is None else M
    if columns == 0 or N == 0:
        return F._zeros(shape=(N, columns), dtype=dtype, ctx=ctx)
    return F._eye(N=N, M=columns, k=k, dtype=dtype, ctx=ctx)


SIZES = (
    Param("N", "int", limits=LARGE),
    Param("M", "int?", None, limits=LARGE),
    Param("k", "int", 0, limits=LARGE),
)
_made(
    "_npi_eye",
    _eye,
    lambda N, M, k, dtype: np.eye(N, M, k, dtype),
    (*SIZES, DTYPE),
    (sample(N=3), sample(N=2, M=4, k=1), sample(N=2, M=0), sample(N=3, k=-1, dtype="int32")),
    "Ones on the k-th diagonal of (N, M), zeros elsewhere.",
)


def _tri(F: Any, N: int, M: int | None, k: int, dtype: str, ctx: Any) -> Array:
    columns = N if M is None else M
    if columns == 0 or N == 0:
        return F._zeros(shape=(N, columns), dtype=dtype, ctx=ctx)
    return cast(F, below(F, N, columns, k), dtype)


_made(
    "_npi_tri",
    _tri,
    lambda N, M, k, dtype: np.tri(N, M, k, dtype),
    (*SIZES, DTYPE),
    (sample(N=3), sample(N=2, M=4, k=1), sample(N=3, k=-1, dtype="int32")),
    "Ones on and below the k-th diagonal of (N, M), zeros above.",
)


def _arange(F: Any, start: float, stop: Any, step: float, dtype: str, ctx: Any, **_: Any) -> Array:
    return F._arange(start=start, stop=stop, step=step, dtype=dtype, ctx=ctx)


def _arange_ref(start: float, stop: float | None, step: float, dtype: Any, **_: Any) -> Any:
    values: Any = np.arange(0, start, step) if stop is None else np.arange(start, stop, step)
    return values.astype(dtype)


_made(
    "_npi_arange",
    _arange,
    _arange_ref,
    (
        Param("start", "float"),
        Param("stop", "float?", None),
        Param("step", "float", 1.0),
        Param("repeat", "int", 1),
        Param("infer_range", "bool", False),
        DTYPE,
    ),
    (
        sample(start=4),
        sample(start=1, stop=7, step=2),
        sample(start=3, stop=0, step=-1, dtype="int32"),
    ),
    "start, start + step, ... below stop; from 0 to start without stop.",
)


BETWEEN = (
    Param("start", "float"),
    Param("stop", "float"),
    Param("num", "int", 50, limits=LARGE),
    Param("endpoint", "bool", True),
)


def _logspace(
    F: Any, start: float, stop: float, num: int, endpoint: bool, base: float, dtype: str, ctx: Any
) -> Array:
    at = F._linspace(start=start, stop=stop, num=num, endpoint=endpoint, dtype="float64", ctx=ctx)
    return cast(F, F._rpower_scalar(at, scalar=base), dtype)


_made(
    "_npi_logspace",
    _logspace,
    lambda start, stop, num, endpoint, base, dtype: np.logspace(
        start, stop, num, endpoint, base, dtype
    ),
    (*BETWEEN, Param("base", "float", 10.0), DTYPE),
    (sample(start=0, stop=1, num=3), sample(start=2, stop=0, num=4, endpoint=False, base=2.0)),
    "base to the powers that linspace gives.",
)


def _indices(F: Any, dimensions: Sequence[int], dtype: str, ctx: Any) -> Array:
    n = len(dimensions)
    if not n:
        return F._zeros(shape=(0,), dtype=dtype, ctx=ctx)
    grids = []
    for axis, size in enumerate(dimensions):
        shape = tuple([size if i == axis else 1 for i in range(n)])
        along = F.reshape_to(F._arange(start=0, stop=size, dtype=dtype, ctx=ctx), shape=shape)
        grids.append(broadcast(F, along, tuple(dimensions)))
    return F.stack(*grids, axis=0)


_made(
    "_npi_indices",
    _indices,
    lambda dimensions, dtype: np.indices(dimensions, dtype),
    (Param("dimensions", "shape"), Param("dtype", "dtype", "int32")),
    (sample(dimensions=(2, 3)), sample(dimensions=(4,), dtype="float32")),
    "The index of each element of a grid along each axis: (axes, *dimensions).",
)


def _window(name: str, ref: Callable, parts: Sequence[float]) -> None:
    """A sum of cosines: parts[i] times cos(2 pi i n / (M - 1))."""

    def rule(F: Any, M: int, dtype: str, ctx: Any) -> Array:
        if M < 2:
            return F._ones(shape=(max(M, 0),), dtype=dtype, ctx=ctx)
        n = F._arange(start=0, stop=M, dtype="float64", ctx=ctx)
        y = F._full(shape=(M,), value=parts[0], dtype="float64", ctx=ctx)
        for i, part in enumerate(parts[1:], 1):
            wave = F.cos(F._mul_scalar(n, scalar=2 * np.pi * i / (M - 1)))
            y = F.broadcast_add(y, F._mul_scalar(wave, scalar=part))
        return cast(F, y, dtype)

    _made(
        f"_npi_{name}",
        rule,
        lambda M, dtype: ref(M).astype(dtype),
        (Param("M", "int", limits=LARGE), DTYPE),
        (sample(M=5), sample(M=1), sample(M=4, dtype="float64")),
        f"The {name} window of M points.",
    )


_window("hanning", np.hanning, (0.5, -0.5))
_window("hamming", np.hamming, (0.54, -0.46))
_window("blackman", np.blackman, (0.42, -0.5, 0.08))

# ---- like another array --------------------------------------------------------------------------


def _full_like(F: Any, a: Array, fill_value: Any, dtype: str | None, ctx: Any) -> Array:
    name = dtype or dtype_of(a)
    computed = name if name in FLOATS else "float64"
    return cast(F, F._plus_scalar(F.zeros_like(cast(F, a, computed)), scalar=fill_value), name)


front(
    "_npi_full_like",
    _full_like,
    ref=lambda xp, a, fill_value, dtype, ctx: np.full_like(a, fill_value, dtype=dtype),
    inputs=("a",),
    params=(Param("fill_value", "float", dynamic=True), OR_GIVEN, CTX),
    samples=(sample((2, 3), fill_value=2.5), sample((3,), fill_value=7, dtype="int32")),
    doc="One value in every element of an array of a's shape; of its dtype, or dtype.",
)
LIKE: dict[str, Callable[..., Any]] = {"zeros": np.zeros_like, "ones": np.ones_like}
for _name, _like in LIKE.items():
    front(
        f"_npi_{_name}_like",
        lambda F, a, dtype, ctx, of=_name: cast(
            F, getattr(F, f"{of}_like")(a), dtype or dtype_of(a)
        ),
        ref=lambda xp, a, dtype, ctx, ref=_like: ref(a, dtype=dtype),
        inputs=("a",),
        params=(OR_GIVEN, CTX),
        samples=(sample((2, 3)), sample((3,), dtype="int32")),
        doc=f"{_name.capitalize()} of a's shape; of its dtype, or dtype.",
    )


def _diag_indices(F: Any, arr: Array) -> Array:
    shape = tuple(arr.shape)
    if len(shape) < 2 or len(set(shape)) != 1:
        raise ShapeError(
            "np.diag_indices_from", f"arr must be square, of two axes at least, got {shape}"
        )
    along = F._contrib_arange_like(cast(F, arr, "float64"), axis=0)
    return F.stack(*[cast(F, along, "int64")] * len(shape), axis=0)


front(
    "_npi_diag_indices_from",
    _diag_indices,
    ref=lambda xp, arr: np.stack(np.diag_indices_from(arr)),
    inputs=("arr",),
    samples=(sample((3, 3)), sample((2, 2, 2))),
    doc="The indices of a square array's diagonal, one row for each axis.",
)
