"""Fused groups: several pointwise operators, with casts, broadcasting and reductions at the end, as
one operator whose static attribute says what it computes.

A Group is plain data, so groups that compute the same are equal, on every machine. Its C loop
depends on dtypes and operators alone, neither on shapes nor on scalars.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, NamedTuple

from .generate import Loop, Name, Statement, statement
from .loops import Form, form
from .record import FLOATS, PARSERS, Param, Type, lookup, operator, sample

COMPUTED_IN = {"float16": "float32", "bfloat16": "float32", "bool": "uint8"}  # else in itself
MAX_INPUTS, MAX_OUTPUTS = 16, 8  # PLK_MAX_ARRAYS, PLK_MAX_RESULTS


class Step(NamedTuple):
    """One operator of a group. Values are numbered: the group's inputs, then the steps."""

    op: str
    attrs: tuple[tuple[str, Any], ...]  # all but the dynamic parameters, `train` too
    inputs: tuple[int, ...]
    dtype: str


class Result(NamedTuple):
    """One output of a group: a value as it is, or reduced by an operator over the group's axes."""

    value: int
    shape: tuple[int, ...]
    reduce: str = ""


class Group(NamedTuple):
    """shape: of the space that all values have. in_shapes: of the inputs as they broadcast to it.
    axes: of the reductions."""

    shape: tuple[int, ...]
    in_shapes: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]
    results: tuple[Result, ...]
    axes: tuple[int, ...] = ()


def _as_group(value) -> Group:
    if isinstance(value, str):
        value = ast.literal_eval(value)
    shape, in_shapes, steps, results, axes = value
    return Group(
        tuple(shape),
        tuple(map(tuple, in_shapes)),
        tuple(Step(*s) for s in steps),
        tuple(Result(*r) for r in results),
        tuple(axes),
    )


PARSERS["group"] = _as_group


def value_dtypes(group: Group, ins: Sequence[Type]) -> list[str]:
    """The dtype of every value."""
    return [*(t.dtype for t in ins), *(s.dtype for s in group.steps)]


def step_form(group: Group, step: Step, dtypes: Sequence[str]) -> Form:
    """A step as an expression, on inputs that have the group's shape."""
    attrs = dict(step.attrs)
    ins = [Type(group.shape, dtypes[i]) for i in step.inputs]
    found = form(lookup(step.op), ins, [Type(group.shape, step.dtype)], attrs, mixed=True)
    if found is None:
        raise ValueError(f"{step.op} of {[t.dtype for t in ins]} is no expression")
    return found


def step_scalars(attrs: dict[str, Any], found: Form) -> tuple[float, ...]:
    """The numbers that a step takes from a group's scalars."""
    if found.constants is not None:
        return tuple(float(v) for v in found.constants)
    return tuple(float(attrs[s]) for s in found.expression.scalars)


def _infer(ins, group, scalars, num_args):
    dtypes = value_dtypes(group, ins)
    return [Type(r.shape, dtypes[r.value]) for r in group.results]


def _ref(xp, *arrays, group, scalars, num_args):
    """Every step by its record's own reference."""
    values = [a.reshape(s) for a, s in zip(arrays, group.in_shapes)]
    at = 0
    for step in group.steps:
        op, attrs = lookup(step.op), dict(step.attrs)
        # in one dtype: 16-bit floats arrive as float32
        found = step_form(group, step, [step.dtype] * (1 + max(step.inputs, default=0)))
        n = len(found.expression.scalars)
        if found.constants is None:
            attrs |= zip(found.expression.scalars, scalars[at : at + n])
        at += n
        extra = {"rng": None} if op.random else {}
        y = op.ref(xp, *(values[i] for i in step.inputs), **attrs, **extra)
        y = xp.asarray(y).astype(COMPUTED_IN.get(step.dtype, step.dtype) if step.dtype != "bool"
                                 else "bool")
        values.append(y if step.inputs else y.reshape(-1)[0])
    outs = []
    for r in group.results:
        v = xp.broadcast_to(values[r.value], group.shape)
        if r.reduce:
            attrs = {"axis": group.axes, "keepdims": True, "exclude": False}
            v = lookup(r.reduce).ref(xp, v, **attrs)
        outs.append(v.reshape(r.shape))
    return tuple(outs)


def source(group: Group, in_dtypes: Sequence[str], name: str) -> str:
    """The group's loop as a C function. Two groups with the same source share it."""
    dtypes = [*in_dtypes, *(s.dtype for s in group.steps)]
    native = lambda d: COMPUTED_IN.get(d, d)
    names = [f"v{i}" for i in range(len(dtypes))]
    statements: list[Statement] = []
    scalars: list[Name] = []
    for k, step in enumerate(group.steps):
        e = step_form(group, step, dtypes).expression
        own = [Name(f"s{len(scalars) + i}", native(step.dtype)) for i in range(len(e.scalars))]
        scalars += own
        made = statement(
            names[len(in_dtypes) + k],
            e,
            native(step.dtype),
            [names[i] for i in step.inputs],
            [s.name for s in own],
        )
        statements.append(made._replace(text=_converted(step, made.text, dtypes)))
    inputs = [Name(n, native(d)) for n, d in zip(names, in_dtypes)]
    return Loop(name, inputs, scalars, statements, [names[r.value] for r in group.results]).text()


def _converted(step: Step, text: str, dtypes: Sequence[str]) -> str:
    """What a cast does beside C's own conversion; and bools are 0 or 1."""
    if step.dtype == "bool":
        return f"({text}) != 0"
    given = {dtypes[i] for i in step.inputs}
    if given and given != {step.dtype}:
        if step.dtype in ("float16", "bfloat16") and len(step.inputs) == 1:
            return f"plk_as_{step.dtype}_f32((float)({text}))"
        if step.dtype in ("uint8", "int8") and given <= set(FLOATS):
            return f"(int64_t)({text})"  # as the kernel of casts: by way of the widest
    return text


_GROUP = Group(
    (3, 4),
    ((3, 4), (4,)),
    (
        Step("_mul_scalar", (), (0,), "float32"),
        Step("broadcast_add", (), (2, 1), "float32"),
        Step("tanh", (), (3,), "float32"),
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
    inplace=tuple((i, j) for j in range(MAX_OUTPUTS) for i in range(MAX_INPUTS)),
    samples=(
        sample((3, 4), (4,), group=_GROUP, scalars=(1.5,)),
        sample(
            (3, 4),
            (4,),
            group=_GROUP._replace(
                results=(Result(4, (12,)), Result(3, (3,), "sum"), Result(4, (3,), "max")),
                axes=(1,),
            ),
            scalars=(-0.5,),
        ),
        sample(
            (3, 4),
            (4,),
            group=_GROUP._replace(results=(Result(4, (1, 4), "mean"),), axes=(0,)),
            scalars=(2.0,),
        ),
    ),
    doc="What a group of pointwise operators computes, in one loop; made by symbol/passes/fuse.py.",
)
