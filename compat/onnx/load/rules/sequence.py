"""Sequences and optional values: Python lists, and None."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..run import Call, rule
from .shape import axis_of, sliced


@rule("SequenceEmpty", raw=True)
def empty(c: Call) -> Any:
    return []


@rule("SequenceConstruct", raw=True)
def construct(c: Call, *xs: Any) -> Any:
    return [*xs]


def _place(c: Call, at: Any, n: int) -> int:
    i = int(np.asarray(c.run.known(at, c)).reshape(-1)[0])
    if not -n <= i < n:
        raise c.fail(f"the position must be -{n} to {n - 1}, got {i}")
    return i % n


@rule("SequenceAt", raw=True)
def item(c: Call, xs: Any, at: Any) -> Any:
    return xs[_place(c, at, len(xs))]


@rule("SequenceInsert", raw=True)
def insert(c: Call, xs: Any, x: Any, at: Any = None) -> Any:
    if at is None:
        return [*xs, x]
    i = int(np.asarray(c.run.known(at, c)).reshape(-1)[0])
    i += len(xs) if i < 0 else 0
    return [*xs[:i], x, *xs[i:]]


@rule("SequenceErase", raw=True)
def erase(c: Call, xs: Any, at: Any = None) -> Any:
    i = _place(c, at, len(xs)) if at is not None else len(xs) - 1
    return [*xs[:i], *xs[i + 1 :]]


@rule("SequenceLength", raw=True)
def length(c: Call, xs: Any) -> Any:
    return np.array(len(xs), np.int64)


@rule("ConcatFromSequence", raw=True)
def joined(c: Call, xs: Any) -> Any:
    parts = [c.run.lift(x) for x in xs]
    if c("new_axis", 0):
        return c.np.stack(parts, axis=c("axis"))
    return c.np.concatenate(parts, axis=c("axis"))


@rule("SplitToSequence", static=(1,))
def split(c: Call, x: Any, sizes: Any = None) -> Any:
    axis = axis_of(c, c("axis", 0), len(x.shape))
    n = x.shape[axis]
    single = sizes is None
    if sizes is None:
        sizes = [1] * n
    elif np.ndim(sizes) == 0:
        each = int(sizes)
        sizes = [min(each, n - i) for i in range(0, n, each)]
    ends = np.cumsum([0, *sizes])
    parts = [sliced(c, x, axis, int(a), int(b)) for a, b in zip(ends, ends[1:])]
    if single and not c("keepdims", 1):
        parts = [c.np.squeeze(p, axis=axis) for p in parts]
    return (parts,)


@rule("Optional", raw=True)
def optional(c: Call, x: Any = None) -> Any:
    return x


@rule("OptionalHasElement", raw=True)
def has_element(c: Call, x: Any = None) -> Any:
    return np.array(x is not None)
