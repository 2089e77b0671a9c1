"""The ONNX graph that is being written: its nodes, constants and names, and sizes that are known
only when the model runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from ....kernels.spec import BFLOAT16
from ..types import CODES
from .tensors import Edge, Tensor


class Unmapped(Exception):
    """A call has no form in ONNX; the text says why."""


class Dim(int):
    """A size that may be another one each time the model runs. Its value is that of the sizes the
    graph was inferred for; what is computed from it with + - * // % remains such a size."""

    name: str | None
    make: Callable[[Graph], Tensor]  # writes it into a graph: int64 of shape (1,)

    def __new__(cls, value: int, make: Callable[[Graph], Tensor], name: str | None = None) -> Dim:
        made = super().__new__(cls, value)
        made.make, made.name = make, name
        return made

    def _with(self, other: Any, value: Any, kind: str, swap: bool = False) -> Any:
        if value is NotImplemented or not isinstance(other, int):
            return value

        def make(g: Graph) -> Tensor:
            pair = [g.term(self), g.term(other)]
            return g.op(kind, *(pair[::-1] if swap else pair))

        return Dim(value, make)

    def __add__(self, other):
        return self if other == 0 else self._with(other, int.__add__(self, other), "Add")

    def __radd__(self, other):
        return self if other == 0 else self._with(other, int.__radd__(self, other), "Add", True)

    def __sub__(self, other):
        return self if other == 0 else self._with(other, int.__sub__(self, other), "Sub")

    def __rsub__(self, other):
        return self._with(other, int.__rsub__(self, other), "Sub", True)

    def __mul__(self, other):
        return self if other == 1 else self._with(other, int.__mul__(self, other), "Mul")

    def __rmul__(self, other):
        return self if other == 1 else self._with(other, int.__rmul__(self, other), "Mul", True)

    def __floordiv__(self, other):
        return self if other == 1 else self._with(other, int.__floordiv__(self, other), "Div")

    def __mod__(self, other):
        return self._with(other, int.__mod__(self, other), "Mod")


class Node:
    """One node. An input that is None is left out; names are those that the edges have when the
    file is written."""

    __slots__ = ("kind", "inputs", "outputs", "attrs", "origin")

    def __init__(
        self, kind: str, inputs: list[Edge | None], outputs: list[Edge], attrs: dict, origin: str
    ):
        self.kind, self.inputs, self.outputs = kind, inputs, outputs
        self.attrs, self.origin = attrs, origin


