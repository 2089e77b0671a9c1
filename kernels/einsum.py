"""Einstein's summation as pairs: what a subscript says, and in which order operands are contracted.
Pure Python: kernels/ops/np/einsum.py makes operators of it.

A label is a character, or a number that stands for an axis of the ellipsis, counted from the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod
from typing import NamedTuple

from ..engine.error import OperatorError, ShapeError

Labels = tuple  # of one operand: a label for each axis
Pair = tuple[int, int]
OPTIMAL_UP_TO = 6  # operands, for which all orders are compared


class Parsed(NamedTuple):
    """operands: labels of each operand's axes. output: those of the result. sizes: by label."""

    operands: tuple[Labels, ...]
    output: Labels
    sizes: dict


def parse(subscripts: str, shapes: Sequence[tuple[int, ...]]) -> Parsed:
    """Raises OperatorError for a subscript that makes no sense, ShapeError for one that does not
    fit the operands."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise OperatorError(
            "np.einsum", f"{subscripts!r} names {len(terms)} operands, got {len(shapes)}"
        )
    operands = tuple(
        [_labels(subscripts, term, len(shape), shape) for term, shape in zip(terms, shapes)]
    )
    dots = sorted({x for labels in operands for x in labels if isinstance(x, int)}, reverse=True)
    if arrow:
        output = _output(subscripts, right, dots)
    else:
        letters = [x for labels in operands for x in labels if isinstance(x, str)]
        output = (*dots, *sorted({x for x in letters if letters.count(x) == 1}))
    known = {x for labels in operands for x in labels}
    for x in output:
        if x not in known:
            raise OperatorError(
                "np.einsum", f"the output of {subscripts!r} has {x!r}, no operand has"
            )
    return Parsed(operands, output, _sizes(subscripts, operands, shapes))


def _labels(subscripts: str, term: str, ndim: int, shape: tuple[int, ...]) -> Labels:
    before, dots, after = term.partition("...")
    for x in before + after:
        if not x.isalpha():
            raise OperatorError("np.einsum", f"labels must be letters, got {x!r} in {subscripts!r}")
    n = ndim - len(before) - len(after)
    if n < 0 or (n and not dots):
        raise ShapeError(
            "np.einsum",
            f"each axis needs a label, got {term!r} in {subscripts!r} for the shape {shape}",
        )
    return (*before, *range(n, 0, -1), *after)


def _output(subscripts: str, term: str, dots: list[int]) -> Labels:
    before, found, after = term.partition("...")
    for x in before + after:
        if not x.isalpha():
            raise OperatorError("np.einsum", f"labels must be letters, got {x!r} in {subscripts!r}")
    if len(set(before + after)) < len(before + after):
        raise OperatorError("np.einsum", f"the output of {subscripts!r} must not repeat a label")
    if dots and not found:
        raise OperatorError(
            "np.einsum",
            f"the output of {subscripts!r} must have an ellipsis, as the operands have",
            fix=f"{subscripts.replace('->', '->...')!r}",
        )
    return (*before, *dots, *after)


def _sizes(subscripts, operands, shapes) -> dict:
    sizes: dict = {}
    for labels, shape in zip(operands, shapes):
        own: dict = {}
        for x, n in zip(labels, shape):
            if own.setdefault(x, n) != n or (n != 1 and sizes.get(x, 1) not in (1, n)):
                raise ShapeError(
                    "np.einsum",
                    f"axes of label {x!r} in {subscripts!r} must be equal, or 1, got the shapes "
                    f"{', '.join(map(str, shapes))}",
                )
            if sizes.get(x, 1) == 1:
                sizes[x] = n
    return sizes


# ---- the order -----------------------------------------------------------------------------------


def order(parsed: Parsed, optimize: str) -> list[Pair]:
    """Which two operands are contracted, step by step; the result of a step is the last operand of
    the next. optimize: "optimal", "greedy", pairs as "(0,1)(0,2)", else the best way for so many.
    Raises OperatorError for pairs that do not fit."""
    sets = [frozenset(labels) for labels in parsed.operands]
    if optimize.startswith("("):
        return _given(optimize, len(sets))
    if optimize != "greedy" and (optimize == "optimal" or len(sets) <= OPTIMAL_UP_TO):
        return _optimal(sets, frozenset(parsed.output), parsed.sizes)
    return _greedy(sets, frozenset(parsed.output), parsed.sizes)


def _given(text: str, n: int) -> list[Pair]:
    steps = [tuple(map(int, t.split(","))) for t in text.strip("()").split(")(")]
    left = n
    for step in steps:
        if len(set(step)) != 2 or not all(0 <= i < left for i in step):
            raise OperatorError(
                "np.einsum", f"a step of the path must name 2 of {left} operands, got {step}"
            )
        left -= 1
    if left != 1:
        raise OperatorError("np.einsum", f"the path leaves {left} of {n} operands")
    return [(min(s), max(s)) for s in steps]


def cost(labels: frozenset, sizes: dict) -> int:
    """Multiplications of a contraction over these labels."""
    return prod(sizes[x] for x in labels)


def kept(pair: frozenset, others: Sequence[frozenset], output: frozenset) -> frozenset:
    """The labels of a pair's result: those that something else still needs."""
    return pair & output.union(*others)


def _greedy(sets: list[frozenset], output: frozenset, sizes: dict) -> list[Pair]:
    """At each step the pair whose result grows the least over its operands."""
    left, steps = list(sets), []
    while len(left) > 1:

        def growth(pair: Pair) -> tuple[int, int]:
            i, j = pair
            others = [s for k, s in enumerate(left) if k not in pair]
            both = left[i] | left[j]
            made = cost(kept(both, others, output), sizes)
            return made - cost(left[i], sizes) - cost(left[j], sizes), cost(both, sizes)

        i, j = min(combinations(range(len(left)), 2), key=growth)
        steps.append((i, j))
        right, first = left.pop(j), left.pop(i)
        left.append(kept(first | right, left, output))
    return steps


def _optimal(sets: list[frozenset], output: frozenset, sizes: dict) -> list[Pair]:
    """Dynamic programming over subsets of the operands: the fewest multiplications."""
    n = len(sets)
    full = (1 << n) - 1

    def labels_of(mask: int) -> frozenset:
        inside = frozenset().union(*[s for k, s in enumerate(sets) if mask >> k & 1])
        if mask & (mask - 1) == 0:
            return inside
        return kept(inside, [s for k, s in enumerate(sets) if not mask >> k & 1], output)

    labels = {mask: labels_of(mask) for mask in range(1, full + 1)}
    best: dict[int, tuple[int, int]] = {1 << k: (0, 0) for k in range(n)}  # (cost, one half)
    for mask in range(1, full + 1):
        if mask in best:
            continue
        half = (mask - 1) & mask
        while half:
            rest = mask ^ half
            if half > rest:
                total = best[half][0] + best[rest][0] + cost(labels[half] | labels[rest], sizes)
                if mask not in best or total < best[mask][0]:
                    best[mask] = (total, half)
            half = (half - 1) & mask
    steps: list[Pair] = []
    left = [1 << k for k in range(n)]

    def contract(mask: int) -> None:
        half = best[mask][1]
        if not half:
            return
        contract(half)
        contract(mask ^ half)
        i, j = sorted((left.index(half), left.index(mask ^ half)))
        steps.append((i, j))
        left.pop(j), left.pop(i)
        left.append(mask)

    contract(full)
    return steps
