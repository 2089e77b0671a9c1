"""The values of a traced call: how an element follows from its place.

A Node is an array that is not there yet. A printer (`Text`) asks the nodes that one loop computes
for the element at a place, and they ask those that they read; so what is only looked at through
slices, transposes, gathers and broadcasting is never stored. Nodes know neither C nor CUDA: what
differs between them is a method of Text.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..record import HALVES
from ..shapes import contiguous
from ..statements import NATIVE_TYPES
from .arguments import Buffer, Copy, Scalar, Scratch

MAX_ARGUMENTS = 500
TYPES = NATIVE_TYPES | {
    "int16": "int16_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "bool",
}  # of what is computed


class Untraceable(Exception):
    """The reference does what no kernel can be made of: it looks at values, or is too large."""


MAX_TABLE = 1 << 20  # elements of a constant array


class Strided(NamedTuple):
    """Which elements of an array a view has: in flat places."""

    strides: Sequence[int]
    offset: int


def probe_of(shape: Sequence[int]) -> np.ndarray:
    """An array of bytes whose memory is never touched: its views tell strides."""
    return np.empty(shape, "V1")


def address_of(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


class Text(ABC):
    """The statements of one loop, and its arguments. `I` in the text is the type of indices."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.arguments: dict = {}  # (type of argument, argument, which of its uses) -> (type, name)
        self._named: dict = {}
        self._elements: dict = {}

    # ---- what languages write in their own ways --------------------------------------------------

    @abstractmethod
    def load(self, leaf: Leaf, at: Sequence[str]) -> str:
        """The value at a place of an array in memory."""

    @abstractmethod
    def converted(self, dtype: np.dtype, source: np.dtype, name: str) -> str:
        """A value of dtype `source` in another dtype."""

    @abstractmethod
    def scalar(self, dtype: np.dtype, scalar: Scalar) -> str:
        """A number of the call."""

    @abstractmethod
    def number(self, dtype: np.dtype, number: Any) -> str:
        """A number that is known now."""

    @abstractmethod
    def table(self, values: np.ndarray, flat: str) -> str:
        """An element of an array that is known now."""

    @abstractmethod
    def size(self, n: int) -> str:
        """A number that depends on shapes: an argument, so that shapes share the text."""

    @abstractmethod
    def split(self, flat: str, shape: Sequence[int]) -> list[str]:
        """The places along axes of the flat-th element of a shape."""

    @abstractmethod
    def flat(self, at: Sequence[str], strides: Sequence[int], offset: int | None = None) -> str:
        """The place in memory of an element."""

    @abstractmethod
    def own(self, x: Node, at: Sequence[str], shape: Sequence[int]) -> tuple[str, ...]:
        """The place in a node that broadcasts to `shape`, where `at` is."""

    @abstractmethod
    def within(self, i: str, n: int) -> str:
        """A place, moved to the next one that is there."""

    def check(self, i: str, n: int) -> None:
        """Notes whether an index, not negative, is in range."""

    # ---- what they share -------------------------------------------------------------------------

    def index(self, i: str, n: int) -> str:
        """A place along an axis of n elements, checked; negative ones count from its end."""
        if not n:
            raise Untraceable("it reads an array without elements")
        i = self.value("int64_t", f"(int64_t){i}")
        i = self.value("int64_t", f"{i} < 0 ? {i} + {self.size(n)} : {i}")
        self.check(i, n)
        return self.within(i, n)

    def value(self, kind: str, text: str) -> str:
        """The name of a variable that holds an expression."""
        name = self._named.get((kind, text))
        if name is None:
            name = self._named[kind, text] = f"v{len(self._named)}"
            self.lines.append(self.declaration(kind, name, text))
        return name

    def declaration(self, kind: str, name: str, text: str) -> str:
        return f"const {kind} {name} = {text};"

    def place(self, text: str) -> str:
        """A variable for a place along an axis; names and numbers are their own."""
        return text if text.isalnum() else self.value("I", text)

    def argument(self, kind: str, argument: Any, use: int = 0) -> str:
        key = type(argument), argument, use
        if key not in self.arguments:
            self.arguments[key] = kind, f"a{len(self.arguments)}"
            if len(self.arguments) > MAX_ARGUMENTS:
                raise Untraceable("too many arguments")
        return self.arguments[key][1]

    def element(self, node: Node, at: Sequence[str]) -> str:
        """The name of a node's element at a place."""
        key = (id(node), *at)
        if key not in self._elements:
            self._elements[key] = node.text(self, at)
        return self._elements[key]


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
    of: Sequence[Node] = ()  # the nodes that it reads

    def __init__(self, shape: Sequence[int], dtype: Any):
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)

    @property
    def kind(self) -> str:
        return TYPES[self.dtype.name]

    @abstractmethod
    def text(self, k: Text, at: Sequence[str]) -> str:
        """The C expression of the element at these indices."""


