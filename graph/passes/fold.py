"""Constant folding: nodes that depend on no variable are computed once, when the graph is lowered.

A constant becomes a variable, for which the program keeps the array.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...engine._array import invoke
from ...kernels.plan import make_plan, of_programs, scalars_of
from ...kernels.spec import ITEM_BYTES
from ..effects import Effects
from ..graph import Node, Value, rewrite, topological, values_of, variable

# a larger constant costs more memory, for good, than its computation costs time
LIMIT_BYTES = 1 << 16


def fold(outputs: Sequence[Value]) -> tuple[list[Value], dict[Value, Value]]:
    """(outputs, what the new variables stand for)."""
    order = topological(outputs)
    effects = Effects(order)
    fixed: set[Node] = set()
    for node in order:
        if node.op is None or node.inputs and node.inputs[0].node not in fixed:
            continue
        if (
            all(v.node in fixed for v in node.inputs)
            and node not in effects.pinned
            and not node.op.is_random(node.attrs)
            and not node.has_open_scalars
            and sum(prod(t.shape) * ITEM_BYTES[t.dtype] for t in node.types) <= LIMIT_BYTES
        ):
            fixed.add(node)
    # a source that is itself an output would only be copied instead of filled
    fixed -= {v.node for v in outputs if not v.node.inputs}
    if not fixed:
        return list(outputs), {}
    wanted = {v for n in order if n not in fixed for v in n.inputs if v.node in fixed}
    wanted.update(v for v in outputs if v.node in fixed)
    if not wanted:
        return list(outputs), {}
    constants: dict[Value, Value] = {}
    new: dict[Node, list[Value]] = {}
    for node in [n for n in order if n in fixed]:
        made = new[node] = values_of(node)
        for i, v in enumerate(made):
            if v in wanted:
                made[i] = variable("constant", v.type)
                constants[made[i]] = v
    return rewrite(outputs, None, new, order), constants


def evaluate(wanted: Sequence[Value], device: Any) -> list[Any]:
    """The arrays of values that depend on no variable. Raises what operators raise."""
    arrays: dict[Value, Any] = {}
    for node in topological(wanted):
        inputs = [arrays[v] for v in node.inputs]
        specs = [a._spec for a in inputs]
        plan = make_plan(node.operation, node.attrs, specs, device, node.types, of_programs)
        made = invoke(
            plan.handle,
            plan.in_specs,
            plan.out_specs,
            inputs,
            (),
            scalars_of(node.operation, node.attrs),
            -1,
        )
        arrays.update((Value(node, i), a) for i, a in enumerate(made))
    return [arrays[v] for v in wanted]
