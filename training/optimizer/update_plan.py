"""UpdatePlan: a multi-tensor update of the same arrays, step after step."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_

from ...engine import location
from ...engine._array import invoke
from ...kernels.plan import Plan, make_plan
from ...kernels.record import lookup
from ...ndarray import NDArray

MULTI_TENSOR = 64  # weights of one operator call
RATES = "lrs", "wds"


def same(a: Sequence, b: Sequence) -> bool:
    """Are they the same objects?"""
    return len(a) == len(b) and all(map(is_, a, b))


class UpdatePlan:
    """The operator calls that update groups of dense arrays (weight, gradient, states ...) of one
    device. They are worked out once: a step with the same arrays gives only rates and numbers.

    name: of the operator; its dynamic parameters are lrs, wds and those in `numbers`. made_for:
    lists of arrays or states, which `fits` compares.
    """

    __slots__ = ("calls", "lasting", "made_for", "name", "order")

    def __init__(
        self,
        name: str,
        groups: Sequence[Sequence[NDArray]],
        numbers: dict[str, float],
        made_for: tuple[Sequence, ...] = (),
    ):
        self.name, self.made_for = name, [list(given) for given in made_for]
        self.calls: list[tuple[Plan, list[NDArray], list[NDArray]]] = []
        op = lookup(name)
        self.order = [p.name for p in op.params if p.dynamic and p.name not in RATES]
        for at in range(0, len(groups), MULTI_TENSOR):
            part = groups[at : at + MULTI_TENSOR]
            rates = dict.fromkeys(RATES, (0.0,) * len(part))
            given = {**numbers, **rates, "num_weights": len(part)}
            attrs = {p.name: given[p.name] for p in op.params}
            inputs = [a for group in part for a in group]
            plan = make_plan(op, attrs, [a._spec for a in inputs], inputs[0]._spec.device)
            self.calls.append((plan, inputs, [group[0] for group in part]))
        # a plan whose kernel is being compiled is asked for again
        self.lasting = all(plan.pending is None for plan, _, _ in self.calls)

    def fits(self, name: str, *given: Sequence) -> bool:
        """Is it the plan of this operator for the same objects?"""
        return (
            self.lasting
            and self.name == name
            and all([same(a, b) for a, b in zip(self.made_for, given)])
        )

    def run(self, lrs: Sequence[float], wds: Sequence[float], numbers: dict[str, float]) -> None:
        """One step: writes the weights and states in place."""
        at, values = 0, [numbers[name] for name in self.order]
        for plan, inputs, weights in self.calls:
            end = at + len(weights)
            scalars = [*lrs[at:end], *wds[at:end], *values]
            where = location.capture() if plan.can_fail else -1
            invoke(plan.handle, plan.in_specs, plan.out_specs, inputs, weights, scalars, where)
            at = end
