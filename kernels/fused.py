"""Fused groups: several pointwise operators, with casts, broadcasting and reductions at the end, as
one operator whose static attribute says what it computes.

A Group is plain data, so groups that compute the same are equal, on every machine. Its C loop
depends on dtypes and operators alone, neither on shapes nor on scalars.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from ..engine.error import ShapeError
from .loops import Form, form
from .pointwise import Expression
from .record import FLOATS, PARSERS, Param, Type, lookup, operator, sample
from .row_reductions import ROW_HEADER, RowSource, is_reduction
from .scalar import OpenScalar, as_float
from .spec import from_bfloat16, round_to_bfloat16
from .statements import Loop, Name, Statement, statement
from .traits import Cast

WIDENED = {"float16": "float32", "bfloat16": "float32"}
COMPUTED_IN = {**WIDENED, "bool": "uint8"}  # else in itself
ROUNDING = 8  # the weight of rounding to 16 bits
MAX_INPUTS, MAX_OUTPUTS = 16, 8  # PLK_MAX_ARRAYS, PLK_MAX_RESULTS


class Step(NamedTuple):
    """One operator of a group. Values are numbered: the group's inputs, then the steps."""

    op: str
    attrs: tuple[tuple[str, Any], ...]  # all but the dynamic parameters, `train` too
    inputs: tuple[int, ...]
    dtype: str = ""  # default: of its last input


class Result(NamedTuple):
    """One output of a group: a value as it is, or reduced by an operator over the group's axes."""

    value: int
    shape: tuple[int, ...]
    reduce: str = ""


class Group(NamedTuple):
    """shape: of the space that all values have. in_shapes: of the inputs as they broadcast to it.
    axes: of the reductions. rows: the steps reduce too, over the last axis; what follows from that
    alone is one number for each row (row_reductions.py)."""

    shape: tuple[int, ...]
    in_shapes: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]
    results: tuple[Result, ...]
    axes: tuple[int, ...] = ()
    rows: bool = False


def _as_group(value) -> Group:
    if isinstance(value, str):
        value = ast.literal_eval(value)
    shape, in_shapes, steps, results, axes, rows = value
    return Group(
        tuple(shape),
        tuple(map(tuple, in_shapes)),
        tuple(Step(*s) for s in steps),
        tuple(Result(*r) for r in results),
        tuple(axes),
        rows,
    )


PARSERS["group"] = _as_group


REDUCED = Form("", Expression("x", 1, (), "float"))  # where a step of a fused row reduction reduces


def value_dtypes(group: Group, ins: Sequence[Type]) -> list[str]:
    """The dtype of every value."""
    dtypes = [t.dtype for t in ins]
    for step in group.steps:
        dtypes.append(step.dtype or dtypes[step.inputs[-1]])
    return dtypes


def step_forms(group: Group, dtypes: Sequence[str]) -> list[Form] | None:
    """The steps as expressions, for values of these dtypes; None where one is none."""
    found = []
    n_in = len(group.in_shapes)
    for k, step in enumerate(group.steps):
        ins = [Type(group.shape, dtypes[i]) for i in step.inputs]
        out = Type(group.shape, dtypes[n_in + k])
        if group.rows and is_reduction(step.op):
            found.append(REDUCED)
            continue
        made = form(lookup(step.op), ins, [out], dict(step.attrs), mixed=True)
        if made is None:
            return None
        found.append(made)
    return found


class Alone(NamedTuple):
    """The one expression of a group that else casts. dtype: it is computed in; read: of its
    operands."""

    form: Form
    dtype: str
    read: tuple[str, ...]


