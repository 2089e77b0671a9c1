"""C of traced references: the printer of loops for CPUs.

    plk_traced_function(begin, end, places, sizes, numbers) -> whether an index was out of range

A function computes elements [begin, end) of a loop, so that threads share it; each element is
computed by one of them, in an order that depends on shapes only. The text depends on what is
computed, on dtypes and on numbers of axes, hardly on sizes: it is found by its digest among those
that were compiled when plait was built (built.py).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..shapes import lines
from .arguments import Buffer, Copy, Float64, Int64, Scalar, Scratch
from .nest import Nest, Spot, parts
from .nodes import (
    INDEX,
    JOINS,
    TYPES,
    Leaf,
    Node,
    Reduce,
    Scan,
    Scatter,
    Step,
    Text,
    Untraceable,
    Write,
)
from .trace import Tracer

MAX_LINES = 400
LANES = 16  # partial results of a reduction along contiguous elements
COLUMNS = 64  # results of a reduction that are made together
STORED = TYPES | {"bool": "uint8_t", "float16": "uint16_t", "bfloat16": "uint16_t"}
VALUES = TYPES | {"bool": "int32_t"}
LIMITS = {
    **{f"int{b}": (f"(-INT{b}_MAX - 1)", f"INT{b}_MAX") for b in (8, 16, 32, 64)},
    **{f"uint{b}": ("0", f"UINT{b}_MAX") for b in (8, 16, 32)},
    "bool": ("0", "1"),
}
LOADS = {"float16": "half_to_float({})", "bfloat16": "brain_to_float({})", "bool": "{} != 0"}
STORES = {"float16": "float_to_half((float)({}))", "bfloat16": "float_to_brain((float)({}))"}
SMALL = ("uint8", "int8", "uint16", "int16")
WORD = re.compile(r"[A-Za-z_]\w*")
HEAD = """#include <stdbool.h>
#include "draws.h"
#include "half.h"
#include "kernel.h"
#include "traced.h"
#pragma GCC diagnostic ignored "-Wunused-variable"
#define larger(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))
#define smaller(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))
"""


class Constant:
    """An array that is known when a call is planned."""

    def __init__(self, values: np.ndarray):
        self.values = values


class Function(NamedTuple):
    """One loop of a call.

    text: a C function without its name. places, sizes, numbers: what it is called with. n: elements
    that threads share, in multiples of `unit`; work: elementary steps.
    """

    text: str
    places: Sequence[Buffer | Scratch | Constant]
    sizes: Sequence[int]
    numbers: Sequence[float | Scalar]
    n: int
    unit: int
    work: int
    checks: bool  # it may find an index out of range

    @property
    def name(self) -> str:
        return "t_" + hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()[:16]


def converted(to: str, dtype: str, text: str) -> str:
    """A value of a dtype in another one, as NumPy converts it."""
    if to in STORES:
        return STORES[to].format(text)
    if to == "bool":
        return text if dtype == "bool" else f"({text}) != 0"
    if to in SMALL and dtype in ("float32", "float64"):
        return f"({STORED[to]})(int64_t)({text})"
    return f"({VALUES[to]})({text})"


class CText(Text):
    """The statements of one loop. Each use of a size is an argument of its own: sizes that happen
    to be equal, or 1, make no other text."""

    def __init__(self, axes: Sequence[str] = ()) -> None:
        """axes: the loop's variables, the innermost one last."""
        super().__init__()
        self.axes = axes
        self._uses = 0
        self.checks = False

    def declaration(self, kind: str, name: str, text: str) -> str:
        if kind == "bool":
            return f"const int32_t {name} = ({text}) != 0;"
        return f"const {kind} {name} = {text};"

    def load(self, leaf: Leaf, at: Sequence[str]) -> str:
        return self.read(leaf, self.flat(at, leaf.strides, None if leaf.is_whole else leaf.offset))

    def converted(self, dtype: np.dtype, source: np.dtype, name: str) -> str:
        return converted(dtype.name, source.name, name)

    def scalar(self, dtype: np.dtype, scalar: Scalar) -> str:
        name, kind = self.argument("double", scalar), TYPES[dtype.name]
        if dtype.name in LIMITS:
            name = f"plk_whole({name}, {', '.join(LIMITS[dtype.name])})"
        return self.value(kind, f"({kind}){name}")

    def number(self, dtype: np.dtype, number: Any) -> str:
        kind = TYPES[dtype.name]
        if dtype.kind != "f":
            return self.value(kind, f"({kind}){self.size(number)}")
        self._uses += 1
        given = Float64(float(number))
        return self.value(kind, f"({kind}){self.argument('double', given, self._uses)}")

    def table(self, values: np.ndarray, flat: str) -> str:
        self._uses += 1
        kind = f"const {STORED[values.dtype.name]} *"
        return f"{self.argument(kind, Constant(values), self._uses)}[{flat}]"

    def size(self, n: int) -> str:
        self._uses += 1
        return self.argument("I", Int64(int(n)), self._uses)

    def split(self, flat: str, shape: Sequence[int]) -> list[str]:
        found: list[str] = []
        for n in reversed(shape[1:]):
            rest, size = self.place(f"{flat} / {self.size(n)}"), self.size(n)
            found.insert(0, self.place(f"{flat} - {rest} * {size}"))
            flat = rest
        return [flat, *found] if shape else []

    def flat(self, at: Sequence[str], strides: Sequence[int], offset: int | None = None) -> str:
        parts = []
        for d, (i, s) in enumerate(zip(at, strides)):
            if i != "0" and s:
                parts.append(i if s == 1 and d == len(strides) - 1 else f"{i} * {self.size(s)}")
        if offset is not None or not parts:
            parts.append(self.size(offset or 0))
        return self.place(" + ".join(parts))

    def own(self, x: Node, at: Sequence[str], shape: Sequence[int]) -> tuple[str, ...]:
        lead = len(at) - len(x.shape)
        return tuple(
            "0" if n == 1 and whole != 1 else i
            for n, whole, i in zip(x.shape, tuple(shape)[lead:], at[lead:])
        )

    def within(self, i: str, n: int) -> str:
        last = self.size(max(n - 1, 0))
        return self.place(f"{i} < 0 ? 0 : {i} < {last} ? {i} : {last}")

    def check(self, i: str, n: int) -> None:
        self.checks = True
        self.lines.append(f"bad |= {i} < 0 || {i} >= {self.size(n)};")

    def read(self, leaf: Leaf, flat: str) -> str:
        """The element of an array in memory at a flat place."""
        name = self.argument(f"const {STORED[leaf.stored]} *", leaf.place)
        return self.value(leaf.kind, LOADS.get(leaf.stored, "{}").format(f"{name}[{flat}]"))

    def spot(self, spot: Spot) -> str:
        """A sum of steps along the loop's axes."""
        last, parts = len(self.axes) - 1, []
        for d, (i, s) in enumerate(zip(self.axes, spot.affine.steps)):
            if s:
                parts.append(i if s == 1 and d == last else f"{i} * {self.size(s)}")
        for node, s in spot.affine.picked:
            i = self.element(node, ())
            parts.append(i if s == 1 else f"{i} * {self.size(s)}")
        if spot.printed:
            parts.append(self.size(spot.affine.offset))
        return self.place(" + ".join(parts)) if parts else "0"

    def levels(self, *names: str) -> list[list[str]]:
        """The lines that depend on none of these variables of nested loops, those that depend on
        the first one, ..."""
        depth = {name: d for d, name in enumerate(names, 1)}
        found: list[list[str]] = [[] for _ in range(len(names) + 1)]
        for line in self.lines:
            words = WORD.findall(line)
            deepest = max((depth.get(w, 0) for w in words), default=0)
            found[deepest].append(line)
            if words[0] == "const":
                depth[words[2]] = deepest
        return found


