"""Constant folding: nodes that depend on no variable are computed once, when the graph is lowered.

A constant becomes a variable, for which the program keeps the array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...engine._array import invoke
from ...kernels.plan import make_plan, scalars_of
from ...kernels.spec import spec
from ..effects import Effects
from ..graph import Node, Value, rewrite, topological, values_of, variable

# a larger constant costs more memory, for good, than its computation costs time
LIMIT_BYTES = 1 << 16


def fold(outputs: Sequence[Value], device: Any) -> tuple[list[Value], dict[Value, Any]]:
    """(outputs, the arrays of the new variables). Raises what operators raise."""
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
            and sum(spec(t.shape, t.dtype, device).nbytes for t in node.types) <= LIMIT_BYTES
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
    arrays = _evaluate(list(wanted), device)
    constants: dict[Value, Any] = {}

    new: dict[Node, list[Value]] = {}
    for node in [n for n in order if n in fixed]:
        made = new[node] = values_of(node)
        for i, v in enumerate(made):
            if v in wanted:
                made[i] = variable("constant", v.type)
                constants[made[i]] = arrays[v]
    return rewrite(outputs, None, new, order), constants


def _evaluate(wanted: Sequence[Value], device) -> dict[Value, Any]:
    """The arrays of values that depend on no variable."""
    arrays: dict[Value, Any] = {}
    for node in topological(wanted):
        inputs = [arrays[v] for v in node.inputs]
        plan = make_plan(node.operation, node.attrs, [a._spec for a in inputs], device)
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
    return {v: arrays[v] for v in wanted}