def alone(group: Group, in_dtypes: Sequence[str]) -> Alone | None:
    """What a group computes whose steps are casts of its inputs, an expression of these in
    order, and perhaps a cast of its result: a loop made when plait was built serves it. None: it is
    more, or a cast rounds to 16 bits."""
    n_in, steps = len(in_dtypes), group.steps
    if len(group.results) != 1 or group.results[0].reduce or group.rows:
        return None
    last = n_in + len(steps) - 1
    dtypes = value_dtypes(group, [Type(group.shape, d) for d in in_dtypes])
    forms = step_forms(group, dtypes)
    own = [k for k, step in enumerate(steps) if not lookup(step.op).has(Cast)]
    if forms is None or len(own) != 1 or group.results[0].value != last:
        return None
    (k,) = own
    source = [*range(n_in), *(step.inputs[0] for step in steps[:k])]
    if tuple(source[i] for i in steps[k].inputs) != tuple(range(n_in)):
        return None
    at = n_in + k
    if last > at + 1 or last > at and steps[-1].inputs != (at,):
        return None
    found, dtype = forms[k], dtypes[at]
    rounded = [dtypes[i] for i in steps[k].inputs if i >= n_in]
    if last > at and not found.expression.truth:
        rounded.append(dtype)
    if not WIDENED.keys().isdisjoint(rounded):
        return None
    return Alone(found, dtype, tuple(dtypes[i] for i in steps[k].inputs))


def step_scalars(attrs: dict[str, Any], found: Form) -> tuple[float | OpenScalar, ...]:
    """The numbers that a step takes from a group's scalars."""
    if found.constants is not None:
        return tuple(float(v) for v in found.constants)
    return tuple(as_float(attrs[s]) for s in found.expression.scalars)


def _infer(ins, group, scalars, num_args):
    sizes = [prod(s) for s in group.in_shapes]
    if [prod(t.shape) for t in ins] != sizes:
        raise ShapeError(
            "_fused",
            f"its inputs must be as large as its group says, {group.in_shapes}, got "
            f"{tuple(t.shape for t in ins)}",
        )
    dtypes = value_dtypes(group, ins)
    return [Type(r.shape, dtypes[r.value]) for r in group.results]


def _ref(xp, *arrays, group, scalars, num_args):
    """Every step by its record's own reference."""
    values = [a.reshape(s) for a, s in zip(arrays, group.in_shapes)]
    at = 0
    for step in group.steps:
        op, attrs = lookup(step.op), dict(step.attrs)
        if group.rows and is_reduction(step.op):
            v = xp.broadcast_to(values[step.inputs[0]], group.shape)
            y = op.ref(xp, v, axis=group.axes, keepdims=True, exclude=False)
            values.append(_rounded(y, step.dtype))
            continue
        dtype = step.dtype or values[step.inputs[-1]].dtype.name
        # how many scalars it takes does not depend on dtypes
        types = [Type(group.shape)] * max(len(step.inputs), 1)
        found = form(op, types[: len(step.inputs)], types[:1], attrs)
        assert found is not None
        n = len(found.expression.scalars)
        if found.constants is None:
            attrs |= zip(found.expression.scalars, scalars[at : at + n])
        at += n
        extra = {"rng": None} if op.random else {}
        y = op.ref(xp, *(values[i] for i in step.inputs), **attrs, **extra)
        y = _rounded(xp.asarray(y), dtype)
        values.append(y if step.inputs else y.reshape(-1)[0])
    outs = []
    for r in group.results:
        full = not group.rows or prod(r.shape) == prod(group.shape)
        v = xp.broadcast_to(values[r.value], group.shape if full else (*group.shape[:-1], 1))
        if r.reduce:
            attrs = {"axis": group.axes, "keepdims": True, "exclude": False}
            v = lookup(r.reduce).ref(xp, v, **attrs)
        outs.append(v.reshape(r.shape))
    return tuple(outs)


