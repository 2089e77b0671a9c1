"""Kernels for operators that have none of their own: made from their references.

A reference is written against NumPy. Here it runs once for a plan, on arrays that record what is
done to them (NumPy's protocols __array_ufunc__ and __array_function__ bring it here), and what was
recorded becomes CUDA text: chains of pointwise operations, slices and gathers are one kernel,
each reduction is one. References that look at values, draw random numbers, or loop for long cannot
be traced; they run as they are (fallback.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from ..native import Native
from ..record import NUMERIC, REGISTRY, Type, mutated_inputs
from ..shapes import contiguous, lines
from ..spec import ITEM_BYTES
from ..traits import Eager, OwnKernel, PythonKernel
from . import scatter_plan
from .launch import Buffer, Copy, Int32, Int64, Launch, Scalar, Scratch, Struct, launches
from .layout import THREADS, TYPES, blocks_for, ceil_div, index_of
from .trace_functions import FUNCTIONS, UFUNCS
from .trace_source import (
    JOINS,
    Assigned,
    Gather,
    Leaf,
    Map,
    Module,
    Node,
    Number,
    Place,
    Strided,
    Table,
    Text,
    Untraceable,
    View,
    address_of,
    probe_of,
)

MAX_LAUNCHES = 40
MAX_LINES = 400  # of one kernel: compilers take long for more
HEAVY = 30  # operations from which on an element is computed once and stored
MAX_SCRATCH = 1 << 30  # bytes
MANY, FEW = 1 << 15, 1 << 10  # reduced elements, results: from there on in two stages
PARTS = (1024, 512, 256, 128, 64, 32, 1000, 500, 250, 125, 81, 49)  # of a whole array
ALIGNMENT = 256
LAUNCH_US = 2.5


class Unknown(Untraceable, AttributeError):
    """An attribute of arrays that is not traced."""


def applied(function, t: Tracer, *args, **kwargs):
    """A traced function's result. Raises Untraceable for arguments that it does not take."""
    try:
        inspect.signature(function).bind(t, *args, **kwargs)
    except TypeError as error:
        raise Untraceable(str(error)) from None
    return function(t, *args, **kwargs)


class Array(np.lib.mixins.NDArrayOperatorsMixin):
    """What a reference gets in place of an array."""

    __array_priority__ = 1000

    def __init__(self, tracer: Tracer, node: Node, weak: bool = False, part_of=None):
        self.tracer, self.node, self.weak = tracer, node, weak
        self._part_of = part_of  # (array, key): what is looked at through a slice, or Strided

    shape = property(lambda self: self.node.shape)
    dtype = property(lambda self: self.node.dtype)
    ndim = property(lambda self: len(self.node.shape))
    size = property(lambda self: prod(self.node.shape))
    T = property(lambda self: FUNCTIONS["transpose"](self.tracer, self))
    real = property(lambda self: self)

    def _values(self, *_, **__):
        raise Untraceable("it looks at values")

    __array__ = __bool__ = __int__ = __float__ = __index__ = __complex__ = _values
    item = tolist = tobytes = view = nonzero = __contains__ = _values
    __hash__ = object.__hash__

    def __len__(self):
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        t = self.tracer
        if ufunc is np.matmul:
            return FUNCTIONS["matmul"](t, *inputs)
        if kwargs.get("where", True) is not True:
            raise Untraceable(f"{ufunc.__name__} with where")
        if method == "at":
            return t.add_at(ufunc, *inputs)
        if method == "reduce":
            names = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
            if ufunc.__name__ not in names:
                raise Untraceable(f"{ufunc.__name__}.reduce")
            return t.reduce(names[ufunc.__name__], *inputs, **kwargs)
        if method != "__call__":
            raise Untraceable(f"{ufunc.__name__}.{method}")
        made = t.ufunc(ufunc, inputs, kwargs.get("dtype"))
        if out is None:
            return made
        (target,) = out
        if not isinstance(target, Array):
            raise Untraceable("it writes into an array of the host")
        target.replace(t.cast(t.broadcast(made.node, target.shape), target.dtype))
        return target

    def __array_function__(self, function, types, args, kwargs):
        made = FUNCTIONS.get(function.__name__)
        if made is None:
            raise Untraceable(f"there is no {function.__name__}")
        return applied(made, self.tracer, *args, **kwargs)

    def __getattr__(self, name):
        made = FUNCTIONS.get(name)
        if name.startswith("_"):
            raise AttributeError(name)
        if made is None:
            raise Unknown(f"there is no {name} of an array")
        return lambda *args, **kwargs: applied(made, self.tracer, self, *args, **kwargs)

    def astype(self, dtype, copy=True):
        return Array(self.tracer, self.tracer.cast(self.node, dtype))

    def __getitem__(self, key):
        return self.tracer.item(self, key)

    def __setitem__(self, key, value):
        self.replace(self.tracer.assigned(self.node, key, value))

    def replace(self, node: Node) -> None:
        """Writes all of the array."""
        self.node = node
        if self._part_of is None:
            return
        whole, key = self._part_of
        if isinstance(key, Strided):
            flat = [np.arange(n) * s for n, s in zip(node.shape, key.strides)]
            places = sum(np.ix_(*flat), np.asarray(key.offset))
            t, shape = self.tracer, whole.shape
            made = t.scatter(
                t.flat(whole.node), (np.broadcast_to(places, node.shape),), node, False
            )
            whole.replace(t.strided(made, shape, contiguous(shape), 0))
        else:
            whole[key] = Array(self.tracer, node)


