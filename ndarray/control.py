"""Loops and branches as operators: their bodies are graphs, compiled once to programs that one kernel
runs, iteration by iteration, on slices of the arrays. Their gradients are loops and branches too.

    loop:    inputs (data, states, the rest) -> stacked outputs, final states | hidden outputs
    branch:  inputs                          -> outputs                      | hidden outputs

Hidden outputs are what the gradient reads: results of every iteration, the number of iterations,
the way that was gone. A program in which nobody reads them does not compute them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ..engine import cpu, ffi, lib
from ..engine.error import OperatorError, ShapeError
from ..kernels.native import Native
from ..kernels.plan import mutated_inputs
from ..kernels.record import Operator, Param, Type, dtype_name
from ..kernels.spec import ITEM_BYTES
from ..symbol.graph import Builder, Value, topological, variable
from ..symbol.inference import Inference, typed_graph
from ..symbol.passes.gradient import FLOATING, gradient
from ..symbol.passes.recompute import replayed
from ..symbol.program import Program, lower

COUNT = Type((1,), "int64")
WHOLE, SLICE, STATE, CONSTANT = (
    lib.PL_PART_WHOLE,
    lib.PL_PART_SLICE,
    lib.PL_PART_STATE,
    lib.PL_PART_CONSTANT,
)


class Part:
    """A graph inside an operator. variables: its inputs; at: which inputs of the operator they
    are."""

    def __init__(self, outputs: Sequence[Value], variables: Sequence[Value], at: Sequence[int]):
        self.outputs, self.variables, self.at = list(outputs), list(variables), list(at)

    def typed(self, ins: Sequence[Type], train: bool) -> Part:
        """The part with types. ins: of the operator's inputs, as the part sees them."""
        types = {v.node: ins[i]._replace(layout="") for v, i in zip(self.variables, self.at)}
        values = typed_graph([*self.outputs, *self.variables], types, train)
        n = len(self.outputs)
        return Part(values[:n], values[n:], self.at)

    def fill(self, ins: list[Type | None]) -> list[Type | None]:
        """Learns unknown types of inputs, in place; returns the types of the outputs."""
        known = {v.node: t for v, i in zip(self.variables, self.at) if (t := ins[i]) is not None}
        found = Inference(
            [*self.outputs, *self.variables],
            {n: t.shape for n, t in known.items()},
            {n: t.dtype for n, t in known.items()},
        )
        for v, i in zip(self.variables, self.at):
            if ins[i] is None:
                ins[i] = found.type(v)
        return [found.type(v) for v in self.outputs]

    def is_random(self, train: bool) -> bool:
        """Does a run draw random numbers?"""
        return any(
            n.op.is_random(dict(n.attrs, train=train) if n.op.train_aware else n.attrs)
            for n in topological(self.outputs)
            if n.op is not None
        )

    def mutated(self, train: bool) -> set[int]:
        """Which inputs of the operator it writes."""
        at = {v.node: i for v, i in zip(self.variables, self.at)}
        written = set()
        for n in topological(self.outputs):
            if n.op is not None and n.op.mutates:
                attrs = dict(n.attrs, train=train) if n.op.train_aware else n.attrs
                for i in mutated_inputs(n.op, attrs, len(n.inputs)):
                    if n.inputs[i].node in at:
                        written.add(at[n.inputs[i].node])
        return written


class Backward(NamedTuple):
    """The gradient of a part. grads: of its variables, None where there is none. reads: values of
    the forward graph by the variable that stands for them; dys: variables of head gradients, by
    number of output."""

    grads: list[Value | None]
    reads: dict[Value, Value]
    dys: dict[int, Value]


def backward_of(part: Part) -> Backward:
    """The gradient of a typed part; nothing of the forward graph is computed again."""
    forward = set(topological(part.outputs)) | {v.node for v in part.variables}
    heads = [(i, v) for i, v in enumerate(part.outputs) if v.dtype in FLOATING]
    dys = {i: variable(f"dy{i}", v.type) for i, v in heads}
    wrt = [v for v in part.variables if v.dtype in FLOATING]
    found = gradient([v for _, v in heads], [dys[i] for i, _ in heads], wrt)
    known = {Value(n, i) for n in forward for i in range(len(n.types))} | set(dys.values())
    outputs, used = replayed([g for g in found if g is not None], known, set())
    given = iter(outputs)
    by_variable = {v: None if g is None else next(given) for v, g in zip(wrt, found)}
    own = set(dys.values())
    reads = {v: x for v, x in used.items() if v not in own}
    return Backward([by_variable.get(v) for v in part.variables], reads, dys)


def _zeros(t: Type) -> Value:
    return Builder()._zeros(shape=t.shape, dtype=t.dtype)