def _grad(F, dys, xs, ys, group, scalars, num_args):
    """Through the steps, which are computed once more."""
    values, calls = list(xs), []

    def call(name: str, at: Sequence[int], attrs: dict[str, Any], more: dict[str, Any]) -> int:
        ins, op = [values[i] for i in at], lookup(name)
        shown = op.parse({k: v for k, v in attrs.items() if k != "train"} | more)
        absent = next((x for x in ins if getattr(x, "absent", False)), None)
        if absent is None:
            values.append(getattr(F, name)(*ins, **shown))
        else:  # what is made of a value that no gradient reads is not read either
            (t,) = op.infer([Type(tuple(x.shape), x.dtype) for x in ins], **shown)
            values.append(type(absent)(t))
        calls.append((op, at, ins, attrs | shown))
        return len(values) - 1

    def shaped(name: str, at: int, shape: Sequence[int]) -> int:
        same = tuple(values[at].shape) == tuple(shape)
        return at if same else call(name, (at,), {"shape": tuple(shape)}, {})

    def reduced(name: str, at: int) -> int:
        whole = shaped("broadcast_to", at, group.shape)
        attrs = lookup(name).parse({"axis": group.axes, "keepdims": True})
        return call(name, (whole,), attrs, {})

    places = [shaped("reshape_to", i, s) for i, s in enumerate(group.in_shapes)]
    forms = step_forms(group, value_dtypes(group, [Type(tuple(x.shape), x.dtype) for x in xs]))
    assert forms is not None
    left = iter(scalars)
    for step, found in zip(group.steps, forms):
        ins = [places[i] for i in step.inputs]
        if found is REDUCED:
            places.append(reduced(step.op, ins[0]))
        else:
            given = {s: next(left) for s in found.expression.scalars}
            numbers = given if found.constants is None else {}
            places.append(call(step.op, ins, dict(step.attrs), numbers))
    grads: dict[int, Any] = {}

    def give(at: int, g: Any) -> None:
        grads[at] = g if at not in grads else grads[at] + g

    for r, dy in zip(group.results, dys):
        at = reduced(r.reduce, places[r.value]) if r.reduce else places[r.value]
        if not r.reduce and prod(r.shape) == prod(group.shape):
            at = shaped("broadcast_to", at, group.shape)
        give(shaped("reshape_to", at, r.shape), dy)
    for at in reversed(range(len(xs), len(values))):
        op, sources, ins, attrs = calls[at - len(xs)]
        if at in grads and op.grad is not None:
            made = op.differentiate(F, [grads[at]], ins, [values[at]], attrs)
            for i, g in zip(sources, made):
                if g is not None:
                    give(i, g)
    return [grads.get(i) for i in range(len(xs))]


def _rounded(y, dtype: str):
    """What an operator gives in a dtype, as references see it."""
    if dtype == "bfloat16":
        return from_bfloat16(round_to_bfloat16(y))
    return y.astype(dtype).astype(WIDENED.get(dtype, dtype)) if dtype else y


def source(group: Group, in_dtypes: Sequence[str], name: str) -> str:
    """The group's loop as a C function. Two groups with the same source share it. Raises ValueError
    where a step is no expression."""
    return _made(group, in_dtypes, name)[0]


def n_scratch(group: Group, in_dtypes: Sequence[str]) -> int:
    """How many rows of temporaries a fused row reduction needs."""
    return _made(group, in_dtypes, "")[1]


class Lowered(NamedTuple):
    """A group's steps as statements, None where one reduces; the names of all its values, and the
    scalars of which a call gives the numbers."""

    names: list[str]
    statements: list[Statement | None]
    inputs: list[Name]
    scalars: list[Name]

    def loop(self, name: str, group: Group) -> Loop:
        results = [self.names[r.value] for r in group.results]
        made = [s for s in self.statements if s]
        return Loop(name, self.inputs, self.scalars, made, results)


def lowered(group: Group, in_dtypes: Sequence[str]) -> Lowered:
    """Raises ValueError where a step is no expression."""
    dtypes = value_dtypes(group, [Type((), d) for d in in_dtypes])
    forms = step_forms(group, dtypes)
    if forms is None:
        raise ValueError("a step of the group is no expression of its dtypes")
    native = lambda d: str(COMPUTED_IN.get(d, d))
    held = lambda d: str(WIDENED.get(d, d))
    names = [f"v{i}" for i in range(len(dtypes))]
    statements: list[Statement | None] = []
    scalars: list[Name] = []
    n_in = len(in_dtypes)
    for k, (step, found) in enumerate(zip(group.steps, forms)):
        e, dtype = found.expression, dtypes[n_in + k]
        if found is REDUCED:
            statements.append(None)
            continue
        own = [Name(f"s{len(scalars) + i}", native(dtype)) for i in range(len(e.scalars))]
        scalars += own
        read = [names[i] for i in step.inputs]
        made = statement(names[n_in + k], e, native(dtype), read, [s.name for s in own])
        text = converted(made.text, {dtypes[i] for i in step.inputs}, dtype)
        text = rounded(text, dtype)  # as the operator alone gives it, whichever group computes it
        weight = made.weight + ROUNDING * (dtype in WIDENED)
        statements.append(made._replace(dtype=held(dtype), text=text, weight=weight))
    if group.rows and {native(d) for d in dtypes} != {"float32"}:
        raise ValueError("fused row reductions compute in float32")
    inputs = [Name(n, held(d)) for n, d in zip(names, in_dtypes)]
    return Lowered(names, statements, inputs, scalars)


