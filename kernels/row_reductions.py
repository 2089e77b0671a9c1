"""Fused row reductions: groups with reductions over the last axis inside, as a C function of one
row.

A value is full (an element for each column) or one number for the row. What needs a reduction
first comes a level later; each level is one loop over the row, and what a later level or a
reduction reads stays in a row of scratch memory in the L1 cache. Results are stored in the last
loop, so one may lie over an input.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from .statements import Statement

REDUCTIONS = {  # operators of a step that reduces, and the row's number from the helper's
    "sum": ("sum", "{}"),
    "mean": ("sum", "{} / (double)n"),
    "max": ("max", "{}"),
    "min": ("min", "{}"),
}
OF_ONE = {"sum": "(double)n * {}", "mean": "{}", "max": "{}", "min": "{}"}  # of equal numbers
MAX_SCRATCH = 16
ROW_HEADER = "row_reduce.h"  # of the helpers


def is_reduction(op: str) -> bool:
    """Is a step of this operator a reduction?"""
    return op in REDUCTIONS


def by_row(group: Any) -> list[bool]:
    """Which values of a group are one number for each row."""
    found = [not s or s[-1] == 1 for s in group.in_shapes]
    for step in group.steps:
        found.append(is_reduction(step.op) or all(found[i] for i in step.inputs))
    return found


class RowSource:
    """The C text of a fused row reduction.

    statements: of the steps, None where one reduces; names: of all values; n_scratch: rows of
    temporaries it needs. Raises ValueError where these are too many.
    """

    def __init__(self, group: Any, names: Sequence[str], statements: Sequence[Statement | None]):
        self._group, self._names, self._statements = group, names, statements
        self._first = len(group.in_shapes)
        self._single = by_row(group)
        self._level = self._levels()
        self._last = max(self._level, default=0)
        self._scratch = self._crossing()
        self.n_scratch = len(self._scratch)
        if self.n_scratch > MAX_SCRATCH:
            raise ValueError("a fused row reduction with too many temporaries")

    def _levels(self) -> list[int]:
        found = [0] * self._first
        for step in self._group.steps:
            level = max((found[i] for i in step.inputs), default=0)
            found.append(level + is_reduction(step.op))
        return found

    def _full_results(self) -> dict[int, int]:
        """Numbers of results that have an element for each column: the value of each."""
        size = prod(self._group.shape)
        return {k: r.value for k, r in enumerate(self._group.results) if prod(r.shape) == size}

    def _crossing(self) -> list[int]:
        """Full steps that reductions or later loops read."""
        found = dict.fromkeys(v for v in self._full_results().values())
        found = {v: None for v in found if self._level[v] < self._last}
        for k, step in enumerate(self._group.steps, self._first):
            for i in step.inputs:
                later = self._level[k] > self._level[i] and not self._single[k]
                if is_reduction(step.op) or later:
                    found[i] = None
        return [v for v in sorted(found) if v >= self._first and not self._single[v]]

    def text(self, name: str, scalars: Sequence[str]) -> str:
        group, names = self._group, self._names
        n_out = len(group.results)
        lines = [f"void {name}(int64_t n, void *const *bufs, const double *scalars)", "{"]
        lines.append("    (void)scalars;")
        for i in range(self._first):
            if self._single[i]:
                lines.append(f"    const float {names[i]} = *(const float *)bufs[{i}];")
            else:
                lines.append(f"    const float *in_{names[i]} = bufs[{i}];")
        lines += [f"    float *out_{k} = bufs[{self._first + k}];" for k in range(n_out)]
        for k, v in enumerate(self._scratch, self._first + n_out):
            lines.append(f"    float *t_{names[v]} = bufs[{k}];")
        for i, s in enumerate(scalars):
            lines.append(f"    const float {s} = (float)scalars[{i}];")
        for level in range(self._last + 1):
            lines += self._numbers(level)
            lines += self._loop(level)
        full = self._full_results()
        for k, r in enumerate(group.results):
            if k not in full:
                lines.append(f"    *out_{k} = {names[r.value]};")
        return "\n".join([*lines, "}", ""])

    def _numbers(self, level: int) -> list[str]:
        lines = []
        for k, step in enumerate(self._group.steps, self._first):
            if not self._single[k] or self._level[k] != level:
                continue
            made = self._statements[k - self._first]
            text = made.text if made else self._reduced(step.op, step.inputs[0])
            lines.append(f"    const float {self._names[k]} = (float)({text});")
        return lines

    def _reduced(self, op: str, of: int) -> str:
        if self._single[of]:
            return OF_ONE[op].format(self._names[of])
        helper, finish = REDUCTIONS[op]
        prefix = "in" if of < self._first else "t"
        return finish.format(f"plk_row_{helper}({prefix}_{self._names[of]}, n)")

    def _loop(self, level: int) -> list[str]:
        names = self._names
        own = [
            k
            for k in range(self._first, len(names))
            if self._level[k] == level and not self._single[k]
        ]
        stores = [f"        t_{names[k]}[i] = {names[k]};" for k in own if k in self._scratch]
        reads = [i for k in own for i in self._group.steps[k - self._first].inputs]
        if level == self._last:
            full = self._full_results()
            stores += [f"        out_{k}[i] = {names[v]};" for k, v in full.items()]
            reads += full.values()
        if not stores:
            return []
        lines = ["#pragma GCC ivdep", "    for (int64_t i = 0; i < n; i++) {"]
        for i in dict.fromkeys(reads):
            if not self._single[i] and i not in own:
                prefix = "in" if i < self._first else "t"
                lines.append(f"        const float {names[i]} = {prefix}_{names[i]}[i];")
        for k in own:
            made = self._statements[k - self._first]
            assert made is not None  # reductions are numbers
            lines.append(f"        const float {names[k]} = (float)({made.text});")
        return [*lines, *stores, "    }"]
