"""update_rules.cuh: the steps of optimizers as structs of update.cu, from the same references as
the CPU's loops (update_loops.py)."""

from __future__ import annotations

import re

from .. import ops  # noqa: F401  (rules are made with the records)
from ..record import REGISTRY
from ..update_loops import RULES, loop_of

RATES = ("lr", "wd", "eta")  # a number for each weight: r[0], r[1], r[2]
SCALE = 3  # r[3]: the gradient's scale, where it is an array
TYPES = {"float32": "float", "float64": "double"}


def struct(name: str) -> str:
    """The struct of a rule."""
    return f"Step_{name.strip('_')}"


def members(name: str) -> list[str]:
    """The numbers of a rule that its struct holds."""
    return [n for n in RULES[name].numbers if n not in RATES and not _is_array(name, n)]


def _is_array(name: str, number: str) -> bool:
    return name in REGISTRY and number not in REGISTRY[name].param_index


def _struct(name: str, dtype: str) -> str:
    rule, kind = RULES[name], TYPES[dtype]
    loop = loop_of(name, "", dtype)
    read = [
        f"r[{RATES.index(n)}]" if n in RATES else f"r[{SCALE}]" if _is_array(name, n) else n
        for n in rule.numbers
    ]
    number = lambda text: re.sub(r"scalars\[(\d+)\]", lambda at: read[int(at[1])], text)
    values = ["w", "g", *(f"s[{i}]" for i in range(rule.states))]
    lines = [f"{kind} {v.name} = {value};" for v, value in zip(loop.inputs, values)]
    lines += [
        f"{kind} {v.name} = ({kind})({number(getattr(v, 'text', v.name))});" for v in loop.scalars
    ]
    lines += [f"{kind} {v.name} = ({kind})({v.text});" for v in loop.statements]
    guard = f"        if (r[{SCALE}] == 0 || r[{SCALE}] - r[{SCALE}] != 0)\n            return;\n"
    body = guard if f"r[{SCALE}]" in read else ""  # the gradient overflowed: no update
    body += "".join(f"        const {line}\n" for line in lines)
    body += "".join(f"        {t} = {r};\n" for t, r in zip(("w", *values[2:]), loop.results))
    held = "".join(f"    double {n};\n" for n in members(name))
    return (
        f"template<> struct {struct(name)}<{kind}> {{\n    enum {{ STATES = {rule.states} }};\n"
        f"{held}    DEVICE void step(const double *r, {kind} &w, {kind} g, {kind} *s) const\n"
        f"    {{\n{body}    }}\n}};\n"
    )


def update_rules_cuda() -> str:
    """update_rules.cuh. r: rates of the weight; s: its states."""
    made = "".join(
        f"template<class A> struct {struct(name)};\n" + "".join(_struct(name, d) for d in TYPES)
        for name in sorted(RULES)
    )
    head = "/* Written by kernels/cuda/update_source.py. */\n#pragma once\n"
    return f'{head}#include "math.cuh"\n{made}'
