"""Branches as operators: cond, and the branches that are its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from ..engine import current_context, lib
from ..engine.error import ShapeError
from ..engine.recent import Recent
from ..graph.graph import Value, variable
from ..graph.program import Program, lower
from ..kernels.native import Native
from ..kernels.record import FLOATS, MAX_KEPT, Type
from .control import (
    COUNT,
    Backward,
    Control,
    Part,
    all_grads,
    backward_of,
    native_of,
    part_fields,
    type_of,
    zeros_like,
    zeros_of,
)


class _TypedBranch(NamedTuple):
    test: Part
    ways: tuple[Part, Part]
    hidden: tuple[list[Value], list[Value]]
    back: tuple[Backward, Backward] | None


def _hidden(way: Part, back: Backward) -> list[Value]:
    """The values of a branch that the gradient reads, besides its inputs and outputs."""
    return [v for v in back.reads if v.node.op is not None and v not in way.outputs]


class Branch(Control):
    """`if test: ways[0] else: ways[1]`, graphs with outputs of equal types."""

    def __init__(
        self,
        name: str,
        n_in: int,
        test: Part,
        ways: Sequence[Part],
        params: Sequence[str] = (),
        graphs: Sequence = (),
    ):
        super().__init__(name, n_in, len(ways[0].outputs), params, graphs)
        self.test, self.ways = test, tuple(ways)
        self.parts = [test, *ways]
        self._types = Recent(MAX_KEPT)
        self._backward = Recent(MAX_KEPT)

    def typed(self, ins: Sequence[Type], train: bool, keeps: bool) -> _TypedBranch:
        """The branch for inputs of these types."""
        key = (tuple(ins), train, keeps)
        found = self._types[key]
        if found is None:
            test = self.test.typed(ins, train)
            if prod(test.outputs[0].shape) != 1:
                raise ShapeError(
                    self.name, f"pred must be one number, got shape {test.outputs[0].shape}"
                )
            one, two = (w.typed(ins, train) for w in self.ways)
            for a, b in zip(one.outputs, two.outputs):
                if a.type[:2] != b.type[:2]:
                    raise ShapeError(
                        self.name,
                        "both branches must give arrays of the same shape and dtype, got "
                        f"{a.dtype} {a.shape} and {b.dtype} {b.shape}",
                    )
            back = (backward_of(one), backward_of(two)) if keeps else None
            hidden = (_hidden(one, back[0]), _hidden(two, back[1])) if back else ([], [])
            found = self._types[key] = _TypedBranch(test, (one, two), hidden, back)
        return found

    def infer(self, ins: Sequence[Type], train: bool, keeps: bool) -> list[Type]:
        typed = self.typed(ins, train, keeps)
        outs = [Type(*v.type[:2]) for v in typed.ways[0].outputs]
        if keeps:
            outs += [COUNT, *(Type(*v.type[:2]) for part in typed.hidden for v in part)]
        return outs

    def fill(self, ins: Sequence[Type | None], **_: Any) -> list[Type | None]:
        types = list(ins)
        for _turn in range(2):
            for part in self.parts:
                part.fill(types)
        return types

    def native(self, ins: Sequence[Type], train: bool, keeps: bool, tier: int) -> Native:
        typed, device = self.typed(ins, train, keeps), current_context()
        keep: list = []
        test = lower(typed.test.outputs, typed.test.variables, device, self.name + ".test")
        ways = [
            lower([*w.outputs, *hidden], w.variables, device, self.name + ".branch", tier=tier)
            for w, hidden in zip(typed.ways, typed.hidden)
        ]
        flag, first = test.out_specs[0], self.n_out + 1
        fields = {
            "test": _whole(test, typed.test, keep),
            "ways": [_whole(p, w, keep) for p, w in zip(ways, typed.ways)],
            "n_in": self.n_in,
            "n_shared": self.n_out,
            "first_own": [first, first + len(typed.hidden[0])],
            "flag_at": self.n_out if keeps else -1,
            "random": any(p.is_random(train) for p in self.parts),
            "flag_bytes": flag.nbytes,
            "flag_floating": flag.dtype in FLOATS,
        }
        return native_of("pl_kernel_branch", "pl_branch", fields, [test, *ways], keep, 1)

    def grad(self, F: Any, dys: Any, xs: Any, ys: Any, train: bool = False, **_: Any) -> list:
        types = tuple(type_of(x) for x in xs)
        typed = self.typed(types, train, True)
        if any(d is not None for d in dys[self.n_out :]):
            one, two = typed.hidden
            pairs = [([*one, *map(zeros_like, two)], 0), ([*map(zeros_like, one), *two], 1)]
            ways = [
                Part([*typed.ways[i].outputs, *more], typed.ways[i].variables, typed.ways[i].at)
                for more, i in pairs
            ]
            shown = Branch(self.name, self.n_in, typed.test, ways)
            order = [*range(self.n_out), *range(self.n_out + 1, len(ys))]
            return shown.grad(F, [dys[i] for i in order], xs, [ys[i] for i in order], train)
        dys = all_grads(F, dys, ys)
        if len(ys) == self.n_out:
            n_all = self.n_out + 1 + sum(map(len, typed.hidden))
            made = F.apply(self.operator(True, 0, n_all), list(xs), {})
            ys = made if isinstance(made, (list, tuple)) else [made]
        found = self._backward[types, train]
        if found is None:
            found = self._backward[types, train] = self._gradient_branch(typed)
        branch, sources, targets = found
        arrays = {"dy": dys, "x": xs, "y": ys}
        grads: list = [None] * len(xs)
        if targets:
            made = F.apply(branch.operator(), [arrays[kind][i] for kind, i in sources], {})
            for i, g in zip(targets, made if isinstance(made, (list, tuple)) else [made]):
                grads[i] = g
        return grads

    def _gradient_branch(self, typed: _TypedBranch):
        """As Loop._gradient_loop."""
        assert typed.back is not None
        sources: list[tuple[str, int]] = [("y", self.n_out)]
        flag = variable("flag", COUNT)
        by_input = []
        firsts = (self.n_out + 1, self.n_out + 1 + len(typed.hidden[0]))
        parts = []
        for way, back, hidden, first in zip(typed.ways, typed.back, typed.hidden, firsts):
            places = {v: first + k for k, v in enumerate(hidden)}
            places |= {v: k for k, v in enumerate(way.outputs) if v.node.op is not None}
            at = dict(zip(way.variables, way.at))
            variables, numbers = [], []
            for k, x in back.dys.items():
                sources.append(("dy", k))
                variables.append(x)
                numbers.append(len(sources) - 1)
            for v, x in back.reads.items():
                sources.append(("y", places[v]) if v in places else ("x", at[v]))
                variables.append(x)
                numbers.append(len(sources) - 1)
            parts.append((variables, numbers))
            by_input.append({i: g for i, g in zip(way.at, back.grads) if g is not None})
        targets = sorted(set(by_input[0]) | set(by_input[1]))
        types = {i: g.type for grads in by_input for i, g in grads.items()}
        ways = [
            Part([g[i] if i in g else zeros_of(types[i]) for i in targets], *part)
            for g, part in zip(by_input, parts)
        ]
        test = Part([flag], [flag], [0])
        return Branch("_backward" + self.name, len(sources), test, ways), sources, targets


def _whole(program: Program, part: Part, keep: list) -> dict:
    return part_fields(program, [(lib.PL_PART_WHOLE, i, 0) for i in part.at], keep)
