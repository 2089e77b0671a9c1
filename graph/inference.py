"""Shapes and dtypes of untyped graphs: inferred from those of a few variables.

An unknown size, shape or dtype is None. Each node is inferred once, inputs first, then again when
one of its inputs or outputs has become known (partial.py: inference of one record, both ways).
"""

from __future__ import annotations

import ast
import functools
import re
from collections import deque
from collections.abc import Iterable, Sequence
from operator import index as as_int
from typing import Any, TypeGuard

from ..engine.error import DTypeError, DynamicShape, MXNetError, OperatorError
from ..kernels.partial import NOTHING, Known, as_zeros, complete, from_zeros, merge_shapes
from ..kernels.plan import infer
from ..kernels.record import Type, dtype_name, same_type
from ..kernels.traits import Cast, Eager, Front
from ._graph import kinds
from .fronts import outputs_of
from .graph import Node, Value, rewrite, topological, values_of

TRIAL_SHAPES = ((2, 3, 8, 8), (2, 3, 8), (2, 3), (6,))  # for dtypes where no shape is known


def is_dynamic(outputs: Iterable[Value]) -> bool:
    """May a graph have shapes that depend on values?"""
    return any(n.op is not None and n.op.has(Eager) for n in topological(outputs))


def is_known(shape: tuple[int | None, ...] | None) -> TypeGuard[tuple[int, ...]]:
    """Are all sizes of a shape known?"""
    return shape is not None and None not in shape


def _all_known(types: Sequence[Type | None]) -> TypeGuard[Sequence[Type]]:
    return None not in types


def explain(error: Exception, node: Node, ins: Sequence[Type | None]) -> OperatorError:
    """The error of a rule, with the node, its inputs and the line that made it."""
    names = node.operation.names_in(node.attrs, len(ins))
    inputs = ", ".join(
        f"{n} {'unknown' if t is None else f'{t.dtype} {t.shape}'}" for n, t in zip(names, ins)
    )
    at = ", ".join(
        filter(None, [node.source, f'node "{node.name}"', f"inputs {inputs}" if inputs else ""])
    )
    if isinstance(error, OperatorError):
        made = type(error)(error.operator, error.rule, error.fix, at)
    else:
        rule = f"its inputs do not fit together ({type(error).__name__}: {error})"
        made = OperatorError(node.operation.name, rule, at=at)
    made.failed = node, {v: t.shape for v, t in zip(node.inputs, ins) if t is not None}
    return made


def infer_node(node: Node, ins: Sequence[Type]) -> tuple[Type, ...]:
    """The output types of a node. Raises an OperatorError that names the node and its inputs."""
    try:
        return infer(node.operation, node.attrs, ins)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise explain(error, node, ins) from None


def fill_node(node: Node, ins: Sequence[Type | None]) -> list[Type | None]:
    """The input types of a node with unknown ones completed where its record can. Raises
    OperatorError."""
    if node.operation.fill is None or None not in ins or all(t is None for t in ins):
        return list(ins)
    try:
        return list(
            node.operation.fill(list(ins), **{k: v for k, v in node.attrs.items() if k != "train"})
        )
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise explain(error, node, ins) from None


def source_shape(node: Node) -> tuple[int | None, ...] | None:
    """The partly unknown shape of a node like _zeros(shape=(0, 3)), whose users decide it; else
    None."""
    if node.op is None or node.inputs or node.op.inputs:
        return None
    shape = node.attrs.get("shape")
    return from_zeros(shape) if shape and 0 in shape else None


_plain_shape = re.compile(r"\((0|[1-9]\d*)(, (0|[1-9]\d*))*,?\)").fullmatch


@functools.lru_cache
def _literal(text):
    """As ast.literal_eval; of sizes, as `str` writes them, without Python's compiler."""
    if isinstance(text, str) and _plain_shape(text) and "," in text:
        return tuple([int(n) for n in text[1:-1].rstrip(",").split(",")])
    return ast.literal_eval(text)


def declared(node: Node) -> tuple:
    """(shape, dtype name) that a variable's attributes __shape__ and __dtype__ give; None where
    they are missing."""
    if node.is_typed:
        return node.types[0][:2]
    extra = node.extra or {}
    shape: Any = extra.get("__shape__")
    dtype: Any = extra.get("__dtype__")
    try:
        shape = _literal(shape) if shape is not None else None
        shape = (shape,) if isinstance(shape, int) else None if shape is None else tuple(shape)
        shape = shape and tuple([n if as_int(n) > 0 else None for n in shape])
        dtype = None if dtype in (None, "-1", "None") else dtype_name(dtype)
    except (ValueError, SyntaxError, TypeError) as error:
        raise MXNetError(
            f"variable {node.name!r}: its attributes __shape__ and __dtype__ must be a shape and a"
            f" dtype, got {extra.get('__shape__')!r} and {extra.get('__dtype__')!r}"
        ) from error
    return shape or None, dtype