def _made(group: Group, in_dtypes: Sequence[str], name: str) -> tuple[str, int]:
    found = lowered(group, in_dtypes)
    if group.rows:
        if {*in_dtypes, *(s.dtype for s in group.steps)} - {"", "float32"}:
            raise ValueError("on a CPU the arrays of fused row reductions are of float32")
        rows = RowSource(group, found.names, found.statements)
        text = rows.text(name, [s.name for s in found.scalars])
        return f'#include "{ROW_HEADER}"\n{text}', rows.n_scratch
    return found.loop(name, group).text(), 0


def rounded(text: str, dtype: str) -> str:
    """A float32 expression as a 16-bit dtype holds it; others as they are."""
    return f"plk_as_{dtype}_f32((float)({text}))" if dtype in WIDENED else text


def converted(text: str, given: set[str], dtype: str) -> str:
    """An expression with what a cast does beside C's own conversion; and bools are 0 or 1."""
    if dtype == "bool":
        return f"({text}) != 0"
    if len(given) != 1 or given == {dtype}:
        return text
    if dtype in ("uint8", "int8") and given <= set(FLOATS):
        return f"(int64_t)({text})"  # as the kernel of casts: by way of the widest
    return text


_GROUP = Group(
    (3, 4),
    ((3, 4), (4,)),
    (
        Step("_mul_scalar", (), (0,)),
        Step("broadcast_add", (), (2, 1)),
        Step("tanh", (), (3,)),
    ),
    (Result(4, (3, 4)),),
)

operator(
    "_fused",
    inputs=("*data",),
    variadic_key="num_args",
    params=(
        Param("group", "group"),
        Param("scalars", "floats", (), dynamic=True),
        Param("num_args", "int"),
    ),
    n_outputs=lambda group, **_: len(group.results),
    infer=_infer,
    ref=_ref,
    grad=_grad,
    inplace=tuple((i, j) for j in range(MAX_OUTPUTS) for i in range(MAX_INPUTS)),
    samples=(
        sample((3, 4), (4,), group=_GROUP, scalars=(1.5,), num_args=2),
        sample(
            (3, 4),
            (4,),
            group=_GROUP._replace(
                results=(Result(4, (12,)), Result(3, (3,), "sum"), Result(4, (3,), "max")),
                axes=(1,),
            ),
            scalars=(-0.5,),
            num_args=2,
        ),
        sample(
            (3, 4),
            (4,),
            group=_GROUP._replace(results=(Result(4, (1, 4), "mean"),), axes=(0,)),
            scalars=(2.0,),
            num_args=2,
        ),
        sample(
            (3, 4),
            (4,),
            group=_GROUP._replace(
                steps=(
                    Step("broadcast_add", (), (0, 1)),
                    Step("max", (), (2,)),
                    Step("broadcast_sub", (), (2, 3)),
                    Step("exp", (), (4,)),
                    Step("sum", (), (5,)),
                    Step("broadcast_div", (), (5, 6)),
                ),
                results=(Result(7, (12,)), Result(6, (3, 1)), Result(2, (3, 4)), Result(3, (3,))),
                axes=(1,),
                rows=True,
            ),
            num_args=2,
        ),
    ),
    doc=(
        "What a group of pointwise operators, with reductions at its end or over rows, computes in"
        " one loop; made by graph/passes/fuse.py."
    ),
)
