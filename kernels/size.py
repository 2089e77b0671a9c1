"""Sizes that write down what is asked of them, so that what was made of some sizes can be made of
others.

A Size has a value, as an int has, but shows it to nobody. Arithmetic gives other Sizes; a
comparison is answered by the values, and the question is kept with its answer. What needs the
number itself (an index, a hash, C code) raises NoValue. So code that has run on Sizes knows of them
what the questions tell, and nothing else: where other sizes give the same answers, it would have
done the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any


class NoValue(TypeError):
    """The number of a Size was asked for."""

    def __init__(self, *_: Any):
        super().__init__("a size has no value while a recipe is written")


class Script:
    """What code did with Sizes, in its order.

    given: the sizes it began with, the first of the values. is_lost: something was asked that is
    not written down. The code may have caught NoValue and gone another way, so the script is worth
    nothing.
    """

    def __init__(self, given: Sequence[int]):
        self.values: list[Any] = list(given)
        self.is_lost = False
        # (function, places of its operands, place of the result, None) or, of a question,
        # (function, places of its operands, -1, the answer)
        self._steps: list[tuple[Callable, int, int, int, bool | None]] = []
        self._made: dict[tuple, Any] = {}  # the Size, place or answer of what was met before
        self.given = [Size(self, i) for i in range(len(given))]

    def place(self, x: Any) -> int | None:
        """Where a Size or a number is among the values; None for what is neither."""
        kind = type(x)
        if kind is Size and x.script is self:
            return x.place
        if kind not in (int, float, bool):
            self.is_lost |= hasattr(x, "__float__")  # a number of NumPy, a Size of another script
            return None
        return self.constant(x)

    def constant(self, x: Any) -> int:
        """Where something that is the same for all sizes is among the values."""
        key = (type(x), repr(x))  # tells -0.0 from 0.0
        if key not in self._made:
            self._made[key] = len(self.values)
            self.values.append(x)
        return self._made[key]

    def step(self, function: Callable, a: Any, b: Any, is_question: bool) -> Any:
        """The answer for the sizes that it began with, or another Size. Equal expressions are the
        same object."""
        i, j = self.place(a), self.place(b)
        if i is None or j is None:
            return NotImplemented
        key = (function, i, j)
        if key not in self._made:
            made, at = function(self.values[i], self.values[j]), -1
            if not is_question:
                at = len(self.values)
                self.values.append(made)
            self._steps.append((function, i, j, at, made if is_question else None))
            self._made[key] = made if is_question else Size(self, at)
        return self._made[key]

    def end(self) -> None:
        """Forgets what only writing needs."""
        self.given, self._made = [], {}

    def read(self, given: Sequence) -> list | None:
        """The values for other sizes, or for Sizes of another script; None where a question has
        another answer."""
        values = self.values[:]
        values[: len(given)] = given
        try:
            for function, i, j, at, answer in self._steps:
                made = function(values[i], values[j])
                if answer is None:
                    values[at] = made
                elif made is not answer:
                    return None
        except (ArithmeticError, TypeError):
            return None
        return values


def _arithmetic(function: Callable, swapped: bool = False) -> Any:
    if swapped:
        return lambda self, other: self.script.step(function, other, self, False)
    return lambda self, other: self.script.step(function, self, other, False)


def _comparison(function: Callable) -> Any:
    return lambda self, other: self.script.step(function, self, other, True)


def _no_value(self: Any, *_: Any) -> Any:
    self.script.is_lost = True
    raise NoValue


def _no_hash(self: Any) -> int:
    raise NoValue  # caches expect it and do without


class Size:
    """A number of a Script; see above. For isinstance it is an int or a float, as the number is:
    rules ask for that, and C code does not."""

    __slots__ = ("place", "script")

    def __init__(self, script: Script, place: int):
        self.script, self.place = script, place

    __class__ = property(lambda self: type(self.script.values[self.place]))  # type: ignore[assignment]

    def __repr__(self):
        return f"size{self.place}"

    def __bool__(self):
        return self.script.step(operator.ne, self, 0, True)

    def __neg__(self):
        return self.script.step(_negative, self, 0, False)

    def __divmod__(self, other):
        return self // other, self % other

    def __pow__(self, other):
        n = _no_value(other) if is_size(other) else other  # whose sign decides the kind of number
        return self.script.step(operator.pow, self, n, False)

    def as_float(self) -> Any:
        """The float of the same number."""
        return self.script.step(_float_of, self, 0, False)

    __add__, __radd__ = _arithmetic(operator.add), _arithmetic(operator.add, True)
    __sub__, __rsub__ = _arithmetic(operator.sub), _arithmetic(operator.sub, True)
    __mul__, __rmul__ = _arithmetic(operator.mul), _arithmetic(operator.mul, True)
    __mod__, __rmod__ = _arithmetic(operator.mod), _arithmetic(operator.mod, True)
    __floordiv__ = _arithmetic(operator.floordiv)
    __rfloordiv__ = _arithmetic(operator.floordiv, True)
    __truediv__ = _arithmetic(operator.truediv)
    __rtruediv__ = _arithmetic(operator.truediv, True)
    __eq__, __ne__ = _comparison(operator.eq), _comparison(operator.ne)
    __lt__, __le__ = _comparison(operator.lt), _comparison(operator.le)
    __gt__, __ge__ = _comparison(operator.gt), _comparison(operator.ge)
    __hash__ = _no_hash  # a hash would tell two sizes apart without asking
    __index__ = __int__ = __float__ = __round__ = __abs__ = _no_value
    __floor__ = __ceil__ = __trunc__ = is_integer = _no_value
    __rpow__ = __rdivmod__ = __and__ = __rand__ = __lshift__ = __rshift__ = __copy__ = _no_value
    __deepcopy__ = __reduce_ex__ = _no_value


def is_size(x: Any) -> bool:
    """Is it a Size? Its class says int or float."""
    return type(x) is Size


def _negative(n: Any, _: int) -> Any:
    return -n


def _float_of(n: Any, _: int) -> Any:
    return n.as_float() if is_size(n) else float(n)
