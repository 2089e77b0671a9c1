"""Arrays that are not there yet, and the CUDA text that computes them: what trace.py builds.

A Node says how an element follows from its place. `Text` asks the nodes that one kernel computes
for the element of a thread, and they ask those that they read; so what is only looked at through
slices, transposes, gathers and broadcasting is never stored.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..record import HALVES
from .launch import Argument, Buffer, Float64, Int32, Int64, Scalar, Scratch
from .layout import TYPES

MAX_ARGUMENTS = 200
MAX_TABLE = 1 << 12  # elements of a constant array that stands in the text


class Untraceable(Exception):
    """The reference does what no kernel can be made of: it looks at values, or is too large."""


class Strided(NamedTuple):
    """Which elements of an array a view has: in flat places."""

    strides: Sequence[int]
    offset: int


def probe_of(shape: Sequence[int]) -> np.ndarray:
    """An array of bytes whose memory is never touched: its views tell strides."""
    return np.empty(shape, "V1")


def address_of(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


class Text:
    """The statements of one kernel, and its arguments."""

    def __init__(self, kind: str, tables: list[str]):
        """kind: the type of indices. tables: those of the module, to which ours are added."""
        self.kind, self.tables = kind, tables
        self.lines: list[str] = []
        self.arguments: dict = {}  # argument -> (type, name)
        self._named: dict = {}
        self._elements: dict = {}

    def value(self, kind: str, text: str) -> str:
        """The name of a variable that holds an expression."""
        name = self._named.get((kind, text))
        if name is None:
            name = self._named[kind, text] = f"v{len(self._named)}"
            self.lines.append(f"const {kind} {name} = {text};")
        return name

    def place(self, text: str) -> str:
        """A variable for a place along an axis; names and numbers are their own."""
        return text if text.isalnum() else self.value("I", text)

    def argument(self, kind: str, argument: Argument) -> str:
        if argument not in self.arguments:
            self.arguments[argument] = kind, f"a{len(self.arguments)}"
            if len(self.arguments) > MAX_ARGUMENTS:
                raise Untraceable("too many arguments")
        return self.arguments[argument][1]

    def size(self, n: int) -> str:
        """A number that depends on shapes: an argument, so that shapes share the text."""
        if n in (0, 1):
            return str(n)
        return self.argument("I", Int32(n) if self.kind == "int32_t" else Int64(n))

    def table(self, values: np.ndarray) -> str:
        numbers = ",".join(map(literal, values.reshape(-1).tolist()))
        line = f"{TYPES[values.dtype.name]} NAME[{values.size}] = {{{numbers}}};"
        if line not in self.tables:
            self.tables.append(line)
        return f"t{self.tables.index(line)}"

    def element(self, node: Node, at: Sequence[str]) -> str:
        """The name of a node's element at a place."""
        key = (id(node), *at)
        if key not in self._elements:
            self._elements[key] = node.text(self, at)
        return self._elements[key]

    def split(self, flat: str, shape: Sequence[int]) -> list[str]:
        """The places along axes of the flat-th element of a shape."""
        found: list[str] = []
        for d in range(len(shape) - 1, -1, -1):
            n = shape[d]
            if n == 1:
                found.insert(0, "0")
            elif d == 0 or prod(shape[:d]) == 1:
                found.insert(0, flat)
                flat = "0"
            else:
                rest = self.place(f"{flat} / {self.size(n)}")
                found.insert(0, self.place(f"{flat} - {rest} * {self.size(n)}"))
                flat = rest
        return found

    def flat(self, at: Sequence[str], strides: Sequence[int], offset: int = 0) -> str:
        parts = []
        for i, s in zip(at, strides):
            if i != "0" and s:
                parts.append(i if s == 1 else f"{i} * {self.size(s)}")
        if offset or not parts:
            parts.append(self.size(offset))
        return self.place(" + ".join(parts))

    def within(self, i: str, n: int) -> str:
        """A place, moved to the next one that is there."""
        if n <= 1:
            return "0"
        last = self.size(n - 1)
        return self.place(f"{i} < 0 ? 0 : {i} < {last} ? {i} : {last}")


