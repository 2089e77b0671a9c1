"""The ways through a rule whose comparisons unknown sizes do not decide, and what they agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..engine.error import OperatorError
from .extent import Contradiction, Undecided, Way
from .size import NoValue

MAX_WAYS = 96  # through one rule; beyond, nothing is concluded
MAX_NDIM = 6  # of inputs of which nothing is known, unless known arrays have more
REFUSALS = (OperatorError, ArithmeticError, LookupError, ValueError)  # a rule's way to say no


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


def explore(rule: Callable[[Way], object]) -> tuple[list, list] | None:
    """(results of the ways through a rule that do not end in an error, the errors), or None
    where the rule needs more than is known."""
    waiting: list[list[int]] = [[]]
    results: list = []
    errors: list[Exception] = []
    n_ways = 0
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
            errors.append(refusal.with_traceback(None))  # its frames hold this list
        except NoValue:  # of a Size
            raise
        except (Undecided, TypeError, AttributeError, RecursionError):
            return None
        waiting += way.alternatives(len(answers))
    return results, errors


def common(shapes: Sequence[tuple | None]) -> tuple | None:
    """What several shapes agree on: None for what they do not."""
    known = [s for s in shapes if s is not None]
    if len(known) < len(shapes) or len({len(s) for s in known}) > 1:
        return None
    return tuple(sizes[0] if len({*sizes}) == 1 else None for sizes in zip(*known))
