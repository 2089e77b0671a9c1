"""Scalar attributes as run-time inputs of a program: changing them does not recompile."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from .size import is_size


class UnknownScalar(Exception):
    """The value of a scalar was needed before the program runs."""


class OpenScalar:
    """The k-th scalar input of a program, or an arithmetic expression of such scalars.

    For passes that compare attributes it equals the same expression only, never a constant.
    """

    __slots__ = ("_text", "of")

    def __init__(self, text: str, of: Callable[[Sequence[float]], float]):
        self._text, self.of = text, of

    def __repr__(self):
        return self._text

    def __eq__(self, other):
        return isinstance(other, OpenScalar) and self._text == other._text

    def __hash__(self):
        return hash(self._text)

    def __neg__(self) -> OpenScalar:
        return OpenScalar(f"neg({self})", lambda scalars: -self.of(scalars))

    def log(self) -> OpenScalar:
        return OpenScalar(f"log({self})", lambda scalars: log(self.of(scalars)))

    def _unknown(self, *_):
        raise UnknownScalar(f"the scalar {self} is known only when the program runs")

    __bool__ = __float__ = __int__ = __index__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown


def given(k: int) -> OpenScalar:
    """The k-th scalar of the caller."""
    return OpenScalar(f"n{k}", operator.itemgetter(k))


def value_of(scalar: float | OpenScalar, scalars: Sequence[float]) -> float:
    """An OpenScalar, or a constant, as a float."""
    return scalar.of(scalars) if isinstance(scalar, OpenScalar) else float(scalar)


def as_float(value: Any) -> float | OpenScalar:
    """What a "float" parameter accepts."""
    if is_size(value):
        return value.as_float()
    return value if isinstance(value, OpenScalar) else float(value)


def element(dtype: Any, number: float) -> float | int | bool:
    """A float as an element of a NumPy dtype: truncated for whole numbers. Raises OverflowError,
    ValueError for what none of them is."""
    return number if dtype.kind == "f" else bool(number) if dtype.kind == "b" else int(number)


def truncated(x: float) -> float:
    """A float without its fraction."""
    return float(int(x)) if math.isfinite(x) else x


def log(x: Any) -> Any:
    """The natural logarithm of a float, as C has it, or of a OpenScalar."""
    if isinstance(x, OpenScalar):
        return x.log()
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan


def _divide(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)


def _add_arithmetic() -> None:
    def both(name, function):
        def forward(self, other):
            if not all(isinstance(x, (OpenScalar, float, int)) for x in (self, other)):
                return NotImplemented
            return OpenScalar(
                f"{name}({self!r}, {other!r})",
                lambda scalars: function(value_of(self, scalars), value_of(other, scalars)),
            )

        setattr(OpenScalar, f"__{name}__", forward)
        setattr(OpenScalar, f"__r{name}__", lambda self, other: forward(other, self))

    for name in ("add", "sub", "mul"):
        both(name, getattr(operator, name))
    both("truediv", _divide)


_add_arithmetic()