class Inference:
    """What is known of every value of a graph, and what follows from it.

    shapes, dtypes: given ones of variables, by node; a whole shape is taken instead of the declared
    one. What no dtype is given for is float32 unless an operator says otherwise (default_dtype).
    only_shapes: dtypes are not looked at. known: types of any values.
    Raises OperatorError where rules are broken.
    """

    def __init__(
        self,
        outputs: Iterable[Value],
        shapes: dict[Node, tuple],
        dtypes: dict[Node, str],
        default_dtype: bool = True,
        only_shapes: bool = False,
        known: dict[Value, Type] | None = None,
    ):
        self.order = topological(outputs)
        self.shape: dict[Value, tuple | None] = {}
        self.dtype: dict[Value, str | None] = {}
        self._only_shapes = only_shapes
        self._assumed: set[Value] = set()
        self._changed: list[Value] = []
        self._users: dict[Value, list[Node]] = {}
        for node in self.order:
            for i in range(node.n_outputs):
                self.shape[Value(node, i)] = self.dtype[Value(node, i)] = None
            if node.op is None:
                shape, dtype = declared(node)
                v = Value(node)
                self.shape[v] = _of_variable(shape, shapes.get(node))
                self.dtype[v] = dtypes.get(node, dtype)
            elif (shape := source_shape(node)) is not None:
                self.shape[Value(node)] = shape
                self.dtype[Value(node)] = node.attrs.get("dtype") or "float32"
        for v, t in (known or {}).items():
            self.shape[v], self.dtype[v] = tuple(t.shape), t.dtype
        self._open = dict.fromkeys(n for n in self.order if n.op is not None)
        self._waits = not only_shapes  # for dtypes, before variables get the default one
        if not only_shapes:
            self._run()
        self._waits = False
        if default_dtype:
            for v, dtype in self.dtype.items():
                if v.node.op is None and dtype is None:
                    self.dtype[v] = "float32"
                    self._assumed.add(v)
            self._run()

    def type(self, v: Value) -> Type | None:
        shape, dtype = self.shape[v], self.dtype[v]
        return Type(shape, dtype) if dtype is not None and is_known(shape) else None

    def knows_shape(self, v: Value) -> bool:
        return is_known(self.shape[v])

    def _run(self) -> None:
        """Infers every open node, inputs first; then again those whose inputs or outputs have
        changed."""
        self._changed.clear()
        for node in list(self._open):
            self._ask(node)
        turns: deque[Node] = deque()
        waiting: set[Node] = set()
        if self._changed and self._open and not self._users:
            for node in self._open:
                for v in node.inputs:
                    self._users.setdefault(v, []).append(node)
        self._changed.reverse()
        asked: Node | None = None
        while self._changed or turns:
            for v in self._changed if self._open else ():
                for near in (v.node, *self._users.get(v, ())):
                    if near is not asked and near in self._open and near not in waiting:
                        turns.append(near)
                        waiting.add(near)
            self._changed.clear()
            if turns:
                asked = turns.popleft()
                waiting.discard(asked)
                self._ask(asked)

    def _ask(self, node: Node) -> None:
        """Infers what a node determines; a node that cannot determine more is closed."""
        try:
            if node in self._open and self._visit(node):
                del self._open[node]
        except OperatorError as error:
            error.failed = node, self.shape
            raise

    def _visit(self, original: Node) -> bool:
        node = original
        if source_shape(node) is not None:
            return is_known(self.shape[Value(node)])
        if self._waits and node.inputs and not any([self.dtype[v] for v in node.inputs]):
            self._dtype_from_output(node, Value(original))
            return False
        if node.operation.train_aware and "train" not in node.attrs:
            node = _with_attrs(node, dict(node.attrs, train=False))
        ins = [self.type(v) for v in node.inputs]
        outs = [Value(original, i) for i in range(original.n_outputs)]
        if None in ins and any(t is not None for t in ins):
            for v, t, before in zip(node.inputs, fill_node(node, ins), ins):
                if before is None and t is not None:
                    self._learn(v, Known(tuple(t.shape), t.dtype), node, ins)
            ins = [self.type(v) for v in node.inputs]
        try:
            if _all_known(ins):
                for v, t in zip(outs, self._infer(node, ins)):
                    self._learn(v, Known(tuple(t.shape), t.dtype), node, ins)
                return True
            self._dtype_from_output(node, outs[0])
            if not self._waits or self.dtype[node.inputs[0]] is not None:
                self._complete(node, outs, ins)
        except DynamicShape:
            return True  # known only when it runs
        return False

    def _infer(self, node: Node, ins: Sequence[Type]) -> Sequence[Type]:
        """Output types of a node whose input types are known. What gives other inputs of the same
        dtype a dtype is not known: an assumed one may be whole numbers."""
        try:
            return infer_node(node, ins)
        except DTypeError:
            if self._only_shapes:
                known = [Known(t.shape, None) for t in ins]
                _, outs = complete_node(node, known, [NOTHING] * node.n_outputs)
                return [Type(k.shape, ins[0].dtype) for k in outs if is_known(k.shape)]
            for k, v in enumerate(node.inputs):
                if v in self._assumed:
                    tried = [*ins[:k], ins[k]._replace(dtype="int32"), *ins[k + 1 :]]
                    try:
                        return infer(node.operation, node.attrs, tried)
                    except (ArithmeticError, LookupError, TypeError, ValueError):
                        continue
            raise

    def _complete(self, node: Node, outs: Sequence[Value], ins: Sequence[Type | None]) -> None:
        """Infers from partly known shapes, from inputs to outputs and back."""
        known = [Known(self.shape[v], self.dtype[v]) for v in (*node.inputs, *outs)]
        n = len(node.inputs)
        if all(k.shape is None for k in known):
            return
        made_ins, made_outs = complete_node(node, known[:n], known[n:])
        for v, k in zip([*node.inputs, *outs], [*made_ins, *made_outs]):
            self._learn(v, k, node, ins)

    def _dtype_from_output(self, node: Node, out: Value) -> None:
        """The input dtype of an operator that keeps it, from that of its output."""
        if self.dtype[out] is None or node.operation.has(Cast):
            return
        if node.operation.pointwise is not None or node.operation.infer is same_type:
            if all(self.dtype[v] is None for v in node.inputs):
                for v in node.inputs:
                    self._learn(v, Known(None, self.dtype[out]), node, ())

    def _learn(self, v: Value, known: Known, node: Node, ins) -> None:
        before = self.shape[v]
        if known.shape != before and known.shape is not None:
            try:
                self.shape[v] = merge_shapes(before, known.shape)
            except ValueError as error:
                # a known input's shape is the rule's to judge, it may broadcast
                if not (v in node.inputs and is_known(before)):
                    what = v.node.name if v.node.op is None else f"output of {v.node.name}"
                    rule = f"{what} has a shape that contradicts the inferred one: {error}"
                    raise explain(OperatorError(node.operation.name, rule), node, ins) from None
            if self.shape[v] != before:
                self._changed.append(v)
        if self.dtype[v] is None and known.dtype is not None:
            self.dtype[v] = known.dtype
            self._changed.append(v)