class Namespace:
    """NumPy, whose new arrays record too."""

    def __init__(self, tracer: Tracer):
        self._tracer = tracer

    def __getattr__(self, name):
        return getattr(np, name)

    def _new(self, shape, value, dtype) -> Array:
        shape = (shape,) if hasattr(shape, "__index__") else tuple(shape)
        t = self._tracer
        return Array(t, t.broadcast(t.cast(t.node(value), dtype), shape))

    def zeros(self, shape, dtype=float):
        return self._new(shape, 0, dtype)

    empty = zeros

    def ones(self, shape, dtype=float):
        return self._new(shape, 1, dtype)

    def full(self, shape, fill_value, dtype=None):
        return self._new(
            shape, fill_value, dtype or np.asarray(self._tracer.like(fill_value)).dtype
        )

    def asarray(self, x, dtype=None):
        x = self._tracer.joined(x)
        if not isinstance(x, Array):
            return np.asarray(x, dtype)
        return x if dtype is None or x.dtype == dtype else x.astype(dtype)

    ascontiguousarray = asarray

    def array(self, x, dtype=None, copy=True):
        made = self.asarray(x, dtype)
        return Array(self._tracer, made.node) if isinstance(made, Array) else made.copy()


class Step:
    """A launch, which scratch memory it reads, and which it writes."""

    def __init__(self, launch: Launch | Copy, reads: set, writes=None):
        self.launch, self.reads, self.writes = launch, reads, writes