def _zeros_like(v: Value) -> Value:
    return _zeros(v.type)


def _all(F, dys, ys):
    """Gradients of all outputs: zeros where there is none."""
    return [
        F._zeros(shape=y.shape, dtype=dtype_name(y.dtype)) if d is None else d
        for d, y in zip(dys, ys)
    ]


def _type_of(array) -> Type:
    return Type(tuple(array.shape), dtype_name(array.dtype))


def _bytes(t: Type) -> int:
    return prod(t.shape) * ITEM_BYTES[t.dtype]


def _part(program: Program, sources: Sequence[tuple[int, int, int]], keep: list) -> dict:
    """A pl_part. sources: (kind, number, bytes of a slice) of the variables; keep: gets what it
    points to."""
    constants = [lib.pl_array_data(a._handle) for a in program.constants]
    for a in program.constants:
        a.wait_to_read()
    rows = [*sources, *((CONSTANT, i, 0) for i in range(len(constants)))]
    columns = list(zip(*rows)) or [(), (), ()]
    arrays = [
        ffi.new("int32_t[]", columns[0]),
        ffi.new("int32_t[]", columns[1]),
        ffi.new("int64_t[]", columns[2]),
        ffi.new("char *[]", [ffi.cast("char *", c) for c in constants]),
    ]
    keep += [*arrays, program]
    fields = ("kinds", "at", "slice_bytes", "constants")
    return {
        "program": program.handle,
        "n_in": len(rows),
        "n_out": program.n_out,
        **dict(zip(fields, arrays)),
    }


def _ints(values: Sequence[int], keep: list, kind: str = "int32_t[]"):
    keep.append(ffi.new(kind, list(values)))
    return keep[-1]


class _Control:
    """What loops and branches share: a record for each way of running them.

    graphs: the parts as files have them, params: text parameters; for the user's operators only.
    """

    def __init__(self, name: str, n_in: int, n_out: int, params: Sequence[str], graphs: Sequence):
        self.name, self.n_in, self.n_out = name, n_in, n_out
        self.params, self.graphs = tuple(params), list(graphs)
        self.operator = functools.cache(self._operator)

    def _operator(self, keeps: bool | None = None, tier: int = 0, n_all: int = 0) -> Operator:
        """The record. keeps: does it compute what the gradient reads? None: in training. n_all:
        how many outputs are visible, where not n_out."""

        def keeping(train):
            return train if keeps is None else keeps

        def infer(ins, train=False, **_):
            return self.infer(ins, train, keeping(train))

        def native(ins, outs, attrs):
            train = attrs.get("train", False)
            return self.native(ins, train, keeping(train), tier)

        def mutates(n, train=False, **_):
            return sorted(set().union(*(p.mutated(train) for p in self.parts)))

        any_written = any(p.mutated(True) for p in self.parts)
        op = Operator(
            name=self.name,
            infer=infer,
            ref=_no_reference,
            native=native,
            grad=self.grad,
            fill=self.fill,
            inputs=tuple(f"arg{i}" for i in range(self.n_in)),
            params=tuple(Param(p, "str", "") for p in self.params),
            n_outputs=n_all or self.n_out,
            mutates=mutates if any_written else (),
            random=lambda train=False, **_: any(p.is_random(train) for p in self.parts),
            train_aware=True,
            lowered=lambda read, tier: self.operator(read or n_all > 0, tier, n_all),
            doc="Control flow whose bodies are graphs.",
        )
        op.plans["graphs"] = self.graphs
        return op


def _no_reference(*_, **__):
    raise OperatorError("control flow", "has no reference: its kernel runs programs")


# ---- loops ---------------------------------------------------------------------------------------


class _TypedLoop(NamedTuple):
    body: Part
    test: Part | None
    length: int
    hidden: list[Value]  # of the body, to be stacked
    back: Backward | None


