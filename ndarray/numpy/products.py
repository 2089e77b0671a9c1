"""Products of mx.np whose arguments an operator cannot take as they are, and `@`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...engine.error import InvalidType, InvalidValue
from ...kernels.einsum import order, parse
from ...kernels.record import REGISTRY, Array
from ..functions import operator_function
from ..launch import copy_into
from ..ndarray import NDArray
from ..tape import refuse_recorded
from .array import method, ndarray, operand
from .operators import NUMBERS
from .operators import operand as beside

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def front(name: str) -> Callable[..., Any]:
    """The function of a front, for arrays and Symbols."""
    return operator_function(
        REGISTRY[name], name.removeprefix("_npi_").removeprefix("_np_"), operand
    )


dot, matmul = front("_np_dot"), front("_npi_matmul")
_einsum, _trace = front("_npi_einsum"), front("_np_trace")
_by_axes, _by_count = front("_npi_tensordot"), front("_npi_tensordot_int_axes")


# ---- tensordot, einsum ---------------------------------------------------------------------------


def tensordot(a: Array, b: Array, axes: Any = 2) -> Array:
    """Products of a and b, summed over axes of both.

    axes: how many, the last of a and the first of b; or those of a and those of b, each an axis or
        several.
    """
    if isinstance(axes, int) or not hasattr(axes, "__len__"):
        return _by_count(a, b, axes=int(axes))
    if len(axes) != 2:
        raise InvalidValue(f"np.tensordot: axes must be a number or those of a and b, got {axes!r}")
    of_a, of_b = [(x,) if isinstance(x, int) else tuple(x) for x in axes]
    if len(of_a) != len(of_b):
        raise InvalidValue(f"np.tensordot: axes must be as many of a as of b, got {axes!r}")
    return _by_axes(a, b, a_axes_summed=of_a, b_axes_summed=of_b)


def einsum(
    *operands: Any,
    out: Array | None = None,
    optimize: Any = False,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
) -> Array:
    """Einstein's summation: einsum("ij,jk->ik", a, b), or einsum(a, [0, 1], b, [1, 2], [0, 2]).

    optimize: "optimal", "greedy", a path of einsum_path; else the best order of contractions for so
        many operands is searched for. order, casting: as NumPy has them, without effect.
    """
    subscripts, arrays = _as_text(operands)
    if dtype is not None:
        arrays = [operand(x).astype(dtype) for x in arrays]
    return _einsum(*arrays, subscripts=subscripts, optimize=_path_text(optimize), out=out)


def einsum_path(*operands: Any, optimize: Any = "greedy") -> tuple[list, str]:
    """The order in which einsum contracts operands: (["einsum_path", (0, 1), ...], text)."""
    subscripts, arrays = _as_text(operands)
    parsed = parse(subscripts, [tuple(operand(x).shape) for x in arrays])
    steps: list = order(parsed, _path_text(optimize)) if len(arrays) > 1 else [(0,)]
    lines = [f"  {i + 1}: operands {step}" for i, step in enumerate(steps)]
    return ["einsum_path", *steps], "\n".join([f"Contractions of {subscripts!r}:", *lines])


def _as_text(operands: Sequence[Any]) -> tuple[str, list]:
    """The subscripts as one text, and the operands."""
    if not operands:
        raise InvalidValue("np.einsum: needs subscripts and operands, got nothing")
    if isinstance(operands[0], str):
        return operands[0], list(operands[1:])
    if len(operands) < 2:
        raise InvalidType(f"np.einsum: subscripts must be a text, got {type(operands[0]).__name__}")
    arrays, lists = list(operands[: len(operands) // 2 * 2 : 2]), list(operands[1::2])
    text = ",".join([_term(labels) for labels in lists])
    return (f"{text}->{_term(operands[-1])}" if len(operands) % 2 else text), arrays


def _term(labels: Sequence[Any]) -> str:
    return "".join(["..." if x is Ellipsis else LETTERS[x] for x in labels])


def _path_text(optimize: Any) -> str:
    if optimize in (False, True, None):
        return "01"[bool(optimize)]
    if isinstance(optimize, str):
        if optimize not in ("greedy", "optimal"):
            raise InvalidValue(
                f"np.einsum: optimize must be a bool, greedy, optimal or a path, got {optimize!r}"
            )
        return optimize
    first, *rest = optimize
    if first in ("greedy", "optimal"):  # and a limit of memory
        return first
    steps = rest if first == "einsum_path" else list(optimize)
    if any(len(step) != 2 for step in steps) and steps != [(0,)]:
        raise InvalidValue(f"np.einsum: a step of the path must name 2 operands, got {steps}")
    return "".join([f"({i},{j})" for i, j in steps]) if steps != [(0,)] else "0"


def trace(
    a: Array,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: Any = None,
    out: Array | None = None,
) -> Array:
    """The sum of a diagonal over two axes. dtype: of the sum; default that of a, of bools int64."""
    return _trace(a, offset=offset, axis1=axis1, axis2=axis2, dtype=dtype, out=out)


# ---- methods and operators -----------------------------------------------------------------------


def add_products(cls: type, in_place: bool) -> None:
    """Gives a class of arrays or Symbols the operator @."""

    def forward(x: Any, other: Any) -> Any:
        if other.__class__ is not x.__class__:
            other = beside(other)
            if other is NotImplemented or other.__class__ in NUMBERS:
                return NotImplemented
        return matmul(x, other)

    def backward(x: Any, other: Any) -> Any:
        other = beside(other)
        if other is NotImplemented or other.__class__ in NUMBERS:
            return NotImplemented
        return matmul(other, x)

    def replace(x: NDArray, other: Any) -> Any:
        refuse_recorded(x, other)
        made = forward(x, other)
        if made is NotImplemented:
            return made
        copy_into(made, x)
        return x

    setattr(cls, "__matmul__", forward)
    setattr(cls, "__rmatmul__", backward)
    if in_place:
        setattr(cls, "__imatmul__", replace)


add_products(ndarray, in_place=True)
method(trace)


def _dot(self: ndarray, b: Array, out: Array | None = None) -> Array:
    """As np.dot."""
    return dot(self, b, out=out)


setattr(ndarray, "dot", _dot)
__all__ = ["dot", "einsum", "einsum_path", "matmul", "tensordot", "trace"]