class Leaf(Node):
    """An array in memory. stored: the dtype there."""

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
        return k.load(self, at)

    @property
    def is_whole(self) -> bool:
        """Is it row-major from its place on?"""
        return list(self.strides) == contiguous(self.shape) and not self.offset


class Number(Node):
    """One number, known now, or the call's: a Scalar."""

    weight = 0

    def __init__(self, value: Any, dtype: Any):
        super().__init__((), dtype)
        self.number = value

    def text(self, k: Text, at: Sequence[str]) -> str:
        if isinstance(self.number, Scalar):
            return k.scalar(self.dtype, self.number)
        return k.number(self.dtype, self.number)


class Cast(Node):
    """Another node's elements in another dtype."""

    def __init__(self, of: Node, dtype: Any):
        super().__init__(of.shape, dtype)
        self.of, self.weight = (of,), of.weight + 1

    def text(self, k: Text, at: Sequence[str]) -> str:
        return k.value(
            self.kind, k.converted(self.dtype, self.of[0].dtype, k.element(self.of[0], at))
        )


class Place(Node):
    """start + sum of steps times the places along axes: ranges."""

    def __init__(self, shape: Sequence[int], dtype: Any, start: int, steps: Sequence[int]):
        super().__init__(shape, dtype)
        self.start, self.steps = start, steps

    def text(self, k: Text, at: Sequence[str]) -> str:
        parts = [f"(int64_t)({k.size(self.start)})"]
        parts += [f"(int64_t){i} * {k.size(s)}" for i, s in zip(at, self.steps) if s]
        return k.value(self.kind, f"({self.kind})({' + '.join(parts)})")


class Checked(Node):
    """Indices, not negative, of an axis of n elements: a call with another one fails."""

    def __init__(self, of: Node, n: int):
        super().__init__(of.shape, of.dtype)
        self.of, self.n, self.weight = (of,), n, of.weight + 1

    def text(self, k: Text, at: Sequence[str]) -> str:
        found = k.element(self.of[0], at)
        k.check(found, self.n)
        return found


class Table(Node):
    """An array of numbers that are known now."""

    def __init__(self, values: np.ndarray):
        super().__init__(values.shape, values.dtype)
        if values.size > MAX_TABLE:
            raise Untraceable("a large array of constants")
        self.values = np.ascontiguousarray(values)

    def text(self, k: Text, at: Sequence[str]) -> str:
        return k.value(self.kind, k.table(self.values, k.flat(at, contiguous(self.shape))))


class Map(Node):
    """An expression {0}, {1}, ... of others' elements, which broadcast."""

    def __init__(self, text: str, of: Sequence[Node], dtype: Any):
        super().__init__(np.broadcast_shapes(*(x.shape for x in of)), dtype)
        self._text, self.of = text, of
        self.weight = 1 + sum(x.weight for x in of)

    def of_others(self, of: Sequence[Node]) -> Map:
        """The same expression of other nodes."""
        return Map(self._text, of, self.dtype)

    def text(self, k: Text, at: Sequence[str]) -> str:
        names = [k.element(x, k.own(x, at, self.shape)) for x in self.of]
        return k.value(self.kind, f"({self.kind})({self._text.format(*names)})")


class View(Node):
    """Another node's elements elsewhere: its flat place is strides times places, plus offset."""

    def __init__(self, of: Node, shape: Sequence[int], strides: Sequence[int], offset: int):
        super().__init__(shape, of.dtype)
        self.of, self.strides, self.offset = (of,), strides, offset
        self.weight = of.weight + 1

    def text(self, k: Text, at: Sequence[str]) -> str:
        flat, of = k.flat(at, self.strides, self.offset), self.of[0]
        return k.element(of, tuple(k.split(flat, of.shape)))


class Gather(Node):
    """x[index arrays]: at[first : first + their dimensions] is the place in the index arrays; keys:
    for each axis of x a node, or which place it takes."""

    def __init__(
        self, of: Node, keys: Sequence[Node | int], shape: Sequence[int], first: int, n_dims: int
    ):
        super().__init__(shape, of.dtype)
        self.keys, self.first, self.n_dims = keys, first, n_dims
        self.of = (of, *(key for key in keys if isinstance(key, Node)))
        self.weight = 1 + sum(x.weight for x in self.of)

    def text(self, k: Text, at: Sequence[str]) -> str:
        found = []
        own = slice(self.first, self.first + self.n_dims)
        for n, key in zip(self.of[0].shape, self.keys):
            if isinstance(key, Node):
                found.append(k.index(k.element(key, k.own(key, at[own], self.shape[own])), n))
            else:
                found.append(at[key])
        return k.element(self.of[0], tuple(found))


