"""Sizes that are not known yet, for inference with partly unknown shapes.

An Extent stands for a size in a shape. A record's `infer` and `fill` work on Extents as they do on
ints: sums, products and quotients are polynomials of unknown sizes. A comparison that the sizes do
not decide is answered both ways, one after the other: see `ways.explore`. Where a way ends in the
record's error, its answers cannot hold; what all other ways agree on is known. So the checks of
`infer` are also the rules that tell one input from another, or an input from the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

from .polynomial import Terms, plus, product, substituted, without


class Contradiction(Exception):
    """What was assumed cannot hold."""


class Undecided(Exception):
    """A rule needs the value of an unknown size."""


class Way:
    """One run of a rule. answers: to its first questions; further ones are answered with 0.

    Holds what the run has found: sizes solved for, and equations that could not be solved yet.
    """

    def __init__(self, answers: Sequence[int] = ()):
        self.answers = list(answers)
        self.options: list[int] = []  # how many answers each question has
        self._solved: dict[int, Terms] = {}
        self._low: list[int | None] = []  # bounds of each unknown size
        self._high: list[int | None] = []
        self._equations: list[Terms] = []
        self._divisions: dict = {}  # (terms, divisor) -> (terms, divisor, quotient, remainder)
        self.known: dict = {}  # answers to comparisons

    def size(self, low: int | None = 1, high: int | None = None) -> Any:
        """A new unknown size, an Extent."""
        self._low.append(low)
        self._high.append(high)
        return Extent(self, {(len(self._low) - 1,): 1})

    def choose(self, n: int) -> int:
        """The answer to a question that has n answers."""
        at = len(self.options)
        self.options.append(n)
        if at == len(self.answers):
            self.answers.append(0)
        return self.answers[at]

    def alternatives(self, n_given: int) -> list[list[int]]:
        """The answers of ways not gone yet, where the first n_given answers were prescribed."""
        return [
            [*self.answers[:i], other]
            for i in range(n_given, len(self.options))
            for other in range(1, self.options[i])
        ]

    # ---- polynomials -----------------------------------------------------------------------------

    def resolved(self, terms: Terms) -> Terms:
        """A polynomial with all that is solved put in."""
        while self._solved:
            at = next((v for m in terms for v in m if v in self._solved), None)
            if at is None:
                break
            terms = substituted(terms, at, self._solved[at])
        return terms

    def value(self, x: Any) -> Any:
        """A size as an int where it is known, else an Extent."""
        return _number(self, self.resolved(x.terms)) if isinstance(x, Extent) else x

    def _bounds(self, terms: Terms) -> tuple[int | None, int | None]:
        low: int | None = 0
        high: int | None = 0
        for m, c in terms.items():
            a, b = self._product_bounds(m)
            a, b = (a, b) if c > 0 else (b, a)
            low = None if low is None or a is None else low + c * a
            high = None if high is None or b is None else high + c * b
        return low, high

    def _product_bounds(self, m: tuple) -> tuple[int | None, int | None]:
        lows, highs = [self._low[v] for v in m], [self._high[v] for v in m]
        if len(m) > 1 and any(n is None or n < 0 for n in lows):
            return None, None
        return _product_of(lows), _product_of(highs)

    def is_zero(self, terms: Terms) -> bool:
        """Is a polynomial 0? Where both may be, one is assumed."""
        terms = self.resolved(terms)
        if not terms.keys() - {()}:
            return not terms
        low, high = self._bounds(terms)
        if _is_above(low, 0) or _is_above(0, high):
            return False
        key = (frozenset(terms.items()), "=")
        if key not in self.known:
            self.known[key] = not self.choose(2)
            self.known[frozenset((m, -c) for m, c in terms.items()), "="] = self.known[key]
            if self.known[key]:
                self.equate(terms)
        return self.known[key]

    def is_negative(self, terms: Terms) -> bool:
        """Is a polynomial below 0? Where both may be, one is assumed."""
        terms = self.resolved(terms)
        low, high = self._bounds(terms)
        if low is not None and low >= 0:
            return False
        if high is not None and high < 0:
            return True
        key = (frozenset(terms.items()), "<")
        if key not in self.known:
            self.known[key] = bool(self.choose(2))
            if not self.known[key] and high == 0:
                self.equate(terms)
        return self.known[key]

    # ---- equations -------------------------------------------------------------------------------

    def equate(self, terms: Terms) -> None:
        """Assumes that a polynomial is 0, and solves for sizes. Raises Contradiction."""
        waiting = [terms]
        while waiting:
            terms = self._without_factors(self.resolved(waiting.pop()))
            if not terms:
                continue
            low, high = self._bounds(terms)
            if _is_above(low, 0) or _is_above(0, high):
                raise Contradiction
            found = self._solution(terms)
            if found is None:
                self._equations.append(terms)
                continue
            v, solution = found
            low, high = self._bounds(solution)
            if _is_above(self._low[v], high) or _is_above(low, self._high[v]):
                raise Contradiction
            self._solved[v] = solution
            if list(solution.values()) == [1] and len(m := next(iter(solution))) == 1:
                (w,) = m  # two sizes are one: the bounds of both hold
                self._low[w] = max(
                    (n for n in (self._low[w], self._low[v]) if n is not None), default=None
                )
                self._high[w] = min(
                    (n for n in (self._high[w], self._high[v]) if n is not None), default=None
                )
            waiting += self._equations
            self._equations = []
            waiting += self._divided()

    def _without_factors(self, terms: Terms) -> Terms:
        """An equation's polynomial without the sizes, which are not 0, and the number that are
        factors of all of it."""
        while terms:
            common = set.intersection(*map(set, terms))
            v = next((v for v in common if _is_above(self._low[v], 0)), None)
            if v is None:
                break
            terms = {without(m, (v,)): c for m, c in terms.items()}
        divisor = math.gcd(*terms.values()) if terms else 1
        return {m: c // divisor for m, c in terms.items()} if divisor > 1 else terms

    def _solution(self, terms: Terms) -> tuple[int, Terms] | None:
        """(a size, what it is) from an equation. Raises Contradiction where it is no whole
        number."""
        count: dict[int, int] = {}
        for m in terms:
            for v in m:
                count[v] = count.get(v, 0) + 1
        constant = terms.get((), 0)
        for m, c in sorted(terms.items(), key=lambda item: (abs(item[1]), item[0])):
            if len(terms) <= 2 and m and constant % c and constant:
                raise Contradiction
            if len(m) != 1 or count[m[0]] != 1:
                continue
            rest = {k: n for k, n in terms.items() if k != m}
            if all(n % c == 0 for n in rest.values()):
                return m[0], {k: -n // c for k, n in rest.items()}
        return None

    def divmod(self, terms: Terms, divisor: Any) -> tuple:
        """Quotient and remainder of a division by an int or a polynomial, as sizes."""
        terms = self.resolved(terms)
        by = self.resolved(divisor.terms) if isinstance(divisor, Extent) else {(): divisor}
        if not by or by == {(): 0}:
            raise ZeroDivisionError("division by a size of 0")
        whole: Terms = {}
        rest: Terms = {}
        if len(by) == 1:
            ((d, c),) = by.items()
            for m, n in terms.items():
                quotient = without(m, d)
                fits = quotient is not None and n % c == 0
                (whole if fits else rest)[quotient if fits else m] = n // c if fits else n
        else:
            rest = terms
        if not rest:
            return _number(self, whole), 0
        key = frozenset(rest.items()), frozenset(by.items())
        if key not in self._divisions:
            low, high = self._bounds(rest)
            step = by.get((), 0) if len(by) == 1 else 0
            floor = None if low is None or step <= 0 else low // step
            q = self.size(floor, None if high is None or step <= 0 else high // step)
            r = self.size(0, step - 1) if step > 0 else self.size(None)
            self._divisions[key] = rest, by, q.terms, r.terms
        _, _, q, r = self._divisions[key]
        return _number(self, self.resolved(plus(whole, q))), _number(self, self.resolved(r))

    def _divided(self) -> list[Terms]:
        """Equations from divisions whose operands or whose remainder have become known."""
        made = []
        for key, (terms, by, q, r) in list(self._divisions.items()):
            terms, by = self.resolved(terms), self.resolved(by)
            remainder = self.resolved(r)
            if not (remainder.keys() - {()}):
                made.append(plus(terms, product(by, q), -1))
                made[-1] = plus(made[-1], remainder, -1)
            elif not (terms.keys() - {()}) and not (by.keys() - {()}):
                n, d = terms.get((), 0), by.get((), 0)
                if not d:
                    raise Contradiction
                made += [plus(q, {(): n // d}, -1), plus(r, {(): n % d}, -1)]
            else:
                continue
            del self._divisions[key]
        return made


def _product_of(bounds: Sequence[int | None]) -> int | None:
    return None if None in bounds else math.prod(n for n in bounds if n is not None)


def _is_above(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a > b


def _number(way: Way, terms: Terms):
    """A polynomial as an int where it is one, else as an Extent."""
    if not terms:
        return 0
    return terms[()] if len(terms) == 1 and () in terms else Extent(way, terms)


def _terms(x) -> Terms | None:
    if isinstance(x, Extent):
        return x.terms
    if hasattr(x, "__index__"):
        return {(): x.__index__()} if x else {}
    return None


def _arithmetic(combine):
    def method(self, other):
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        return _number(self.way, combine(self.way.resolved(self.terms), self.way.resolved(terms)))

    return method


def _comparison(decide):
    def method(self, other):
        terms = _terms(other)
        return NotImplemented if terms is None else decide(self.way, self.terms, terms)

    return method


def _undecided(self, *_):
    raise Undecided


class Extent:
    """An unknown size: a polynomial of the unknown sizes of one Way. Arithmetic gives Extents or,
    where the unknown cancels out, ints. Raises Undecided where a value is needed."""

    __slots__ = ("way", "terms")

    def __init__(self, way: Way, terms: Terms):
        self.way, self.terms = way, terms

    def __repr__(self):
        return "?"

    __add__ = __radd__ = _arithmetic(plus)
    __sub__ = _arithmetic(lambda a, b: plus(a, b, -1))
    __rsub__ = _arithmetic(lambda a, b: plus(b, a, -1))
    __mul__ = __rmul__ = _arithmetic(product)

    def __neg__(self):
        return self * -1

    def __divmod__(self, other):
        return self.way.divmod(self.terms, other)

    def __rdivmod__(self, other):
        return self.way.divmod({(): other}, self)

    def __floordiv__(self, other):
        return divmod(self, other)[0]

    def __mod__(self, other):
        return divmod(self, other)[1]

    def __rfloordiv__(self, other):
        return divmod(other, self)[0]

    def __rmod__(self, other):
        return divmod(other, self)[1]

    __eq__ = _comparison(lambda way, a, b: way.is_zero(plus(a, b, -1)))
    __ne__ = _comparison(lambda way, a, b: not way.is_zero(plus(a, b, -1)))
    __lt__ = _comparison(lambda way, a, b: way.is_negative(plus(a, b, -1)))
    __gt__ = _comparison(lambda way, a, b: way.is_negative(plus(b, a, -1)))
    __le__ = _comparison(lambda way, a, b: not way.is_negative(plus(b, a, -1)))
    __ge__ = _comparison(lambda way, a, b: not way.is_negative(plus(a, b, -1)))

    def __bool__(self):
        return not self.way.is_zero(self.terms)

    # a set or a dict would distinguish two unknown sizes without asking
    __hash__ = __index__ = __int__ = __float__ = _undecided  # type: ignore[assignment]


def is_unknown(size: Any) -> TypeGuard[Extent]:
    return isinstance(size, Extent)


def any_size(x: Extent) -> Any:
    """A size of which nothing is known, for what a rule makes of an unknown size."""
    return x.way.size(0)


def agree(a: Any, b: Any) -> bool:
    """May two sizes be equal? Takes them as equal where one is unknown."""
    x, y = (a, b) if is_unknown(a) else (b, a)
    if not is_unknown(x):
        return a == b
    try:
        x.way.equate(plus(x.terms, _terms(y) or {}, -1))
    except Contradiction:
        return False
    return True