def candidates(t: Tracer) -> list[list[Function]]:
    """The loops of a recorded call, each in the ways in which it can be written, the fastest one
    first. The last way serves other sizes too. Raises Untraceable."""
    steps: list[Step] = []
    for step in t.needed():
        steps += parts(step) if isinstance(step, Write) else [step]
    return [list({f.name: f for f in _candidates(step)}.values()) for step in steps]


def _candidates(step: Step) -> list[Function]:
    if isinstance(step, Copy):
        text = (
            f"({ARGUMENTS})\n{{\n    memcpy((char *)p[0] + begin, (const char *)p[1] + begin,"
            " (size_t)(end - begin));\n    return 0;\n}\n"
        )
        places = [step.to, step.source]
        return [Function(text, places, [], [], step.nbytes, 64, step.nbytes // 4, False)]
    if isinstance(step, Write):
        return [_write(step, merge) for merge in (True, False)]
    if isinstance(step, Reduce):
        return _reductions(step)
    return [_scan(step) if isinstance(step, Scan) else _scatter(step)]


ARGUMENTS = "int64_t begin, int64_t end, void *const *p, const int64_t *s, const double *d"


def _made(
    k: CText,
    body: Sequence[str],
    out: Sequence[tuple[Buffer | Scratch, str]],
    own_sizes: Sequence[int],
    n: int,
    unit: int,
    work: int,
) -> Function:
    """A function around a body. own_sizes: s[0] ..., before those that `k` asked for."""
    if len(k.lines) > MAX_LINES:
        raise Untraceable("too long a loop")
    places: list[Any] = [place for place, _ in out]
    sizes = list(own_sizes)
    numbers: list[float | Scalar] = []
    head = [f"{STORED[d]} *restrict out_{i} = p[{i}];" for i, (_, d) in enumerate(out)]
    for (_, argument, _), (kind, name) in k.arguments.items():
        if kind.endswith("*"):
            head.append(f"{kind}restrict {name} = p[{len(places)}];")
            places.append(argument)
        elif isinstance(argument, Int64):
            head.append(f"const {kind} {name} = s[{len(sizes)}];")
            sizes.append(argument.value)
        else:
            head.append(f"const {kind} {name} = d[{len(numbers)}];")
            numbers.append(argument.value if isinstance(argument, Float64) else argument)
    lines = [*head, "int bad = 0;", "(void)s, (void)d;", *body, "return bad;"]
    text = f"({ARGUMENTS})\n{{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
    return Function(
        INDEX.sub("int64_t", text), places, sizes, numbers, n, unit, int(work), k.checks
    )


def _indented(lines: Sequence[str], by: int = 1) -> list[str]:
    return ["    " * by + line for line in lines]


def _write(step: Write, merge: bool) -> Function:
    shape = tuple(step.nodes[0].shape)
    nest = Nest(step.nodes, shape, merge, region=step.region)
    *outer, width = nest.shape or [1]
    rows = [f"r{d}" for d in range(len(outer))]
    k = CText([*rows, "i"])
    names = [k.element(x, ()) for x in nest.nodes]
    to = k.spot(nest.to) if nest.to else "from + i" if rows else "i"
    fixed, inner = k.levels("i") if rows else ([], k.lines)
    stores = [
        f"out_{j}[{to}] = {converted(d, x.dtype.name, name)};"
        for j, (x, name, (_, d)) in enumerate(zip(nest.nodes, names, step.to))
    ]
    if rows:
        body = [
            *(f"const int64_t n_{r} = s[{d}];" for d, r in enumerate(rows)),
            f"const int64_t width = s[{len(rows)}];",
            "int64_t row = begin / width, from = row * width, first = begin - from;",
            *(f"int64_t {r} = row % n_{r}; row /= n_{r};" for r in reversed(rows[1:])),
            "int64_t r0 = row;",
            "for (; from < end; from += width, first = 0) {",
            "    const int64_t stop = end - from < width ? end - from : width;",
            *_indented(fixed),
            "    for (int64_t i = first; i < stop; i++) {",
            *_indented([*inner, *stores], 2),
            "    }",
            *_indented(_next(rows)),
            "}",
        ]
    else:
        body = ["for (int64_t i = begin; i < end; i++) {", *_indented([*inner, *stores]), "}"]
    n, weight = prod(shape), 1 + sum(x.weight for x in step.nodes)
    return _made(k, body, step.to, [*outer, width] if rows else [], n, 64, n * weight)


def _next(rows: Sequence[str]) -> list[str]:
    """Moves to the next row."""
    if len(rows) == 1:
        return [f"{rows[0]}++;"]
    last = rows[-1]
    return [f"if (++{last} == n_{last}) {{", f"    {last} = 0;", *_indented(_next(rows[:-1])), "}"]


def _start(method: str, dtype: np.dtype) -> str:
    """What a reduction begins with."""
    start = JOINS[method][0]
    if start:
        return start
    if dtype.kind == "f":
        return "-INFINITY" if method == "max" else "INFINITY"
    if dtype.name not in LIMITS:
        raise Untraceable(f"{method} of {dtype}")
    return LIMITS[dtype.name][0 if method == "max" else 1]


def _reductions(step: Reduce) -> list[Function]:
    """A reduction element by element, or of COLUMNS results at once, whichever walks memory."""
    if not step.axes:
        raise Untraceable("a reduction along no axis")
    shape, axes = step.x.shape, set(step.axes)
    groups = [int(d in axes) for d in range(len(shape))]
    nest = Nest([step.x], shape, True, groups)
    by_group = [[n for n, g in zip(nest.shape, nest.groups) if g == group] for group in (0, 1)]
    kept, reduced = (x[-1] if x else 1 for x in by_group)
    in_columns = nest.groups[-1:] == [0] or reduced < LANES and kept > reduced
    both = [True, False] if in_columns else [False, True]
    found = [_reduce(step, nest, columns) for columns in both if by_group[0] or not columns]
    general = Nest([step.x], shape, False, groups)
    return [*found, _reduce(step, general, not groups[-1])]


def _reduce(step: Reduce, nest: Nest, in_columns: bool) -> Function:
    dtype, index = step.x.dtype, step.method.startswith("arg")
    wide = "double" if dtype.kind == "f" and step.method in ("sum", "prod") else VALUES[dtype.name]
    total = "int64" if index else "float64" if wide == "double" else dtype.name
    names = []  # variables by axis
    kept: list[tuple[str, int]] = []
    reduced: list[tuple[str, int]] = []
    for n, group in zip(nest.shape, nest.groups):
        names.append(f"q{len(reduced)}" if group else f"r{len(kept)}")
        (reduced if group else kept).append((names[-1], n))
    inner = (kept if in_columns else reduced or [("q0", 1)])[-1]
    k = CText(["i" if name == inner[0] else name for name in names])
    v = k.element(nest.nodes[0], ())
    loops = [name for name, _ in (reduced if in_columns else reduced[:-1])]
    fixed, *levels = k.levels(*loops, "i")
    t = "t[l]" if in_columns else "t[j]"
    at = t.replace("t", "at")
    lanes = COLUMNS if in_columns else 1 if index else LANES
    if index:
        order = "<" if step.method == "argmin" else ">"
        join = (
            f"if ({at} < 0 || {v} {order} {t} || ({v} != {v} && {t} == {t}))"
            f" {t} = {v}, {at} = {'q' if in_columns else 'q + i'};"
        )
        start = "0"
    else:
        start, text = _start(step.method, dtype), JOINS[step.method][1]
        join = f"{t} = ({wide})({text.format(t, f'({wide}){v}')});"
    result = at if index else t
    last = [*levels[-1], join]
    if in_columns:
        innermost = [
            "for (int64_t l = 0; l < m; l++) {",
            "    const int64_t i = first + l;",
            *_indented(last),
            "}",
            *(["q++;"] if index else []),
        ]
    else:
        innermost = [
            "int64_t from = 0;",
            f"for (; from + {lanes} <= width; from += {lanes})",
            f"    for (int j = 0; j < {lanes}; j++) {{",
            "        const int64_t i = from + j;",
            *_indented(last, 2),
            "    }",
            "for (int j = 0; j < width - from; j++) {",
            "    const int64_t i = from + j;",
            *_indented(last),
            "}",
            *(["q += width;"] if index else []),
        ]
    for name, own in zip(reversed(loops), reversed(levels[:-1])):
        innermost = [
            f"for (int64_t {name} = 0; {name} < n_{name}; {name}++) {{",
            *_indented([*own, *innermost]),
            "}",
        ]
    rows = kept[:-1] if in_columns else kept
    sized = [*(name for name, _ in rows[1:]), *loops]
    sizes = dict([*kept, *reduced])
    places = [f"const int64_t {name} = row % n_{name}; row /= n_{name};" for name, _ in rows[:0:-1]]
    if rows:
        places = ["int64_t row = e / width;" if in_columns else "int64_t row = e;", *places]
        places.append(f"const int64_t {rows[0][0]} = row;")
    begin = [
        *fixed,
        f"{wide} t[{lanes}];",
        *([f"int64_t at[{lanes}], q = 0;"] if index else []),
        f"for (int l = 0; l < {lanes}; l++)",
        f"    t[l] = {start}{', at[l] = -1' if index else ''};",
    ]
    head = [f"const int64_t n_{name} = s[{d}];" for d, name in enumerate(sized)]
    head.append(f"const int64_t width = s[{len(sized)}];")
    if in_columns:
        body = [
            *head,
            "for (int64_t e = begin, m; e < end; e += m) {",
            "    const int64_t first = e % width;",
            "    m = width - first < end - e ? width - first : end - e;",
            f"    m = m < {COLUMNS} ? m : {COLUMNS};",
            *_indented([*places, *begin, *innermost]),
            "    for (int64_t l = 0; l < m; l++)",
            f"        out_0[e + l] = {converted(step.to.stored, total, result)};",
            "}",
        ]
    else:
        body = [
            *head,
            "for (int64_t e = begin; e < end; e++) {",
            *_indented([*places, *begin, *innermost]),
        ]
        if not index:
            joined = JOINS[step.method][1].format("t[j]", "t[j + half]")
            body += [
                f"    for (int half = {lanes // 2}; half; half /= 2)",
                "        for (int j = 0; j < half; j++)",
                f"            t[j] = ({wide})({joined});",
            ]
        body += [
            f"    out_0[e] = {converted(step.to.stored, total, result.replace('j', '0'))};",
            "}",
        ]
    own_sizes = [*(sizes[name] for name in sized), inner[1]]
    n, work = prod(step.kept), prod(step.x.shape) * (1 + step.x.weight)
    to = [(step.to.place, step.to.stored)]
    return _made(k, body, to, own_sizes, n, COLUMNS if in_columns else 1, work)


def _scan(step: Scan) -> Function:
    x, axis, k = step.x, step.axis, CText()
    outer, n, inner = lines("scan", x.shape, axis)
    at = k.split("e", [*x.shape[:axis], *x.shape[axis + 1 :]])
    at.insert(axis, "i")
    v = k.element(x, tuple(at))
    fixed, body = k.levels("i")
    wide = "double" if x.dtype.kind == "f" else VALUES[x.dtype.name]
    start, join = JOINS[step.method]
    total = "float64" if wide == "double" else x.dtype.name
    text = [
        "const int64_t steps = s[0], inner = s[1];",
        "for (int64_t e = begin; e < end; e++) {",
        *_indented(fixed),
        f"    {wide} total = {start};",
        "    for (int64_t i = 0; i < steps; i++) {",
        *_indented(body, 2),
        f"        total = ({wide})({join.format('total', f'({wide}){v}')});",
        "        out_0[(e / inner * steps + i) * inner + e % inner] ="
        f" {converted(step.to.stored, total, 'total')};",
        "    }",
        "}",
    ]
    to = [(step.to.place, step.to.stored)]
    work = prod(x.shape) * (2 + x.weight)
    return _made(k, text, to, [n, inner], outer * inner, 1, work)


def _scatter(step: Scatter) -> Function:
    k, n = CText(), prod(step.rows.shape)
    places = k.argument("const int64_t *", step.places.place)
    rows = k.argument(f"const {STORED[step.rows.stored]} *", step.rows.place)
    one = f"{rows}[i]"
    if step.add:
        one = f"({STORED[step.to.stored]})(out_0[{places}[i]] + {one})"
    body = [
        "for (int64_t i = begin * s[0]; i < end * s[0]; i++)",
        f"    if ({places}[i] >= 0 && {places}[i] < s[1])",
        f"        out_0[{places}[i]] = {one};",
    ]
    to = [(step.to.place, step.to.stored)]
    return _made(k, body, to, [n, prod(step.to.shape)], 1, 1, 2 * n)
