"""The tables of native kernels, one for each kind of device: which C function, if any, runs an
operator on given types.

An entry is a function that looks at one call and returns a Native, or None when it has no kernel
for it (then the reference on NumPy or CuPy runs). Entries are made with `@native("name", ...)`;
there is no other place that chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .record import Operator, Type
from .traits import OwnKernel


class Native(NamedTuple):
    """One C kernel, ready for a plan."""

    function: str  # name of a pl_kernel in the core module
    # C struct type and its fields; or cuda.launch.Launches
    params: Any = None
    # estimate on one core; below plan.INLINE_US it runs on the caller
    cost_us: float = 1.0
    openmp: bool = False  # enters OpenMP by itself (oneDNN)
    can_fail: bool = False  # on what the arrays hold, or in Python code that it runs
    owner: Any = None  # what `params` points into; released with the plan
    python: bool = False  # takes the GIL


TABLE: dict[str, list[Callable]] = {}  # operator name -> entries, first match wins
TABLES: dict[str, dict[str, list[Callable]]] = {"cpu": TABLE, "gpu": {}}
ANY_LAYOUT: set[Callable] = set()
DERIVED: set[Callable] = set()  # entries that make kernels of bodies or references


def native(*names: str, layouts: bool = False, device: str = "cpu"):
    """Registers an entry under operators' own names (not aliases): (op, ins: list[Type], outs:
    list[Type], attrs: dict) -> Native | None. layouts: it looks at the types' layouts; without,
    it is asked for row-major arrays only. device: "cpu" or "gpu"."""
    table = TABLES[device]

    def add(entry):
        for name in names:
            table.setdefault(name, []).append(entry)
        if layouts:
            ANY_LAYOUT.add(entry)
        return entry

    return add


def choose(
    op: Operator,
    ins: Sequence[Type],
    outs: Sequence[Type],
    attrs: dict,
    device: str = "cpu",
    derived: bool = True,
) -> Native | None:
    """The kernel for this call, or None for the reference. `attrs` holds `train` for train-aware
    operators. derived: kernels made of an operator's body or reference count."""
    own = op.trait(OwnKernel)
    if own is not None:
        return own.choose(ins, outs, attrs)
    plain = not any([t.layout for t in (*ins, *outs)])
    for entry in TABLES[device].get(op.name, ()):
        if not derived and entry in DERIVED:
            continue
        found = entry(op, ins, outs, attrs) if plain or entry in ANY_LAYOUT else None
        if found is not None:
            return found
    return None


# ---- layouts -------------------------------------------------------------------------------------

WANTS: dict[str, Callable] = {}  # operator name -> the layouts in which its kernels like arrays


class Wanted(NamedTuple):
    """Layouts of a call's inputs and outputs. memory: the operator may as well run on what lies in
    the arrays' memory, with the row-major types `memory` (inputs, then outputs)."""

    ins: Sequence[str]
    outs: Sequence[str]
    memory: Sequence[Type] | None = None


def wants(*names: str):
    """Registers what kernels of these operators want: (op, ins: list[Type], outs: list[Type],
    attrs) -> Wanted, or None: row-major arrays. `ins` have the layouts in which they come."""

    def add(entry):
        WANTS.update(dict.fromkeys(names, entry))
        return entry

    return add


def wanted(op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict) -> Wanted | None:
    """The layouts that suit a call best, None: row-major."""
    entry = WANTS.get(op.name)
    return entry(op, ins, outs, attrs) if entry else None