def _of_variable(declared, given):
    """The shape of a variable: the given one if it is complete, else the given and the declared
    one combined; the declared one if they contradict each other."""
    if is_known(given):
        return given
    try:
        return merge_shapes(declared, given)
    except ValueError:
        return declared


def complete_node(
    node: Node, ins: Sequence[Known], outs: Sequence[Known]
) -> tuple[list[Known], list[Known]]:
    """partial.complete for a node. Raises an OperatorError that names the node and its inputs."""
    try:
        return complete(node.operation, node.attrs, ins, outs)
    except DynamicShape:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        types = [None if k.shape is None else Type(as_zeros(k.shape), str(k.dtype)) for k in ins]
        raise explain(error, node, types) from None


class _Trained(Node):
    """A node with `train` among its attributes, which remembers the node it stands for."""

    __slots__ = ("origin",)
    origin: Node


def _with_attrs(node: Node, attrs) -> Node:
    made = _Trained(
        node.op, attrs, node.inputs, node.name, node.known_types, node.extra, node.source
    )
    made.origin = node
    return made


class DtypeInference(Inference):
    """Dtypes where shapes may be unknown: by shapes where they are known, else by trying some."""

    def __init__(self, outputs: Iterable[Value], dtypes: dict[Node, str]):
        super().__init__(outputs, {}, dtypes, default_dtype=False)

    def _visit(self, original: Node) -> bool:
        node = original
        outs = [Value(node, i) for i in range(node.n_outputs)]
        super()._visit(node)
        if node.operation.train_aware:
            node = _with_attrs(node, dict(node.attrs, train=False))
        values = [*node.inputs, *outs]
        known = [self.dtype[v] for v in values]
        if None in known and (any(known) or not node.inputs):
            n = len(node.inputs)
            for v, dtype in zip(values, _tried_dtypes(node, known[:n], known[n:])):
                self._learn(v, Known(None, dtype), node, ())
        return None not in [self.dtype[v] for v in values]


