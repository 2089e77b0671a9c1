"""The backend of CPUs."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from ...engine import cpu, hooks, lib
from ..backend import Backend, Branches, Fusion, register
from ..native import Native
from ..record import HALVES, REGISTRY, Operator, Type
from ..tables import CPU, fused, on_cpu, reduce
from ..traits import Decomposition

_DECOMPOSED = {op.name for op in REGISTRY.values() if op.has(Decomposition)}


@on_cpu(*sorted(_DECOMPOSED | CPU.entries.keys()), derived=True)
def decomposition_cpu(
    op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict[str, Any]
) -> Native | None:
    """A program of the operator's decomposition, or of its call with float32, as one kernel."""
    if op.name not in _DECOMPOSED and not any(t.dtype in HALVES for t in (*ins, *outs)):
        return None
    return hooks.get("kernel of a decomposition")(op, ins, outs, attrs, cpu())


importlib.import_module(
    f"{__package__}.traced"
)  # after all other entries: it takes what they leave

register(
    Backend(
        "cpu",
        kernels=CPU,
        compiles="C",
        fusion=Fusion(
            row_dtypes=("float32",),
            reductions=reduce.KINDS,
            can_compile=fused.can_compile,
            prepare=fused.prepare,
        ),
        fused_dtypes=("float32", "bfloat16")[: 1 + bool(lib.plk_isa_has(lib.PLK_HAS_BF16))],
        ends_matmul=lambda *_, **__: True,
        ends_conv=lambda op, attrs: fused.loop_of(op, attrs) is not None,
        # below 64 KB no kernel uses a second thread, so that the order of its sums does not depend
        # on where it runs. Measured on two cores: 0.06 ms of work loses by branches, 0.34 ms gains
        # a third
        branches=Branches(1 << 16, 100.0),
    )
)
