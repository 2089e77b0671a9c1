"""The gradient pass: reverse accumulation over a typed graph, written in operators, so that it
applies to itself."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.error import ShapeError
from ..graph import Builder, Value, topological, values_of

FLOATING = ("float32", "float64", "float16", "bfloat16")


def gradient(
    heads: Sequence[Value], head_grads: Sequence[Value | None], wrt: Sequence[Value]
) -> list[Value | None]:
    """Gradients of sum(head * head_grad) with respect to values; None where no path leads to one.

    head_grads: None stands for ones. Values of `wrt` may be variables or intermediate values.
    """
    order = topological(heads)
    targets = set(wrt)
    reached = {v.node for v in targets}
    for node in order:  # nodes that depend on a target
        for v in node.inputs:
            if v.node in reached:
                reached.add(node)
                break
    sums: dict[Value, list[Value]] = {}
    builders = {train: Builder(train) for train in (False, True)}
    plain = builders[False]
    for head, g in zip(heads, head_grads):
        if head.node in reached:
            sums.setdefault(head, []).append(
                g if g is not None else plain._ones(shape=head.shape, dtype=head.dtype)
            )

    def total(value: Value) -> Value | None:
        terms = sums.get(value)
        if not terms:
            return None
        if len(terms) > 1:
            terms[:] = [plain.add_n(*terms)]
        return terms[0]

    for node in reversed(order):
        if node.op is None or node not in reached or node.op.grad is None:
            continue
        for v in node.inputs:
            if v.node in reached:
                break
        else:
            continue
        ys = values_of(node)
        dys = [total(y) for y in ys]
        if dys.count(None) == len(dys):
            continue
        if node.op.lowered is None:
            dys = [
                plain._zeros(shape=y.shape, dtype=y.dtype) if d is None else d
                for d, y in zip(dys, ys)
            ]
        F = builders[bool(node.attrs.get("train"))]
        grads = node.op.grad(F, dys, list(node.inputs), ys, **node.attrs)
        for v, g in zip(node.inputs, grads):
            if g is None or v.node not in reached or v.dtype not in FLOATING:
                continue
            if g.shape != v.shape:
                raise ShapeError(
                    node.op.name,
                    f"its gradient must have its input's shape {v.shape}, got {g.shape}",
                )
            sums.setdefault(v, []).append(g)
    return [total(v) for v in wrt]
