"""Kernels of operators that have none of their own: the loops of their references, compiled when
plait was built. The last entries of the table."""

from __future__ import annotations

from typing import Any

from ...engine import ffi, lib
from ..loops.arguments import Buffer, Scalar, Scratch
from ..loops.built import OPERATORS
from ..loops.c import Constant, Function, functions
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
    try:
        t = trace(op, ins, outs, attrs, in_stages=False)
        for flat in (True, False):
            made = functions(t, flat)
            found = [lib.plk_traced_find(f.name.encode()) for f in made]
            if min(found, default=0) >= 0:
                return _native(op, made, found, t.scratch_bytes)
    except (Untraceable, RecursionError):
        pass
    return None


def _native(op: Operator, made: list[Function], found: list[int], scratch_bytes: int) -> Native:
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
        for f, function in zip(made, found)
    ]
    fields = {
        "n_steps": len(steps),
        "scratch_bytes": scratch_bytes,
        "steps": array("plk_traced_step", steps),
        "error": array("char", f"{op.name}: an index is out of range".encode()),
    }
    cost_us = 0.5 + sum(f.work for f in made) / STEPS_PER_US
    checks = any(f.checks for f in made)
    return Native("plk_traced_run", ("plk_traced", fields), cost_us, can_fail=checks, owner=owner)
