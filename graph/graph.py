"""The graph: immutable nodes (operator, inputs, attributes, name) and values (one output of a
node).

A graph is given by its output values. A *typed* node knows the Type of each output; passes and
programs work on typed graphs, Symbols may be untyped. Attributes of typed train-aware nodes hold
`train`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

from ..engine.error import OperatorError
from ..kernels.plan import infer, open_scalars
from ..kernels.record import Operator, Type, lookup
from ..kernels.scalar import as_float
from ..kernels.traits import Front
from ._graph import Node as _Node
from ._graph import Value as _Value
from ._graph import classes, values_of, walk, with_inputs  # noqa: F401  (for the passes)
from ._graph import rewrite as _rewrite


class Node(_Node):
    """One operator applied to values, or a variable (op is None): Node(op, attrs, inputs, name,
    types, extra, source). Attributes of the user stand in `extra`, `source` is a file:line.

    operation: the Operator, where the node is known not to be a variable. types: where the node is
        known to be typed; both raise TypeError elsewhere. known_types is None for an untyped node.
    """

    __slots__ = ()

    def __repr__(self):
        return f"<{self.op.name if self.op else 'variable'} {self.name}>"

    @property
    def n_outputs(self) -> int:
        op = self.op
        if op is None:
            return 1
        return op.outputs(_without_train(self.attrs)) if callable(op.n_outputs) else op.n_outputs

    @property
    def has_open_scalars(self) -> bool:
        """Does an attribute get its value when the program runs?"""
        return self.op is not None and any(n is not None for n in open_scalars(self.op, self.attrs))

    @property
    def n_visible(self) -> int:
        op = self.op
        if op is None:
            return 1
        if op.n_visible is None:
            return self.n_outputs
        return op.visible(_without_train(self.attrs)) if callable(op.n_visible) else op.n_visible


def _without_train(attrs):
    return {k: v for k, v in attrs.items() if k != "train"} if "train" in attrs else attrs


class Value(_Value):
    """One output of a node: Value(node, index). Has type, shape and dtype when typed, and Python's
    operators (see operators.py); == and hash go by the node's identity."""

    __slots__ = ()

    def __repr__(self):
        return f"<Value {self.node.name or self.node!r}:{self.index}>"


classes(Node, Value)


def variable(name: str, type: Type | None = None, extra: dict[str, str] | None = None) -> Value:
    return Value(Node(None, {}, (), name, None if type is None else (type,), extra))


def typed_node(
    op: Operator, attrs: dict[str, Any], inputs: Sequence[Value], name: str = "", source: Any = None
) -> Node:
    """A node whose output types are inferred now. attrs: complete. Raises what inference raises."""
    return Node(op, attrs, inputs, name, infer(op, attrs, [v.type for v in inputs]), None, source)


def topological(outputs: Iterable[Value]) -> list[Node]:
    """Every node below the outputs, inputs first; the order of a depth-first walk (no
    recursion)."""
    return walk(list(outputs))


class Origin(str):
    """Where a node comes from: "file:line", with the layers whose operators it computes. On a tape
    a call without a layer has its number there."""

    __slots__ = ("layers",)
    layers: tuple

    def __new__(cls, line: str, layers: tuple):
        made = super().__new__(cls, line)
        made.layers = layers
        return made


def origin(line: str | None, layer: str | None) -> str | None:
    """The source of a node that a layer makes."""
    return line if layer is None else Origin(line or "", (layer,))


def together(sources: Iterable[Any]) -> Any:
    """The source of a node that stands for several."""
    found = [s for s in sources if s.__class__ is Origin]
    if len(found) < 2:
        return found[0] if found else None
    return Origin(found[0], tuple(dict.fromkeys(k for s in found for k in s.layers)))


MAX_ABSORBED = 16


def inherit(made: Sequence[Value], node: Node, inputs: Sequence[Value]) -> None:
    """Nodes that replace one, and have no source yet, get its own, with those of the nodes between
    that they stand for as well."""
    new, reads = [], set()
    stack = [v.node for v in made]
    while stack:
        n = stack.pop()
        if n.op is None or n.source is not None or n is node:
            reads.add(n)
        elif n not in new:
            new.append(n)
            stack += [v.node for v in n.inputs]
    if not new:
        return
    absorbed: list[Node] = []
    stack = [v.node for v in inputs]
    while stack and len(absorbed) < MAX_ABSORBED:
        n = stack.pop()
        if n.op is not None and n not in reads and n not in absorbed:
            absorbed.append(n)
            stack += [v.node for v in n.inputs]
    source = together([*[n.source for n in reversed(absorbed)], node.source])
    for n in new:
        n.source = source


def rewrite(
    outputs: Sequence[Value],
    replace: Callable[[Node, Any], Sequence[Value] | None] | None = None,
    start: Mapping[Node, Sequence[Value]] | None = None,
    order: Sequence[Node] | None = None,
    asked: Collection[Operator] | None = None,
    values: dict[Value, Value] | None = None,
) -> list[Value]:
    """Rebuilds a graph: `replace(node, new_inputs)` gives the new output values of a node, or None
    to keep it.

    start: nodes replaced from the outset (substitution of variables). What lies below no replaced
        node stays the very same nodes.
    order: `topological(outputs)`, where it is known. asked: a set of the operators whose nodes
        `replace` is called for, where it keeps all others. values: single values replaced from the
        outset, before those of `start`.
    """
    outputs = list(outputs)
    order = walk(outputs) if order is None else order
    if replace is not None:
        plain = replace

        def replace(node: Node, new: Any) -> Sequence[Value] | None:
            made = plain(node, new)
            if made is not None and node.source.__class__ is Origin:
                inherit(made, node, new)
            return made

    return _rewrite(outputs, order, replace, start, asked, *([values] if values else ()))


