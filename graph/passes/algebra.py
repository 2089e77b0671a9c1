"""Algebraic identities that hold bit for bit, for NaN, infinities and -0.0 too; one rule for each
kind of trait.

Left out because they do not: x + 0 (-0.0 + 0 is 0), x * 0 (NaN, inf, -0.0), x - x and x / x (NaN,
inf), pow(x, 1) (as exact as the kernel's pow), log(exp(x)), sums in another order. Scalars of
64-bit whole numbers pass through float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...kernels.record import FLOATS, Operator
from ...kernels.traits import (
    Broadcast,
    Constant,
    Identity,
    Involution,
    Neutral,
    Permutation,
    SameMemory,
    Sum,
)
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


def _identity(node: Node, inputs: Sequence[Value]) -> Found:
    return (inputs[0], 0) if node.operation.kinds[Identity].holds(node.attrs) else None


def _constant(v: Value) -> float | None:
    """The number that the operator of a value makes, whatever its inputs."""
    found = None if v.node.op is None else v.node.op.trait(Constant)
    return None if found is None else found.value


def _is(number: float | None, neutral: float | None, dtype: str) -> bool:
    """Is a number the neutral one? Of floats the sign of 0 counts."""
    if neutral is None or number is None or number != neutral:
        return False
    signed = neutral == 0 and dtype in FLOATS
    return not signed or math.copysign(1, number) == math.copysign(1, neutral)


def _neutral(node: Node, inputs: Sequence[Value]) -> Found:
    """x, where the other operand changes no value of x's dtype."""
    neutral = node.operation.kinds[Neutral]
    dtype = inputs[0].dtype
    if len(inputs) == 1:
        is_exact = dtype not in WIDE_INTEGERS
        return (
            (inputs[0], 0) if is_exact and _is(node.attrs["scalar"], neutral.right, dtype) else None
        )
    if _is(_constant(inputs[1]), neutral.right, dtype):
        return inputs[0], 0
    return (inputs[1], 1) if _is(_constant(inputs[0]), neutral.left, dtype) else None


def _sum(node: Node, inputs: Sequence[Value]) -> Found:
    return (inputs[0], 0) if len(inputs) == 1 else None


def _twice(node: Node, inputs: Sequence[Value]) -> Found:
    """f(f(x)) is x."""
    inner = inputs[0].node
    return (inner.inputs[0], 0) if inner.op is node.op else None


def _filled(node: Node, inputs: Sequence[Value]) -> Found:
    """Ones or zeros, whatever the input."""
    constant = node.operation.kinds[Constant].value if node.inputs else None
    return None if constant is None else (_of(constant, node), None)


def _of(constant: float, node: Node) -> Value:
    make = F._ones if constant else F._zeros
    return make(shape=node.types[0].shape, dtype=node.types[0].dtype)


def _spread(node: Node, inputs: Sequence[Value]) -> Found:
    """Ones and zeros broadcast are ones and zeros."""
    constant = _constant(inputs[0])
    return None if constant is None else (_of(constant, node), None)


def _axes(node: Node) -> Sequence[int]:
    return node.operation.kinds[Permutation].axes(len(node.types[0].shape), **node.attrs)


def _permutation(node: Node, inputs: Sequence[Value]) -> Found:
    """Two permutations are one; one that changes nothing is nothing."""
    source, axes = inputs[0], _axes(node)
    if source.node.op is not None and source.node.op.has(Permutation):
        before = _axes(source.node)
        source, axes = source.node.inputs[0], [before[a] for a in axes]
    if list(axes) == sorted(axes):
        return source, 0
    return (F.transpose(source, axes=tuple(axes)), 0) if source != inputs[0] else None


def _view(node: Node, inputs: Sequence[Value]) -> Found:
    """A view of a view is one view; a view of the same shape is nothing; ones and zeros under
    another shape are ones and zeros."""
    source = inputs[0]
    constant = _constant(source)
    if constant is not None and source.dtype == node.types[0].dtype:
        return _of(constant, node), None
    if source.node.op is not None and source.node.op.has(SameMemory):
        source = source.node.inputs[0]
    if source.type == node.types[0]:
        return source, 0
    return (F.reshape_to(source, shape=node.types[0].shape), 0) if source != inputs[0] else None


# a rule for each kind of trait
RULES: dict[type, Callable] = {
    SameMemory: _view,
    Constant: _filled,
    Identity: _identity,
    Sum: _sum,
    Neutral: _neutral,
    Involution: _twice,
    Permutation: _permutation,
    Broadcast: _spread,
}


def _rule(op: Operator) -> Callable | None:
    if op.kinds.keys().isdisjoint(RULES):
        return None
    return next((rule for kind, rule in RULES.items() if op.has(kind)), None)
