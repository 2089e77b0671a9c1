"""What a rule or a reference gets in place of an array: a value of the ONNX graph, whose operators
and NumPy functions write nodes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

FUNCTIONS: dict[str, Any] = {}  # NumPy's functions, by name; filled by arrays.py


class Untraceable(Exception):
    """A reference does what cannot be written as a graph; the text says what."""


class Edge:
    """What nodes read and write: one value, its name in the file, its array where that is known. A
    parameter keeps its name and is written where it is used. stands_for: of int32 sums, the floats
    that they are made of."""

    __slots__ = ("name", "value", "parameter", "stands_for")

    def __init__(self, name: str, value: np.ndarray | None = None, parameter: bool = False):
        self.name, self.value, self.parameter = name, value, parameter
        self.stands_for: Tensor | None = None


class Graph(Protocol):
    """What a Tensor asks of its graph, which graph.py has whole."""

    def tensor(self, x: Any, like: Tensor | None = None) -> Tensor: ...
    def cast(self, x: Tensor, dtype: Any) -> Tensor: ...
    def expand(self, x: Tensor, shape: Sequence[int]) -> Tensor: ...
    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor: ...


class Tensor(np.lib.mixins.NDArrayOperatorsMixin):
    """A value of a graph, of a shape and dtype. A reference may write into it: then it is another
    edge."""

    __array_priority__ = 1000.0

    def __init__(
        self,
        graph: Graph,
        shape: Sequence[int],
        dtype: Any,
        name: str,
        value: np.ndarray | None = None,
        parameter: bool = False,
    ):
        self.graph, self.shape, self.dtype = graph, tuple(shape), dtype
        self.edge = Edge(name, value, parameter)
        self.part_of: tuple[Tensor, Any] | None = None  # what this is a view of, and its key

    name = property(lambda self: self.edge.name)
    value = property(lambda self: self.edge.value)
    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: prod(self.shape))
    T = property(lambda self: self.graph.transpose(self, range(self.ndim)[::-1]))
    real = property(lambda self: self)

    def __repr__(self):
        return f"<Tensor {self.name} {self.dtype}{list(self.shape)}>"

    def _values(self, *_: Any, **__: Any) -> Any:
        if self.value is not None and self.size == 1:
            return self.value.item()
        raise Untraceable("it looks at values")

    def __bool__(self) -> bool:
        return bool(self._values())

    def __int__(self) -> int:
        return int(self._values())

    def __float__(self) -> float:
        return float(self._values())

    def __index__(self) -> int:
        return int(self._values())

    item = tolist = tobytes = view = nonzero = _values
    __hash__ = object.__hash__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.value is None:
            raise Untraceable("it looks at values")
        return np.array(self.value, dtype)

    def __len__(self):
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        made = FUNCTIONS["ufunc"](self.graph, ufunc, method, inputs, kwargs)
        if out is None:
            return made
        (target,) = out
        if not isinstance(target, Tensor):
            raise Untraceable("it writes into an array of the host")
        target.replace(made)
        return target

    def __array_function__(self, function, types, args, kwargs):
        return self._apply(function.__name__, *args, **kwargs)

    def _apply(self, name: str, *args: Any, **kwargs: Any) -> Any:
        made = FUNCTIONS.get(name)
        if made is None:
            raise Untraceable(f"there is no {name}")
        return made(self.graph, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in FUNCTIONS:
            raise AttributeError(name)
        return lambda *args, **kwargs: self._apply(name, self, *args, **kwargs)

    def astype(self, dtype: Any, copy: bool = True) -> Tensor:
        return self.graph.cast(self, dtype).again()

    def again(self, shape: Sequence[int] | None = None, dtype: Any = None) -> Tensor:
        """Another Tensor of the same edge."""
        made = Tensor(self.graph, self.shape if shape is None else shape, dtype or self.dtype, "")
        made.edge = self.edge
        return made

    def __getitem__(self, key):
        return FUNCTIONS["getitem"](self.graph, self, key)

    def __setitem__(self, key, value):
        self.replace(FUNCTIONS["assigned"](self.graph, self, key, value))

    def replace(self, made: Tensor) -> None:
        """Writes all of it: a reference's `x[...] = made`."""
        g = self.graph
        made = g.cast(g.expand(g.tensor(made, self), self.shape), self.dtype)
        self.edge, self.graph = made.edge, made.graph
        if self.part_of is not None:
            whole, key = self.part_of
            whole[key] = made


def ufunc(function: np.ufunc, *xs: Any) -> Tensor:
    """A ufunc of Tensors, with its type: by NumPy's own the result is an array."""
    return function(*xs)


class Namespace:
    """NumPy for references: its new arrays are Tensors, which can be written into."""

    def __init__(self, graph: Graph):
        self._graph = graph

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def _own(self, x: Any) -> Tensor:
        found = self._graph.tensor(x)
        return found.again()

    def zeros(self, shape: Any, dtype: Any = float) -> Tensor:
        return self._filled(shape, 0, dtype)

    empty = zeros

    def ones(self, shape: Any, dtype: Any = float) -> Tensor:
        return self._filled(shape, 1, dtype)

    def full(self, shape: Any, fill_value: Any, dtype: Any = None) -> Tensor:
        if isinstance(fill_value, Tensor):
            dtype = dtype or fill_value.dtype
            return self._graph.expand(self._graph.cast(fill_value, dtype), _shape(shape))
        return self._filled(shape, fill_value, dtype or np.asarray(fill_value).dtype)

    def _filled(self, shape: Any, value: Any, dtype: Any) -> Tensor:
        return FUNCTIONS["filled"](self._graph, _shape(shape), value, dtype)

    def asarray(self, x: Any, dtype: Any = None) -> Any:
        if isinstance(x, (list, tuple)) and any(isinstance(t, Tensor) for t in x):
            x = FUNCTIONS["stack"](self._graph, list(x))
        if not isinstance(x, Tensor):
            return np.asarray(x, dtype)
        return x if dtype is None else x.astype(dtype)

    ascontiguousarray = asarray

    def array(self, x: Any, dtype: Any = None, copy: bool = True) -> Any:
        made = self.asarray(x, dtype)
        return self._own(made) if isinstance(made, Tensor) else made.copy()


def _shape(shape: Any) -> tuple[int, ...]:
    return (shape,) if hasattr(shape, "__index__") else tuple(shape)
