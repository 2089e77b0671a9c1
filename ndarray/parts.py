"""Parts of an array's memory that steps describe: what slices read and what assignments write. One
plan serves all places where a part may begin."""

from __future__ import annotations

from typing import Any

from ..kernels.ops.strided import reach
from ..kernels.plan import Plan, make_plan
from ..kernels.record import lookup
from ..kernels.spec import Spec
from .launch import Plans, launch, run
from .ndarray import NDArray

_STRIDED, _STRIDED_SET = lookup("_strided"), lookup("_strided_set")
_reads = Plans()
_writes = Plans()


def part_plan(s: Spec, sizes: Any, steps: Any) -> Plan:
    """The plan that reads a part of an array of this spec, wherever it begins."""
    plan = _reads[s, sizes, steps]
    if plan is None:
        view = _STRIDED.parse(
            {"at": -min(0, reach(sizes, steps)[0]), "sizes": sizes, "steps": steps}
        )
        plan = make_plan(_STRIDED, view, [s], s.device)
        _reads.keep((s, sizes, steps), plan)
    return plan


def _view(sizes, steps) -> dict:
    """Attributes of a part, where it may begin."""
    return {"at": -float(reach(sizes, steps)[0]), "sizes": sizes, "steps": steps}


def read_part(x: NDArray, sizes: Any, steps: Any, at: int, *, out: Any = None) -> NDArray:
    """The elements of a part of an array's memory, as an array of its own."""
    return run(part_plan(x._spec, sizes, steps), (x,), (at,), out)


def write_part(x: NDArray, sizes: Any, steps: Any, at: int, value: NDArray) -> None:
    """Writes an array into a part of x's memory."""
    run(_write_plan(x, sizes, steps, value), (x, value), (at,), x)


def write_number(x: NDArray, sizes: Any, steps: Any, at: int, value: NDArray) -> None:
    """Writes the one element of an array that shares no memory with x into a part of x's memory. x
    is not recorded."""
    launch(_write_plan(x, sizes, steps, value), (x, value), (at,), (x,))


def _write_plan(x: NDArray, sizes: Any, steps: Any, value: NDArray) -> Plan:
    s = x._spec
    key = (s, value._spec, sizes, steps)
    plan = _writes[key]
    if plan is None:
        plan = make_plan(_STRIDED_SET, _view(sizes, steps), [s, value._spec], s.device)
        _writes.keep(key, plan)
    return plan