class Join(Node):
    """Arrays one after the other along an axis."""

    def __init__(self, parts: Sequence[Node], axis: int):
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        super().__init__(shape, parts[0].dtype)
        self.of, self.axis = parts, axis
        self.weight = 1 + sum(p.weight for p in parts)

    def text(self, k: Text, at: Sequence[str]) -> str:
        i, start, found = at[self.axis], 0, ""
        for part in self.of:
            n = part.shape[self.axis]
            if n:
                own = list(at)
                own[self.axis] = k.within(k.place(f"{i} - {k.size(start)}") if start else i, n)
                e = k.element(part, tuple(own))
                found = k.value(self.kind, f"{i} < {k.size(start)} ? {found} : {e}") if found else e
            start += n
        return found


class Assigned(Node):
    """An array of which a part has other values; region: (start, step, n) for each axis, where n is
    -1 for an axis that the values lack."""

    def __init__(self, old: Node, region: Sequence[tuple[int, int, int]], values: Node):
        super().__init__(old.shape, old.dtype)
        self.of, self.region = (old, values), region
        self.weight = 1 + old.weight + values.weight

    def text(self, k: Text, at: Sequence[str]) -> str:
        inside, own, shape = [], [], []
        old, values = self.of
        for i, n, (start, step, count) in zip(at, self.shape, self.region):
            if count == -1:
                inside.append(f"{i} == {k.size(start)}")
            elif (start, step, count) == (0, 1, n):
                own.append(i)
                shape.append(n)
            else:
                j = k.place(f"({i} - {k.size(start)}) / {k.size(step)}")
                inside.append(f"{j} * {k.size(step)} + {k.size(start)} == {i}")
                inside.append(f"{j} >= 0 && {j} < {k.size(count)}")
                own.append(k.within(j, count))
                shape.append(count)
        if 0 in values.shape:
            return k.element(old, at)
        new = k.element(values, k.own(values, own, shape))
        if not inside:
            return new
        return k.value(self.kind, f"{' && '.join(inside)} ? {new} : {k.element(old, at)}")


def leaves(node: Node) -> Iterator[Leaf]:
    """The memory that a node reads."""
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        x = waiting.pop()
        if id(x) not in seen:
            seen.add(id(x))
            waiting += x.of
            if isinstance(x, Leaf):
                yield x


# ---- loops ---------------------------------------------------------------------------------------


class Write(NamedTuple):
    """Stores nodes of one shape. to: place and dtype in memory of each. region: where in it; None:
    row-major, all of it."""

    nodes: Sequence[Node]
    to: Sequence[tuple[Buffer | Scratch, str]]
    region: Strided | None = None


class Reduce(NamedTuple):
    """sum, prod, max, min, any, all, argmax or argmin of a node along axes. kept: its shape, with 1
    along these. to: row-major, of that many elements."""

    method: str
    x: Node
    axes: Sequence[int]
    kept: Sequence[int]
    to: Leaf


class Scan(NamedTuple):
    """Cumulative sums or products along an axis."""

    method: str
    x: Node
    axis: int
    to: Leaf


class Scatter(NamedTuple):
    """to[places[i]] = rows[i], or += where `add`, in their order; places beyond it are left out."""

    places: Leaf
    rows: Leaf
    to: Leaf
    add: bool


Step = Write | Reduce | Scan | Scatter | Copy


def reads(step: Step) -> set:
    """The places whose contents a step depends on."""
    if isinstance(step, Copy):
        return {step.source}
    if isinstance(step, Scatter):
        return {step.places.place, step.rows.place, step.to.place}
    nodes = step.nodes if isinstance(step, Write) else [step.x]
    return {leaf.place for node in nodes for leaf in leaves(node)}


def writes(step: Step) -> list:
    if isinstance(step, Copy):
        return [step.to]
    return [p for p, _ in step.to] if isinstance(step, Write) else [step.to.place]


INDEX = re.compile(r"\bI\b")  # stands for the type of indices
JOINS = {
    "sum": ("0", "{0} + {1}"),
    "prod": ("1", "{0} * {1}"),
    "max": ("", "larger({0}, {1})"),
    "min": ("", "smaller({0}, {1})"),
    "any": ("0", "{0} || {1}"),
    "all": ("1", "{0} && {1}"),
}