def _tried_dtypes(node: Node, ins: list[str | None], outs: list[str | None]) -> list[str | None]:
    """The dtypes that follow from known dtypes of inputs and outputs, found by calling the record
    with shapes that it accepts."""
    first = next((d for d in ins if d is not None), None)
    if first is None and node.inputs:
        return [*_dtypes_from_output(node, outs[0]), *outs]
    shapes = TRIAL_SHAPES if node.inputs else ((),)
    refusals: list[Exception] = []
    for shape in shapes:
        types: Sequence[Type | None] = [
            Type(shape, d) if d is not None and (i == 0 or node.operation.fill is None) else None
            for i, d in enumerate(ins)
        ]
        try:
            if None in types:
                types = fill_node(node, types)
                if _all_known(types):
                    # now that the shapes are known: an input may have its dtype from any other
                    given = [None if d is None else Type(t.shape, d) for t, d in zip(types, ins)]
                    types = fill_node(node, given)
            if not _all_known(types):
                continue
            made = infer(node.operation, node.attrs, types)
            return [*(t.dtype for t in types), *(t.dtype for t in made[: len(outs)])]
        # another shape may suit the operator
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            refusals.append(error)
    if len(refusals) == len(shapes) and all(isinstance(e, DTypeError) for e in refusals):
        raise explain(refusals[0], node, [None if d is None else Type((), d) for d in ins])
    dtype = node.attrs.get("dtype")
    out = dtype if isinstance(dtype, str) else first
    return [*(d or first for d in ins), *[out] * len(outs)]


def _dtypes_from_output(node: Node, dtype: str | None) -> list[str | None]:
    """The dtypes of inputs without which the output would have another one."""
    n = len(node.inputs)
    if dtype is None or node.operation.has(Cast):
        return [None] * n
    other = "float64" if dtype != "float64" else "float32"

    def fits(types) -> bool:
        try:
            return infer(node.operation, node.attrs, types)[0].dtype == dtype
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return False

    for shape in TRIAL_SHAPES:
        start = Type(shape, dtype)
        try:
            filled = fill_node(node, [start, *[None] * (n - 1)])
        except (ArithmeticError, LookupError, TypeError, ValueError):
            continue
        types = [start if t is None else Type(t.shape, dtype) for t in filled]
        if fits(types):
            changed = [
                [*types[:i], types[i]._replace(dtype=other), *types[i + 1 :]] for i in range(n)
            ]
            return [None if fits(c) else dtype for c in changed]
    return [None] * n


def typed_graph(outputs: Sequence[Value], types: dict[Node, Type], train: bool) -> list[Value]:
    """The graph with types on every node, and without fronts. types: of each variable, by node.
    Raises OperatorError, MXNetError.

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
            if node.is_typed and node.types[0] == types[node]:
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
        if node.op.has(Front):
            try:
                return outputs_of(node.op, inputs, attrs, node)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise explain(error, node, ins) from None
        if (
            inputs is node.inputs
            and attrs is node.attrs
            and node.known_types == infer_node(node, ins)
        ):
            return None
        made = Node(node.op, attrs, inputs, node.name, None, node.extra, node.source)
        made.types = infer_node(made, ins)
        return values_of(made)

    return rewrite(outputs, replace, order=order)


def _as_given(order: list[Node], types: dict[Node, Type], train: bool) -> bool:
    """Has every node the types that it should have, as after a trace?"""
    if any([not n.is_typed for n in order]):
        return False
    _, alike = kinds(order)
    for node in alike:
        if node.op is None:
            continue
        if node.op.has(Front) or source_shape(node) is not None:
            return False
        if node.op.train_aware and node.attrs.get("train") is not train:
            return False
        if node.types != infer_node(node, [v.type for v in node.inputs]):
            return False
    return all([n.types[0] == types.get(n) for n in order if n.op is None])
