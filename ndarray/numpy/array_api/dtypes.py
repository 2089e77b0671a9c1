"""Dtypes of the array API standard: constants, promotion, limits, and what a namespace says of
itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as onp

from ....engine import Context, cpu, current_context, gpu, num_gpus
from ....engine.error import InvalidType, InvalidValue
from ....kernels.record import Array, dtype_name
from ....kernels.spec import DType
from ...ndarray import NDArray

KINDS = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": (),
}
KINDS["integral"] = KINDS["signed integer"] + KINDS["unsigned integer"]
KINDS["numeric"] = KINDS["integral"] + KINDS["real floating"]
NAMES = KINDS["bool"] + KINDS["numeric"]
INTEGER, FLOAT = "int64", "float32"  # of Python's numbers: the defaults of mx.np

SCALARS = (bool, int, float)


def name_of(x: Any) -> str:
    """The dtype of an array, or a dtype, by name."""
    return x._spec.dtype if isinstance(x, NDArray) else dtype_name(x)


def is_kind(name: str, kind: str) -> bool:
    """float16 and bfloat16, which the standard does not know, are floats."""
    return name in KINDS[kind] or (kind in ("real floating", "numeric") and "float" in name)


def joined(*names: str) -> str:
    """The dtype in which arrays meet. Raises TypeError where the standard has none."""
    if len(set(names)) == 1:
        return names[0]
    floats = [n for n in names if "float" in n]
    if len(floats) == len(names):
        if "bfloat16" in floats:
            return "float64" if "float64" in floats else "float32"
        return str(onp.result_type(*names))
    if floats or "bool" in names or str(onp.result_type(*names)) == "float64":
        raise InvalidType(
            f"array API: {', '.join(names)} have no common dtype\n  fix: xp.astype(x, dtype)"
        )
    return str(onp.result_type(*names))


def scalar_dtype(value: Any, beside: str) -> str:
    """The dtype of a Python number beside an array: the array's. Raises TypeError where the number
    is of a kind that dtype cannot hold."""
    fits = {bool: ("bool",), int: ("numeric",), float: ("real floating",)}[type(value)]
    if not any(is_kind(beside, kind) for kind in fits):
        raise InvalidType(
            f"array API: a Python {type(value).__name__} cannot stand beside {beside}\n"
            "  fix: xp.asarray(value, dtype=...)"
        )
    return beside


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The dtype in which arrays, dtypes and Python numbers meet."""
    names = [name_of(x) for x in arrays_and_dtypes if type(x) not in SCALARS]
    if not names:
        raise InvalidValue("result_type: at least one argument must be an array or a dtype")
    name = joined(*names)
    for x in arrays_and_dtypes:
        if type(x) in SCALARS:
            scalar_dtype(x, name)
    return onp.dtype(name)


def can_cast(from_: Any, to: DType, /) -> bool:
    """Does promotion lead from a dtype, or an array's, to another?"""
    return bool(onp.can_cast(name_of(from_), name_of(to)))


def isdtype(dtype: DType, kind: Any) -> bool:
    """Is a dtype of a kind ("real floating", "integral", ...), or equal to a dtype, or any of a
    tuple of these?"""
    if isinstance(kind, tuple):
        return any([isdtype(dtype, k) for k in kind])
    name = name_of(dtype)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise InvalidValue(f"isdtype: kind must be one of {', '.join(KINDS)}, got {kind!r}")
        return name in KINDS[kind]
    return name == name_of(kind)


class FloatInfo(NamedTuple):
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


class IntegerInfo(NamedTuple):
    bits: int
    max: int
    min: int
    dtype: Any


def finfo(type: Any, /) -> FloatInfo:
    """Limits of a float dtype, or of an array's."""
    i = onp.finfo(name_of(type))
    eps, most, least, normal = (float(n) for n in (i.eps, i.max, i.min, i.smallest_normal))
    return FloatInfo(i.bits, eps, most, least, normal, i.dtype)


def iinfo(type: Any, /) -> IntegerInfo:
    """Limits of an integer dtype, or of an array's."""
    i = onp.iinfo(name_of(type))
    return IntegerInfo(i.bits, i.max, i.min, i.dtype)


def astype(x: Array, dtype: DType, /, *, copy: bool = True, device: Context | None = None) -> Array:
    """x in another dtype. copy: of x too if nothing changes."""
    moved = x if device is None else x.as_in_context(device)
    return moved if name_of(moved) == name_of(dtype) and not copy else moved.astype(name_of(dtype))


class Info:
    """What __array_namespace_info__ gives."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}

    def default_device(self) -> Context:
        return current_context()

    def devices(self) -> list[Context]:
        return [cpu(), *map(gpu, range(num_gpus()))]

    def default_dtypes(self, *, device: Context | None = None) -> dict[str, Any]:
        of = {"real floating": FLOAT, "integral": INTEGER, "indexing": INTEGER}
        return {kind: onp.dtype(name) for kind, name in of.items()}

    def dtypes(
        self, *, device: Context | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, Any]:
        kinds = tuple(KINDS) if kind is None else (kind,) if isinstance(kind, str) else kind
        wanted = [name for k in kinds for name in KINDS[k]]
        return {name: onp.dtype(name) for name in NAMES if name in wanted}


def __array_namespace_info__() -> Info:
    """Dtypes, devices and capabilities."""
    return Info()


CONSTANTS: dict[str, Any] = {
    **{name: onp.dtype(name) for name in NAMES},
    **{"e": math.e, "inf": math.inf, "nan": math.nan, "newaxis": None, "pi": math.pi},
}
FUNCTIONS: tuple[Callable[..., Any], ...] = (
    *(__array_namespace_info__, astype, can_cast, finfo, iinfo, isdtype, result_type),
)
