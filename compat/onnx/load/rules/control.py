"""If, Loop and Scan: decided while tracing where the condition is known, else plait's operators.

A loop whose length is known becomes `foreach`; one that ends by a computed condition, without
stacked outputs, becomes `while_loop`. Others run on arrays, iteration by iteration.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .....engine.error import DynamicShape
from .....ndarray.nesting import LoopError
from ..run import Call, rule
from .shape import checked

MAX_UNROLLED = 8  # iterations of a traced loop that are written out


@rule("If", raw=True)
def if_(c: Call, condition: Any) -> Any:
    ways = c("then_branch"), c("else_branch")
    if not c.run.traced or isinstance(condition, np.ndarray):
        chosen = bool(np.asarray(c.run.known(condition, c)).reshape(-1)[0])
        return tuple(c.run.graph(ways[0 if chosen else 1], [], c.scope))
    scope = c.scope

    def branch(i: int) -> Any:
        return [c.run.lift(v) for v in c.run.graph(ways[i], [], scope)]

    test = c.np.reshape(condition, (1,)).astype("float32")
    try:
        return tuple(_listed(c.nn.contrib.cond(test, lambda: branch(0), lambda: branch(1))))
    except DynamicShape:
        raise
    except Exception as error:
        rule = f"{c.node}: its branches differ ({error})"
        raise DynamicShape(c.node.op, rule) from None


def _listed(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (list, tuple)) else [found]


@rule("Loop", raw=True)
def loop(c: Call, limit: Any, condition: Any, *states: Any) -> Any:
    body, n_states = c("body"), len(states)
    n_scan = len(body.outputs) - 1 - n_states
    always = _keeps(body) and (condition is None or isinstance(condition, np.ndarray))
    if c.run.traced:
        if not always or not isinstance(limit, np.ndarray):
            raise DynamicShape("Loop", f"{c.node}: how often it runs depends on values")
        if condition is not None and not bool(condition.reshape(-1)[0]):
            limit = np.array(0)
    most = None if limit is None else int(np.asarray(c.run.known(limit, c)).reshape(-1)[0])
    going = condition is None or bool(np.asarray(c.run.known(condition, c)).reshape(-1)[0])
    now, i = list(states), 0
    stacks: list[list[Any]] = [[] for _ in range(n_scan)]
    while going and (most is None or i < most):
        if c.run.traced and most is not None and most > MAX_UNROLLED and _can_stack(now):
            return _for_each(c, body, most, now, n_scan)
        number, yes = np.array(i, np.int64), np.array(True)
        flag, *found = c.run.graph(body, [number, yes, *now], c.scope)
        now = found[:n_states]
        for stack, v in zip(stacks, found[n_states:]):
            stack.append(v)
        if not always or condition is not None or body.outputs:
            going = bool(np.asarray(c.run.known(flag, c)).reshape(-1)[0])
        i += 1
    return (*now, *(_stacked(c, s) for s in stacks))


def _keeps(body: Any) -> bool:
    """Does the body hand its condition on, or a constant true?"""
    flag = body.outputs[0]
    for _ in range(len(body.nodes) + 1):
        if flag == body.inputs[1]:
            return True
        if flag in body.constants:
            return bool(np.asarray(body.constants[flag]).reshape(-1)[0])
        makers = [n for n in body.nodes if flag in n.outputs]
        if not makers or makers[0].op != "Identity":
            return False
        flag = makers[0].inputs[0]
    return False


def _can_stack(values: Any) -> bool:
    return all(not isinstance(v, list) and v is not None for v in values)


def _for_each(c: Call, body: Any, n: int, states: list[Any], n_scan: int) -> Any:
    checked(c, [n])
    numbers = c.array(np.arange(n, dtype=np.int64))
    yes = np.array(True)

    def step(i: Any, now: Any) -> Any:
        _, *found = c.run.graph(body, [i, yes, *now], c.scope)
        found = [c.run.lift(v) for v in found]
        return [*found[len(states) :], i + 0], found[: len(states)]  # a body must read all it gets

    outs, last = _each(c, step, numbers, [c.run.lift(s) for s in states])
    return (*_listed(last), *_listed(outs)[:n_scan])


def _each(c: Call, step: Any, data: Any, states: Any) -> Any:
    """plait's loop. Raises DynamicShape where it has no such body."""
    try:
        return c.nn.contrib.foreach(step, data, states)
    except LoopError as error:
        raise DynamicShape(c.node.op, f"{c.node}: {error}") from None


def _stacked(c: Call, values: list[Any]) -> Any:
    if not values:
        return np.zeros(0, np.float32)
    if all(isinstance(v, np.ndarray) for v in values):
        return np.stack(values)
    return c.np.stack([c.run.lift(v) for v in values], axis=0)


@rule("Scan", raw=True)
def scan(c: Call, *xs: Any) -> Any:
    if c.opset < 9:
        return _scan_8(c, *xs)
    return _scan(c, list(xs))


def _scan(c: Call, xs: list[Any]) -> Any:
    body, n_in = c("body"), c("num_scan_inputs")
    n_states = len(xs) - n_in
    xs = [c.run.lift(x) for x in xs]
    states, data = xs[:n_states], xs[n_states:]
    n_out = len(body.outputs) - n_states
    axes, out_axes = c("scan_input_axes", [0] * n_in), c("scan_output_axes", [0] * n_out)
    turned, out_turned = (
        c("scan_input_directions", [0] * n_in),
        c("scan_output_directions", [0] * n_out),
    )
    data = [x if a == 0 else c.np.moveaxis(x, a, 0) for x, a in zip(data, axes)]
    data = [c.np.flip(x, 0) if t else x for x, t in zip(data, turned)]
    steps = data[0].shape[0]
    if c.run.traced and steps > MAX_UNROLLED:

        def step(now: Any, before: Any) -> Any:
            found = c.run.graph(body, [*_listed(before), *_listed(now)], c.scope)
            found = [c.run.lift(v) for v in found]
            return found[n_states:], found[:n_states]

        outs, last = _each(c, step, data, states)
        outs, states = _listed(outs), _listed(last)
    else:
        rows: list[list[Any]] = [[] for _ in range(n_out)]
        for i in range(steps):
            found = c.run.graph(body, [*states, *(x[i] for x in data)], c.scope)
            states = found[:n_states]
            for row, v in zip(rows, found[n_states:]):
                row.append(v)
        outs = [_stacked(c, row) for row in rows]
    outs = [c.np.flip(c.run.lift(x), 0) if t else x for x, t in zip(outs, out_turned)]
    outs = [x if a == 0 else c.np.moveaxis(c.run.lift(x), 0, a) for x, a in zip(outs, out_axes)]
    return (*states, *outs)


def _scan_8(c: Call, lens: Any, *xs: Any) -> Any:
    """Opset 8: the first axis is the batch, each element of which is scanned."""
    if lens is not None:
        raise c.fail("sequence_lens of opset 8 are not supported")
    if c("directions"):
        c.node.attrs.setdefault("scan_input_directions", c("directions"))
    rows = [_scan(c, [c.run.lift(x)[b] for x in xs]) for b in range(xs[0].shape[0])]
    return tuple([_stacked(c, list(column)) for column in zip(*rows)])
