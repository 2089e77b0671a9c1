"""Shapes and dtypes of untyped graphs: what the variables' are, found from a few given ones.

An unknown dimension is 0, an unknown shape or dtype None. Records infer forward and fill in their
own unknown inputs; sweeps over the graph repeat until nothing new is found.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Sequence

from ..engine.error import DTypeError, DynamicShape, MXNetError, OperatorError
from ..kernels.plan import infer
from ..kernels.record import Type, dtype_name, same_type
from ._graph import kinds
from .graph import Node, Value, rewrite, topological, values_of

CASTS = ("Cast", "amp_cast")  # they keep the shape and tell nothing of their input's dtype
TRIAL_SHAPES = ((2, 3, 8, 8), (2, 3, 8), (2, 3), (6,))  # for dtypes where no shape is known


def is_dynamic(outputs: Iterable[Value]) -> bool:
    """May a graph have shapes that only values tell?"""
    return any(n.op is not None and n.op.eager is not None for n in topological(outputs))


def is_known(shape) -> bool:
    """Has every dimension of a shape a size?"""
    return shape is not None and 0 not in shape


def merge_shapes(a, b):
    """One shape from two that may be partly unknown. Raises ValueError where they contradict each
    other."""
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b) or any(x != y and x and y for x, y in zip(a, b)):
        raise ValueError(f"{a} and {b}")
    return tuple(x or y for x, y in zip(a, b))


def explain(error: Exception, node: Node, ins: Sequence[Type | None]) -> OperatorError:
    """The error of a rule, with the node, its inputs and the line that made it."""
    names = node.op.names_in(node.attrs, len(ins))
    inputs = ", ".join(
        f"{n} {'unknown' if t is None else f'{t.dtype} {t.shape}'}" for n, t in zip(names, ins)
    )
    at = ", ".join(
        filter(None, [node.source, f'node "{node.name}"', f"inputs {inputs}" if inputs else ""])
    )
    if isinstance(error, OperatorError):
        return type(error)(error.operator, error.rule, error.fix, at)
    return OperatorError(
        node.op.name, f"its inputs do not fit together ({type(error).__name__}: {error})", at=at
    )


def infer_node(node: Node, ins: Sequence[Type]) -> tuple[Type, ...]:
    """The output types of a node. Raises an OperatorError that names the node and its inputs."""
    try:
        return infer(node.op, node.attrs, ins)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise explain(error, node, ins) from None


def fill_node(node: Node, ins: Sequence[Type | None]) -> list[Type | None]:
    """The input types of a node with unknown ones completed where its record can. Raises
    OperatorError."""
    if node.op.fill is None or None not in ins or all(t is None for t in ins):
        return list(ins)
    try:
        return list(
            node.op.fill(list(ins), **{k: v for k, v in node.attrs.items() if k != "train"})
        )
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise explain(error, node, ins) from None


def source_shape(node: Node):
    """The partly unknown shape of a node like _zeros(shape=(0, 3)), whose users decide it; else
    None."""
    if node.op is None or node.inputs or node.op.inputs:
        return None
    shape = node.attrs.get("shape")
    return shape if shape and 0 in shape else None


_literal = functools.lru_cache(ast.literal_eval)


def declared(node: Node) -> tuple:
    """(shape, dtype name) that a variable's attributes __shape__ and __dtype__ tell; None where
    they do not."""
    extra = node.extra or {}
    shape, dtype = extra.get("__shape__"), extra.get("__dtype__")
    if node.types is not None:
        return node.types[0][:2]
    try:
        shape = _literal(shape) if shape is not None else None
        shape = (shape,) if isinstance(shape, int) else None if shape is None else tuple(shape)
        dtype = None if dtype in (None, "-1", "None") else dtype_name(dtype)
    except (ValueError, SyntaxError, TypeError) as error:
        raise MXNetError(
            f"variable {node.name!r}: its attributes __shape__ and __dtype__ must be a shape and a"
            f" dtype, got {extra.get('__shape__')!r} and {extra.get('__dtype__')!r}"
        ) from error
    if shape is not None and any(n < 0 for n in shape):
        shape = tuple(max(n, 0) for n in shape)
    return shape, dtype


class Inference:
    """What is known of every value of a graph, and the sweeps that find out more.

    shapes, dtypes: given ones of variables, by node. Raises OperatorError where rules are broken.
    """

    def __init__(
        self,
        outputs: Iterable[Value],
        shapes: dict[Node, tuple],
        dtypes: dict[Node, str],
        default_dtype: bool = True,
    ):
        self.order = topological(outputs)
        self.shape: dict[Value, tuple | None] = {}
        self.dtype: dict[Value, str | None] = {}
        for node in self.order:
            for i in range(node.n_outputs):
                self.shape[Value(node, i)] = self.dtype[Value(node, i)] = None
            if node.op is None:
                shape, dtype = declared(node)
                v = Value(node)
                self.dtype[v] = dtypes.get(node, dtype)
                try:
                    self.shape[v] = merge_shapes(shape, shapes.get(node))
                except ValueError as error:
                    raise MXNetError(
                        f"variable {node.name!r}: the declared and the given shape must agree, "
                        f"got {error}"
                    ) from None
            elif source_shape(node) is not None:
                self.shape[Value(node)] = source_shape(node)
                self.dtype[Value(node)] = node.attrs.get("dtype") or "float32"
        self._todo = [n for n in self.order if n.op is not None]
        self._assumed: set[Value] = set()
        self._inferred: set[Value] = set()  # by a rule from known inputs: a size of 0 is a size
        self.sweep()
        if default_dtype:
            for v, dtype in self.dtype.items():
                if v.node.op is None and dtype is None:
                    self.dtype[v] = "float32"
                    self._assumed.add(v)
            self.sweep()

    def type(self, v: Value) -> Type | None:
        shape, dtype = self.shape[v], self.dtype[v]
        return Type(shape, dtype) if self.knows_shape(v) and dtype is not None else None

    def knows_shape(self, v: Value) -> bool:
        return v in self._inferred or is_known(self.shape[v])

    def sweep(self) -> None:
        """Forward and backward over the graph until nothing changes."""
        self._learned = True
        while self._learned and self._todo:
            self._learned = False
            self._todo = [n for n in self._todo if not self._visit(n)]
            self._todo = [n for n in reversed(self._todo) if not self._visit(n)]
            self._todo.reverse()

    def _visit(self, node: Node) -> bool:
        """Learns what a node tells; True: it has nothing more to tell."""
        if source_shape(node) is not None:
            return is_known(self.shape[Value(node)])
        original = node
        if node.op.train_aware and "train" not in node.attrs:
            node = _with_attrs(node, dict(node.attrs, train=False))
        ins = [self.type(v) for v in node.inputs]
        if None in ins:
            for v, t in zip(node.inputs, fill_node(node, ins)):
                if t is not None and is_known(self.shape[v]):
                    # its shape is the rule's to judge, it may broadcast
                    self._learn_dtype(v, t.dtype)
                elif t is not None:
                    self._learn(v, t, node, ins)
            ins = [self.type(v) for v in node.inputs]
        if None in ins:
            self._from_output(node, ins)
            return False
        try:
            made = infer_node(node, ins)
        except DynamicShape:
            return True  # only a run tells
        except DTypeError:
            made = self._as_whole(node, ins)
            if made is None:
                raise
        for i, t in enumerate(made[: node.n_outputs]):
            self._learn(Value(original, i), t, node, ins)
            self._inferred.add(Value(original, i))
        return True

    def _as_whole(self, node: Node, ins: Sequence[Type]) -> tuple[Type, ...] | None:
        """The output types with whole numbers for one input that nobody gave a dtype; shapes do
        not wait for it."""
        for k, v in enumerate(node.inputs):
            if v in self._assumed:
                tried = [*ins[:k], ins[k]._replace(dtype="int32"), *ins[k + 1 :]]
                try:
                    return infer(node.op, node.attrs, tried)
                except (ArithmeticError, LookupError, TypeError, ValueError):
                    continue
        return None

    def _learn_dtype(self, v: Value, dtype: str | None) -> None:
        if dtype is not None and self.dtype[v] is None:
            self.dtype[v] = dtype
            self._learned = True

    def _original(self, node: Node) -> Node:
        return getattr(node, "origin", node)

    def _from_output(self, node: Node, ins) -> None:
        """An operator that keeps the shape of its only unknown kind of input tells it from its
        output."""
        out = Value(self._original(node))
        if not is_known(self.shape[out]):
            return
        self._batch_size(node, ins, self.shape[out])
        casts = node.op.name in CASTS
        unary = len(node.inputs) == 1 and (
            casts or node.op.pointwise is not None or node.op.infer is same_type
        )
        if unary or node.op.pointwise is not None and all(t is None for t in ins):
            dtype = "float32" if casts else self.dtype[out] or "float32"
            for v in node.inputs:
                if self.shape[v] is None or 0 in self.shape[v]:
                    self._learn(v, Type(self.shape[out], self.dtype[v] or dtype), node, ins)

    def _batch_size(self, node: Node, ins, shape) -> None:
        """One unknown dimension of one input, such as the batch of a first state, may be the first
        dimension of the output: then inference confirms it."""
        unknown = [k for k, t in enumerate(ins) if t is None]
        v = node.inputs[unknown[0]]
        partial, dtype = self.shape[v], self.dtype[v]
        if len(unknown) != 1 or not shape or not partial or partial.count(0) != 1 or dtype is None:
            return
        whole = Type(tuple(n or shape[0] for n in partial), dtype)
        try:
            made = infer(node.op, node.attrs, [whole if t is None else t for t in ins])
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return
        if made[0].shape == shape:
            self._learn(v, whole, node, ins)

    def _learn(self, v: Value, t: Type, node: Node, ins) -> None:
        try:
            shape = merge_shapes(self.shape[v], tuple(t.shape))
        except ValueError as error:
            what = f"{v.node.name}" if v.node.op is None else f"output of {v.node.name}"
            raise explain(
                OperatorError(
                    node.op.name, f"{what} has a shape that contradicts the inferred one: {error}"
                ),
                node,
                ins,
            ) from None
        if shape != self.shape[v]:
            self.shape[v] = shape
            self._learned = True
        self._learn_dtype(v, t.dtype)


class _Trained(Node):
    """A node with `train` among its attributes, which remembers the node it stands for."""

    __slots__ = ("origin",)


def _with_attrs(node: Node, attrs) -> Node:
    made = _Trained(node.op, attrs, node.inputs, node.name, node.types, node.extra, node.source)
    made.origin = node
    return made


def infer_dtypes(outputs: Sequence[Value], dtypes: dict[Node, str]) -> Inference:
    """Dtypes where shapes may be unknown: by shapes where they are known, else by trying some."""
    found = Inference(outputs, {}, dtypes, default_dtype=False)
    for _ in range(2 * len(found.order) + 1):
        before = sum(d is not None for d in found.dtype.values())
        for node in found.order:
            if node.op is not None:
                _try_dtypes(found, node)
        if sum(d is not None for d in found.dtype.values()) == before:
            break
    return found


def _try_dtypes(found: Inference, node: Node) -> None:
    known = [found.dtype[v] for v in node.inputs]
    outs = [Value(node, i) for i in range(node.n_outputs)]
    if None not in known and all(found.dtype[o] is not None for o in outs):
        return
    if node.inputs and all(d is None for d in known):
        known = [found.dtype[outs[0]]] * len(known) if node.op.pointwise is not None else known
        if known[0] is None:
            return
    first = next((d for d in known if d is not None), None)
    ins, made = _trial(node, known, first)
    for v, dtype in [*zip(node.inputs, ins), *zip(outs, made)]:
        if found.dtype[v] is None:
            found.dtype[v] = dtype


def _trial(node: Node, known, first):
    """(input dtypes, output dtypes) of a node whose first known input dtype is `first`."""
    if node.op.train_aware:
        node = _with_attrs(node, dict(node.attrs, train=False))
    for shape in TRIAL_SHAPES if node.inputs else ((),):
        ins = [
            Type(shape, d) if d is not None and (i == 0 or node.op.fill is None) else None
            for i, d in enumerate(known)
        ]
        try:
            ins = fill_node(node, ins)
            if None in ins:
                continue
            ins = [t if d is None else Type(t.shape, d) for t, d in zip(ins, known)]
            return [t.dtype for t in ins], [t.dtype for t in infer(node.op, node.attrs, ins)]
        # another shape may suit the operator
        except (ArithmeticError, LookupError, TypeError, ValueError):
            continue
    dtype = node.attrs.get("dtype")
    return [d or first for d in known], [
        dtype if isinstance(dtype, str) else first
    ] * node.n_outputs


def typed_graph(outputs: Sequence[Value], types: dict[Node, Type], train: bool) -> list[Value]:
    """The graph with types on every node. types: of each variable, by node. Raises OperatorError,
    MXNetError.

    Sources of partly unknown shape, _zeros(shape=(0, 3)), get the shape that their users need.
    """
    order = topological(outputs)
    if _as_given(order, types, train):
        return list(outputs)
    partial = any([source_shape(n) is not None for n in order if not n.inputs])
    found = (
        Inference(
            outputs, {n: t.shape for n, t in types.items()}, {n: t.dtype for n, t in types.items()}
        )
        if partial
        else None
    )

    def replace(node, inputs):
        if node.op is None:
            if node not in types:
                raise MXNetError(f"variable {node.name!r} has no shape")
            if node.types is not None and node.types[0] == types[node]:
                return None
            return [Value(Node(None, {}, (), node.name, (types[node],), node.extra, node.source))]
        attrs = node.attrs
        if (
            found is not None
            and source_shape(node) is not None
            and is_known(found.shape[Value(node)])
        ):
            attrs = dict(attrs, shape=found.shape[Value(node)])
        if node.op.train_aware and attrs.get("train") is not train:
            attrs = dict(attrs, train=train)
        ins = [v.type for v in inputs]
        if inputs is node.inputs and attrs is node.attrs and node.types == infer_node(node, ins):
            return None
        made = Node(node.op, attrs, inputs, node.name, None, node.extra, node.source)
        made.types = infer_node(made, ins)
        return values_of(made)

    return rewrite(outputs, replace, order=order)


def _as_given(order: list[Node], types: dict[Node, Type], train: bool) -> bool:
    """Has every node the types that it should have, as after a trace?"""
    if any([n.types is None for n in order]):
        return False
    _, alike = kinds(order)
    for node in alike:
        if node.op is None:
            continue
        if source_shape(node) is not None:
            return False
        if node.op.train_aware and node.attrs.get("train") is not train:
            return False
        if node.types != infer_node(node, [v.type for v in node.inputs]):
            return False
    return all([n.types[0] == types.get(n) for n in order if n.op is None])
