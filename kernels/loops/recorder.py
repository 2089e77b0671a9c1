"""The loops of a traced call while they are recorded, and the nodes that they compute."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..shapes import contiguous
from ..spec import ITEM_BYTES
from .arguments import Buffer, Scalar, Scratch
from .arrays import Array
from .functions import FUNCTIONS, UFUNCS
from .nodes import (
    TYPES,
    Cast,
    Leaf,
    Map,
    Node,
    Number,
    Place,
    Step,
    Table,
    Untraceable,
    View,
    Write,
    probe_of,
)

MAX_STEPS = 128
HEAVY = 30  # operations from which on an element is computed once and stored
MAX_SCRATCH = 1 << 30  # bytes
ALIGNMENT = 256
# functions of math.cuh that take integers too
_WHOLE = ("plk_mod_", "plk_pow_", "plk_abs_", "plk_fmod_", "plk_floordiv_")


class Recorder:
    """Nodes, scratch memory and loops of one call."""

    # its loops can refuse indices; reductions need no stages; what is padded is stored, as a loop
    # that decides for each element is slow
    for_cpu = False

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.scratch_bytes = 0

    # ---- nodes -----------------------------------------------------------------------------------

    def joined(self, x: Any) -> Any:
        """Lists in which arrays stand, as arrays."""
        if isinstance(x, (list, tuple)) and any(isinstance(v, (Array, list, tuple)) for v in x):
            parts = [self.joined(v) for v in x]
            if any(isinstance(v, Array) for v in parts):
                return FUNCTIONS["stack"](self, parts)
        return x

    def array(self, node: Node, part_of: tuple[Array, Any] | None = None) -> Array:
        """The array of a node, for the functions that functions.py has."""
        return Array(self, node, part_of=part_of)

    def node(self, x: Any) -> Node:
        """A node of an array, or of numbers known now."""
        if isinstance(x, Array):
            return x.node
        x = np.asarray(self.joined(x))
        if x.dtype.name not in TYPES:
            raise Untraceable(f"dtype {x.dtype}")
        if x.size == 0:
            return self.broadcast(Number(0, x.dtype), x.shape)
        first = x.reshape(-1)[0]
        if x.size == 1 or (x == first).all():
            return self.broadcast(Number(first.item(), x.dtype), x.shape)
        return self._range(x) or Table(x)

    def _range(self, x: np.ndarray) -> Place | None:
        start = x.reshape(-1)[0].item()
        steps = []
        for d, n in enumerate(x.shape):
            at = tuple(int(e == d) for e in range(x.ndim))
            steps.append(x[at].item() - start if n > 1 else 0)
        if any(v != v or v in (np.inf, -np.inf) or v != int(v) for v in (start, *steps)):
            return None
        made = start + sum(
            np.arange(n).reshape([-1 if e == d else 1 for e in range(x.ndim)]) * int(s)
            for d, (n, s) in enumerate(zip(x.shape, steps))
        )
        if not np.array_equal(np.broadcast_to(made, x.shape), x):
            return None
        return Place(x.shape, x.dtype, int(start), [int(s) for s in steps])

    def like(self, x: Any) -> Any:
        """What stands for an operand where NumPy finds dtypes."""
        if isinstance(x, Array):
            return 1.0 if x.weak else np.empty((), x.dtype)
        return x

    def cast(self, x: Node, dtype: Any) -> Node:
        dtype = np.dtype(dtype)
        if dtype == x.dtype:
            return x
        if dtype.name not in TYPES:
            raise Untraceable(f"dtype {dtype}")
        if isinstance(x, Number) and not isinstance(x.number, Scalar):
            return Number(np.asarray(x.number).astype(dtype).item(), dtype)
        if isinstance(x, Place) and dtype.kind in "if":
            return Place(x.shape, dtype, x.start, x.steps)
        return Cast(x, dtype)

    def broadcast(self, x: Node, shape: Sequence[int]) -> Node:
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if np.broadcast_shapes(x.shape, shape) != shape:
            raise ValueError(f"{x.shape} does not broadcast to {shape}")
        probe = np.broadcast_to(probe_of(x.shape), shape)
        return self.strided(x, shape, probe.strides, 0)

    def strided(self, x: Node, shape: Sequence[int], strides: Sequence[int], offset: int) -> Node:
        """Elements of x by strides over its flat places."""
        if isinstance(x, Leaf) and list(x.strides) == contiguous(x.shape):
            return Leaf(x.place, shape, x.stored, strides, x.offset + offset)
        return View(self.light(x), shape, strides, offset)

    def flat(self, x: Node) -> Node:
        return self.strided(x, (prod(x.shape),), (1,), 0)

    def light(self, x: Node) -> Node:
        """The node, or what it gives in memory, where that is much to compute more than once."""
        return self.stored(x) if x.weight > HEAVY else x

    def ufunc(self, ufunc: np.ufunc, inputs: Sequence[Any], dtype: Any = None) -> Array:
        name = ufunc.__name__
        if name not in UFUNCS:
            raise Untraceable(f"there is no {name}")
        given = [self.joined(x) for x in inputs]
        if name == "power" and dtype is None and _is_two(given[1]) and isinstance(given[0], Array):
            return self.ufunc(np.square, given[:1])
        types = [
            float
            if isinstance(x, Array) and x.weak and x.dtype != bool
            else type(x)
            if type(x) in (int, float)
            else bool
            if type(x) is bool
            else (x if isinstance(x, Array) else np.asarray(x)).dtype
            for x in given
        ]
        types = [np.dtype(bool) if t is bool else t for t in types]
        if all(t in (int, float) for t in types):
            types[0] = np.dtype("float64" if float in types else "int64")
        more: dict[str, Any] = {}
        if dtype is not None:
            more["signature"] = (*[None] * len(types), np.dtype(dtype))
        try:
            loop = ufunc.resolve_dtypes((*types, *[None] * ufunc.nout), **more)
        except TypeError as error:  # the reference says it, with the user's line
            raise Untraceable(str(error)) from None
        if any(t.name not in TYPES or t == np.float16 for t in loop) or ufunc.nout != 1:
            raise Untraceable(f"{name} of {loop}")
        nodes = [self.cast(self.node(x), t) for x, t in zip(given, loop)]
        found = UFUNCS[name]
        t = loop[0]
        text = found(t) if callable(found) else found
        suffix = {"float32": "f32", "float64": "f64"}.get(t.name, "int")
        if suffix == "int" and "_{s}" in text and "{0}" in text and not text.startswith(_WHOLE):
            raise Untraceable(f"{name} of {t}")
        for mark, word in (("{s}", suffix), ("{T}", TYPES[t.name])):
            text = text.replace(mark, word)
        made: Node = Map(text, nodes, loop[-1])
        weak = all(isinstance(x, (int, float)) or isinstance(x, Array) and x.weak for x in given)
        if made.weight > 20 * HEAVY:
            made = self.stored(made)
        return Array(self, made, weak and not isinstance(made, Leaf))

    # ---- loops -----------------------------------------------------------------------------------

    def scratch(self, nbytes: int) -> Scratch:
        at = self.scratch_bytes
        self.scratch_bytes += -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        if self.scratch_bytes > MAX_SCRATCH:
            raise Untraceable("too much memory")
        return Scratch(at)

    def add(self, step: Step) -> None:
        self.steps.append(step)
        if len(self.steps) > MAX_STEPS:
            raise Untraceable("too many loops")

    def new(self, shape: Sequence[int], dtype: Any) -> Leaf:
        """Scratch memory for an array."""
        name = np.dtype(dtype).name
        place = self.scratch(prod(shape) * ITEM_BYTES[name])
        return Leaf(place, shape, name, contiguous(shape))

    def stored(self, x: Node, again: bool = False) -> Leaf:
        """The node's elements in memory, row-major. again: in memory of their own."""
        if isinstance(x, Leaf) and list(x.strides) == contiguous(x.shape) and not again:
            return x
        made = self.new(x.shape, x.dtype)
        self.write([x], [(made.place, made.stored)])
        return made

    def write(self, nodes: Sequence[Node], to: Sequence[tuple[Buffer | Scratch, str]]) -> None:
        """One loop that stores nodes of one shape. to: place and dtype in memory of each."""
        self.add(Write(nodes, to))


def _is_two(x: Any) -> bool:
    """Is it the exponent of a square, of no other dtype than the base?"""
    return type(x) in (int, float) and x == 2
