"""NumPy's functions on Tensors, as ONNX nodes: what references and rules are written in."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .graph import Dim, Graph, Unmapped, broadcast
from .tensors import FUNCTIONS, Tensor, Untraceable, ufunc

FOLDED = 4096  # bytes of a constant that is computed when the file is written
SMALL = ("int8", "uint8", "int16", "uint16")  # few operators take them


def function(*names: str) -> Callable[[Callable], Callable]:
    def add(made: Callable) -> Callable:
        FUNCTIONS.update(dict.fromkeys(names or (made.__name__.strip("_"),), made))
        return made

    return add


def known(xs: Sequence[Any]) -> bool:
    """Are all of these constants, so small that NumPy computes on them now?"""
    values = [x.value if isinstance(x, Tensor) else x for x in xs]
    return all(v is not None for v in values) and sum(np.asarray(v).nbytes for v in values) < FOLDED


def value_of(x: Any) -> Any:
    return x.value if isinstance(x, Tensor) else x


# ---- element by element --------------------------------------------------------------------------


def _truth(g: Graph, x: Tensor) -> Tensor:
    return g.cast(x, "bool")


def _expm1(g: Graph, x: Tensor) -> Tensor:
    half = g.Tanh(x * 0.5)  # exact near 0, where exp(x) - 1 is not
    return g.where(abs(x) < 1.0, 2.0 * half / (1.0 - half), g.Exp(x) - 1.0)


def _log1p(g: Graph, x: Tensor) -> Tensor:
    """Exact near 0, too: the rounding of 1 + x is divided out (Kahan)."""
    u = x + 1.0
    return g.where(_equal(g, u, 1.0), x, g.where(np.isinf(u), u, g.Log(u) * (x / (u - 1.0))))


def _trunc(g: Graph, x: Tensor) -> Tensor:
    return g.Sign(x) * g.Floor(g.Abs(x))


def _remainder(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    """With the sign of the divisor; of integers that is Mod."""
    shape = broadcast(x.shape, y.shape)
    if x.dtype.kind != "f":
        return g.Mod(x, y, shape=shape)
    rest = g.Mod(x, y, fmod=1, shape=shape)
    apart = g.And(g.Not(_equal(g, rest, 0.0)), g.Xor(rest < 0.0, y < 0.0, shape=shape))
    return g.where(apart, rest + y, rest)


def _equal(g: Graph, x: Tensor, y: Any) -> Tensor:
    y = g.tensor(y, x)
    return g.Equal(x, y, shape=broadcast(x.shape, y.shape), dtype="bool")


def _floor_divide(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    if x.dtype.kind == "f":
        return g.Floor(x / y)
    whole = g.Div(x, y, shape=broadcast(x.shape, y.shape))
    if x.dtype.kind == "u":
        return whole
    return whole - g.cast(g.And(~_equal(g, whole * y, x), (x < 0) ^ (y < 0)), x.dtype)


def _arctan2(g: Graph, y: Tensor, x: Tensor) -> Tensor:
    angle = g.Atan(y / x)
    left = g.where(y < 0.0, angle - math.pi, angle + math.pi)
    found = g.where(x < 0.0, left, angle)
    nowhere = g.And(_equal(g, x, 0.0), _equal(g, y, 0.0), shape=found.shape)
    return g.where(nowhere, 0.0, found)


def _hypot(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    x, y = abs(x), abs(y)
    large, small = ufunc(np.maximum, x, y), ufunc(np.minimum, x, y)
    ratio = small / g.where(_equal(g, large, 0.0), 1.0, large)
    return large * g.Sqrt(1.0 + ratio * ratio)


def _logaddexp(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    return ufunc(np.maximum, x, y) + _log1p(g, g.Exp(-abs(x - y)))


def _fmax(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    return g.where(_isnan(g, x), y, g.where(_isnan(g, y), x, np.maximum(x, y)))


def _fmin(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    return g.where(_isnan(g, x), y, g.where(_isnan(g, y), x, np.minimum(x, y)))


def _signbit(g: Graph, x: Tensor) -> Tensor:
    return (x < 0.0) | (_equal(g, x, 0.0) & (1.0 / x < 0.0))


def _copysign(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    return g.where(_signbit(g, y), -abs(x), abs(x))


def _isnan(g: Graph, x: Tensor) -> Tensor:
    if x.dtype.kind != "f":
        return FUNCTIONS["filled"](g, x.shape, False, "bool")
    return g.IsNaN(x, dtype="bool")


def _isfinite(g: Graph, x: Tensor) -> Tensor:
    if x.dtype.kind != "f":
        return FUNCTIONS["filled"](g, x.shape, True, "bool")
    return ~(_isnan(g, x) | _isinf(g, x))


def _isinf(g: Graph, x: Tensor) -> Tensor:
    if x.dtype.kind != "f":
        return FUNCTIONS["filled"](g, x.shape, False, "bool")
    return g.IsInf(x if x.dtype != np.float16 else g.cast(x, "float32"), dtype="bool")


def _cbrt(g: Graph, x: Tensor) -> Tensor:
    return g.Sign(x) * g.Pow(g.Abs(x), 1 / 3)


def _bits(kind: str) -> Callable:
    def apply(g: Graph, x: Tensor, y: Tensor) -> Tensor:
        shape = broadcast(x.shape, y.shape)
        if x.dtype == np.bool_:
            return g.op({"Bitwise": ""}.get(kind[:7], "") + kind[7:], x, y, shape=shape)
        g.need(18, kind)
        return g.op(kind, x, y, shape=shape)

    return apply


def _invert(g: Graph, x: Tensor) -> Tensor:
    return g.Not(x) if x.dtype == np.bool_ else -1 - x


def _logic(kind: str) -> Callable:
    return lambda g, x, y: g.op(
        kind, _truth(g, x), _truth(g, y), shape=broadcast(x.shape, y.shape), dtype="bool"
    )


def _plain(kind: str, result: str | None = None) -> Callable:
    return lambda g, *xs: g.op(kind, *xs, shape=broadcast(*(x.shape for x in xs)), dtype=result)


UFUNCS: dict[str, Callable] = {
    **{
        name: _plain(kind)
        for name, kind in (
            pair.split(":")
            for pair in (
                "add:Add subtract:Sub multiply:Mul divide:Div power:Pow float_power:Pow exp:Exp"
                " log:Log sqrt:Sqrt sin:Sin cos:Cos tan:Tan sinh:Sinh cosh:Cosh tanh:Tanh"
                " arcsin:Asin arccos:Acos arctan:Atan arcsinh:Asinh arccosh:Acosh arctanh:Atanh"
                " floor:Floor ceil:Ceil rint:Round absolute:Abs fabs:Abs negative:Neg sign:Sign"
                " reciprocal:Reciprocal maximum:Max minimum:Min"
            ).split()
        )
    },
    **{
        name: _plain(kind, "bool")
        for name, kind in {
            "greater": "Greater",
            "greater_equal": "GreaterOrEqual",
            "less": "Less",
            "less_equal": "LessOrEqual",
            "equal": "Equal",
        }.items()
    },
    "not_equal": lambda g, x, y: g.Not(_equal(g, x, y)),
    "logical_and": _logic("And"),
    "logical_or": _logic("Or"),
    "logical_xor": _logic("Xor"),
    "logical_not": lambda g, x: g.Not(_truth(g, x)),
    "bitwise_and": _bits("BitwiseAnd"),
    "bitwise_or": _bits("BitwiseOr"),
    "bitwise_xor": _bits("BitwiseXor"),
    "invert": _invert,
    "left_shift": lambda g, x, y: x * g.cast(2.0 ** g.cast(y, "float64"), x.dtype),
    "right_shift": lambda g, x, y: g.where(
        y >= 0, g.cast(np.floor(g.cast(x, "float64") / 2.0 ** g.cast(y, "float64")), x.dtype), 0
    ),
    "square": lambda g, x: x * x,
    "exp2": lambda g, x: g.Exp(x * math.log(2)),
    "expm1": _expm1,
    "log1p": _log1p,
    "log2": lambda g, x: g.Log(x) * (1 / math.log(2)),
    "log10": lambda g, x: g.Log(x) * (1 / math.log(10)),
    "cbrt": _cbrt,
    "trunc": _trunc,
    "fmod": lambda g, x, y: g.Mod(x, y, fmod=1, shape=broadcast(x.shape, y.shape)),
    "remainder": _remainder,
    "floor_divide": _floor_divide,
    "arctan2": _arctan2,
    "hypot": _hypot,
    "logaddexp": _logaddexp,
    "fmax": _fmax,
    "fmin": _fmin,
    "signbit": _signbit,
    "copysign": _copysign,
    "ldexp": lambda g, x, n: x * g.cast(2.0 ** g.cast(n, "float64"), x.dtype),
    "heaviside": lambda g, x, y: g.where(_equal(g, x, 0.0), y, g.cast(x > 0.0, x.dtype)),
    "isnan": _isnan,
    "isfinite": _isfinite,
    "logaddexp2": lambda g, x, y: _logaddexp(g, x * math.log(2), y * math.log(2)) / math.log(2),
    "isinf": _isinf,
    "positive": lambda g, x: x,
    "conjugate": lambda g, x: x,
    "deg2rad": lambda g, x: x * (math.pi / 180),
    "radians": lambda g, x: x * (math.pi / 180),
    "rad2deg": lambda g, x: x * (180 / math.pi),
    "degrees": lambda g, x: x * (180 / math.pi),
}
TAKES_ANY = {"equal", "not_equal", "logical_and", "logical_or", "logical_xor", "logical_not"}
TAKES_ANY |= {
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "invert",
    "maximum",
    "minimum",
    "absolute",
}
TAKES_ANY |= {"sign", "remainder", "positive", "greater", "less"}


@function("ufunc")
def _ufunc(g: Graph, ufunc: Any, method: str, inputs: Sequence[Any], kwargs: dict) -> Any:
    """A call of a ufunc, or of its method reduce or at."""
    name = ufunc.__name__
    if name == "matmul":
        return FUNCTIONS["matmul"](g, *inputs)
    if kwargs.get("where", True) is not True:
        raise Untraceable(f"{name} with where")
    if method == "at":
        return _at(g, name, *inputs)
    if method == "reduce":
        kinds = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
        kinds |= {"logical_and": "all", "logical_or": "any"}
        if name not in kinds:
            raise Untraceable(f"{name}.reduce")
        return FUNCTIONS[kinds[name]](g, *inputs, **{"axis": 0, **kwargs})
    if method == "outer":
        x, y = (np.asarray(x) if not isinstance(x, Tensor) else x for x in inputs)
        return ufunc(x.reshape((*x.shape, *[1] * y.ndim)), y)
    if method != "__call__" or name not in UFUNCS:
        raise Untraceable(f"{name}" if method == "__call__" else f"{name}.{method}")
    if known(inputs):
        with np.errstate(all="ignore"):
            return g.tensor(np.asarray(ufunc(*map(value_of, inputs), **kwargs)))
    weak = {int: int, float: float}  # Python numbers: the arrays decide
    inputs = [g.tensor(x) if isinstance(x, Dim) else x for x in inputs]
    kinds_of = [
        weak.get(type(x)) or (x if isinstance(x, Tensor) else np.asarray(x)).dtype for x in inputs
    ]
    if kwargs.get("dtype"):
        kinds_of = [np.dtype(kwargs["dtype"])] * len(inputs)
    elif all(isinstance(k, type) for k in kinds_of):
        raise Untraceable(f"{name} of numbers")
    if name in ("float_power",):
        kinds_of = [np.dtype("float64")] * len(inputs)
    *loop, result = ufunc.resolve_dtypes((*kinds_of, None))
    if name in ("logical_and", "logical_or", "logical_xor", "logical_not"):
        loop = [None if isinstance(k, type) else k for k in kinds_of]
    xs = []
    for x, dtype in zip(inputs, loop):
        dtype = dtype or np.dtype(type(x))
        x = g.cast(x, dtype) if isinstance(x, Tensor) else g.tensor(np.asarray(x).astype(dtype))
        xs.append(g.cast(x, "int32") if dtype.name in SMALL and name not in TAKES_ANY else x)
    if xs[0].dtype == np.bool_ and name in ("add", "multiply", "maximum", "minimum"):
        name = {"add": "logical_or", "maximum": "logical_or"}.get(name, "logical_and")
    if xs[0].dtype.kind in "iu" and name in ("floor", "ceil", "rint", "trunc"):
        return xs[0]
    if name == "power" and xs[0].dtype.kind == "u":
        xs = [g.cast(x, "int64") for x in xs]
    if xs[0].dtype.kind == "u" and name == "negative":
        return g.cast(0 - g.cast(xs[0], "int64"), result)
    return g.cast(UFUNCS[name](g, *xs), result)


def _at(g: Graph, name: str, x: Tensor, key: Any, y: Any = None) -> None:
    """np.add.at(x, key, y)."""
    kinds = {"add": ("add", 16), "multiply": ("mul", 16), "maximum": ("max", 18)}
    kinds |= {"minimum": ("min", 18)}
    if name not in kinds:
        raise Untraceable(f"{name}.at")
    reduction, opset = kinds[name]
    g.need(opset, f"ScatterElements with reduction={reduction}")
    x.replace(_scattered(g, x, key, y, reduction))


# ---- indices -------------------------------------------------------------------------------------


def _expanded(key: Any, ndim: int) -> list:
    """A key as a list with one item for each axis, and None for new ones."""
    key = list(key) if isinstance(key, tuple) else [key]
    used = sum(
        0
        if k is None or k is Ellipsis
        else np.ndim(k)
        if getattr(k, "dtype", None) == np.bool_
        else 1
        for k in key
    )
    at = [i for i, k in enumerate(key) if k is Ellipsis]
    fill = [slice(None)] * (ndim - used)
    return [*key[: at[0]], *fill, *key[at[0] + 1 :]] if at else key + fill


def _is_array(k: Any) -> bool:
    return isinstance(k, (Tensor, np.ndarray, list)) and not (
        isinstance(k, np.ndarray) and k.ndim == 0 and k.dtype != bool
    )


@function("getitem")
def _getitem(g: Graph, x: Tensor, key: Any) -> Any:
    if isinstance(key, Tensor) and key.dtype == np.bool_ and key.value is None:
        raise Untraceable("a shape depends on values")
    parts: list = []
    for k in _expanded(key, x.ndim):
        k = np.asarray(k) if isinstance(k, list) else k
        k = k.value if isinstance(k, Tensor) and k.value is not None and k.size < 1024 else k
        parts += list(k.nonzero()) if isinstance(k, np.ndarray) and k.dtype == bool else [k]
    if x.value is not None and not any(isinstance(k, Tensor) for k in parts):
        found = x.value[tuple(parts)]
        if found.nbytes <= max(x.value.nbytes, FOLDED):
            made = g.tensor(np.asarray(found)).again()
            return _view_of(made, x, key, parts)
    advanced = [k for k in parts if _is_array(k)]
    if advanced:  # numbers beside arrays are arrays, too
        numbers = [i for i, k in enumerate(parts) if hasattr(k, "__index__") and not _is_array(k)]
        for i in numbers:
            parts[i] = np.asarray(parts[i])
    basic = [slice(None) if isinstance(k, (Tensor, np.ndarray)) else k for k in parts]
    made = _basic(g, x, basic)
    if not advanced:
        return _view_of(made, x, key, parts)
    # axes of `made` that arrays index
    axes, axis = [], 0
    for k in parts:
        if isinstance(k, (Tensor, np.ndarray)):
            axes.append(axis)
        axis += not hasattr(k, "__index__") or isinstance(k, (Tensor, np.ndarray))
    arrays = [k for k in parts if isinstance(k, (Tensor, np.ndarray))]
    if len(axes) == 1:
        return gather(g, made, g.tensor(arrays[0]), axes[0])
    return _gather_many(g, made, arrays, axes)


def _view_of(made: Tensor, x: Tensor, key: Any, parts: Sequence[Any]) -> Tensor:
    """Basic indices give a view: what is written into it is written into x."""
    if not any(isinstance(k, (Tensor, np.ndarray)) for k in parts):
        made = made.again()
        made.part_of = (x, key)
    return made


def gather(g: Graph, x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """x at indices along an axis, as np.take."""
    if indices.dtype not in (np.int32, np.int64):
        indices = g.cast(indices, "int64")
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return g.Gather(x, indices, axis=axis, shape=shape)


def _gather_many(g: Graph, x: Tensor, arrays: Sequence[Any], axes: Sequence[int]) -> Tensor:
    tensors = [g.cast(g.tensor(a), "int64") for a in arrays]
    shape = broadcast(*(t.shape for t in tensors))
    columns = [g.unsqueeze(g.expand(t, shape), [-1]) for t in tensors]
    at = g.Concat(*columns, axis=-1, shape=(*shape, len(columns)))
    rest = [a for a in range(x.ndim) if a not in axes]
    front = g.transpose(x, [*axes, *rest])
    made = g.GatherND(front, at, shape=(*shape, *(x.shape[a] for a in rest)))
    if axes[-1] - axes[0] != len(axes) - 1:  # apart from each other: the result's first axes
        return made
    first, n = axes[0], len(shape)
    return g.transpose(made, [*range(n, n + first), *range(n), *range(n + first, made.ndim)])


def _basic(g: Graph, x: Tensor, key: Sequence[Any]) -> Tensor:
    """x at slices, numbers and new axes."""
    starts, ends, axes, steps, dropped, added = [], [], [], [], [], []
    shape, axis, place = list(x.shape), 0, 0
    for k in key:
        if k is None:
            added.append(place)
            place += 1
            continue
        n = x.shape[axis]
        if isinstance(k, slice):
            if k != slice(None):
                a, b, step = k.indices(n)
                size = len(range(a, b, step))
                if isinstance(n, Dim) and step == 1 and k.stop is None and (k.start or 0) >= 0:
                    size, b = n - (k.start or 0), (1 << 62)
                elif isinstance(n, Dim) and isinstance(k.stop, Dim) and step == 1 and not k.start:
                    size = b = k.stop
                elif isinstance(n, Dim) and step == -1 and k.start is None and k.stop is None:
                    size, a, b = n, -1, -1
                if not (a == 0 and step == 1 and size is n) and not (size == n and step == 1):
                    starts.append(a)
                    ends.append(b if b >= 0 else -(1 << 62))
                    steps.append(step)
                    axes.append(axis)
                    shape[axis] = size
            place += 1
        else:
            k = operator.index(k)
            if not -n <= k < max(n, 1):
                raise IndexError(f"index {k} is out of range for {n}")
            starts.append(k)
            ends.append(k + 1 if k != -1 else 1 << 62)
            steps.append(1)
            axes.append(axis)
            shape[axis] = 1
            dropped.append(axis)
        axis += 1
    if axes:
        x = g.slice(x, starts, ends, axes, steps, shape)
    return g.unsqueeze(g.squeeze(x, dropped), added)


@function("assigned")
def _assigned(g: Graph, x: Tensor, key: Any, value: Any) -> Tensor:
    """x with x[key] = value."""
    value = g.cast(g.tensor(value, x), x.dtype)
    if (
        isinstance(key, Tensor)
        and key.dtype == np.bool_
        and key.shape == x.shape
        and value.ndim == 0
    ):
        return g.where(key, value, x)
    if all(isinstance(k, slice) and k == slice(None) for k in _expanded(key, x.ndim)):
        return g.expand(value, x.shape)
    if x.value is not None and value.value is not None and not isinstance(key, Tensor):
        if not (isinstance(key, tuple) and any(isinstance(k, Tensor) for k in key)):
            made = x.value.copy()
            made[key] = value.value
            return g.tensor(made).again()
    return _scattered(g, x, key, value, None)


def _scattered(g: Graph, x: Tensor, key: Any, value: Any, reduction: str | None) -> Tensor:
    places = g.tensor(np.arange(x.size).reshape(x.shape)).again()
    at = places[key]
    value = g.expand(g.cast(g.tensor(value, x), x.dtype), at.shape)
    made = g.ScatterElements(
        g.reshape(x, (x.size,)),
        g.reshape(at, (at.size,)),
        g.reshape(value, (at.size,)),
        axis=0,
        reduction=reduction,
    )
    return g.reshape(made, x.shape)


# ---- shapes --------------------------------------------------------------------------------------


@function("filled")
def filled(g: Graph, shape: Sequence[int], value: Any, dtype: Any) -> Tensor:
    """All elements one number; of many elements the file holds the number alone."""
    one = np.full((), value, dtype)
    if any(isinstance(n, Dim) for n in shape) or math.prod(shape) * one.itemsize > FOLDED:
        return g.expand(g.tensor(one), shape)
    return g.tensor(np.full(shape, one)).again()


@function("reshape")
def _reshape(g: Graph, x: Any, *shape: Any, order: str = "C", **more: Any) -> Any:
    sizes: Any = more.get("shape", shape[0] if len(shape) == 1 else shape)
    if order == "F":
        raise Untraceable("reshape in Fortran's order")
    return g.reshape(x, [sizes] if hasattr(sizes, "__index__") else sizes)


function("ravel", "flatten")(lambda g, x, order="C": g.reshape(x, (-1,)))
function("copy", "ascontiguousarray", "asarray", "conj", "nan_to_num_")(
    lambda g, x, *_, **__: x.again()
)
function("squeeze")(
    lambda g, x, axis=None: g.squeeze(
        x, [i for i, n in enumerate(x.shape) if n == 1] if axis is None else _several(axis)
    )
)
function("broadcast_to")(lambda g, x, shape, **_: g.expand(g.tensor(x), shape))
function("swapaxes")(lambda g, x, a, b: g.transpose(x, _swapped(x.ndim, a, b)))


@function("expand_dims")
def _expand_dims(g: Graph, x: Tensor, axis: Any) -> Tensor:
    return g.unsqueeze(x, _several(axis))


def _several(axis: Any) -> list[int]:
    return [axis] if hasattr(axis, "__index__") else list(axis)


def _swapped(n: int, a: int, b: int) -> list[int]:
    axes = list(range(n))
    axes[a], axes[b] = axes[b], axes[a]
    return axes


@function("transpose")
def _transpose(g: Graph, x: Tensor, *given: Any, axes: Any = None) -> Tensor:
    axes = given if axes is None else axes
    axes = axes[0] if len(axes) == 1 and not hasattr(axes[0], "__index__") else axes
    return g.transpose(x, axes or range(x.ndim)[::-1])


@function("moveaxis")
def _moveaxis(g: Graph, x: Tensor, source: Any, destination: Any) -> Tensor:
    axes = np.moveaxis(np.empty((1,) * x.ndim), source, destination).ndim
    order = [a for a in range(axes) if a not in [s % axes for s in _several(source)]]
    for to, a in sorted(zip([d % axes for d in _several(destination)], _several(source))):
        order.insert(to, a % axes)
    return g.transpose(x, order)


@function("flip")
def _flip(g: Graph, x: Tensor, axis: Any = None) -> Tensor:
    axes = range(x.ndim) if axis is None else [a % x.ndim for a in _several(axis)]
    return x[tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(x.ndim))]


def joined(g: Graph, xs: Sequence[Any]) -> list[Tensor]:
    """Tensors of one dtype."""
    dtype = np.result_type(*(x.dtype if isinstance(x, Tensor) else np.asarray(x) for x in xs))
    return [g.cast(g.tensor(x), dtype) for x in xs]


@function("concatenate")
def concatenate(g: Graph, xs: Sequence[Any], axis: int | None = 0, **_: Any) -> Tensor:
    made = joined(g, xs)
    if known(made):
        return g.tensor(np.concatenate([x.value for x in made], axis)).again()
    if axis is None:
        made, axis = [g.reshape(x, (-1,)) for x in made], 0
    axis %= made[0].ndim
    size: int = 0
    for x in made:
        size = size + x.shape[axis]
    shape = (*made[0].shape[:axis], size, *made[0].shape[axis + 1 :])
    return g.Concat(*made, axis=axis, shape=shape) if len(made) > 1 else made[0]


@function("stack")
def _stack(g: Graph, xs: Sequence[Any], axis: int = 0, **_: Any) -> Tensor:
    made = joined(g, xs)
    axis %= made[0].ndim + 1
    return concatenate(g, [g.unsqueeze(x, [axis]) for x in made], axis)


@function("split", "array_split")
def _split(g: Graph, x: Tensor, parts: Any, axis: int = 0) -> list[Tensor]:
    ends = np.array_split(np.arange(x.shape[axis]), parts)
    return g.split(x, axis, [len(e) for e in ends])


@function("repeat")
def _repeat(g: Graph, x: Tensor, repeats: Any, axis: int | None = None) -> Tensor:
    if isinstance(repeats, Tensor):
        raise Untraceable("repeats that are computed")
    if axis is None:
        x, axis = g.reshape(x, (-1,)), 0
    axis %= x.ndim
    if np.ndim(repeats) or isinstance(x.shape[axis], Dim) is False:
        return gather(g, x, g.tensor(np.repeat(np.arange(x.shape[axis]), repeats)), axis)
    wide = g.expand(
        g.unsqueeze(x, [axis + 1]), (*x.shape[: axis + 1], repeats, *x.shape[axis + 1 :])
    )
    return g.reshape(wide, (*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1 :]))


@function("tile")
def _tile(g: Graph, x: Tensor, reps: Any) -> Tensor:
    reps = _several(reps)
    x = g.unsqueeze(x, range(max(len(reps) - x.ndim, 0)))
    reps = [1] * (x.ndim - len(reps)) + reps
    shape = [n * r for n, r in zip(x.shape, reps)]
    return g.Tile(x, g.sizes(reps), shape=shape)


@function("roll")
def _roll(g: Graph, x: Tensor, shift: Any, axis: Any = None) -> Tensor:
    if axis is None:
        return g.reshape(_roll(g, g.reshape(x, (-1,)), shift, 0), x.shape)
    for s, a in zip(_several(shift), _several(axis)):
        x = gather(g, x, g.tensor(np.roll(np.arange(x.shape[a]), s)), a % x.ndim)
    return x


@function("pad")
def _pad(
    g: Graph, x: Tensor, width: Any, mode: Any = "constant", constant_values: Any = 0
) -> Tensor:
    if not np.isscalar(constant_values):
        raise Untraceable("pad with several values")
    width = np.broadcast_to(np.asarray(width, np.int64), (x.ndim, 2))
    shape = [n + int(a) + int(b) for n, (a, b) in zip(x.shape, width)]
    if mode not in ("constant", "edge", "reflect"):
        for axis, ends in enumerate(width):
            at = np.pad(np.arange(x.shape[axis]), ends, mode)
            x = gather(g, x, g.tensor(at), axis) if any(ends) else x
        return x
    value = g.tensor(np.asarray(constant_values, x.dtype)) if mode == "constant" else None
    return g.Pad(x, width.T.reshape(-1).copy(), value, mode=mode, shape=shape)


@function("take")
def _take(
    g: Graph, x: Any, indices: Any, axis: int | None = None, mode: str = "raise", **_: Any
) -> Tensor:
    if mode != "raise":
        raise Untraceable(f"take with mode={mode}")
    x, indices = (
        g.tensor(x),
        g.tensor(np.asarray(indices) if isinstance(indices, list) else indices),
    )
    if axis is None:
        x, axis = g.reshape(x, (-1,)), 0
    return gather(g, x, indices, axis % x.ndim)


@function("take_along_axis")
def _take_along_axis(g: Graph, x: Any, indices: Any, axis: int) -> Tensor:
    x, indices = g.tensor(x), g.cast(g.tensor(indices), "int64")
    axis %= x.ndim
    whole = [m if i == axis else max(m, n) for i, (m, n) in enumerate(zip(indices.shape, x.shape))]
    wide = [n if i == axis else m for i, (n, m) in enumerate(zip(x.shape, whole))]
    x, indices = g.expand(x, wide), g.expand(indices, whole)
    return g.GatherElements(x, indices, axis=axis, shape=indices.shape)


@function("put_along_axis")
def _put_along_axis(g: Graph, x: Tensor, indices: Any, values: Any, axis: int) -> None:
    indices = g.cast(g.tensor(indices), "int64")
    values = g.expand(g.cast(g.tensor(values, x), x.dtype), indices.shape)
    x.replace(g.ScatterElements(x, indices, values, axis=axis))


function("tril")(lambda g, x, k=0: _triangle(g, x, k, 0))
function("triu")(lambda g, x, k=0: _triangle(g, x, k, 1))


def _triangle(g: Graph, x: Tensor, k: int, upper: int) -> Tensor:
    g.need(14, "Trilu")
    if x.dtype == np.bool_:
        return g.cast(_triangle(g, g.cast(x, "float32"), k, upper), "bool")
    return g.Trilu(x, np.asarray(k, np.int64), upper=upper)


@function("diag")
def _diag(g: Graph, x: Tensor, k: int = 0) -> Tensor:
    if x.ndim == 2:
        return _diagonal(g, x, k)
    n = x.shape[0] + abs(k)
    at = np.arange(x.shape[0])
    made = filled(g, (n * n,), 0, x.dtype).again()
    made[(at + max(-k, 0)) * n + at + max(k, 0)] = x
    return g.reshape(made, (n, n))


@function("diagonal")
def _diagonal(g: Graph, x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    a, b = axis1 % x.ndim, axis2 % x.ndim
    rows = np.arange(max(-offset, 0), max(min(x.shape[a], x.shape[b] - offset), 0))
    front = g.transpose(x, [a, b, *(i for i in range(x.ndim) if i not in (a, b))])
    made = _gather_many(g, front, [rows, rows + offset], [0, 1])
    return g.transpose(made, [*range(1, made.ndim), 0])


# ---- choices -------------------------------------------------------------------------------------


@function("where")
def _where(g: Graph, condition: Any, *pair: Any) -> Tensor:
    if len(pair) != 2:
        raise Untraceable("a shape depends on values")
    x, y = pair
    dtype = np.result_type(*(v.dtype if isinstance(v, Tensor) else v for v in pair))
    make = lambda v: g.cast(v, dtype) if isinstance(v, Tensor) else g.tensor(np.asarray(v, dtype))
    return g.where(_truth(g, g.tensor(condition)), make(x), make(y))


@function("clip")
def _clip(g: Graph, x: Tensor, a_min: Any = None, a_max: Any = None, **more: Any) -> Tensor:
    low, high = more.get("min", a_min), more.get("max", a_max)
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


@function("select")
def _select(g: Graph, conditions: Sequence, choices: Sequence, default: Any = 0) -> Any:
    for c, x in list(zip(conditions, choices))[::-1]:
        default = _where(g, c, x, default)
    return default


function("zeros_like")(lambda g, x, dtype=None, **_: filled(g, x.shape, 0, dtype or x.dtype))
function("ones_like")(lambda g, x, dtype=None, **_: filled(g, x.shape, 1, dtype or x.dtype))
function("empty_like")(lambda g, x, dtype=None, **_: filled(g, x.shape, 0, dtype or x.dtype))
function("full_like")(
    lambda g, x, value, dtype=None, **_: (
        g.expand(g.cast(value, dtype or x.dtype), x.shape)
        if isinstance(value, Tensor)
        else filled(g, x.shape, value, dtype or x.dtype)
    )
)
function("broadcast_arrays")(
    lambda g, *xs, **_: tuple(
        g.expand(
            g.tensor(x),
            broadcast(*(np.shape(x) if not isinstance(x, Tensor) else x.shape for x in xs)),
        )
        for x in xs
    )
)
function("isclose")(
    lambda g, x, y, rtol=1e-5, atol=1e-8, equal_nan=False: abs(x - y) <= atol + rtol * abs(y)
)
function("round", "around")(
    lambda g, x, decimals=0, **_: (
        np.rint(x * 10.0**decimals) / 10.0**decimals if decimals else np.rint(x)
    )
)
function("fix")(lambda g, x: np.trunc(x))


@function("nan_to_num")
def _nan_to_num(
    g: Graph,
    x: Any,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Any:
    if x.dtype.kind != "f":
        return x
    limits = np.finfo(x.dtype)
    x = _where(g, np.isnan(x), float(nan), x)
    x = _where(g, x == np.inf, float(limits.max if posinf is None else posinf), x)
    return _where(g, x == -np.inf, float(limits.min if neginf is None else neginf), x)


# ---- over axes -----------------------------------------------------------------------------------


def _reduction(kind: str) -> Callable:
    def apply(
        g: Graph,
        x: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
    ) -> Tensor:
        x = g.tensor(x)
        if where is not True:
            raise Untraceable(f"{kind} with where")
        if initial is not None and initial is not np._NoValue:
            made = apply(g, x, axis, dtype, None, keepdims)
            join = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
            return join[kind](made, initial)
        if kind in ("sum", "prod", "mean") and dtype is None:
            dtype = getattr(np, kind)(np.empty((1,), x.dtype)).dtype
        if kind in ("any", "all"):
            found = g.cast(_truth(g, x), "int32")
            made = g.reduce(
                "ReduceMax" if kind == "any" else "ReduceMin", found, _axes(axis), keepdims
            )
            return g.cast(made, "bool")
        result = np.dtype(dtype or x.dtype)
        x = g.cast(x, "int32" if result.name in (*SMALL, "bool") else result)
        if 0 in x.shape and not math.prod(x.shape):
            if kind not in ("sum", "prod"):
                raise ValueError(f"{kind} of no elements")
            shape = g.reduce("ReduceSum", x, _axes(axis), keepdims).shape
            return filled(g, shape, 0 if kind == "sum" else 1, result)
        made = g.reduce(f"Reduce{kind.title()}", x, _axes(axis), keepdims)
        return g.cast(made, result)

    return apply


def _axes(axis: Any) -> list[int] | None:
    return None if axis is None else _several(axis)


for _kind in ("sum", "prod", "mean", "max", "min", "any", "all"):
    function(_kind)(_reduction(_kind))
function("amax")(FUNCTIONS["max"])
function("amin")(FUNCTIONS["min"])


@function("var")
def _var(
    g: Graph, x: Tensor, axis: Any = None, keepdims: bool = False, ddof: int = 0, **_: Any
) -> Tensor:
    axes = _axes(axis)
    n = math.prod(x.shape if axes is None else [x.shape[a] for a in axes])
    apart = x - g.reduce("ReduceMean", x, axes, True)
    return g.reduce("ReduceSum", apart * apart, axes, keepdims) / float(n - ddof)


function("std")(lambda g, x, *args, **kwargs: np.sqrt(_var(g, x, *args, **kwargs)))
function("ptp")(lambda g, x, axis=None: np.max(x, axis) - np.min(x, axis))
function("count_nonzero")(lambda g, x, axis=None, **_: np.sum(_truth(g, x), axis))
function("nansum")(lambda g, x, axis=None, **k: np.sum(np.where(np.isnan(x), 0.0, x), axis, **k))
function("nanprod")(lambda g, x, axis=None, **k: np.prod(np.where(np.isnan(x), 1.0, x), axis, **k))


def _argument(kind: str) -> Callable:
    def apply(
        g: Graph, x: Tensor, axis: int | None = None, keepdims: bool = False, **_: Any
    ) -> Tensor:
        if axis is None:
            x, axis = g.reshape(x, (-1,)), 0
        axis %= x.ndim
        x = g.cast(x, "int32") if x.dtype.name in ("bool", *SMALL) else x
        shape = [1 if i == axis else n for i, n in enumerate(x.shape) if keepdims or i != axis]
        return g.op(kind, x, axis=axis, keepdims=int(keepdims), shape=shape, dtype="int64")

    return apply


function("argmax")(_argument("ArgMax"))
function("argmin")(_argument("ArgMin"))


@function("cumsum")
def _cumsum(g: Graph, x: Tensor, axis: int | None = None, dtype: Any = None, **_: Any) -> Tensor:
    if axis is None:
        x, axis = g.reshape(x, (-1,)), 0
    result = np.dtype(dtype) if dtype else np.cumsum(np.empty(1, x.dtype)).dtype
    work = "int32" if result.name in (*SMALL, "bool") else result
    return g.cast(g.CumSum(g.cast(x, work), np.asarray(axis % x.ndim, np.int32)), result)


@function("top")
def top(g: Graph, x: Tensor, k: int, axis: int, largest: bool = True) -> tuple[Tensor, Tensor]:
    """(values, places) of the k largest or smallest along an axis; equal ones in their order."""
    axis %= x.ndim
    x = g.cast(x, "int32") if x.dtype.name in ("bool", *SMALL) else x
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    values, at = g.TopK(x, g.term(k), axis=axis, largest=int(largest), n=2, shape=shape)
    at.dtype = np.dtype(np.int64)
    return values, at


@function("sort", "partition")
def _sort(g: Graph, x: Tensor, axis: int | None = -1, **_: Any) -> Tensor:
    x, axis = (g.reshape(x, (-1,)), 0) if axis is None else (x, axis)
    return g.cast(top(g, x, x.shape[axis], axis, False)[0], x.dtype)


@function("argsort", "argpartition")
def _argsort(g: Graph, x: Tensor, axis: int | None = -1, **_: Any) -> Tensor:
    x, axis = (g.reshape(x, (-1,)), 0) if axis is None else (x, axis)
    return top(g, x, x.shape[axis], axis, False)[1]


# ---- products ------------------------------------------------------------------------------------


@function("matmul")
def _matmul(g: Graph, x: Any, y: Any) -> Tensor:
    x, y = joined(g, [x, y])
    result = x.dtype
    if result.name in (*SMALL, "bool"):
        x, y = g.cast(x, "int32"), g.cast(y, "int32")
    a, b = x.shape, y.shape
    lead = broadcast(a[:-2], b[:-2])
    shape = (*lead, *(a[-2:-1] if len(a) > 1 else ()), *(b[-1:] if len(b) > 1 else ()))
    return g.cast(g.MatMul(x, y, shape=shape), result)


@function("dot")
def _dot(g: Graph, x: Any, y: Any) -> Tensor:
    x, y = g.tensor(x), g.tensor(y)
    if not x.ndim or not y.ndim:
        return x * y
    return _matmul(g, x, y) if y.ndim <= 2 else _tensordot(g, x, y, (x.ndim - 1, y.ndim - 2))


@function("einsum")
def _einsum(g: Graph, equation: str, *xs: Any, **_: Any) -> Tensor:
    made = joined(g, xs)
    result = made[0].dtype
    if result.name in (*SMALL, "bool"):
        made = [g.cast(x, "int32") for x in made]
    letters: dict[str, int] = {}
    left, arrow, right = equation.replace(" ", "").partition("->")
    if "." in equation:
        raise Untraceable("einsum with ...")
    if not arrow:  # what stands once, in order
        right = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    for term, x in zip(left.split(","), made):
        letters |= dict(zip(term, x.shape))
    out = g.Einsum(*made, equation=f"{left}->{right}", shape=[letters[c] for c in right])
    return g.cast(out, result)


@function("tensordot")
def _tensordot(g: Graph, x: Any, y: Any, axes: Any = 2) -> Tensor:
    x, y = joined(g, [x, y])
    pair = (
        axes
        if np.ndim(axes) or isinstance(axes, (tuple, list))
        else (list(range(x.ndim - axes, x.ndim)), list(range(axes)))
    )
    left, right = ([a % t.ndim for a in _several(p)] for p, t in zip(pair, (x, y)))
    names = "abcdefghijklmnopqrstuvwxyz"
    of_x = names[: x.ndim]
    of_y = list(names[x.ndim : x.ndim + y.ndim])
    for a, b in zip(left, right):
        of_y[b] = of_x[a]
    out = [c for i, c in enumerate(of_x) if i not in left] + [
        c for i, c in enumerate(of_y) if i not in right
    ]
    return _einsum(g, f"{of_x},{''.join(of_y)}->{''.join(out)}", x, y)


function("outer")(lambda g, x, y: g.reshape(g.tensor(x), (-1, 1)) * g.reshape(g.tensor(y), (1, -1)))
__all__ = ["FUNCTIONS", "Unmapped", "concatenate", "filled", "function", "gather", "known", "top"]
