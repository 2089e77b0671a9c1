"""Loops as operators: foreach, while_loop, and the loops that are their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, TypeVar

from ..engine import current_context, lib
from ..engine.error import ShapeError
from ..engine.recent import Recent
from ..graph.graph import Builder, Value, variable
from ..graph.program import Program, lower
from ..kernels.native import Native
from ..kernels.record import FLOATS, MAX_KEPT, Type
from ..kernels.traits import Matmul, Reduction, SameMemory
from .control import (
    COUNT,
    Backward,
    Control,
    Part,
    all_grads,
    backward_of,
    ints,
    native_of,
    nbytes,
    part_fields,
    type_of,
    zeros_of,
)

WHOLE, SLICE, STATE = lib.PL_PART_WHOLE, lib.PL_PART_SLICE, lib.PL_PART_STATE


T = TypeVar("T", Type, "Type | None")


class _TypedLoop(NamedTuple):
    body: Part
    test: Part | None
    length: int
    hidden: list[Value]  # of the body, to be stacked
    back: Backward | None


class Loop(Control):
    """`for` or `while`: the body's first n_stacked outputs are stacked, the others are the next
    states.

    data: indices of the inputs of which an iteration reads a slice. states: indices of the inputs
        that are the initial states. length: the maximum number of iterations; None: the length of
        the data. test: a part; the loop continues while its output is true. count_at: the input
        that holds the number of iterations. reverse: the last slice first.
    """

    def __init__(
        self,
        name: str,
        n_in: int,
        body: Part,
        data: Sequence[int],
        states: Sequence[int],
        *,
        length: int | None = None,
        test: Part | None = None,
        count_at: int | None = None,
        reverse: bool = False,
        params: Sequence[str] = (),
        graphs: Sequence = (),
    ):
        super().__init__(name, n_in, len(body.outputs), params, graphs)
        self.body, self.test, self.reverse = body, test, reverse
        self.parts = [body] if test is None else [test, body]
        self.data, self.states, self.length = list(data), list(states), length
        self.count_at = count_at
        self.n_stacked = len(body.outputs) - len(self.states)
        self._types = Recent(MAX_KEPT)
        self._backward = Recent(MAX_KEPT)

    def _seen(self, ins: Sequence[T]) -> list[T]:
        """Types as the body sees them."""
        seen = list(ins)
        for i in self.data:
            t = ins[i]
            if t is not None and not t.shape:
                raise ShapeError(self.name, "data must have at least one axis, got a 0-d array")
            seen[i] = t and Type(t.shape[1:], t.dtype)
        return seen

    def _iterations(self, ins: Sequence[Type]) -> int:
        if self.length is not None:
            return self.length
        lengths = [ins[i].shape[0] for i in self.data]
        if not lengths or any(n != lengths[0] for n in lengths):
            raise ShapeError(
                self.name, f"all data must have the same size on axis 0, got {lengths or 'none'}"
            )
        return lengths[0]

    def typed(self, ins: Sequence[Type], train: bool, keeps: bool) -> _TypedLoop:
        """The loop for inputs of these types."""
        key = (tuple(ins), train, keeps)
        found = self._types[key]
        if found is None:
            length, seen = self._iterations(ins), self._seen(ins)
            body = self.body.typed(seen, train)
            for i, v in zip(self.states, body.outputs[self.n_stacked :]):
                if v.type[:2] != ins[i][:2]:
                    raise ShapeError(
                        self.name,
                        f"a state must keep its shape and dtype, got {ins[i].dtype} {ins[i].shape}"
                        f" before and {v.dtype} {v.shape} after an iteration",
                    )
            test = self.test and self.test.typed(seen, train)
            if test is not None and prod(test.outputs[0].shape) != 1:
                raise ShapeError(
                    self.name,
                    f"the condition must be one number, got shape {test.outputs[0].shape}",
                )
            back = backward_of(body) if keeps else None
            hidden = self._hidden(body, back) if back else []
            found = self._types[key] = _TypedLoop(body, test, length, hidden, back)
        return found

    def _hidden(self, body: Part, back: Backward) -> list[Value]:
        stacked = set(body.outputs[: self.n_stacked])
        at = dict(zip(body.variables, body.at))
        return [
            v
            for v in back.reads
            if v not in stacked and (v.node.op is not None or at[v] in self.states)
        ]

    def infer(self, ins: Sequence[Type], train: bool, keeps: bool) -> list[Type]:
        typed = self.typed(ins, train, keeps)

        def stack(values):
            return [Type((typed.length, *v.shape), v.dtype) for v in values]

        outs = stack(typed.body.outputs[: self.n_stacked])
        outs += [Type(*ins[i][:2]) for i in self.states]
        outs += stack(typed.hidden)
        return [*outs, COUNT] if keeps and self.test is not None else outs

    def fill(self, ins: Sequence[Type | None], **_: Any) -> list[Type | None]:
        types = list(ins)
        for _turn in range(2):
            seen = self._seen(types)
            outs = self.body.fill(seen)
            if self.test is not None:
                self.test.fill(seen)
            for i, t in enumerate(seen):
                if types[i] is None and i not in self.data:
                    types[i] = t
            for i, t in zip(self.states, outs[self.n_stacked :]):
                if types[i] is None:
                    types[i] = t
        return types

    def native(self, ins: Sequence[Type], train: bool, keeps: bool, tier: int) -> Native:
        typed, device = self.typed(ins, train, keeps), current_context()
        body, n, n_states = typed.body, self.n_stacked, len(self.states)
        program = lower(
            [*body.outputs, *typed.hidden], body.variables, device, self.name + ".body", tier=tier
        )
        keep: list = []
        stacked = [*range(n), *range(self.n_out, self.n_out + len(typed.hidden))]
        specs = program.out_specs
        fields = {
            "body": self._sources(program, body, ins, keep),
            "length": typed.length,
            "n_in": self.n_in,
            "n_stacked": len(stacked),
            "n_states": n_states,
            "reverse": self.reverse,
            "count_at": -1 if self.count_at is None else self.count_at,
            "count_out": len(specs) if keeps and self.test is not None else -1,
            "random": any(p.is_random(train) for p in self.parts),
            "states_at": ints(self.states, keep),
            "stacked_at": ints(stacked, keep),
            "next_at": ints(range(n, n + n_states), keep),
            "result_at": ints(stacked, keep),
            "final_at": ints(range(n, n + n_states), keep),
            "state_bytes": ints([nbytes(ins[i]) for i in self.states], keep, "int64_t[]"),
            "out_bytes": ints([specs[k].nbytes for k in stacked], keep, "int64_t[]"),
        }
        programs = [program]
        if typed.test is not None:
            test = lower(typed.test.outputs, typed.test.variables, device, self.name + ".test")
            programs.append(test)
            flag = test.out_specs[0]
            fields |= {
                "test": self._sources(test, typed.test, ins, keep),
                "flag_bytes": flag.nbytes,
                "flag_floating": flag.dtype in FLOATS,
            }
        return native_of("pl_kernel_loop", "pl_loop", fields, programs, keep, typed.length)

    def _sources(self, program: Program, part: Part, ins: Sequence[Type], keep: list) -> dict:
        rows = []
        for i in part.at:
            if i in self.states:
                rows.append((STATE, self.states.index(i), 0))
            elif i in self.data:
                rows.append((SLICE, i, nbytes(ins[i]) // max(1, ins[i].shape[0])))
            else:
                rows.append((WHOLE, i, 0))
        return part_fields(program, rows, keep)

    # ---- gradient --------------------------------------------------------------------------------

    def grad(self, F: Any, dys: Any, xs: Any, ys: Any, train: bool = False, **_: Any) -> list:
        types = tuple(type_of(x) for x in xs)
        typed = self.typed(types, train, True)
        if any(d is not None for d in dys[self.n_out :]):  # a gradient's gradient
            n, m, hidden = self.n_stacked, self.n_out, typed.hidden
            body = typed.body
            outputs = [*body.outputs[:n], *hidden, *body.outputs[n:]]
            shown = self._with(Part(outputs, body.variables, body.at), typed.test)
            order = [*range(n), *range(m, m + len(hidden)), *range(n, m)]
            return shown.grad(F, [dys[i] for i in order], xs, [ys[i] for i in order], train)
        dys = all_grads(F, dys, ys)
        if len(ys) == self.n_out:  # a required value was not stored
            n_all = self.n_out + len(typed.hidden) + (self.test is not None)
            made = F.apply(self.operator(True, 0, n_all), list(xs), {})
            ys = made if isinstance(made, (list, tuple)) else [made]
        found = self._backward[types, train]
        if found is None:
            found = self._backward[types, train] = self._gradient_loop(types, typed)
        loop, sources, targets, pending = found
        arrays = {"dy": dys, "x": xs, "y": ys}
        inputs = [
            F._zeros(shape=at.shape, dtype=at.dtype) if kind == "zeros" else arrays[kind][at]
            for kind, at in sources
        ]
        grads: list = [None] * len(xs)
        if loop.n_out:
            results = F.apply(loop.operator(), inputs, {})
            results = results if isinstance(results, (list, tuple)) else [results]
        for i, at in targets.items():
            grads[i] = results[at]
        for i, (name, attrs, operands) in pending.items():
            values = [(inputs if given else results)[at] for given, at in operands]
            rows = [F.reshape_to(v, shape=(-1, v.shape[-1])) for v in values]
            grads[i] = getattr(F, name)(*rows, **attrs)
        return grads

    def _with(self, body: Part, test: Part | None) -> Loop:
        """The same loop around another body."""
        return Loop(
            self.name,
            self.n_in,
            body,
            self.data,
            self.states,
            length=self.length,
            test=test,
            count_at=self.count_at,
            reverse=self.reverse,
        )

    def _gradient_loop(self, ins: Sequence[Type], typed: _TypedLoop):
        """(the loop that computes the gradients, the sources of its inputs, which output is the
        gradient of an input, and what is computed for all iterations at once: see
        `sum_over_iterations`)."""
        body, back, n = typed.body, typed.back, self.n_stacked
        places = {v: k for k, v in enumerate(body.outputs[:n])}
        places |= {v: self.n_out + k for k, v in enumerate(typed.hidden) if v not in places}
        at = dict(zip(body.variables, body.at))
        assert back is not None
        sources: list[tuple] = []  # (dy, x, y or zeros; number or type)
        data: list[int] = []
        variables: list[Value] = []
        numbers: list[int] = []

        def add(kind: str, where, stacked: bool, x: Value | None) -> int:
            sources.append((kind, where))
            number = len(sources) - 1
            if stacked:
                data.append(number)
            if x is not None:
                variables.append(x)
                numbers.append(number)
            return number

        for k in range(n):
            if k in back.dys:
                add("dy", k, True, back.dys[k])
        for v, x in back.reads.items():
            if v in places:
                add("y", places[v], True, x)
            else:
                add("x", at[v], at[v] in self.data, x)
        F = Builder()
        grad_of = {i: g for i, g in zip(body.at, back.grads) if g is not None}
        outputs = [grad_of[i] for i in self.data if i in grad_of]
        targets = {i: k for k, i in enumerate(i for i in self.data if i in grad_of)}
        # slices that are already in memory; with a count, unused rows of dy are not 0
        counted = self.test is not None or self.count_at is not None
        lies = {} if counted else {x: n for x, n in zip(variables, numbers) if n in data}
        pending: dict[int, tuple] = {}
        for i, g in grad_of.items():
            found = None if i in self.data or i in self.states else sum_over_iterations(g)
            if found is not None:
                operands = []
                for v in found[2]:
                    if v not in lies and v not in outputs:
                        outputs.append(v)
                    operands.append((True, lies[v]) if v in lies else (False, outputs.index(v)))
                pending[i] = (*found[:2], operands)
        states: list[int] = []
        for s, i in enumerate(self.states):
            dy = back.dys.get(n + s)
            if dy is not None:
                states.append(add("dy", n + s, False, dy))
                targets[i] = len(outputs)
                outputs.append(grad_of[i] if i in grad_of else zeros_of(ins[i]))
        for i, g in grad_of.items():
            if i in self.data or i in self.states or i in pending:
                continue
            before = variable(f"sum{i}", g.type)
            states.append(add("zeros", g.type, False, before))
            targets[i] = len(outputs)
            outputs.append(F.elemwise_add(before, g))
        count = None
        if self.test is not None:
            count = add("y", self.n_out + len(typed.hidden), False, None)
        elif self.count_at is not None:
            count = add("x", self.count_at, False, None)
        loop = Loop(
            "_backward" + self.name,
            len(sources),
            Part(outputs, variables, numbers),
            data,
            states,
            length=typed.length,
            count_at=count,
            reverse=not self.reverse,
        )
        return loop, sources, targets, pending


def sum_over_iterations(g: Value) -> tuple[str, dict, list[Value]] | None:
    """The sum of g over all iterations as one operator on all rows: (name, attributes, operands,
    whose slices are stacked); None if g is not a product or sum of rows."""
    op, attrs = g.node.op, g.node.attrs
    operands = [_before_view(v) for v in g.node.inputs]
    if op is None or any(len(v.shape) < 2 for v in operands):
        return None
    flat = all(len(v.shape) == 2 for v in g.node.inputs)
    same = all(v.shape[-1] == x.shape[-1] for v, x in zip(operands, g.node.inputs))
    if not flat or not same:
        return None
    matmul, reduction = op.trait(Matmul), op.trait(Reduction)
    if matmul is not None and not matmul.stacked and matmul.transposes(**attrs) == (True, False):
        return "dot", {"transpose_a": True}, operands
    if reduction is not None and reduction.kind == "sum" and attrs["axis"] == (0,):
        return None if attrs["keepdims"] or attrs["exclude"] else ("sum", {"axis": 0}, operands)
    return None


def _before_view(v: Value) -> Value:
    """The value that v is a reshaped view of."""
    while v.node.op is not None and v.node.op.has(SameMemory):
        v = v.node.inputs[0]
    return v