class Names:
    """What graphs of one model share: names that are taken, constants."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}
        self.constants: dict[tuple, Tensor] = {}

    def new(self, hint: str) -> str:
        n = self.taken.get(hint, 0)
        self.taken[hint] = n + 1
        return hint if n == 0 else self.new(f"{hint}_{n}")


class Graph:
    """A graph being written; `g.Relu(x)` adds a node Relu.

    opset: of the model. origin: the name of plait's node that is converted now. outer: the graph
        that has this one as the body of a node.
    """

    def __init__(self, opset: int, outer: Graph | None = None):
        self.opset, self.outer = opset, outer
        self.names: Names = outer.names if outer else Names()
        self.origin: str = outer.origin if outer else ""
        self.nodes: list[Node] = []
        self.outs: Sequence[Any] = ()  # types of the outputs of the call that a rule writes
        self.call: Any = None  # its node
        self.converter: Any = None
        self._terms: dict[int, tuple[Dim, Tensor]] = {}

    # ---- nodes -----------------------------------------------------------------------------------

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        if not kind[:1].isupper():
            raise AttributeError(kind)
        return lambda *inputs, **given: self.op(kind, *inputs, **given)

    def op(
        self,
        kind: str,
        *inputs: Any,
        n: int = 1,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        **attrs: Any,
    ) -> Any:
        """Adds a node. Returns its output, or a list of n > 1.

        inputs: Tensors, arrays, numbers (of the first Tensor's dtype), None (left out).
        shape, dtype: of the outputs, where they are not those of the first input.
        attrs: of the node, shape_ and dtype_ for those of these names; None: left out.
        """
        like = next((x for x in inputs if isinstance(x, Tensor)), None)
        made = [None if x is None else self.tensor(x, like) for x in inputs]
        while made and made[-1] is None:
            made.pop()
        first = made[0] if made else None
        shape = tuple(shape if shape is not None else first.shape if first is not None else ())
        dtype = np.dtype(dtype) if dtype is not None else first.dtype if first is not None else None
        outs = [Tensor(self, shape, dtype, self._name(kind)) for _ in range(n)]
        given = {k.rstrip("_"): v for k, v in attrs.items() if v is not None}
        edges = [None if x is None else x.edge for x in made]
        self.nodes.append(Node(kind, edges, [x.edge for x in outs], given, self.origin))
        return outs if n > 1 else outs[0]

    def _name(self, kind: str) -> str:
        return self.names.new(f"{self.origin}/{kind}" if self.origin else kind)

    # ---- constants, casts, sizes -----------------------------------------------------------------

    def tensor(self, x: Any, like: Tensor | None = None) -> Tensor:
        """A Tensor of an array or a number; one for each value in a model."""
        if isinstance(x, Tensor):
            return x
        if isinstance(x, Dim):
            return self.reshape(self.term(x), ())
        if isinstance(x, (bool, int, float)) and like is not None:
            x = np.asarray(x, like.dtype)
        x = np.asarray(x)
        key = (x.dtype, x.shape, x.tobytes())
        found = self.names.constants.get(key)
        if found is None:
            found = Tensor(self, x.shape, x.dtype, self.names.new("constant"), x)
            self.names.constants[key] = found
        return found

    def cast(self, x: Tensor, dtype: Any) -> Tensor:
        """x in another dtype."""
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        if x.value is not None and x.value.size < 1024 and BFLOAT16 not in (x.dtype, dtype):
            with np.errstate(all="ignore"):
                return self.tensor(x.value.astype(dtype))
        name = "bfloat16" if dtype == BFLOAT16 else dtype.name
        return self.op("Cast", x, to=CODES[name], dtype=dtype)

    def term(self, n: int) -> Tensor:
        """A size as int64 of shape (1,)."""
        if not isinstance(n, Dim):
            return self.tensor(np.array([n], np.int64))
        if id(n) not in self._terms:
            self._terms[id(n)] = (n, n.make(self))
        return self._terms[id(n)][1]

    def size_of(self, x: Tensor, axis: int) -> Tensor:
        """A size of a tensor, when the model runs: int64 of shape (1,)."""
        shape = self.op("Shape", x, shape=(x.ndim,), dtype="int64")
        return self.op("Gather", shape, np.array([axis]), axis=0, shape=(1,))

    def sizes(self, shape: Iterable[int]) -> Tensor:
        """Sizes as an int64 vector."""
        shape = list(shape)
        if not any(isinstance(n, Dim) for n in shape):
            return self.tensor(np.array(shape, np.int64))
        return self.op("Concat", *map(self.term, shape), axis=0, shape=(len(shape),))

    # ---- nodes whose form depends on the opset, or that most rules use ---------------------------

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """x in another shape; at most one size may be -1."""
        shape = list(shape)
        if -1 in shape:
            known = [n for n in shape if n != -1]
            whole = 1
            for n in x.shape:
                whole = whole * n
            rest = 1
            for n in known:
                rest = rest * n
            i = shape.index(-1)
            shape[i] = whole // rest if rest else 0
            open_at = [] if rest == 0 or prod(x.shape) == 0 else [i]
        else:
            open_at = []
        if tuple(map(id, shape)) == tuple(map(id, x.shape)) or (
            tuple(shape) == x.shape and not any(isinstance(n, Dim) for n in (*shape, *x.shape))
        ):
            return x
        if x.value is not None:
            return self.constant(x.value.reshape(shape))
        written: list[int] = [int(n) if not isinstance(n, Dim) else n for n in shape]
        for i, n in enumerate(shape):
            if isinstance(n, Dim) and i < x.ndim and x.shape[i] is n:
                written[i] = 0
        left = [i for i, n in enumerate(written) if isinstance(n, Dim)]
        if open_at and open_at[0] in left or not open_at:
            open_at = open_at or left[:1]
        if open_at and (len(left) <= 1) and 0 not in shape:
            written[open_at[0]] = -1
        zero = any(n == 0 and not isinstance(n, Dim) for n in shape)
        if zero:  # a size of 0, which otherwise means: as in x
            written = shape
        return self.op(
            "Reshape",
            x,
            self.sizes(written),
            shape=shape,
            allowzero=1 if zero and self.opset >= 14 else None,
        )

    def constant(self, x: np.ndarray) -> Tensor:
        return self.tensor(np.ascontiguousarray(x).reshape(x.shape))

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        axes = [int(a) % x.ndim for a in axes]
        if axes == sorted(axes):
            return x
        if x.value is not None:
            return self.constant(x.value.transpose(axes))
        return self.op("Transpose", x, perm=axes, shape=[x.shape[a] for a in axes])

    def unsqueeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """New axes of size 1, at these places of the result."""
        n = x.ndim + len(axes)
        axes = sorted(a % n for a in axes)
        rest = iter(x.shape)
        shape = [1 if i in axes else next(rest) for i in range(n)]
        if not axes:
            return x
        return self.op("Unsqueeze", x, np.array(axes, np.int64), shape=shape)

    def squeeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        axes = sorted(a % x.ndim for a in axes)
        if not axes:
            return x
        shape = [n for i, n in enumerate(x.shape) if i not in axes]
        return self.op("Squeeze", x, np.array(axes, np.int64), shape=shape)

    def expand(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """x repeated to a shape, as NumPy's broadcast_to."""
        shape = tuple(shape)
        if len(shape) == x.ndim and all(
            a is b or (a == b and not isinstance(a, Dim) and not isinstance(b, Dim))
            for a, b in zip(shape, x.shape)
        ):
            return x
        return self.op("Expand", x, self.sizes(shape), shape=shape)

    def slice(
        self,
        x: Tensor,
        starts: Sequence[int],
        ends: Sequence[int],
        axes: Sequence[int],
        steps: Sequence[int] | None = None,
        shape: Sequence[int] | None = None,
    ) -> Tensor:
        """Ranges of axes, as Python's slices with numbers."""
        steps = list(steps or [1] * len(axes))
        if shape is None:
            made = list(x.shape)
            for a, b, axis, s in zip(starts, ends, axes, steps):
                made[axis] = len(range(*slice(a, b, s).indices(x.shape[axis])))
            shape = made
        parts = [self.sizes(starts), self.sizes(ends), self.sizes(axes)]
        return self.op("Slice", x, *parts, self.sizes(steps), shape=shape)

    def reduce(
        self,
        kind: str,
        x: Tensor,
        axes: Sequence[int] | None = None,
        keepdims: bool = False,
    ) -> Tensor:
        """ReduceSum, ReduceMax ... over axes (None: all)."""
        axes = list(range(x.ndim)) if axes is None else sorted(a % x.ndim for a in axes)
        shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes]
        if not axes:
            return x
        if kind == "ReduceSum" or self.opset >= 18:
            at = np.array(axes, np.int64)
            return self.op(kind, x, at, keepdims=int(keepdims), shape=shape)
        return self.op(kind, x, axes=axes, keepdims=int(keepdims), shape=shape)

    def split(self, x: Tensor, axis: int, parts: Sequence[int]) -> list[Tensor]:
        """Consecutive parts of an axis."""
        axis %= x.ndim
        if len(parts) == 1:
            return [x]
        made = self.op("Split", x, np.array(parts, np.int64), axis=axis, n=len(parts))
        for t, n in zip(made, parts):
            t.shape = (*x.shape[:axis], n, *x.shape[axis + 1 :])
        return made

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        """x where the condition (bools) holds, else y; of one dtype."""
        like = x if isinstance(x, Tensor) else y if isinstance(y, Tensor) else None
        a, b = self.tensor(x, like), self.tensor(y, like)
        shape = broadcast(condition.shape, a.shape, b.shape)
        return self.op("Where", condition, a, b, shape=shape, dtype=a.dtype)

    def need(self, opset: int, what: str) -> None:
        """Raises Unmapped where the model's opset is lower."""
        if self.opset < opset:
            raise Unmapped(f"{what} needs opset_version={opset} or higher")


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """NumPy's broadcasting of shapes, which keeps sizes that are Dims."""
    n = max(map(len, shapes), default=0)
    made: list[int] = []
    for column in zip(*([1] * (n - len(s)) + list(s) for s in shapes)):
        sizes = [m for m in column if m != 1]
        if len({int(m) for m in sizes}) > 1:
            raise ValueError(f"shapes {', '.join(map(str, shapes))} do not fit together")
        fixed = [m for m in sizes if not isinstance(m, Dim)]
        made.append((fixed or sizes or [1])[0])
    return tuple(made)