def literal(value: Any) -> str:
    """A number as C has it."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return f"{value}ll" if value != -(1 << 63) else "(-9223372036854775807ll - 1)"
    if value != value:
        return "(double)NAN"
    if value in (np.inf, -np.inf):
        return "(double)INFINITY" if value > 0 else "-(double)INFINITY"
    return repr(float(value))


class Node(ABC):
    """shape, dtype (np.dtype, of what is computed); weight: about how many operations an element
    takes."""

    weight = 1

    def __init__(self, shape: Sequence[int], dtype: Any):
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)

    @property
    def kind(self) -> str:
        return TYPES[self.dtype.name]

    @abstractmethod
    def text(self, k: Text, at: Sequence[str]) -> str:
        """The C expression of the element at these indices."""


class Leaf(Node):
    """Memory. stored: the dtype there."""

    weight = 0

    def __init__(
        self,
        place: Buffer | Scratch,
        shape: Sequence[int],
        stored: str,
        strides: Sequence[int],
        offset: int = 0,
    ):
        wide = "float32" if stored in HALVES else stored
        super().__init__(shape, wide)
        self.place, self.stored, self.strides, self.offset = place, stored, strides, offset

    def text(self, k: Text, at: Sequence[str]) -> str:
        name = k.argument(f"const {TYPES[self.stored]} *", self.place)
        return k.value(self.kind, f"value_of({name}[{k.flat(at, self.strides, self.offset)}])")


class Number(Node):
    """One number, known now, or the call's: a Scalar."""

    weight = 0

    def __init__(self, value: Any, dtype: Any):
        super().__init__((), dtype)
        self.number = value

    def text(self, k: Text, at: Sequence[str]) -> str:
        v = self.number
        if isinstance(v, Scalar):
            return k.value(self.kind, f"number<{self.kind}>({k.argument('double', v)})")
        if v in (0, 1) and not (v == 0 and np.signbit(v)):
            return k.value(self.kind, f"{int(v)}")
        if self.dtype.kind == "f":
            return k.value(self.kind, f"({self.kind}){k.argument('double', Float64(float(v)))}")
        return k.value(self.kind, f"({self.kind}){k.argument('int64_t', Int64(int(v)))}")


class Place(Node):
    """start + sum of steps times the places along axes: ranges."""

    def __init__(self, shape: Sequence[int], dtype: Any, start: int, steps: Sequence[int]):
        super().__init__(shape, dtype)
        self.start, self.steps = start, steps

    def text(self, k: Text, at: Sequence[str]) -> str:
        parts = [f"(int64_t)({k.size(self.start)})"]
        parts += [f"(int64_t){i} * {k.size(s)}" for i, s in zip(at, self.steps) if s]
        return k.value(self.kind, f"({self.kind})({' + '.join(parts)})")