class Loop(_Control):
    """`for` or `while`: the body's first n_stacked outputs are stacked, the others are the next
    states.

    data: numbers of the inputs of which an iteration reads a slice. states: numbers of the inputs
    that are the first states. length: how many iterations at most; None: as long as the data are.
    test: a part, the loop goes on while its output is true. count_at: the input that tells the
    number of iterations. reverse: the last slice first.
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
        self._types: dict[tuple, _TypedLoop] = {}
        self._backward: dict[tuple, tuple] = {}

    def _seen(self, ins: Sequence[Type | None]) -> list[Type | None]:
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
        found = self._types.get(key)
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

    def fill(self, ins: Sequence[Type | None], **_) -> list[Type | None]:
        types = list(ins)
        for _ in range(2):
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
        typed = self.typed(ins, train, keeps)
        body, n, n_states = typed.body, self.n_stacked, len(self.states)
        program = lower(
            [*body.outputs, *typed.hidden], body.variables, cpu(), self.name + ".body", tier=tier
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
            "states_at": _ints(self.states, keep),
            "stacked_at": _ints(stacked, keep),
            "next_at": _ints(range(n, n + n_states), keep),
            "result_at": _ints(stacked, keep),
            "final_at": _ints(range(n, n + n_states), keep),
            "state_bytes": _ints([_bytes(ins[i]) for i in self.states], keep, "int64_t[]"),
            "out_bytes": _ints([specs[k].nbytes for k in stacked], keep, "int64_t[]"),
        }
        programs = [program]
        if typed.test is not None:
            test = lower(typed.test.outputs, typed.test.variables, cpu(), self.name + ".test")
            programs.append(test)
            flag = test.out_specs[0]
            fields |= {
                "test": self._sources(test, typed.test, ins, keep),
                "flag_bytes": flag.nbytes,
                "flag_floating": flag.dtype in FLOATING,
            }
        return _native("pl_kernel_loop", "pl_loop", fields, programs, keep, typed.length)

    def _sources(self, program: Program, part: Part, ins: Sequence[Type], keep: list) -> dict:
        rows = []
        for i in part.at:
            if i in self.states:
                rows.append((STATE, self.states.index(i), 0))
            elif i in self.data:
                rows.append((SLICE, i, _bytes(ins[i]) // max(1, ins[i].shape[0])))
            else:
                rows.append((WHOLE, i, 0))
        return _part(program, rows, keep)

    # ---- gradient --------------------------------------------------------------------------------

    def grad(self, F, dys, xs, ys, train=False, **_):
        types = tuple(_type_of(x) for x in xs)
        typed = self.typed(types, train, True)
        if any(d is not None for d in dys[self.n_out :]):  # a gradient's gradient
            n, m, hidden = self.n_stacked, self.n_out, typed.hidden
            body = typed.body
            outputs = [*body.outputs[:n], *hidden, *body.outputs[n:]]
            shown = self._with(Part(outputs, body.variables, body.at), typed.test)
            order = [*range(n), *range(m, m + len(hidden)), *range(n, m)]
            return shown.grad(F, [dys[i] for i in order], xs, [ys[i] for i in order], train)
        dys = _all(F, dys, ys)
        if len(ys) == self.n_out:  # what is needed was not kept
            n_all = self.n_out + len(typed.hidden) + (self.test is not None)
            made = F.apply(self.operator(True, 0, n_all), list(xs), {})
            ys = made if isinstance(made, (list, tuple)) else [made]
        found = self._backward.get((types, train))
        if found is None:
            found = self._backward[types, train] = self._gradient_loop(types, typed)
        loop, sources, targets, late = found
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
        for i, (name, attrs, operands) in late.items():
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
        """(the loop that computes the gradients, where its inputs come from, which output is the
        gradient of an input, and what is computed of all iterations at once: see `late_sum`)."""
        body, back, n = typed.body, typed.back, self.n_stacked
        places = {v: k for k, v in enumerate(body.outputs[:n])}
        places |= {v: self.n_out + k for k, v in enumerate(typed.hidden) if v not in places}
        at = dict(zip(body.variables, body.at))
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
        # slices that lie in memory already; with a count, rows of dy that do not count are not 0
        counted = self.test is not None or self.count_at is not None
        lies = {} if counted else {x: n for x, n in zip(variables, numbers) if n in data}
        late: dict[int, tuple] = {}
        for i, g in grad_of.items():
            found = None if i in self.data or i in self.states else late_sum(g)
            if found is not None:
                operands = []
                for v in found[2]:
                    if v not in lies and v not in outputs:
                        outputs.append(v)
                    operands.append((True, lies[v]) if v in lies else (False, outputs.index(v)))
                late[i] = (*found[:2], operands)
        states: list[int] = []
        for s, i in enumerate(self.states):
            dy = back.dys.get(n + s)
            if dy is not None:
                states.append(add("dy", n + s, False, dy))
                targets[i] = len(outputs)
                outputs.append(grad_of[i] if i in grad_of else _zeros(ins[i]))
        for i, g in grad_of.items():
            if i in self.data or i in self.states or i in late:
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
        return loop, sources, targets, late


def late_sum(g: Value) -> tuple[str, dict, list[Value]] | None:
    """The sum of g over all iterations as one operator on the rows of all of them: (name,
    attributes, operands, of which slices are stacked); None where it is no product or sum of
    rows."""
    op, attrs = g.node.op, g.node.attrs
    operands = [_before_view(v) for v in g.node.inputs]
    if op is None or any(len(v.shape) < 2 for v in operands):
        return None
    flat = all(len(v.shape) == 2 for v in g.node.inputs)
    same = all(v.shape[-1] == x.shape[-1] for v, x in zip(operands, g.node.inputs))
    if not flat or not same:
        return None
    if op.name == "dot" and attrs["transpose_a"] and not attrs["transpose_b"]:
        return "dot", {"transpose_a": True}, operands
    if op.name == "sum" and attrs["axis"] == (0,) and not (attrs["keepdims"] or attrs["exclude"]):
        return "sum", {"axis": 0}, operands
    return None


def _before_view(v: Value) -> Value:
    """The value whose memory v shows under another shape."""
    while v.node.op is not None and v.node.op.view:
        v = v.node.inputs[0]
    return v


def _native(function: str, struct: str, fields: dict, programs, keep: list, times: int) -> Native:
    plans = [p for program in programs for p in program.plans]
    return Native(
        function,
        (struct, fields),
        cost_us=0.3 + times * sum(p.cost_us for p in programs),
        openmp=any(p.openmp for p in plans),
        owner=(programs, keep),
        can_fail=any(p.can_fail for p in plans),
    )


# ---- branches ------------------------------------------------------------------------------------


class _TypedBranch(NamedTuple):
    test: Part
    ways: tuple[Part, Part]
    hidden: tuple[list[Value], list[Value]]
    back: tuple[Backward, Backward] | None


class Branch(_Control):
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
        self._types: dict[tuple, _TypedBranch] = {}
        self._backward: dict[tuple, tuple] = {}

    def typed(self, ins: Sequence[Type], train: bool, keeps: bool) -> _TypedBranch:
        """The branch for inputs of these types."""
        key = (tuple(ins), train, keeps)
        found = self._types.get(key)
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
            back, hidden = None, ([], [])
            if keeps:
                back = (backward_of(one), backward_of(two))
                hidden = tuple(
                    [v for v in b.reads if v.node.op is not None and v not in w.outputs]
                    for w, b in zip((one, two), back)
                )
            found = self._types[key] = _TypedBranch(test, (one, two), hidden, back)
        return found

    def infer(self, ins: Sequence[Type], train: bool, keeps: bool) -> list[Type]:
        typed = self.typed(ins, train, keeps)
        outs = [Type(*v.type[:2]) for v in typed.ways[0].outputs]
        if keeps:
            outs += [COUNT, *(Type(*v.type[:2]) for part in typed.hidden for v in part)]
        return outs

    def fill(self, ins: Sequence[Type | None], **_) -> list[Type | None]:
        types = list(ins)
        for _ in range(2):
            for part in self.parts:
                part.fill(types)
        return types

    def native(self, ins: Sequence[Type], train: bool, keeps: bool, tier: int) -> Native:
        typed = self.typed(ins, train, keeps)
        keep: list = []
        test = lower(typed.test.outputs, typed.test.variables, cpu(), self.name + ".test")
        ways = [
            lower([*w.outputs, *hidden], w.variables, cpu(), self.name + ".branch", tier=tier)
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
            "flag_floating": flag.dtype in FLOATING,
        }
        return _native("pl_kernel_branch", "pl_branch", fields, [test, *ways], keep, 1)

    def grad(self, F, dys, xs, ys, train=False, **_):
        types = tuple(_type_of(x) for x in xs)
        typed = self.typed(types, train, True)
        if any(d is not None for d in dys[self.n_out :]):
            one, two = typed.hidden
            pairs = [([*one, *map(_zeros_like, two)], 0), ([*map(_zeros_like, one), *two], 1)]
            ways = [
                Part([*typed.ways[i].outputs, *more], typed.ways[i].variables, typed.ways[i].at)
                for more, i in pairs
            ]
            shown = Branch(self.name, self.n_in, typed.test, ways)
            order = [*range(self.n_out), *range(self.n_out + 1, len(ys))]
            return shown.grad(F, [dys[i] for i in order], xs, [ys[i] for i in order], train)
        dys = _all(F, dys, ys)
        if len(ys) == self.n_out:
            n_all = self.n_out + 1 + sum(map(len, typed.hidden))
            made = F.apply(self.operator(True, 0, n_all), list(xs), {})
            ys = made if isinstance(made, (list, tuple)) else [made]
        found = self._backward.get((types, train))
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
            Part([g[i] if i in g else _zeros(types[i]) for i in targets], *part)
            for g, part in zip(by_input, parts)
        ]
        test = Part([flag], [flag], [0])
        return Branch("_backward" + self.name, len(sources), test, ways), sources, targets


def _whole(program: Program, part: Part, keep: list) -> dict:
    return _part(program, [(WHOLE, i, 0) for i in part.at], keep)
