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
    """What code did with Sizes, in its order. given: the sizes it began with."""

    def __init__(self, given: Sequence[int]):
        self.values: list[Any] = []
        self.constants: list[tuple[int, Any]] = []  # (place among the values, number)
        # (function, places of its operands, the answer; None where the result is another Size)
        self.steps: list[tuple[Callable, int, int, bool | None]] = []
        self._places: dict[tuple, int] = {}
        self._sizes: list[Size | None] = []
        self.given = [self._size(self._add(n)) for n in given]

    def _add(self, value: Any) -> int:
        self.values.append(value)
        self._sizes.append(None)
        return len(self.values) - 1

    def _size(self, place: int) -> Size:
        """The one Size of a place: equal expressions are the same object."""
        found = self._sizes[place]
        if found is None:
            found = self._sizes[place] = Size(self, place)
        return found

    def place(self, x: Any) -> int | None:
        """Where an operand is; None for what is no number."""
        if x.__class__ is Size:
            return x.place if x.script is self else None
        if x.__class__ not in (int, float, bool):
            return None
        key = (x.__class__, repr(x))  # tells -0.0 from 0.0
        if key not in self._places:
            self._places[key] = self._add(x)
            self.constants.append((self._places[key], x))
        return self._places[key]

    def compute(self, function: Callable, a: Any, b: Any) -> Any:
        """Another Size."""
        place = self._step(function, a, b, False)
        return place if place is NotImplemented else self._size(place)

    def ask(self, function: Callable, a: Any, b: Any) -> Any:
        """The answer for the sizes that it began with."""
        return self._step(function, a, b, True)

    def _step(self, function: Callable, a: Any, b: Any, is_question: bool) -> Any:
        """A question's answer, or the place of another size; what was done before is kept."""
        i, j = self.place(a), self.place(b)
        if i is None or j is None:
            return NotImplemented
        key = (function, i, j)
        if key not in self._places:
            made = function(self.values[i], self.values[j])
            self.steps.append((function, i, j, made if is_question else None))
            self._places[key] = made if is_question else self._add(made)
        return self._places[key]


def _arithmetic(function: Callable, swapped: bool = False) -> Any:
    if swapped:
        return lambda self, other: self.script.compute(function, other, self)
    return lambda self, other: self.script.compute(function, self, other)


def _comparison(function: Callable) -> Any:
    return lambda self, other: self.script.ask(function, self, other)


def _no_value(self: Any, *_: Any) -> Any:
    raise NoValue


class Size:
    """A number of a Script; see above."""

    __slots__ = ("place", "script")

    def __init__(self, script: Script, place: int):
        self.script, self.place = script, place

    def __repr__(self):
        return f"size{self.place}"

    def __bool__(self):
        return self.script.ask(operator.ne, self, 0)

    def __neg__(self):
        return self.script.compute(_negative, self, 0)

    def as_float(self) -> Any:
        """The float of the same number."""
        return self.script.compute(_float_of, self, 0)

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
    # a hash would tell two sizes apart without asking
    __hash__ = __index__ = __int__ = __float__ = __round__ = _no_value  # type: ignore[assignment]
    __copy__ = __deepcopy__ = __reduce_ex__ = _no_value  # type: ignore[assignment]


def _negative(n: Any, _: int) -> Any:
    return -n


def _float_of(n: Any, _: int) -> Any:
    return n.as_float() if n.__class__ is Size else float(n)


class Numbers:
    """A finished Script: its numbers for other sizes."""

    def __init__(self, script: Script):
        n_given = len(script.given)
        self.constants = [x for _, x in script.constants]
        new = {i: i for i in range(n_given)}
        new.update((at, n_given + k) for k, (at, _) in enumerate(script.constants))
        for i in range(len(script.values)):
            new.setdefault(i, len(new))
        self.steps = [(f, new[i], new[j], answer) for f, i, j, answer in script.steps]
        self._new = new

    def place(self, size: Size) -> int:
        """Where the number of a Size is among those that `of` gives."""
        return self._new[size.place]

    def of(self, given: Sequence) -> list | None:
        """All numbers for these sizes, or Sizes; None where a question has another answer."""
        values = [*given, *self.constants]
        try:
            for function, i, j, answer in self.steps:
                made = function(values[i], values[j])
                if answer is None:
                    values.append(made)
                elif made is not answer:
                    return None
        except (ArithmeticError, TypeError):
            return None
        return values
