"""The gradient pass: reverse accumulation over a typed graph, written in operators, so that it
applies to itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...kernels.traits import Lowered
from .._graph import depending, instantiate, kinds
from ..graph import Builder, Node, Value, topological, values_of, variable

BUILDERS = {train: Builder(train) for train in (False, True)}


def gradient(
    heads: Sequence[Value], head_grads: Sequence[Value | None], wrt: Sequence[Value]
) -> list[Value | None]:
    """Gradients of sum(head * head_grad) with respect to values; None where no path leads to one.

    head_grads: None stands for ones. Values of `wrt` may be variables or intermediate values. Of
    integers as of floats, as in MXNet: a gradient has its value's dtype.
    """
    F = BUILDERS[False]
    order = topological(heads)
    reached = depending(order, {v.node for v in wrt})
    sums: dict[Value, list[Value]] = {}
    for head, g in zip(heads, head_grads):
        if head.node in reached:
            sums.setdefault(head, []).append(
                g if g is not None else F._ones(shape=head.shape, dtype=head.dtype)
            )

    def total(value: Value) -> Value | None:
        terms = sums.get(value)
        if not terms:
            return None
        if len(terms) > 1:
            terms[:] = [F.add_n(*terms)]
        return terms[0]

    numbers, alike = kinds(order)
    able = [n.op is not None and n.op.grad is not None for n in alike]
    templates: dict[tuple, _Template] = {}
    for node, kind in zip(reversed(order), reversed(numbers)):
        if node not in reached:
            continue
        if not able[kind]:
            continue
        wanted = [v.node in reached for v in node.inputs]
        if True not in wanted:
            continue
        ys = values_of(node)
        dys = [total(y) for y in ys]
        if dys.count(None) == len(dys):
            continue
        key = (kind, *wanted, *[d is None for d in dys])
        template = templates.get(key)
        if template is None:
            template = templates[key] = _template(node, dys, wanted)
        given = [*node.inputs, *ys, *dys]
        given = given if len(dys) == 1 else [v for v in given if v]
        values = instantiate(template.steps, given, node.source)
        for v, at in zip(node.inputs, template.found):
            if at is not None:
                sums.setdefault(v, []).append(values[at])
    return [total(v) for v in wrt]


class _Template(NamedTuple):
    """The gradients of nodes that are alike. steps: see _graph.instantiate; the values that they
    begin with are the inputs, the outputs and their gradients, where there are any. found: the
    place of each input's gradient, or None."""

    steps: tuple
    found: list[int | None]


def _template(node: Node, dys: Sequence[Value | None], wanted: Sequence[bool]) -> _Template:
    """The gradients of a node's wanted inputs; found once for nodes that are alike."""
    op, ins = node.operation, [v.type for v in node.inputs]
    key = (*op.attribute_key(node.attrs), "|", *ins, *wanted, *[d is None for d in dys])
    try:
        found = op.gradients[key]
    except TypeError:  # an attribute that is a list
        return _write_down(node, dys, wanted)
    if found is None:
        found = op.gradients[key] = _write_down(node, dys, wanted)
    return found


def _write_down(node: Node, dys: Sequence[Value | None], wanted: Sequence[bool]) -> _Template:
    op, attrs = node.operation, node.attrs
    xs = [variable("", v.type) for v in node.inputs]
    ys = values_of(Node(op, attrs, xs, "", node.types))
    given = [None if d is None else variable("", d.type) for d in dys]
    grads = list(given)
    if not op.has(Lowered):
        zeros = BUILDERS[False]._zeros
        grads = [zeros(shape=y.shape, dtype=y.dtype) if d is None else d for d, y in zip(given, ys)]
    made = op.differentiate(BUILDERS[bool(attrs.get("train"))], grads, xs, ys, attrs)
    made = [g if want else None for g, want in zip(made, wanted)]
    start = [v for v in (*xs, *ys, *given) if v is not None]
    place = {v: i for i, v in enumerate(start)}
    steps = []
    for n in topological([g for g in made if g is not None]):
        if Value(n) not in place:
            places = tuple([place[v] for v in n.inputs])
            steps.append((n.op, n.attrs, n.types, places))
            for v in values_of(n):
                place[v] = len(place)
    return _Template(tuple(steps), [None if g is None else place[g] for g in made])
