"""Loops and branches: foreach is Scan, while_loop is Loop, cond is If."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....kernels.traits import Subgraphs
from ..graph import Graph
from ..rule import rule
from ..tensors import Tensor
from ..write import Body


def _inside(g: Graph, outer: Graph) -> Graph:
    made = Graph(g.opset, outer)
    made.converter, made.call = outer.converter, outer.call
    return made


def _flag(g: Graph, x: Tensor) -> Tensor:
    return g.cast(g.reshape(x, ()), "bool")


@rule("_foreach")
def foreach(g: Graph, *xs: Tensor, **_: Any) -> list[Tensor]:
    loop = g.call.operation.trait(Subgraphs).control
    body = _inside(g, g)
    inner, states, data = list(xs), [], []
    for i in loop.states:
        states.append(Tensor(body, xs[i].shape, xs[i].dtype, g.names.new(f"state{i}")))
        inner[i] = states[-1]
    for i in loop.data:
        data.append(Tensor(body, xs[i].shape[1:], xs[i].dtype, g.names.new(f"slice{i}")))
        inner[i] = data[-1]
    outs = [body.Identity(t) for t in g.converter.body(body, loop.body, loop._seen, inner)]
    n = loop.n_stacked
    way = [int(loop.reverse)]
    made = g.Scan(
        *(xs[i] for i in loop.states), *(xs[i] for i in loop.data), n=len(outs),
        body=Body(body, [*states, *data], [*outs[n:], *outs[:n]]), num_scan_inputs=len(data),
        scan_input_directions=way * len(data), scan_output_directions=way * n or None,
    )  # fmt: skip
    made = made if isinstance(made, list) else [made]
    made = [*made[len(states) :], *made[: len(states)]]
    return [t.again(o.shape, o.dtype) for t, o in zip(made, g.outs)]


@rule("_while_loop")
def while_loop(g: Graph, *xs: Tensor, **_: Any) -> list[Tensor]:
    """Rows that were not computed are zeros, up to max_iterations: they are put after the rest."""
    loop = g.call.operation.trait(Subgraphs).control
    first = _flag(g, g.converter.body(g, loop.test, list, xs)[0])
    body = _inside(g, g)
    count = Tensor(body, (), np.dtype(np.int64), g.names.new("iteration"))
    on = Tensor(body, (), np.dtype(bool), g.names.new("on"))
    inner, states = list(xs), []
    for i in loop.states:
        states.append(Tensor(body, xs[i].shape, xs[i].dtype, g.names.new(f"state{i}")))
        inner[i] = states[-1]
    outs = g.converter.body(body, loop.body, loop._seen, inner)
    n = loop.n_stacked
    after = list(inner)
    for i, t in zip(loop.states, outs[n:]):
        after[i] = t
    again = _flag(body, g.converter.body(body, loop.test, list, after)[0])
    results = [body.Identity(t) for t in (again, *outs[n:], *outs[:n])]
    made = g.Loop(
        np.int64(loop.length), first, *(xs[i] for i in loop.states), n=len(outs),
        body=Body(body, [count, on, *states], results),
    )  # fmt: skip
    made = made if isinstance(made, list) else [made]
    final, stacked = made[: len(states)], made[len(states) :]
    whole = []
    for t, o in zip(stacked, g.outs):
        t = t.again(o.shape, o.dtype)
        rows = g.size_of(t, 0)
        left = g.Sub(np.array([loop.length], np.int64), rows, shape=(1,))
        zeros = g.tensor(np.zeros(len(o.shape) - 1, np.int64))
        ends = g.Concat(
            g.tensor(np.zeros(len(o.shape), np.int64)), left, zeros, axis=0,
            shape=(2 * len(o.shape),),
        )  # fmt: skip
        whole.append(g.Pad(t, ends, g.tensor(np.zeros((), o.dtype)), shape=o.shape))
    return [*whole, *(t.again(o.shape, o.dtype) for t, o in zip(final, g.outs[n:]))]


@rule("_cond")
def cond(g: Graph, *xs: Tensor, **_: Any) -> list[Tensor]:
    branch = g.call.operation.trait(Subgraphs).control
    flag = _flag(g, g.converter.body(g, branch.test, list, xs)[0])
    bodies = []
    for way in branch.ways:
        body = _inside(g, g)
        outs = [body.Identity(t) for t in g.converter.body(body, way, list, xs)]
        bodies.append(Body(body, [], outs))
    made = g.If(flag, then_branch=bodies[0], else_branch=bodies[1], n=len(g.outs))
    made = made if isinstance(made, list) else [made]
    return [t.again(o.shape, o.dtype) for t, o in zip(made, g.outs)]
