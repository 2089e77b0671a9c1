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
from .nodes import (
    INDEX,
    JOINS,
    TYPES,
    Cast,
    Leaf,
    Map,
    Node,
    Number,
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

    def __init__(self) -> None:
        super().__init__()
        self._uses = 0
        self.checks = False

    def declaration(self, kind: str, name: str, text: str) -> str:
        if kind == "bool":
            return f"const int32_t {name} = ({text}) != 0;"
        return f"const {kind} {name} = {text};"

    def load(self, leaf: Leaf, at: Sequence[str]) -> str:
        name = self.argument(f"const {STORED[leaf.stored]} *", leaf.place)
        offset = None if leaf.is_whole else leaf.offset
        one = f"{name}[{self.flat(at, leaf.strides, offset)}]"
        return self.value(leaf.kind, LOADS.get(leaf.stored, "{}").format(one))

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

    def parted(self, *names: str) -> tuple[list[str], list[str]]:
        """(the lines that do not depend on these variables, those that do)"""
        varying, fixed, inner = set(names), [], []
        for line in self.lines:
            words = WORD.findall(line)
            if varying.isdisjoint(words):
                fixed.append(line)
                continue
            inner.append(line)
            if words[0] == "const":
                varying.add(words[2])
        return fixed, inner


def functions(t: Tracer, flat: bool = True) -> list[Function]:
    """The loops of a recorded call. flat: of arrays that are walked as one, the axes are one.
    Raises Untraceable."""
    return [_function(step, flat) for step in t.needed()]


def _function(step: Step, flat: bool) -> Function:
    if isinstance(step, Copy):
        text = (
            f"({ARGUMENTS})\n{{\n    memcpy((char *)p[0] + begin, (const char *)p[1] + begin,"
            " (size_t)(end - begin));\n    return 0;\n}\n"
        )
        return Function(
            text, [step.to, step.source], [], [], step.nbytes, 64, step.nbytes // 4, False
        )
    if isinstance(step, Write):
        return _write(step, flat)
    if isinstance(step, Reduce):
        return _reduce(step)
    return _scan(step) if isinstance(step, Scan) else _scatter(step)


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


def _is_flat(x: Node, shape: tuple[int, ...]) -> bool:
    """Are all arrays that it reads walked from one end to the other?"""
    if isinstance(x, Leaf):
        return x.shape == shape and x.is_whole or prod(x.shape) == 1
    if isinstance(x, (Map, Cast)):
        return all(_is_flat(of, shape) for of in x.of)
    return isinstance(x, Number)


def _write(step: Write, flat: bool) -> Function:
    shape, k = tuple(step.nodes[0].shape), CText()
    n = prod(shape)
    if flat and len(shape) > 1 and all(_is_flat(x, shape) for x in step.nodes):
        nodes = [_flattened(x, step.nodes[0].shape, n) for x in step.nodes]
        shape = (n,)
    else:
        nodes = list(step.nodes)
    at = [*k.split("row", shape[:-1]), "i"] if shape else []
    names = [k.element(x, tuple(at)) for x in nodes]
    width = shape[-1] if shape else 1
    outer, inner = k.parted("i")
    stores = [
        f"out_{j}[from + i] = {converted(d, x.dtype.name, name)};"
        for j, (x, name, (_, d)) in enumerate(zip(nodes, names, step.to))
    ]
    body = [
        "const int64_t width = s[0];",
        "for (int64_t e = begin, stop; e < end; e = stop) {",
        "    const int64_t row = e / width, from = row * width;",
        "    stop = from + width < end ? from + width : end;",
        *_indented(outer),
        "    for (int64_t i = e - from; i < stop - from; i++) {",
        *_indented([*inner, *stores], 2),
        "    }",
        "}",
    ]
    weight = 1 + sum(x.weight for x in nodes)
    return _made(k, body, step.to, [width], n, 64, n * weight)


def _flattened(x: Node, shape: Sequence[int], n: int) -> Node:
    """A node of which _is_flat holds, as one of a single axis."""
    if isinstance(x, Leaf):
        one = prod(x.shape) == 1 and tuple(x.shape) != tuple(shape)
        return Leaf(x.place, (1,) if one else (n,), x.stored, (1,), x.offset)
    if isinstance(x, Cast):
        return Cast(_flattened(x.of[0], shape, n), x.dtype)
    if isinstance(x, Map):
        return x.of_others([_flattened(of, shape, n) for of in x.of])
    return x


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


def _reduce(step: Reduce) -> Function:
    x, axes, shape = step.x, list(step.axes), list(step.x.shape)
    if not axes:
        raise Untraceable("a reduction along no axis")
    last = len(shape) - 1
    kept = [d for d in range(len(shape)) if d not in axes]
    k = CText()
    index = step.method.startswith("arg")
    wide = (
        "double" if x.dtype.kind == "f" and step.method in ("sum", "prod") else VALUES[x.dtype.name]
    )
    total = "int64" if index else "float64" if wide == "double" else x.dtype.name
    along = last in axes
    places: dict[int, str] = {last: "i"}
    if along:  # "e" counts results, "q" rows of reduced elements
        places |= dict(zip(kept, k.split("e", [shape[d] for d in kept])))
        places |= dict(zip(axes[:-1], k.split("q", [shape[d] for d in axes[:-1]])))
    else:  # "row" counts rows of results
        places |= dict(zip(kept[:-1], k.split("row", [shape[d] for d in kept[:-1]])))
        places |= dict(zip(axes, k.split("q", [shape[d] for d in axes])))
    v = k.element(x, tuple(places[d] for d in range(len(shape))))
    fixed, inner = k.parted("i")
    k.lines = fixed
    outer, middle = k.parted("q")
    n, width = prod(step.kept), shape[-1]
    work = prod(shape) * (1 + x.weight)
    at = "l" if not along else "j"
    result = f"at[{at}]" if index else f"t[{at}]"
    if index:
        order = "<" if step.method == "argmin" else ">"
        where = "q" if not along else "q * width + i"
        join = (
            f"if (at[{at}] < 0 || {v} {order} t[{at}] || ({v} != {v} && t[{at}] == t[{at}]))"
            f" t[{at}] = {v}, at[{at}] = {where};"
        )
        start, lanes = "0", 1
        wide = VALUES[x.dtype.name]
    else:
        start, text = _start(step.method, x.dtype), JOINS[step.method][1]
        join = f"t[{at}] = ({wide})({text.format(f't[{at}]', f'({wide}){v}')});"
        lanes = LANES
    to = [(step.to.place, step.to.stored)]
    if not along:
        body = [
            "const int64_t width = s[0], rows = s[1];",
            "for (int64_t e = begin, stop; e < end; e = stop) {",
            "    const int64_t row = e / width, from = row * width;",
            "    stop = from + width < end ? from + width : end;",
            f"    stop = stop - e > {COLUMNS} ? e + {COLUMNS} : stop;",
            *_indented(outer),
            f"    {wide} t[{COLUMNS}];",
            *([f"    int64_t at[{COLUMNS}];"] if index else []),
            f"    for (int l = 0; l < {COLUMNS}; l++)",
            f"        t[l] = {start}{', at[l] = -1' if index else ''};",
            "    for (int64_t q = 0; q < rows; q++) {",
            *_indented(middle, 2),
            "        for (int64_t l = 0; l < stop - e; l++) {",
            "            const int64_t i = e - from + l;",
            *_indented([*inner, join], 3),
            "        }",
            "    }",
            "    for (int64_t l = 0; l < stop - e; l++)",
            f"        out_0[e + l] = {converted(step.to.stored, total, result)};",
            "}",
        ]
        return _made(k, body, to, [width, prod(shape[d] for d in axes)], n, COLUMNS, work)
    body = [
        "const int64_t width = s[0], rows = s[1];",
        "for (int64_t e = begin; e < end; e++) {",
        *_indented(outer),
        f"    {wide} t[{lanes}];",
        *(["    int64_t at[1] = {-1};"] if index else []),
        f"    for (int j = 0; j < {lanes}; j++)",
        f"        t[j] = {start};",
        "    for (int64_t q = 0; q < rows; q++) {",
        *_indented(middle, 2),
        "        int64_t first = 0;",
        f"        for (; first + {lanes} <= width; first += {lanes}) {{",
        f"            for (int j = 0; j < {lanes}; j++) {{",
        "                const int64_t i = first + j;",
        *_indented([*inner, join], 4),
        "            }",
        "        }",
        "        for (int j = 0; j < width - first; j++) {",
        "            const int64_t i = first + j;",
        *_indented([*inner, join], 3),
        "        }",
        "    }",
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
    return _made(k, body, to, [width, prod(shape[d] for d in axes[:-1])], n, 1, work)


def _scan(step: Scan) -> Function:
    x, axis, k = step.x, step.axis, CText()
    outer, n, inner = lines("scan", x.shape, axis)
    at = k.split("e", [*x.shape[:axis], *x.shape[axis + 1 :]])
    at.insert(axis, "i")
    v = k.element(x, tuple(at))
    fixed, body = k.parted("i")
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
