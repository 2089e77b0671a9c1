"""CUDA text of fused row reductions (kernels/row_reductions.py): THREADS threads take a row. What
the reductions of one level need is computed again from the inputs, which are kept in registers
where the row is not too long, so that memory is read once and nothing but results is written."""

from __future__ import annotations

from collections.abc import Sequence

from ..fused import Group, rounded
from ..row_reductions import OF_ONE, REDUCTIONS, by_row, is_reduction
from ..statements import Loop, Statement
from .layout import TYPES
from .pointwise_source import FULL, ONE, Pattern, _head, _indent, _members, _scalars

HELPERS = {"sum": ("sum_of", "0.0f"), "max": ("max_of", "-INFINITY"), "min": ("min_of", "INFINITY")}
STEPS = {"sum": "{0} + {1}", "max": "larger({0}, {1})", "min": "smaller({0}, {1})"}
FUNCTION = "plk_row_reduction"


class Rows:
    """The text for a group. statements: of its steps, None where one reduces. In `loop` are the
    inputs, scalars and results; inputs of kind FULL have an element for each column."""

    def __init__(
        self, group: Group, loop: Loop, statements: Sequence[Statement | None], pattern: Pattern
    ):
        self._group, self._loop, self._statements, self._pattern = group, loop, statements, pattern
        self._first = len(group.in_shapes)
        self._single = by_row(group)
        self._names = [v.name for v in loop.inputs]
        self._names += [f"v{i}" for i in range(self._first, len(self._single))]
        self._level = [0] * self._first
        for step in group.steps:
            level = max((self._level[i] for i in step.inputs), default=0)
            self._level.append(level + is_reduction(step.op))

    def text(self) -> str:
        members = _members(self._loop, self._pattern)
        if self._pattern.spread:
            members.append(f"const {self._pattern.places} places")
        full = [i for i in range(self._first) if not self._single[i]]
        whole = [k for k, r in enumerate(self._group.results) if not self._single[r.value]]
        rows = [f"row_{self._names[i]}" for i in full] + [f"to_{k}" for k in whole]
        lines = _head(self._pattern, "rows.cuh")
        lines += [
            "",
            "template<int THREADS, int ITEMS, int V>",
            "__global__ void __launch_bounds__(THREADS < 256 ? 256 : THREADS)",
            f"{FUNCTION}(const int64_t n_rows, const int n, {', '.join(members)})",
            "{",
            "    __shared__ One<float> scratch[WARP];",
            *_indent(_scalars(self._loop)),
            "    const int64_t own = own_row<THREADS>(n_rows);",
            "    const I at = own < 0 ? 0 : (I)own;",
            "    const int t = threadIdx.x % THREADS;",
            "    Row<THREADS, ITEMS, V> row = {own < 0 ? 0 : n, t, false};",
            *_indent(self._pointers(full, whole)),
            f"    row.whole = n % V == 0 && is_aligned({', '.join(rows)});",
            *(
                f"    float h_{self._names[i]}[ITEMS ? ITEMS * V : 1]; "
                f"row.load(row_{self._names[i]}, h_{self._names[i]});"
                for i in full
            ),
        ]
        for level in range(max(self._level, default=0) + 1):
            lines += _indent(self._reductions(level))
            lines += _indent(self._numbers(level))
        lines += _indent(self._stores(whole))
        for k, r in enumerate(self._group.results):
            if k not in whole:
                name = self._names[r.value]
                kind = TYPES[self._pattern.out_dtypes[k]]
                lines.append(f"    if (own >= 0 && t == 0) out_{k}[at] = as<{kind}>({name});")
        return "\n".join([*lines, "}", ""])

    def _pointers(self, full, whole) -> list[str]:
        lines, spread = [], self._pattern.spread
        if spread:
            lines += [f"I offsets[{len(spread)}];", "places.find(at, offsets);"]
        for i in range(self._first):
            kind, name = self._pattern.kinds[i], self._names[i]
            where = "at * (I)n" if i in full else "at"
            if kind == ONE:
                where = "0"
            elif i in spread:
                where = f"offsets[{spread.index(i)}]"
            if i in full:
                t = TYPES[self._pattern.in_dtypes[i]]
                lines.append(f"const {t} *row_{name} = in_{name} + {where};")
            else:
                lines.append(f"const float {name} = value_of(in_{name}[{where}]);")
        for k in whole:
            lines.append(f"{TYPES[self._pattern.out_dtypes[k]]} *to_{k} = out_{k} + at * (I)n;")
        return lines

    def _closure(self, values: Sequence[int]) -> list[str]:
        """Statements that give full values from the inputs and numbers, for the element h or i."""
        need, stack = set(), [v for v in values if not self._single[v]]
        while stack:
            v = stack.pop()
            if v in need:
                continue
            need.add(v)
            if v >= self._first:
                read = self._group.steps[v - self._first].inputs
                stack += [i for i in read if not self._single[i]]
        lines = []
        for v in sorted(need):
            name = self._names[v]
            if v < self._first:
                lines.append(f"const float {name} = ITEMS ? h_{name}[h] : value_of(row_{name}[i]);")
            else:
                made = self._statements[v - self._first]
                assert made is not None  # reductions are numbers
                lines.append(f"const float {name} = (float)({made.text});")
        return lines

    def _each(self, body: Sequence[str]) -> list[str]:
        """A loop over the thread's elements, held or not."""
        return [
            "if (ITEMS) {",
            "#pragma unroll",
            "    for (int h = 0; h < row.HELD; h++) {",
            "        const int i = row.at(h);",
            "        if (i < row.n) {",
            *_indent(body, 3),
            "        }",
            "    }",
            "} else {",
            "    const int h = 0;",
            "    for (int i = row.t; i < row.n; i += THREADS) {",
            *_indent(body, 2),
            "    }",
            "}",
        ]

    def _reductions(self, level: int) -> list[str]:
        found = [
            (k, step, step.inputs[0])
            for k, step in enumerate(self._group.steps, self._first)
            if is_reduction(step.op) and self._level[k] == level
        ]
        found = [f for f in found if not self._single[f[2]]]
        if not found:
            return []
        lines, body = [], self._closure([of for _, _, of in found])
        for k, step, of in found:
            helper = REDUCTIONS[step.op][0]
            lines.append(f"float a_{k} = {HELPERS[helper][1]};")
            body.append(f"a_{k} = {STEPS[helper].format(f'a_{k}', self._names[of])};")
        lines += self._each(body)
        for k, step, _ in found:
            helper, finish = REDUCTIONS[step.op]
            value = f"{HELPERS[helper][0]}<THREADS>(a_{k}, scratch)"
            finish = finish.replace("(double)n", "(float)n")
            text = rounded(finish.format(value), step.dtype)
            lines.append(f"const float {self._names[k]} = {text};")
        return lines

    def _numbers(self, level: int) -> list[str]:
        lines = []
        for k, step in enumerate(self._group.steps, self._first):
            if not self._single[k] or self._level[k] != level:
                continue
            made = self._statements[k - self._first]
            if made:
                lines.append(f"const float {self._names[k]} = (float)({made.text});")
            elif self._single[step.inputs[0]]:
                text = OF_ONE[step.op].replace("(double)n", "(float)n")
                text = rounded(text.format(self._names[step.inputs[0]]), step.dtype)
                lines.append(f"const float {self._names[k]} = {text};")
        return lines

    def _stores(self, whole: Sequence[int]) -> list[str]:
        if not whole:
            return []
        values = {k: self._group.results[k].value for k in whole}
        types = {k: TYPES[self._pattern.out_dtypes[k]] for k in whole}
        closure = self._closure(list(values.values()))
        held = [f"float o_{k}[ITEMS ? ITEMS * V : 1];" for k in whole]
        return [
            *held,
            *self._each(
                [
                    *closure,
                    *(
                        f"if (ITEMS) o_{k}[h] = {self._names[v]}; "
                        f"else to_{k}[i] = as<{types[k]}>({self._names[v]});"
                        for k, v in values.items()
                    ),
                ]
            ),
            *(f"if (own >= 0) row.store(to_{k}, o_{k});" for k in whole),
        ]


__all__ = ["FULL", "FUNCTION", "Rows"]
