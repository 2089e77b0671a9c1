"""A typed graph of plait as nodes of an ONNX graph.

Each operator is written by the first of these that it has: a rule (rules/), its decomposition into
other operators, its reference, which runs on Tensors that record what is done to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .... import ndarray as nd
from ....engine.error import MXNetError
from ....graph.graph import Builder, Node, Value, rewrite, topological
from ....kernels.record import HALVES, Operator, Type
from ....kernels.spec import NUMPY_DTYPES
from ....kernels.traits import Decomposition, Identity, PythonKernel, RowForm
from ....ndarray.invoke import invoke
from . import arrays, composed, rules  # noqa: F401  (they fill their tables)
from .graph import Dim, Graph, Unmapped
from .rule import REASONS, RULES
from .tensors import Namespace, Tensor, Untraceable

FAILURES = (
    *(Unmapped, Untraceable, MXNetError, ArithmeticError, LookupError),
    *(TypeError, ValueError, AttributeError, NotImplementedError),
)
WIDE = np.dtype("float32")


class Out(NamedTuple):
    """An output of the call that a rule writes. Sizes that vary are Dims."""

    shape: tuple[int, ...]
    dtype: np.dtype


class Sizes:
    """Which sizes of a graph vary: those that differ between graphs inferred for other sizes of the
    inputs, node by node.

    named: Dims of the inputs, each with its size in the other graph.
    """

    def __init__(self, named: Sequence[tuple[Dim, int]] = ()):
        self.named = list(named)
        self.other: dict[Node, Sequence[Type]] = {}

    def pair(self, nodes: Sequence[Node], others: Sequence[Node]) -> None:
        if [n.op and n.op.name for n in nodes] != [n.op and n.op.name for n in others]:
            raise Unmapped("the graph itself depends on the sizes of its inputs")
        self.other |= {a: b.types for a, b in zip(nodes, others)}

    def of(self, node: Node, index: int) -> list[int | tuple[int, int]]:
        """Sizes of an output: numbers, Dims of the inputs, and pairs for all others that vary."""
        shape = node.types[index].shape
        other = self.other[node][index].shape if node in self.other else shape
        return [a if a == b else self._named(a, b) or (a, b) for a, b in zip(shape, other)]

    def _named(self, a: int, b: int) -> Dim | None:
        return next((d for d, other in self.named if (int(d), other) == (a, b)), None)

    def guess(self, a: int, b: int) -> Dim:
        """A size that follows from those of the inputs, where no tensor has it yet: k sizes, a size
        and k, or the product of two."""
        for d, e in self.named:
            if a % d == 0 and a // d == b / e:
                return d * (a // int(d))
        for d, e in self.named:
            if a - d == b - e:
                return d + (a - int(d))
        for i, (d, e) in enumerate(self.named):
            for d2, e2 in self.named[i + 1 :]:
                if a % (d * d2) == 0 and a // int(d * d2) == b / (e * e2):
                    return d * d2 * (a // int(d * d2))

        def unknown(g: Graph) -> Tensor:
            raise Unmapped(f"a size ({a} here, {b} for other inputs) that no input has")

        return Dim(a, unknown)


def dtype_of(t: Type) -> np.dtype:
    return NUMPY_DTYPES[t.dtype]


class Converter:
    """Writes graphs. failures: what could not be written, (node, why)."""

    def __init__(self, sizes: Sizes):
        self.sizes = sizes
        self.failures: list[tuple[Node, str]] = []

    def run(
        self, g: Graph, outputs: Sequence[Value], known: Mapping[Value, Tensor]
    ) -> list[Tensor]:
        """The outputs of a typed graph, whose variables are `known`, as Tensors of g."""
        found = dict(known)
        for node in topological(outputs):
            if node.op is None:
                continue
            g.origin = node.name or node.op.name
            xs = [found[v] for v in node.inputs]
            try:
                made = self._call(g, node, xs)
            except FAILURES as error:
                self.failures.append((node, _reason(node.op, error)))
                made = [
                    Tensor(g, t.shape, dtype_of(t), g.origin) for t in node.types[: node.n_visible]
                ]
            found |= {Value(node, i): t for i, t in enumerate(made)}
        return [found[v] for v in outputs]

    def body(self, g: Graph, part: Any, types: Callable, xs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs of a part of control flow, which is g.call. types: from those of the
        operator's inputs to what the part sees of them; xs: the Tensors that it sees."""
        inputs = g.call.inputs
        typed = part.typed(types([v.type for v in inputs]), False)
        if all(v.node in self.sizes.other for v in inputs):
            others = [self.sizes.other[v.node][v.index] for v in inputs]
            other = part.typed(types(others), False)
            self.sizes.pair(topological(typed.outputs), topological(other.outputs))
        known = {v: xs[i] for v, i in zip(typed.variables, typed.at)}
        kept = g.call, g.outs, g.origin
        made = self.run(g, typed.outputs, known)
        g.call, g.outs, g.origin = kept
        return made

    def write(self, g: Graph, op: Operator, xs: Sequence[Tensor], attrs: Mapping) -> Any:
        """What the rule of an operator gives, or its reference."""
        return RULES.get(op.name, referenced(op))(g, *xs, **attrs)

    def by_reference(self, g: Graph, *xs: Tensor, **attrs: Any) -> Any:
        """What the reference of the operator g.call gives: for calls that its rule is not for."""
        return referenced(g.call.operation)(g, *xs, **attrs)

    def _call(self, g: Graph, node: Node, xs: list[Tensor]) -> list[Tensor]:
        op = node.operation
        folded = _folded(g, node, xs)
        if folded is not None:
            return [folded]
        g.outs = [
            Out(
                tuple(n if isinstance(n, int) else self.sizes.guess(*n) for n in sizes),
                dtype_of(t),
            )
            for sizes, t in zip(
                [self.sizes.of(node, i) for i in range(len(node.types))], node.types
            )
        ]
        g.converter, g.call = self, node
        start = len(g.nodes)
        try:
            made = self.write(g, op, _wide(g, xs), node.attrs)
        except FAILURES:
            del g.nodes[start:]
            raise
        made = list(made) if isinstance(made, (list, tuple)) else [made]
        if len(made) < node.n_visible:
            raise Unmapped(f"its rule gives {len(made)} of {node.n_visible} outputs")
        return [self._typed(g, node, i, t, start) for i, t in enumerate(made[: node.n_visible])]

    def _typed(self, g: Graph, node: Node, index: int, x: Any, start: int) -> Tensor:
        """A rule's result with the output's type, and its node's name where it made it."""
        t = node.types[index]
        x = g.cast(g.tensor(x), dtype_of(t))
        made = x.again()
        made.shape = tuple(
            n if isinstance(n, int) else Dim(n[0], _size_of(made, i))
            for i, n in enumerate(self.sizes.of(node, index))
        )
        if tuple(map(int, x.shape)) != tuple(t.shape):
            raise Unmapped(f"its rule gives the shape {tuple(x.shape)}, not {t.shape}")
        if node.name and any(x.edge in n.outputs for n in g.nodes[start:]):
            x.edge.name = g.names.new(node.name if node.n_visible == 1 else f"{node.name}{index}")
        return made


