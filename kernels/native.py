"""Tables of native kernels: which C function, if any, runs an operator on given types.

A backend has one Table. An entry is a function that looks at one call and returns a Native, or None
when it has no kernel for it; then the operator's reference runs. Entries are made with
`@TABLE.native("name", ...)`; there is no other place that chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from .record import Attrs, Operator, Type, Types
from .traits import OwnKernel


class Native(NamedTuple):
    """One C kernel, ready for a plan."""

    function: str  # name of a pl_kernel in the core module
    # C struct type and its fields; or what the backend makes them of (cuda.launch.Launches)
    params: Any = None
    # estimate on one core; below plan.INLINE_US it runs on the caller
    cost_us: float = 1.0
    can_fail: bool = False  # on what the arrays hold, or in Python code that it runs
    owner: Any = None  # what `params` points into; released with the plan
    python: bool = False  # takes the GIL


class Wanted(NamedTuple):
    """Memory layouts of a call's inputs and outputs. memory: the operator may as well run on what
    lies in the arrays' memory, with the row-major types `memory` (inputs, then outputs).

    prepared: numbers of inputs whose layout pays if it is made once, not in each call: weights that
    seldom change."""

    ins: Sequence[str]
    outs: Sequence[str]
    memory: Sequence[Type] | None = None
    prepared: Sequence[int] = ()


Entry = Callable[[Operator, Types, Types, Attrs], Native | None]
Wants = Callable[[Operator, Types, Types, Attrs], Wanted | None]
E = TypeVar("E", bound=Entry)
W = TypeVar("W", bound=Wants)


class Table:
    """The kernels of a backend, and the memory layouts that they want.

    entries: operator name -> its entries, the first match wins. layouts: operator name -> what its
    kernels want. widens: calls with 16-bit floats that no kernel takes run as calls with float32.
    """

    def __init__(self, widens: bool = False) -> None:
        self.widens = widens
        self.entries: dict[str, list[Entry]] = {}
        self.layouts: dict[str, Wants] = {}
        self._any_layout: set[Entry] = set()
        self._derived: set[Entry] = set()

    def native(self, *names: str, layouts: bool = False, derived: bool = False) -> Callable[[E], E]:
        """Registers an entry under operators' own names (not aliases): (op, ins: list[Type], outs:
        list[Type], attrs: dict) -> Native | None.

        layouts: it looks at the types' layouts; without, it is asked for row-major arrays only.
        derived: it makes kernels of decompositions or references, so nobody wrote one for the call.
        """

        def add(entry: E) -> E:
            for name in names:
                self.entries.setdefault(name, []).append(entry)
            if layouts:
                self._any_layout.add(entry)
            if derived:
                self._derived.add(entry)
            return entry

        return add

    def wants(self, *names: str) -> Callable[[W], W]:
        """Registers what kernels of these operators want: (op, ins: list[Type], outs: list[Type],
        attrs) -> Wanted, or None: row-major arrays. `ins` have the layouts in which they come."""

        def add(entry: W) -> W:
            self.layouts.update(dict.fromkeys(names, entry))
            return entry

        return add

    def choose(
        self, op: Operator, ins: Types, outs: Types, attrs: Attrs, derived: bool = True
    ) -> Native | None:
        """The kernel for this call, or None for the reference. `attrs` holds `train` for
        train-aware operators. derived: derived entries count."""
        own = op.trait(OwnKernel)
        if own is not None:
            return own.choose(ins, outs, attrs)
        plain = not any([t.layout for t in (*ins, *outs)])
        for entry in self.entries.get(op.name, ()):
            if not derived and entry in self._derived:
                continue
            found = entry(op, ins, outs, attrs) if plain or entry in self._any_layout else None
            if found is not None:
                return found
        return None

    def has(self, op: Operator) -> bool:
        """Is there a kernel written for some calls of the operator?"""
        return any(e not in self._derived for e in self.entries.get(op.name, ()))

    def wanted(self, op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Wanted | None:
        """The memory layouts that suit a call best, None: row-major."""
        entry = self.layouts.get(op.name)
        return entry(op, ins, outs, attrs) if entry else None
