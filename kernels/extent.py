"""Sizes that are not known yet, for inference with partly unknown shapes.

An Extent stands for a size in a shape. A record's `infer` and `fill` work on Extents as they do on
ints: sums, products and quotients are polynomials of unknown sizes. A comparison that the sizes do
not decide is answered both ways, one after the other: see `explore`. Where a way ends in the
record's error, its answers cannot hold; what all other ways agree on is known. So the checks of
`infer` are also the rules that tell one input from another, or an input from the output.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from ..engine.error import OperatorError

MAX_WAYS = 96  # through one rule; beyond, nothing is concluded
MAX_NDIM = 6  # of inputs of which nothing is known, unless known arrays have more
REFUSALS = (OperatorError, ArithmeticError, LookupError, ValueError)  # a rule's way to say no


class Contradiction(Exception):
    """What was assumed cannot hold."""


class Undecided(Exception):
    """A rule needs the value of an unknown size."""


Terms = dict  # a polynomial: {sorted tuple of numbers of unknown sizes: int coefficient}


class Way:
    """One run of a rule. answers: to its first questions; further ones are answered with 0.

    Holds what the run has found: sizes solved for, and equations that could not be solved yet.
    """

    def __init__(self, answers: Sequence[int] = ()):
        self.answers = list(answers)
        self.options: list[int] = []  # how many answers each question has
        self._solved: dict[int, Terms] = {}
        self._low: list[int] = []  # bounds of each unknown size
        self._high: list[int | None] = []
        self._equations: list[Terms] = []
        self._divisions: dict = {}  # (terms, divisor) -> (terms, divisor, quotient, remainder)
        self.known: dict = {}  # answers to comparisons

    def size(self, low: int = 1, high: int | None = None) -> Extent:
        """A new unknown size."""
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
            terms = _substituted(terms, at, self._solved[at])
        return terms

    def value(self, x):
        """A size as an int where it is known, else an Extent."""
        return _number(self, self.resolved(x.terms)) if isinstance(x, Extent) else x

    def _bounds(self, terms: Terms) -> tuple[int | None, int | None]:
        low: int | None = 0
        high: int | None = 0
        for m, c in terms.items():
            small = math.prod(self._low[v] for v in m)
            highs = [self._high[v] for v in m]
            large = None if None in highs else math.prod(highs)
            a, b = (small, large) if c > 0 else (large, small)
            low = None if low is None or a is None else low + c * a
            high = None if high is None or b is None else high + c * b
        return low, high

    def is_zero(self, terms: Terms) -> bool:
        """Is a polynomial 0? Where both may be, one is assumed."""
        terms = self.resolved(terms)
        if not terms.keys() - {()}:
            return not terms
        low, high = self._bounds(terms)
        if (low is not None and low > 0) or (high is not None and high < 0):
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
        """Takes it that a polynomial is 0, and solves for what that tells. Raises Contradiction."""
        waiting = [terms]
        while waiting:
            terms = self._without_factors(self.resolved(waiting.pop()))
            if not terms:
                continue
            low, high = self._bounds(terms)
            if (low is not None and low > 0) or (high is not None and high < 0):
                raise Contradiction
            found = self._solution(terms)
            if found is None:
                self._equations.append(terms)
                continue
            v, solution = found
            low, high = self._bounds(solution)
            if (high is not None and high < self._low[v]) or (
                low is not None and self._high[v] is not None and low > self._high[v]
            ):
                raise Contradiction
            self._solved[v] = solution
            if list(solution.values()) == [1] and len(m := next(iter(solution))) == 1:
                self._low[m[0]] = max(self._low[m[0]], self._low[v])  # one size: both bounds hold
                highs = [h for h in (self._high[m[0]], self._high[v]) if h is not None]
                self._high[m[0]] = min(highs, default=None)
            waiting += self._equations
            self._equations = []
            waiting += self._divided()

    def _without_factors(self, terms: Terms) -> Terms:
        """An equation's polynomial divided by the sizes, which are not 0, and the number that
        divide all of it."""
        while terms:
            common = set.intersection(*map(set, terms))
            v = next((v for v in common if self._low[v] > 0), None)
            if v is None:
                break
            terms = {_without(m, (v,)): c for m, c in terms.items()}
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

    def divmod(self, terms: Terms, divisor) -> tuple:
        """Quotient and remainder of a division by an int or a polynomial, as sizes."""
        terms = self.resolved(terms)
        by = self.resolved(divisor.terms) if isinstance(divisor, Extent) else {(): divisor}
        if not by or by == {(): 0}:
            raise ZeroDivisionError("division by a size of 0")
        whole, rest = {}, {}
        if len(by) == 1:
            ((d, c),) = by.items()
            for m, n in terms.items():
                quotient = _without(m, d)
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
            floor = -(1 << 62) if low is None or step <= 0 else low // step
            q = self.size(floor, None if high is None or step <= 0 else high // step)
            r = self.size(0, step - 1) if step > 0 else self.size(-(1 << 62))
            self._divisions[key] = rest, by, q, r
        _, _, q, r = self._divisions[key]
        return Extent(self, whole) + q, r * 1

    def _divided(self) -> list[Terms]:
        """Equations from divisions whose operands or whose remainder have become known."""
        made = []
        for key, (terms, by, q, r) in list(self._divisions.items()):
            terms, by = self.resolved(terms), self.resolved(by)
            remainder = self.resolved(r.terms)
            if not (remainder.keys() - {()}):
                made.append(_sum(terms, _product(by, q.terms), -1))
                made[-1] = _sum(made[-1], remainder, -1)
            elif not (terms.keys() - {()}) and not (by.keys() - {()}):
                n, d = terms.get((), 0), by.get((), 0)
                if not d:
                    raise Contradiction
                made += [_sum(q.terms, {(): n // d}, -1), _sum(r.terms, {(): n % d}, -1)]
            else:
                continue
            del self._divisions[key]
        return made


def _sum(a: Terms, b: Terms, factor: int = 1) -> Terms:
    made = dict(a)
    for m, c in b.items():
        n = made.pop(m, 0) + factor * c
        if n:
            made[m] = n
    return made


def _product(a: Terms, b: Terms) -> Terms:
    made: Terms = {}
    for (m, c), (k, n) in itertools.product(a.items(), b.items()):
        key = tuple(sorted(m + k))
        total = made.pop(key, 0) + c * n
        if total:
            made[key] = total
    return made


def _without(monomial: tuple, divisor: tuple) -> tuple | None:
    """A product of sizes without some of them; None where they are not in it."""
    rest = list(monomial)
    for v in divisor:
        if v not in rest:
            return None
        rest.remove(v)
    return tuple(rest)


def _substituted(terms: Terms, v: int, by: Terms) -> Terms:
    made: Terms = {}
    for m, c in terms.items():
        part = {tuple(k for k in m if k != v): c}
        for _ in range(m.count(v)):
            part = _product(part, by)
        made = _sum(made, part)
    return made


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

    __add__ = __radd__ = _arithmetic(_sum)
    __sub__ = _arithmetic(lambda a, b: _sum(a, b, -1))
    __rsub__ = _arithmetic(lambda a, b: _sum(b, a, -1))
    __mul__ = __rmul__ = _arithmetic(_product)

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

    __eq__ = _comparison(lambda way, a, b: way.is_zero(_sum(a, b, -1)))
    __ne__ = _comparison(lambda way, a, b: not way.is_zero(_sum(a, b, -1)))
    __lt__ = _comparison(lambda way, a, b: way.is_negative(_sum(a, b, -1)))
    __gt__ = _comparison(lambda way, a, b: way.is_negative(_sum(b, a, -1)))
    __le__ = _comparison(lambda way, a, b: not way.is_negative(_sum(b, a, -1)))
    __ge__ = _comparison(lambda way, a, b: not way.is_negative(_sum(a, b, -1)))

    def __bool__(self):
        return not self.way.is_zero(self.terms)

    # a set or a dict would tell two unknown sizes apart without asking
    __hash__ = __index__ = __int__ = __float__ = _undecided  # type: ignore[assignment]


def is_unknown(size) -> bool:
    return isinstance(size, Extent)


def agree(a, b) -> bool:
    """May two sizes be equal? Takes them as equal where one is unknown."""
    x, y = (a, b) if is_unknown(a) else (b, a)
    if not is_unknown(x):
        return a == b
    try:
        x.way.equate(_sum(x.terms, _terms(y) or {}, -1))
    except Contradiction:
        return False
    return True


class AnyDtype(str):
    """The dtype of an input whose dtype shall not matter: a Way answers what rules ask of it, and
    answers that a rule refuses do not count."""

    way: Way

    def __new__(cls, way: Way):
        made = super().__new__(cls, "float32")
        made.way = way
        return made

    def _answer(self, question: str) -> bool:
        known = self.way.known
        if (id(self), question) not in known:
            known[id(self), question] = not self.way.choose(2)
        return known[id(self), question]

    def __eq__(self, other):
        return isinstance(other, AnyDtype) or isinstance(other, str) and self._answer(other)

    def __ne__(self, other):
        return not self == other

    def __contains__(self, part):
        return self._answer(part)

    __hash__ = str.__hash__


def explore(rule: Callable[[Way], object]) -> tuple[list, Exception | None] | None:
    """(results of the ways through a rule that do not end in an error, the first error), or None
    where the rule needs more than is known."""
    waiting: list[list[int]] = [[]]
    results, error, n_ways = [], None, 0
    while waiting:
        answers = waiting.pop()
        n_ways += 1
        if n_ways > MAX_WAYS:
            return None
        way = Way(answers)
        try:
            results.append(rule(way))
        except Contradiction:
            pass
        except REFUSALS as refusal:
            error = error or refusal
        except (Undecided, TypeError, AttributeError, RecursionError):
            return None
        waiting += way.alternatives(len(answers))
    return results, error


def common(shapes: Sequence[tuple | None]) -> tuple | None:
    """What several shapes agree on: None for what they do not."""
    first = shapes[0]
    if any(s is None or len(s) != len(first or ()) for s in shapes) or first is None:
        return None
    return tuple(n if all(s[i] == n for s in shapes) else None for i, n in enumerate(first))
