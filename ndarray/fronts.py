"""A front called on arrays: what it stands for is found once for the attributes and specs of a
call, and then runs like a call of nd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..engine import Context, hooks
from ..engine.error import DynamicShape
from ..engine.recent import Recent
from ..graph.fronts import outputs_of
from ..graph.graph import Value, topological, variable
from ..kernels.plan import Plan, make_plan, open_scalars, scalars_of
from ..kernels.record import Operator
from ..kernels.scalar import UnknownScalar, given, value_of
from ..kernels.traits import Eager, Front
from .launch import Plans, copy_into, run, seen
from .ndarray import NDArray, state

MAX_STEPS = 3  # calls that run one by one; of more a graph is made, which is compiled as a whole


class Step(NamedTuple):
    """One call. inputs, outputs: numbers of arrays, the given ones first. scalars: its dynamic
    parameters, given ones as OpenScalar."""

    plan: Plan
    inputs: tuple[int, ...]
    scalars: tuple
    first: int


class Steps(NamedTuple):
    """What a front stands for: calls in order, and the numbers of the arrays that are results."""

    steps: tuple[Step, ...]
    results: tuple[int, ...]

    def call(
        self, inputs: Sequence[NDArray], scalars: Sequence[float] = (), out: Any = None
    ) -> Any:
        """The result(s), or `out`."""
        arrays = list(inputs)
        target = None if out is None else self._written(out)
        for plan, at, own, _ in self.steps:
            values = [value_of(s, scalars) for s in own] if own else ()
            given = [arrays[i] for i in at]
            if target is plan:
                return run(plan, given, values, out)
            made = seen(given[0], plan) if plan.views else run(plan, given, values)
            arrays += made if plan.n_visible > 1 else [made]
        return _result([arrays[i] for i in self.results], out)

    def _written(self, out: Any) -> Plan | None:
        """The last plan, where its one result is the front's and `out` is of its type."""
        plan, _, _, first = self.steps[-1]
        whole = self.results == (first,) and not plan.views and isinstance(out, NDArray)
        return plan if whole and out._spec is plan.out_spec else None


_known = Recent(8192)


def call_front(
    op: Operator,
    inputs: Sequence[NDArray],
    attrs: dict[str, Any],
    out: Any,
    device: Context,
    plans: Plans | None,
    key: Any,
) -> Any:
    """Calls what a front stands for. attrs: complete. plans, key: where the caller keeps the plan
    of a call that is one call of another operator, or its steps."""
    stands_for = op.trait(Front)
    assert stands_for is not None
    train = {"train": state.training} if op.train_aware else {}
    # of a number only whether there is one
    static = tuple([attrs[p.name] is None if p.dynamic else attrs[p.name] for p in op.params])
    of = (op, static, state.training, device, *[a._spec for a in inputs])
    found = _known[of]
    if found is None:
        found = _known[of] = _find(op, inputs, attrs | train, device)
    if found is stands_for:
        return _result(_by_rule(stands_for, inputs, attrs | train, device), out)
    scalars = scalars_of(op, attrs)
    if found.__class__ is not Steps:
        return _result(found(inputs), out)
    whole = _is_whole(found, len(inputs), scalars) and not found.steps[0].plan.views
    kept: Any = found.steps[0].plan if whole else found
    if plans is not None and all([plans.keeps(step.plan) for step in found.steps]):
        plans[key] = kept
    if kept is found or out is not None:
        return found.call(inputs, scalars, out)
    return run(kept, inputs, scalars)


def _is_whole(found: Steps, n: int, scalars: Sequence[float]) -> bool:
    """Is the one step a call of the given arrays and numbers, as they are?"""
    if len(found.steps) != 1:
        return False
    step = found.steps[0]
    return (
        step.inputs == tuple(range(n))
        and step.scalars == tuple([given(k) for k in range(len(scalars))])
        and found.results == tuple(range(n, n + step.plan.n_visible))
    )


def _find(op: Operator, inputs: Sequence[NDArray], attrs: dict[str, Any], device: Context) -> Any:
    """Steps, a CachedGraph, or the trait itself where only its rule on arrays serves: shapes that
    depend on values, a choice that depends on a number."""
    found = op.trait(Front)
    count, attrs = 0, dict(attrs)
    for p in op.params:
        if p.dynamic:
            if attrs[p.name] is not None:
                attrs[p.name] = given(count)
            count += 1
    xs = [variable(f"x{i}", a._spec.type) for i, a in enumerate(inputs)]
    try:
        outputs = outputs_of(op, xs, attrs)
    except (UnknownScalar, DynamicShape):
        return found
    nodes = [n for n in topological([*xs, *outputs]) if n.op is not None]
    if any([n.operation.has(Eager) for n in nodes]):
        return found
    if 1 < len(nodes) <= MAX_STEPS + 1 and len(outputs) == 1:
        from ..graph.passes import fuse  # of tier 1, which is imported late

        whole = fuse.one_loop(outputs[0], device)
        if whole is not None:
            outputs, nodes = [whole], [whole.node]
    if len(nodes) > MAX_STEPS and not count and inputs:
        return hooks.get("compiled graph")(outputs, xs, op.name)
    numbers = {v: i for i, v in enumerate(xs)}
    steps: list[Step] = []
    for node in nodes:
        ins = tuple([numbers[v] for v in node.inputs])
        specs = [inputs[i]._spec if i < len(xs) else _spec(steps, i) for i in ins]
        plan = make_plan(node.operation, node.attrs, specs, device)
        opens = open_scalars(node.operation, node.attrs)  # one plan serves calls of all numbers
        values = scalars_of(node.operation, node.attrs)
        own = [s if o is None else o for o, s in zip(opens, values)]
        first = len(xs) + sum(s.plan.n_visible for s in steps)
        numbers |= {Value(node, i): first + i for i in range(plan.n_visible)}
        steps.append(Step(plan, ins, tuple(own), first))
    return Steps(tuple(steps), tuple([numbers[v] for v in outputs]))


def _spec(steps: Sequence[Step], number: int) -> Any:
    """The spec of an array that an earlier step makes."""
    step = next(s for s in reversed(steps) if s.first <= number)
    return step.plan.out_specs[number - step.first]


def _by_rule(
    stands_for: Front, inputs: Sequence[NDArray], attrs: dict[str, Any], device: Context
) -> list[NDArray]:
    with device:  # for what the rule makes of nothing
        made = stands_for.rule(hooks.get("functions of arrays"), *inputs, **attrs)
    return list(made) if isinstance(made, (list, tuple)) else [made]


def _result(made: Sequence[NDArray], out: Any) -> Any:
    if out is None:
        return made[0] if len(made) == 1 else list(made)
    for source, target in zip(made, out if isinstance(out, (list, tuple)) else [out], strict=True):
        copy_into(source, target)
    return out
