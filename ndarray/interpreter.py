"""Runs a graph node by node when a program cannot be used: monitors, sparse arrays, shapes
that depend on values, gradients of gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..graph.graph import Node, Value, topological
from ..kernels.plan import make_plan, scalars_of
from ..kernels.traits import Collective
from .invoke import invoke
from .launch import launch
from .ndarray import NDArray

Compute = Callable[[Node, list[NDArray]], Sequence[NDArray]]


def run_nodes(
    outputs: Sequence[Value], known: dict[Value, NDArray], compute: Compute
) -> list[NDArray]:
    """The outputs of a graph. known: arrays of the variables; arrays of all other values are added
    to it.
    compute: (node, inputs) -> its outputs, as many as are read."""
    for node in topological(outputs):
        if node.op is not None:
            made = compute(node, [known[v] for v in node.inputs])
            known.update((Value(node, i), a) for i, a in enumerate(made))
    return [known[v] for v in outputs]


def run_plan(node: Node, inputs: Sequence[NDArray], device: Any) -> list[NDArray]:
    """All outputs of a node, hidden ones too, from dense inputs on its device. device: for a node
    that copies to it, or has no inputs."""
    if node.operation.has(Collective):
        return [invoke(node.operation, inputs, node.attrs)]
    plan = make_plan(node.operation, node.attrs, [a._spec for a in inputs], device)
    return launch(plan, inputs, scalars_of(node.operation, node.attrs))


def call(node: Node, inputs: Sequence[NDArray], device: Any) -> list[NDArray]:
    """The visible outputs of a node, by calling its operator like a user: for inputs of any storage
    type. device: for a node without inputs."""
    attrs = {k: x for k, x in node.attrs.items() if k != "train"}
    made = invoke(node.operation, inputs, attrs, None, None if inputs else device)
    return made if isinstance(made, list) else [made]