class Table(Node):
    """An array of numbers that are known now."""

    def __init__(self, values: np.ndarray):
        super().__init__(values.shape, values.dtype)
        if values.size > MAX_TABLE:
            raise Untraceable("a large array of constants")
        self._values = np.ascontiguousarray(values)

    def text(self, k: Text, at: Sequence[str]) -> str:
        strides = [s // self._values.itemsize for s in self._values.strides]
        return k.value(self.kind, f"{k.table(self._values)}[{k.flat(at, strides)}]")


class Map(Node):
    """An expression {0}, {1}, ... of others' elements, which broadcast."""

    def __init__(self, text: str, of: Sequence[Node], dtype: Any):
        super().__init__(np.broadcast_shapes(*(x.shape for x in of)), dtype)
        self._text, self._of = text, of
        self.weight = 1 + sum(x.weight for x in of)

    def text(self, k: Text, at: Sequence[str]) -> str:
        names = [k.element(x, own_place(x, at)) for x in self._of]
        return k.value(self.kind, f"({self.kind})({self._text.format(*names)})")


def own_place(x: Node, at: Sequence[str]) -> tuple[str, ...]:
    """The place in a node that broadcasts to where `at` is."""
    own = at[len(at) - len(x.shape) :] if x.shape else ()
    return tuple("0" if n == 1 else i for n, i in zip(x.shape, own))


class View(Node):
    """Another node's elements elsewhere: its flat place is strides times places, plus offset."""

    def __init__(self, of: Node, shape: Sequence[int], strides: Sequence[int], offset: int):
        super().__init__(shape, of.dtype)
        self._of, self._strides, self._offset = of, strides, offset
        self.weight = of.weight + 1

    def text(self, k: Text, at: Sequence[str]) -> str:
        flat = k.flat(at, self._strides, self._offset)
        return k.element(self._of, tuple(k.split(flat, self._of.shape)))


class Axes(Node):
    """Another node with places along axes of its own: `find(k, at)`."""

    def __init__(
        self, of: Node, shape: Sequence[int], find: Callable[[Text, Sequence[str]], Sequence[str]]
    ):
        super().__init__(shape, of.dtype)
        self._of, self._find, self.weight = of, find, of.weight + 1

    def text(self, k: Text, at: Sequence[str]) -> str:
        return k.element(self._of, tuple(self._find(k, at)))


class Gather(Node):
    """x[index arrays]: at[first : first + their dimensions] is the place in the index arrays; keys:
    for each axis of x a node, or which place it takes."""

    def __init__(
        self, of: Node, keys: Sequence[Node | int], shape: Sequence[int], first: int, n_dims: int
    ):
        super().__init__(shape, of.dtype)
        self._of, self._keys, self._first, self._n = of, keys, first, n_dims
        self.weight = 1 + of.weight + sum(key.weight for key in keys if isinstance(key, Node))

    def text(self, k: Text, at: Sequence[str]) -> str:
        found = []
        for n, key in zip(self._of.shape, self._keys):
            if not isinstance(key, Node):
                found.append(at[key] if n != 1 else "0")
                continue
            i = k.element(key, own_place(key, at[self._first : self._first + self._n]))
            i = k.value("int64_t", f"(int64_t){i}")
            i = k.value("int64_t", f"{i} < 0 ? {i} + {k.size(n)} : {i}")
            found.append(k.within(i, n))
        return k.element(self._of, tuple(found))


class Join(Node):
    """Arrays one after the other along an axis."""

    def __init__(self, parts: Sequence[Node], axis: int):
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        super().__init__(shape, parts[0].dtype)
        self._parts, self._axis = parts, axis
        self.weight = 1 + sum(p.weight for p in parts)

    def text(self, k: Text, at: Sequence[str]) -> str:
        i, start, found = at[self._axis], 0, ""
        for part in self._parts:
            n = part.shape[self._axis]
            if n:
                own = list(at)
                own[self._axis] = k.within(k.place(f"{i} - {k.size(start)}") if start else i, n)
                e = k.element(part, tuple(own))
                found = k.value(self.kind, f"{i} < {k.size(start)} ? {found} : {e}") if found else e
            start += n
        return found


class Assigned(Node):
    """An array of which a part has other values; region: (start, step, n) for each axis, where n is
    -1 for an axis that the values lack."""

    def __init__(self, old: Node, region: Sequence[tuple[int, int, int]], values: Node):
        super().__init__(old.shape, old.dtype)
        self._old, self._region, self._values = old, region, values
        self.weight = 1 + old.weight + values.weight

    def text(self, k: Text, at: Sequence[str]) -> str:
        inside, own = [], []
        for i, n, (start, step, count) in zip(at, self.shape, self._region):
            if count == -1:
                inside.append(f"{i} == {k.size(start)}")
            elif (start, step, count) == (0, 1, n):
                own.append(i)
            else:
                j = k.place(f"({i} - {k.size(start)}) / {k.size(step)}")
                inside.append(f"{j} * {k.size(step)} + {k.size(start)} == {i}")
                inside.append(f"{j} >= 0 && {j} < {k.size(count)}")
                own.append(k.within(j, count))
        if 0 in self._values.shape:
            return k.element(self._old, at)
        new = k.element(self._values, own_place(self._values, own))
        if not inside:
            return new
        old = k.element(self._old, at)
        return k.value(self.kind, f"{' && '.join(inside)} ? {new} : {old}")


# ---- kernels -------------------------------------------------------------------------------------


class Module:
    """The kernels of a call: one text, of which equal ones are one function."""

    def __init__(self) -> None:
        self.tables: list[str] = []
        self._names: dict[str, str] = {}

    def add(
        self, k: Text, members: Sequence[str], before: Sequence[str], after: Sequence[str]
    ) -> str:
        """The name of a function. members: declarations of its arguments before those that `k`
        asked for."""
        own = [
            kind + name if kind.endswith("*") else f"{kind} {name}"
            for kind, name in k.arguments.values()
        ]
        lines = [f"({', '.join([*members, *own])})", "{"]
        lines += [f"    {line}" for line in [*before, *k.lines, *after]]
        text = INDEX.sub(k.kind, "\n".join([*lines, "}", ""]))
        return self._names.setdefault(text, f"plk_traced_{len(self._names)}")

    def text(self) -> str:
        tables = [
            f"__device__ const {t.replace('NAME', f't{i}')}" for i, t in enumerate(self.tables)
        ]
        start = 'extern "C" __global__ void __launch_bounds__(256) '
        return "\n".join(
            [
                '#include "math.cuh"',
                '#include "reduce.cuh"',
                *tables,
                "",
                *(f"{start}{name}{text}" for text, name in self._names.items()),
            ]
        )


INDEX = re.compile(r"\bI\b")  # stands for the type of indices
JOINS = {
    "sum": ("0", "{0} + {1}"),
    "prod": ("1", "{0} * {1}"),
    "max": ("", "larger({0}, {1})"),
    "min": ("", "smaller({0}, {1})"),
    "any": ("0", "{0} || {1}"),
    "all": ("1", "{0} && {1}"),
}
