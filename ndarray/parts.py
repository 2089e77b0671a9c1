"""Parts of an array's memory that steps describe: what slices read and what assignments write. One
plan serves all places where a part may begin."""

from __future__ import annotations

from typing import Any

from ..kernels.ops.strided import reach
from ..kernels.plan import Plan, make_plan
from ..kernels.record import lookup
from ..kernels.spec import Spec
from .launch import Plans, run
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


def read_part(x: NDArray, part: tuple, out: Any = None) -> NDArray:
    """The elements (sizes, steps, at) of an array's memory, as an array of its own."""
    sizes, steps, at = part
    return run(part_plan(x._spec, sizes, steps), (x,), (at,), out)


def write_part(x: NDArray, part: tuple, value: NDArray) -> None:
    """Writes an array, or its one element, into the elements (sizes, steps, at) of x's memory."""
    (sizes, steps, at), s = part, x._spec
    key = (s, value._spec, sizes, steps)
    plan = _writes[key]
    if plan is None:
        plan = make_plan(_STRIDED_SET, _view(sizes, steps), [s, value._spec], s.device)
        _writes.keep(key, plan)
    run(plan, (x, value), (at,), x)
