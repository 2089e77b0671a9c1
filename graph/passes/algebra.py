"""Algebraic identities that hold bit for bit, for NaN, infinities and -0.0 too; one rule a line.

Left out because they do not: x + 0 (-0.0 + 0 is 0), x * 0 (NaN, inf, -0.0), x - x and x / x (NaN,
inf), pow(x, 1) (as exact as the kernel's pow), log(exp(x)), sums in another order. Scalars of
64-bit whole numbers pass through float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...kernels.record import FLOATS, Operator
from ..effects import Effects
from ..graph import Builder, Node, Value, rewrite, topological, values_of, with_inputs

F = Builder()
WIDE_INTEGERS = ("int64", "uint64")

# a rule gives the value, and which of the inputs it still needs
Found = tuple[Value, int | None] | None


def algebra(outputs: Sequence[Value]) -> list[Value]:
    """The graph with every rule applied, from the inputs up."""
    order = topological(outputs)
    effects = Effects(order)
    # the nodes of the new graph that must stay: see Effects
    pinned: set[Node] = set()
    rules = {op: rule for op in {n.op for n in order} if op and (rule := _rule(op))}

    def replace(node: Node, inputs: Sequence[Value]):
        if node.op is None:
            return None
        # y = copy(m); write m; use y: the copy is none too many
        if node in effects.pinned:
            kept = with_inputs(node, inputs)
            pinned.add(kept)
            return None if kept is node else values_of(kept)
        rule = rules.get(node.op)
        found = rule(node, inputs) if rule is not None else None
        if found is None:
            return None
        value, needs = found
        if value.type != node.types[0]:
            return None
        if needs is not None and value != inputs[needs] and inputs[needs].node in pinned:
            return None
        if not all(i == needs or effects.droppable(v) for i, v in enumerate(node.inputs)):
            return None
        return [value, *(F._zeros(shape=t.shape, dtype=t.dtype) for t in node.types[1:])]

    return rewrite(outputs, replace, order=order, asked=None if effects.pinned else set(rules))


def _first(node: Node, inputs: Sequence[Value]) -> Found:
    return inputs[0], 0


def _scalar(is_neutral: Callable[[float, str], bool]) -> Callable:
    """x, where the scalar changes no value of x's dtype."""

    def rule(node: Node, inputs: Sequence[Value]) -> Found:
        dtype = inputs[0].dtype
        return (
            (inputs[0], 0)
            if dtype not in WIDE_INTEGERS and is_neutral(node.attrs["scalar"], dtype)
            else None
        )

    return rule


def _is_one(scalar: float, dtype: str) -> bool:
    return scalar == 1


def _subtracts_nothing(scalar: float, dtype: str) -> bool:
    return scalar == 0 and (dtype not in FLOATS or math.copysign(1, scalar) > 0)


def _adds_nothing(scalar: float, dtype: str) -> bool:
    return scalar == 0 and (dtype not in FLOATS or math.copysign(1, scalar) < 0)


def _constant(v: Value) -> float | None:
    """The number that the operator of a value makes, whatever its inputs."""
    return None if v.node.op is None else v.node.op.constant


def _with(neutral: float, either_side: bool) -> Callable:
    """x, where the other operand is an array of ones or zeros."""

    def rule(node: Node, inputs: Sequence[Value]) -> Found:
        if _constant(inputs[1]) == neutral:
            return inputs[0], 0
        return (inputs[1], 1) if either_side and _constant(inputs[0]) == neutral else None

    return rule


def _only(node: Node, inputs: Sequence[Value]) -> Found:
    return (inputs[0], 0) if len(inputs) == 1 else None


def _twice(node: Node, inputs: Sequence[Value]) -> Found:
    """f(f(x)) is x."""
    inner = inputs[0].node
    return (inner.inputs[0], 0) if inner.op is node.op else None


def _filled(node: Node, inputs: Sequence[Value]) -> Found:
    """Ones or zeros, whatever the input."""
    constant = node.operation.constant
    return None if constant is None else (_of(constant, node), None)


def _of(constant: float, node: Node) -> Value:
    make = F._ones if constant else F._zeros
    return make(shape=node.types[0].shape, dtype=node.types[0].dtype)


def _spread(node: Node, inputs: Sequence[Value]) -> Found:
    """Ones and zeros broadcast are ones and zeros."""
    constant = _constant(inputs[0])
    return None if constant is None else (_of(constant, node), None)


def _axes(node: Node) -> list[int]:
    n = len(node.types[0].shape)
    return [a % n for a in node.attrs["axes"]] or list(range(n))[::-1]


def _transpose(node: Node, inputs: Sequence[Value]) -> Found:
    source, axes = inputs[0], _axes(node)
    if source.node.op is node.op:
        before = _axes(source.node)
        source, axes = source.node.inputs[0], [before[a] for a in axes]
    if axes == sorted(axes):
        return source, 0
    return (F.transpose(source, axes=tuple(axes)), 0) if source != inputs[0] else None


def _view(node: Node, inputs: Sequence[Value]) -> Found:
    """A view of a view is one view; a view of the same shape is nothing."""
    source = inputs[0]
    if source.node.op is not None and source.node.op.view:
        source = source.node.inputs[0]
    if source.type == node.types[0]:
        return source, 0
    return (F.reshape_to(source, shape=node.types[0].shape), 0) if source != inputs[0] else None


def _idle(node: Node, inputs: Sequence[Value]) -> Found:
    return (inputs[0], 0) if not node.operation.is_random(node.attrs) else None


RULES: dict[str, Callable] = {
    "_copy": _first,
    "BlockGrad": _first,
    "make_loss": _first,
    "Cast": _first,  # only where the dtype stays: `algebra` compares types
    "add_n": _only,
    "_mul_scalar": _scalar(_is_one),
    "_div_scalar": _scalar(_is_one),
    "_minus_scalar": _scalar(_subtracts_nothing),
    "_plus_scalar": _scalar(_adds_nothing),
    "broadcast_mul": _with(1, either_side=True),
    "broadcast_div": _with(1, either_side=False),
    "broadcast_sub": _with(0, either_side=False),
    "negative": _twice,
    "transpose": _transpose,
    "broadcast_to": _spread,
    "broadcast_axis": _spread,
    "Dropout": _idle,
}


def _rule(op: Operator) -> Callable | None:
    if op.view:
        return _view
    return _filled if op.constant is not None and op.inputs else RULES.get(op.name)