def _wide(g: Graph, xs: list[Tensor]) -> list[Tensor]:
    """bfloat16 has operators in few runtimes, and NumPy has none: it is computed in float32."""
    return [g.cast(x, WIDE) if x.dtype.names else x for x in xs]


def _reason(op: Operator, error: Exception) -> str:
    if op.name in REASONS:
        return REASONS[op.name]
    text = str(error) or type(error).__name__
    return text if isinstance(error, (Unmapped, MXNetError)) else f"it has no rule, and {text}"


def referenced(op: Operator) -> Callable[..., Any]:
    """What writes an operator that has no rule: its reference, on Tensors."""

    def apply(g: Graph, *xs: Tensor, **attrs: Any) -> Any:
        if op.name in REASONS:
            raise Unmapped(REASONS[op.name])
        if op.is_random(attrs):
            raise Unmapped("ONNX has no operator that draws so")
        if op.has(PythonKernel):
            raise Unmapped("Python code computes it")
        narrow = any(t.dtype in HALVES for t in (v.type for v in g.call.inputs))
        given = [g.cast(x, WIDE) if narrow and x.dtype.itemsize == 2 else x for x in xs]
        if op.random:
            attrs = {**attrs, "rng": None}
        with np.errstate(all="ignore"):
            return op.ref(Namespace(g), *(x.again() for x in given), **attrs)

    return apply


def _folded(g: Graph, node: Node, xs: Sequence[Tensor]) -> Tensor | None:
    """The value of a node of constants that does not make the file larger: the vector of an RNN's
    parameters, a weight in another shape."""
    op = node.operation
    t = node.types[0]
    if not xs or any(x.value is None for x in xs) or node.n_outputs != 1 or op.mutates:
        return None
    values = [x.value for x in xs if x.value is not None]
    if (
        op.is_random(node.attrs)
        or op.ref is None
        or op.name in ("_foreach", "_while_loop", "_cond")
    ):
        return None
    if op.trait(Identity) is not None or any(v.dtype.names for v in values):
        return None
    nbytes = int(np.prod(t.shape)) * dtype_of(t).itemsize
    if nbytes > max(sum(v.nbytes for v in values), arrays.FOLDED):
        return None
    attrs = {k: v for k, v in node.attrs.items() if k != "train"}
    made = invoke(op, [nd.array(v, dtype=v.dtype) for v in values], attrs).asnumpy()
    return None if made.dtype.names else g.constant(made)


def expanded(outputs: Sequence[Value]) -> list[Value]:
    """The graph with operators that have no rule replaced by their decompositions."""

    def replace(node: Node, inputs: Sequence[Value]) -> list[Value] | None:
        if node.op is None or node.op.name in RULES:
            return None
        whole, rows = node.op.trait(Decomposition), node.op.trait(RowForm)
        F = Builder(like=node)
        wide = [F.Cast(v, dtype="float32") if v.dtype in HALVES else v for v in inputs]
        try:
            if whole is not None:
                made = whole.rule(F, *wide, **node.attrs)
            elif rows is not None and (rows.when is None or rows.when(**node.attrs)):
                made = rows.rule(F, *wide, **node.attrs)
            else:
                return None
        except (MXNetError, TypeError, ValueError, LookupError):
            return None
        if made is None:
            return None
        made = list(made)
        return [
            F.Cast(v, dtype=t.dtype) if v.dtype != t.dtype else v for v, t in zip(made, node.types)
        ]

    for _ in range(3):  # a decomposition may use operators that have one
        made = rewrite(outputs, replace)
        if made == list(outputs):
            break
        outputs = made
    return list(outputs)


def _size_of(x: Tensor, axis: int) -> Callable[[Graph], Tensor]:
    return lambda g: g.size_of(x, axis)