class Tracer:
    """Records one call."""

    def __init__(self):
        self.steps: list[Step] = []
        self.scratch_bytes = 0
        self.module = Module()

    # ---- nodes -----------------------------------------------------------------------------------

    def joined(self, x):
        """Lists in which arrays stand, as arrays."""
        if isinstance(x, (list, tuple)) and any(isinstance(v, (Array, list, tuple)) for v in x):
            parts = [self.joined(v) for v in x]
            if any(isinstance(v, Array) for v in parts):
                return FUNCTIONS["stack"](self, parts)
        return x

    def array(self, node: Node, part_of=None) -> Array:
        """The array of a node, for the functions that trace_functions.py has."""
        return Array(self, node, part_of=part_of)

    def node(self, x) -> Node:
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

    def like(self, x):
        """What stands for an operand where NumPy finds dtypes."""
        if isinstance(x, Array):
            return 1.0 if x.weak else np.empty((), x.dtype)
        return x

    def cast(self, x: Node, dtype) -> Node:
        dtype = np.dtype(dtype)
        if dtype == x.dtype:
            return x
        if dtype.name not in TYPES:
            raise Untraceable(f"dtype {dtype}")
        if isinstance(x, Number) and not isinstance(x.number, Scalar):
            return Number(np.asarray(x.number).astype(dtype).item(), dtype)
        if isinstance(x, Place) and dtype.kind in "if":
            return Place(x.shape, dtype, x.start, x.steps)
        return Map(f"as<{TYPES[dtype.name]}>({{0}})", [x], dtype)

    def broadcast(self, x: Node, shape) -> Node:
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if np.broadcast_shapes(x.shape, shape) != shape:
            raise ValueError(f"{x.shape} does not broadcast to {shape}")
        probe = np.broadcast_to(probe_of(x.shape), shape)
        return self.strided(x, shape, probe.strides, 0)

    def strided(self, x: Node, shape, strides, offset: int) -> Node:
        """Elements of x by strides over its flat places."""
        if isinstance(x, Leaf) and list(x.strides) == contiguous(x.shape):
            return Leaf(x.place, shape, x.stored, strides, x.offset + offset)
        return View(self.light(x), shape, strides, offset)

    def flat(self, x: Node) -> Node:
        return self.strided(x, (prod(x.shape),), (1,), 0)

    def light(self, x: Node) -> Node:
        """The node, or what it gives in memory, where that is much to compute more than once."""
        return self.stored(x) if x.weight > HEAVY else x

    def ufunc(self, ufunc, inputs, dtype=None) -> Array:
        name = ufunc.__name__
        if name not in UFUNCS:
            raise Untraceable(f"there is no {name}")
        given = [self.joined(x) for x in inputs]
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
        more = {}
        if dtype is not None:
            more["signature"] = (*[None] * len(types), np.dtype(dtype))
        loop = ufunc.resolve_dtypes((*types, *[None] * ufunc.nout), **more)
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

    # ---- indices ---------------------------------------------------------------------------------

    def item(self, x: Array, key) -> Array:
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(i, (Array, np.ndarray, list)) and not _is_whole(i) for i in keys):
            return self._gather(x.node, keys)
        probe = probe_of(x.shape)
        part = probe[key]
        if not isinstance(part, np.ndarray):
            part = probe[(*keys, ...)]
        offset = address_of(part) - address_of(probe)
        node = self.strided(x.node, part.shape, part.strides, offset if part.size else 0)
        return Array(self, node, part_of=(x, key))

    def _gather(self, x: Node, keys) -> Array:
        keys = self._expanded(x, keys)
        arrays, first = self._index_arrays(x, keys)
        broad = np.broadcast_shapes(*(a.shape for a in arrays.values()))
        # slices first: what is left is a gather
        probe = probe_of(x.shape)
        slices = tuple(slice(None) if d in arrays else k for d, k in enumerate(keys))
        part = probe[slices]
        if part.shape != x.shape:
            x = self.strided(x, part.shape, part.strides, address_of(part) - address_of(probe))
        x = self.light(x)
        others = [d for d in range(len(keys)) if d not in arrays]
        shape = [x.shape[d] for d in others]
        shape[first:first] = broad
        spots = [i for i in range(len(shape)) if not first <= i < first + len(broad)]
        place = dict(zip(others, spots))
        found = [self.light(arrays[d]) if d in arrays else place[d] for d in range(len(keys))]
        return Array(self, Gather(x, found, shape, first, len(broad)))

    def _expanded(self, x: Node, keys) -> list:
        """One key an axis. Masks known now are places."""
        found: list = []
        for k in keys:
            if k is None:
                raise Untraceable("a new axis among index arrays")
            if isinstance(k, (list, np.ndarray)):
                k = np.asarray(k)
                found += k.nonzero() if k.dtype == bool else [k]
            elif isinstance(k, Array) and k.dtype == bool:
                raise Untraceable("a mask chooses")
            else:
                found.append(k)
        if any(k is Ellipsis for k in found):
            at = next(i for i, k in enumerate(found) if k is Ellipsis)
            found[at : at + 1] = [slice(None)] * (len(x.shape) - len(found) + 1)
        return found + [slice(None)] * (len(x.shape) - len(found))

    def _index_arrays(self, x: Node, keys) -> tuple[dict[int, Node], int]:
        """(the index arrays by axis, where their dimensions stand in the result)"""
        arrays = {
            d: self.cast(self.node(k), "int64") for d, k in enumerate(keys) if type(k) is not slice
        }
        axes = sorted(arrays)
        together = axes == list(range(axes[0], axes[-1] + 1))
        return arrays, axes[0] if together else 0

    def assigned(self, x: Node, key, value) -> Node:
        """x with other values in a part of it."""
        keys = key if isinstance(key, tuple) else (key,)
        value = self.cast(self.node(value), x.dtype)
        if any(isinstance(i, (Array, np.ndarray, list)) and not _is_whole(i) for i in keys):
            mask = keys[0] if len(keys) == 1 else None
            if isinstance(mask, (Array, np.ndarray)) and mask.dtype == bool:
                if value.shape != () or mask.shape != x.shape[: mask.ndim]:
                    raise Untraceable("a mask chooses")
                m = self.node(mask)
                m = self.strided(
                    m,
                    (*m.shape, *[1] * (len(x.shape) - mask.ndim)),
                    [*contiguous(m.shape), *[0] * (len(x.shape) - mask.ndim)],
                    0,
                )
                return Map("{0} ? {1} : {2}", [m, value, x], x.dtype)
            return self.scatter(x, keys, value, False)
        keys = tuple(None if k is None else k for k in keys if k is not None)
        region, shape = [], []
        for n, k in zip(x.shape, self._expanded(x, keys)):
            if type(k) is slice:
                start, stop, step = k.indices(n)
                if step < 0:
                    raise Untraceable("an assignment backwards")
                count = len(range(start, stop, step))
                region.append((start, step, count))
                shape.append(count)
            else:
                i = int(k)
                if not -n <= i < n:
                    raise IndexError("an index is out of range")
                region.append((i % n, 1, -1))
        while len(value.shape) > len(shape) and value.shape[0] == 1:
            value = self.strided(value, value.shape[1:], contiguous(value.shape)[1:], 0)
        value = self.broadcast(value, shape)
        if shape == list(x.shape):
            return value
        return Assigned(self.light(x), region, self.light(value))

    # ---- kernels ---------------------------------------------------------------------------------

    def scratch(self, nbytes: int) -> Scratch:
        at = self.scratch_bytes
        self.scratch_bytes += ceil_div(max(nbytes, 1), ALIGNMENT) * ALIGNMENT
        if self.scratch_bytes > MAX_SCRATCH:
            raise Untraceable("too much memory")
        return Scratch(at)

    def add(self, step: Launch | Copy, reads: set, writes) -> None:
        self.steps.append(Step(step, reads, writes))
        if len(self.steps) > MAX_LAUNCHES:
            raise Untraceable("too many kernels")

    def new(self, shape, dtype) -> Leaf:
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
        """One kernel that stores nodes of one shape. to: place and dtype in memory of each."""
        shape = nodes[0].shape
        kind = index_of(prod(shape), *self._sizes(nodes))
        k, n = Text(kind, self.module.tables), prod(shape)
        at = k.split("e", shape)
        after = []
        members = ["const I n", *(f"{TYPES[d]} *out_{i}" for i, (_, d) in enumerate(to))]
        for i, (x, (_, d)) in enumerate(zip(nodes, to)):
            after.append(f"out_{i}[e] = as<{TYPES[d]}>({k.element(x, tuple(at))});")
        before = ["const I e = (I)blockIdx.x * 256 + (I)threadIdx.x;", "if (e >= n)", "    return;"]
        size = Int32(n) if kind == "int32_t" else Int64(n)
        arguments = [size, *(p for p, _ in to), *k.arguments]
        self._launch(k, members, before, after, blocks_for(n, THREADS), arguments, to)

    def _sizes(self, nodes):
        """Of the arrays that nodes read: what an index must hold."""
        return [1 << 20]

    def _launch(self, k, members, before, after, grid, arguments, to) -> None:
        if len(k.lines) > MAX_LINES:
            raise Untraceable("too long a kernel")
        reads = {a for a in k.arguments if isinstance(a, (Scratch, Buffer))}
        name = self.module.add(k, members, before, after)
        self.add(Launch("", name, grid, (THREADS,), arguments), reads, {p for p, _ in to})

    def reduce(self, method: str, x, axis=None, dtype=None, out=None, keepdims=False, **more):
        """sum, prod, max, min, any, all, argmax, argmin along axes."""
        if out is not None or any(v is not None and v is not np._NoValue for v in more.values()):
            raise Untraceable(f"{method} with {sorted(more)}")
        keepdims = False if keepdims is np._NoValue else bool(keepdims)
        x = self.node(x)
        n_dims = len(x.shape)
        axes = range(n_dims) if axis is None else (axis,) if hasattr(axis, "__index__") else axis
        axes = sorted({a % n_dims for a in axes}) if n_dims else []
        index = method.startswith("arg")
        like = getattr(np, method)(np.ones((1,) * max(n_dims, 1), x.dtype), axis=0)
        result = np.dtype(dtype or like.dtype)
        if method in ("any", "all"):
            x = self.cast(x, bool)
        elif not index:
            x = self.cast(x, result)
        count = prod(x.shape[a] for a in axes)
        kept = [1 if a in axes else n for a, n in enumerate(x.shape)]
        shape = kept if keepdims else [n for a, n in enumerate(x.shape) if a not in axes]
        if count == 0 and method not in ("sum", "prod", "any", "all"):
            raise ValueError("nothing to reduce")
        if axis is None and index and n_dims > 1:
            x, axes = FUNCTIONS["reshape"](self, Array(self, x), -1).node, [0]
            kept = [1]
        if not index and count > MANY and prod(kept) < FEW:
            staged = self._in_stages(method, x, axes, result)
            if staged is not None:
                return FUNCTIONS["reshape"](self, staged, tuple(shape))
        made = self.new(shape, result)
        if prod(shape):
            self._reduce(method, x, axes, kept, made)
        return Array(self, made)

    def _in_stages(self, method: str, x: Node, axes: list[int], result) -> Array | None:
        """A reduction of much to little, part by part: one block for each result is too slow."""
        more = {"dtype": result} if method in ("sum", "prod") else {}
        if len(axes) == len(x.shape):
            n = prod(x.shape)
            parts = next((d for d in PARTS if n % d == 0), None)
            if parts is None:
                return None
            rows = self.strided(self.flat(x), (parts, n // parts), (n // parts, 1), 0)
            rows = self.reduce(method, Array(self, rows), 1, **more)
            return self.reduce(method, rows, 0, **more)
        if len(axes) == 1:
            return None
        rows = self.reduce(method, Array(self, x), axes[-1], keepdims=True, **more)
        return self.reduce(method, rows, tuple(axes), **more)

    def _reduce(self, method, x: Node, axes, kept, made: Leaf) -> None:
        shape = [x.shape[a] for a in axes]
        n, m = prod(kept), prod(shape)
        kind = index_of(prod(x.shape), 1 << 20)
        k = Text(kind, self.module.tables)
        outer = k.split("o", kept)
        n_before = len(k.lines)
        inner = dict(zip(axes, k.split("r", shape)))
        e = k.element(x, tuple(inner.get(a, o) for a, o in enumerate(outer)))
        lines, k.lines = k.lines, []
        index = method.startswith("arg")
        threads = 1 if index or m <= 32 else 32 if m <= 1024 else THREADS
        wide = "double" if x.dtype.kind == "f" and method in ("sum", "prod") else x.kind
        wide = "int" if wide == "bool" else wide
        before = [
            f"const I e = ((I)blockIdx.x * 256 + (I)threadIdx.x) / {threads};",
            f"const int lane = (int)threadIdx.x % {threads};",
            "const I o = e < n ? e : 0;",
            *lines[:n_before],
        ]
        body = lines[n_before:]
        if index:
            order = "<" if method == "argmin" else ">"
            before += [f"{x.kind} best = 0;", "int64_t total = -1;"]
            body += [
                f"if (total < 0 || {e} {order} best || ({e} != {e} && best == best)) {{",
                f"    best = {e};",
                "    total = r;",
                "}",
            ]
        else:
            start, join = JOINS[method]
            if start:
                before.append(f"{wide} total = {start};")
                body.append(f"total = {join.format('total', f'({wide}){e}')};")
            else:
                before += [f"{wide} total = 0;", "bool empty = true;"]
                one = f"({wide}){e}"
                body += [f"total = empty ? {one} : {join.format('total', one)};", "empty = false;"]
        after = [f"for (I r = lane; r < m; r += {threads}) {{"]
        after += [f"    {line}" for line in body] + ["}"]
        if threads > 1:
            # every lane has an element where there is no number to start with: m > threads - 1
            before.insert(0, f"__shared__ One<{wide}> scratch[WARP];")
            joined = JOINS[method][1].format("a.v", "b.v")
            after.append(
                f"total = joined<{threads}>(One<{wide}>{{total}}, scratch, [](One<{wide}> a, "
                f"One<{wide}> b) {{ return One<{wide}>{{({wide})({joined})}}; }}).v;"
            )
        after.append(f"if (e < n && lane == 0) out_0[e] = as<{TYPES[made.stored]}>(total);")
        size = Int32 if kind == "int32_t" else Int64
        members = ["const I n", "const I m", f"{TYPES[made.stored]} *out_0"]
        arguments = [size(n), size(m), made.place, *k.arguments]
        to = [(made.place, made.stored)]
        grid = blocks_for(n, THREADS // threads)
        self._launch(k, members, before, after, grid, arguments, to)

    def scan(self, method: str, x: Node, axis: int) -> Leaf:
        """Cumulative sums or products: a thread for each line."""
        made = self.new(x.shape, x.dtype)
        outer, n, inner = lines("scan", x.shape, axis)
        if not prod(x.shape):
            return made
        kind = index_of(prod(x.shape), 1 << 20)
        k = Text(kind, self.module.tables)
        at = k.split("e", [*x.shape[:axis], *x.shape[axis + 1 :]])
        at.insert(axis, "r")
        e = k.element(x, tuple(at))
        wide = "double" if x.dtype.kind == "f" else x.kind
        start, join = JOINS[method]
        before = [
            "const I e = (I)blockIdx.x * 256 + (I)threadIdx.x;",
            "if (e >= n)",
            "    return;",
            f"{wide} total = {start};",
            "for (I r = 0; r < m; r++) {",
        ]
        after = [
            f"    total = {join.format('total', f'({wide}){e}')};",
            "    const I at = (e / inner * m + r) * inner + e % inner;",
            f"    out_0[at] = as<{TYPES[made.stored]}>(total);",
            "}",
        ]
        size = Int32 if kind == "int32_t" else Int64
        members = ["const I n", "const I m", "const I inner", f"{TYPES[made.stored]} *out_0"]
        sizes = [size(outer * inner), size(n), size(inner)]
        arguments = [*sizes, made.place, *k.arguments]
        to = [(made.place, made.stored)]
        self._launch(k, members, before, after, blocks_for(outer * inner, THREADS), arguments, to)
        return made

    def add_at(self, ufunc, target, keys, value) -> None:
        """ufunc.at: what several places name is added in their order."""
        if ufunc.__name__ != "add" or not isinstance(target, Array):
            raise Untraceable(f"{ufunc.__name__}.at")
        keys = keys if isinstance(keys, tuple) else (keys,)
        value = self.cast(self.node(value), target.dtype)
        target.replace(self.scatter(target.node, keys, value, True))

    def scatter(self, x: Node, keys, value: Node, add: bool) -> Node:
        keys = self._expanded(x, keys)
        arrays, first = self._index_arrays(x, keys)
        broad = np.broadcast_shapes(*(a.shape for a in arrays.values()))
        others = [d for d in range(len(keys)) if d not in arrays]
        ranges = {d: np.arange(x.shape[d])[keys[d]] for d in others}
        shape = [len(ranges[d]) for d in others]
        shape[first:first] = broad
        spots = [i for i in range(len(shape)) if not first <= i < first + len(broad)]
        flat: Array | int = 0
        for d, stride in enumerate(contiguous(x.shape)):
            if d in arrays:
                at = Array(self, arrays[d])
                at = FUNCTIONS["where"](self, at < 0, at + x.shape[d], at)
                tail = len(shape) - first - len(broad)
                at = at.reshape((*at.shape, *[1] * tail))
            else:
                axis = spots[others.index(d)]
                at = ranges[d].reshape([-1 if i == axis else 1 for i in range(len(shape))])
            flat = flat + at * stride
        places = self.stored(self.broadcast(self.node(flat), shape))
        rows = self.stored(self.broadcast(value, shape))
        if rows.stored != x.dtype.name:  # 16 bits
            rows = self.stored(rows, again=True)
        # a scatter adds nothing to what was there
        before = self.broadcast(Number(0, x.dtype), x.shape) if add else x
        made = self.stored(before, again=True)
        n_places, dtype = prod(shape), made.stored
        if dtype not in NUMERIC or n_places >= 1 << 31:
            raise Untraceable(f"a scatter of {dtype}")
        if n_places and prod(x.shape):
            given = Struct(places.place, Int64(prod(x.shape)), Int32(0))
            base = self.scratch_bytes
            steps, end = scatter_plan.scatter(
                *("TakenRows<int64_t>", given, n_places, 1, prod(x.shape), 1),
                *(dtype, add, rows.place, made.place, base),
            )
            self.scratch(end - base)
            for i, step in enumerate(steps):
                last = i == len(steps) - 1
                reads = {places.place, rows.place, made.place, ("sorted", base)}
                self.add(step, reads, {made.place} if last else {("sorted", base)})
        made = Leaf(made.place, made.shape, dtype, made.strides)
        return Map("{0} + {1}", [x, made], x.dtype) if add else made


_WHOLE = ("plk_mod_", "plk_pow_", "plk_abs_", "plk_fmod_", "plk_floordiv_")


def _is_whole(i) -> bool:
    """Is it an index without dimensions, known now?"""
    return isinstance(i, np.ndarray) and i.shape == () and i.dtype.kind in "iu"


# ---- the entry -----------------------------------------------------------------------------------


def trace(op, ins: Sequence[Type], outs: Sequence[Type], attrs: dict) -> Native:
    """The kernel of a call. Raises Untraceable, and what the reference raises."""
    given, at = dict(attrs), 0
    t = Tracer()
    for p in op.params:
        if p.dynamic:
            if p.kind.endswith("?"):
                raise Untraceable("a number that may be none")
            count = len(given[p.name]) if isinstance(given[p.name], tuple | list) else None
            made = [
                Array(t, Number(Scalar(at + i, "float64"), "float64"), weak=True)
                for i in range(1 if count is None else count)
            ]
            given[p.name] = made[0] if count is None else tuple(made)
            at += len(made)
    arrays = [
        Array(t, Leaf(Buffer(i), x.shape, x.dtype, contiguous(x.shape))) for i, x in enumerate(ins)
    ]
    with np.errstate(all="ignore"):
        results = op.ref(Namespace(t), *arrays, **given)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    mutated = mutated_inputs(op, attrs, len(ins))
    targets = [*outs, *(ins[i] for i in mutated)]
    numbers = [*range(len(ins), len(ins) + len(outs)), *mutated]
    places: list[Buffer | Scratch] = [Buffer(i) for i in numbers]
    if len(results) != len(targets):
        raise Untraceable("its reference gives another number of arrays")
    apart = bool(op.inplace or mutated)  # outputs may lie over what is still to be read
    groups: dict[tuple, list] = {}
    copies = []
    for x, target, place in zip(results, targets, places):
        node = t.node(t.joined(x))
        if node.shape != tuple(target.shape):
            raise Untraceable("its reference gives another shape")
        if not prod(target.shape):
            continue
        if apart:
            nbytes = prod(target.shape) * ITEM_BYTES[target.dtype]
            scratch = t.scratch(nbytes)
            copies.append(Step(Copy(place, scratch, nbytes), {scratch}, {place}))
            place = scratch
        groups.setdefault(node.shape, []).append((node, (place, target.dtype)))
    for group in groups.values():
        t.write([x for x, _ in group], [to for _, to in group])
    source = t.module.text()
    steps = [
        s if isinstance(s, Copy) or s.source else s._replace(source=source)
        for s in _needed([*t.steps, *copies])
    ]
    return launches(*steps, scratch_bytes=t.scratch_bytes, cost_us=LAUNCH_US * max(len(steps), 1))


def _needed(steps: Sequence[Step]) -> list:
    """The steps on which outputs depend."""
    found: list = []
    wanted: set = set()
    for step in reversed(steps):
        if any(isinstance(p, Buffer) or p in wanted for p in step.writes):
            found.insert(0, step.launch)
            wanted |= step.reads
    return found


def traced_entry(op, ins, outs, attrs):
    """The reference's kernel, None where it has to run as it is: what it does cannot be traced, or
    its expressions are too deep. Any other exception is a fault, of the reference or of ours."""
    try:
        return trace(op, ins, outs, attrs)
    except (Untraceable, RecursionError):
        return None


NOT_TRACED = (PythonKernel, Eager, OwnKernel)  # traits of operators whose reference does not run


def register(native: Callable) -> None:
    """Makes the tracer an entry (Table.native) of every operator that it may run. After every other
    entry: an operator's own kernel is asked first."""
    names = {
        op.name
        for op in REGISTRY.values()
        if not (op.random or any(map(op.has, NOT_TRACED))) and op.ref is not None
    }
    native(*sorted(names), derived=True)(traced_entry)