def verify(outputs: Sequence[Value]) -> None:
    """Raises AssertionError where a typed graph breaks the rules; run between passes in tests."""
    for node in topological(outputs):
        assert node.is_typed, f"{node!r} is not typed"
        for v in node.inputs:
            assert isinstance(v, Value) and v.index < len(v.node.types), (
                f"{node!r} reads a missing output {v!r}"
            )
        if node.op is None:
            assert not node.inputs and len(node.types) == 1
        else:
            inferred = infer(node.op, node.attrs, [v.type for v in node.inputs])
            assert [t[:2] for t in inferred] == [t[:2] for t in node.types], (
                f"{node!r} has types {node.types}, inference gives {inferred}"
            )
            assert not node.op.train_aware or "train" in node.attrs, (
                f"{node!r} does not know `train`"
            )


def as_python(outputs: Sequence[Value], name: str = "graph") -> str:
    """The graph as readable, runnable Python: a function of F (nd or sym) and the variables."""
    order = topological(outputs)
    names: dict[Node, str] = {}
    taken: set[str] = set()
    for i, node in enumerate(order):
        base = "".join(c if c.isalnum() else "_" for c in node.name) or f"t{i}"
        base = base if not base[0].isdigit() else "_" + base
        while base in taken:
            base += "_"
        taken.add(base)
        names[node] = base

    def text(v: Value) -> str:
        return (
            names[v.node]
            if v.node.op is None or v.node.n_visible == 1 and v.index == 0
            else f"{names[v.node]}[{v.index}]"
        )

    lines = [f"def {name}(F, {', '.join(names[n] for n in order if n.op is None)}):"]
    for node in order:
        if node.op is None:
            continue
        attrs = [
            f"{p.name}={node.attrs[p.name]!r}"
            for p in node.op.params
            if node.attrs[p.name] != p.default
        ]
        comment = (
            f"  # {', '.join(f'{t.dtype}{list(t.shape)}' for t in node.types)}"
            if node.is_typed and node.types
            else ""
        )
        lines.append(
            f"    {names[node]} ="
            f" F.{node.op.name}({', '.join([*map(text, node.inputs), *attrs])}){comment}"
        )
    lines.append(f"    return {', '.join(map(text, outputs))}")
    return "\n".join(lines)


class Builder:
    """`F` for typed graphs: F.relu(value), F.sum(value, axis=1) ... add nodes; used by gradients,
    passes and fronts. like: the node that the new ones replace, whose line and attributes of the
    user they get."""

    def __init__(self, train: bool = False, like: Node | None = None):
        self._train = train
        self._extra = None if like is None else like.extra
        self._source = None if like is None else like.source

    def __getattr__(self, name: str):
        if name.startswith("__"):  # not an operator, and Python asks for some
            raise AttributeError(name)
        op = lookup(name)

        def apply(*inputs, **attrs):
            return self.apply(op, inputs, attrs)

        self.__dict__[name] = apply
        return apply

    def apply(self, op: Operator, inputs: Sequence[Value], attrs: dict[str, Any]) -> Any:
        inputs = [v for v in inputs if v is not None]
        for v in inputs:
            if not isinstance(v, Value):
                raise OperatorError(op.name, f"inputs must be graph values, got {type(v).__name__}")
        if op.variadic_key:
            attrs.setdefault(op.variadic_key, len(inputs))
        full = op.parse(attrs)
        n_visible = op.visible(full)
        if op.train_aware:
            full["train"] = self._train
        stands_for = op.trait(Front)
        if stands_for is not None:
            return stands_for.rule(self, *inputs, **full)
        types = infer(op, full, [v.type for v in inputs])
        node = Node(op, op.shared(full), inputs, "", types, self._extra, self._source)
        return Value(node) if n_visible == 1 else [Value(node, i) for i in range(n_visible)]


_ROOT = __package__.split(".")[0]
_of_package: dict[str, bool] = {}  # by module name


def caller_line(inside: int = 2) -> str | None:
    """ "file:line" of the first frame outside the package. inside: how many of the callers are
    known to be in it."""
    frame: FrameType | None = sys._getframe(inside)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        is_ours = _of_package.get(name)
        if is_ours is None:
            is_ours = _of_package[name] = name.split(".")[0] == _ROOT
        if not is_ours:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def _value_operators():
    from .operators import add_operators

    F = Builder()

    def binary(both, right):
        def method(self, other):
            if isinstance(other, Value):
                return getattr(F, both)(self, other)
            return getattr(F, right)(self, scalar=as_float(other))

        return method

    def scalar(left):
        return lambda self, other: getattr(F, left)(self, scalar=as_float(other))

    add_operators(Value, binary, scalar, lambda self: F.negative(self), compare=False)
    from .operators import COMPARE

    for method in ("gt", "ge", "lt", "le"):  # == and != keep their meaning of identity
        setattr(Value, f"__{method}__", binary(*COMPARE[method]))


_value_operators()
