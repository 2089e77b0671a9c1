"""Kernels of operators that have none of their own: the loops of their references, compiled when
plait was built. The last entries of the table."""

from __future__ import annotations

from math import prod
from typing import Any

from ...engine import ffi, lib
from ..loops.arguments import Buffer, Scalar, Scratch
from ..loops.built import OPERATORS
from ..loops.c import Constant, Function, candidates
from ..loops.nodes import Untraceable
from ..loops.trace import trace
from ..native import Native
from ..record import Attrs, Operator, Types
from ..tables import on_cpu

STEPS_PER_US = 1000.0


@on_cpu(*OPERATORS, derived=True)
def traced_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    """The reference's loops, None where it cannot be traced or a loop was not compiled. Any other
    exception is a fault, of the reference or of ours."""
    if outs and any(prod(t.shape) for t in ins) and not any(prod(t.shape) for t in outs):
        return None  # no loop would run, so none would refuse an index
    try:
        t = trace(op, ins, outs, attrs, for_cpu=True)
        found = [_compiled(ways) for ways in candidates(t)]
    except (Untraceable, RecursionError):
        return None
    made = [x for x in found if x is not None]
    return _native(op, made, t.scratch_bytes) if len(made) == len(found) else None


def compiled_functions(
    op: Operator, ins: Types, outs: Types, attrs: Attrs
) -> list[tuple[Function, int]]:
    """The loops of a call that traced_cpu has a kernel for, and their numbers."""
    t = trace(op, ins, outs, attrs, for_cpu=True)
    return [x for ways in candidates(t) if (x := _compiled(ways)) is not None]


def _compiled(ways: list[Function]) -> tuple[Function, int] | None:
    """The first of these functions that was compiled, and its number."""
    numbers = ((f, lib.plk_traced_find(f.name.encode())) for f in ways)
    return next(((f, number) for f, number in numbers if number >= 0), None)


def _native(op: Operator, made: list[tuple[Function, int]], scratch_bytes: int) -> Native:
    owner: list[Any] = []

    def array(kind: str, values: Any) -> Any:
        owner.append(ffi.new(f"{kind}[]", values or 1))
        return owner[-1]

    def place(x: Buffer | Scratch | Constant) -> dict[str, int]:
        if isinstance(x, Buffer):
            return {"buffer": x.index, "at": x.offset_bytes}
        if isinstance(x, Scratch):
            return {"buffer": lib.PLK_TRACED_SCRATCH, "at": x.offset_bytes}
        owner.append(x.values)
        return {"buffer": lib.PLK_TRACED_CONSTANT, "at": x.values.ctypes.data}

    def number(x: float | Scalar) -> dict[str, Any]:
        if isinstance(x, Scalar):
            return {"scalar": x.index, "value": 0.0}
        return {"scalar": lib.PLK_TRACED_FIXED, "value": x}

    steps = [
        {
            "function": function,
            "n_places": len(f.places),
            "n_numbers": len(f.numbers),
            "places": array("plk_traced_place", [place(x) for x in f.places]),
            "sizes": array("int64_t", list(f.sizes)),
            "numbers": array("plk_traced_number", [number(x) for x in f.numbers]),
            "n": f.n,
            "unit": f.unit,
            "work": f.work,
        }
        for f, function in made
    ]
    fields = {
        "n_steps": len(steps),
        "scratch_bytes": scratch_bytes,
        "steps": array("plk_traced_step", steps),
        "error": array("char", f"{op.name}: an index is out of range".encode()),
    }
    cost_us = 0.5 + sum(f.work for f, _ in made) / STEPS_PER_US
    checks = any(f.checks for f, _ in made)
    return Native("plk_traced_run", ("plk_traced", fields), cost_us, can_fail=checks, owner=owner)
