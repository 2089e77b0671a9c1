"""Reports on hybridized blocks: their graphs and costs, and their memory use."""

from __future__ import annotations

from typing import Any

from ..graph.report import MemoryReport, ProgramReport, Row, memory
from ..graph.runner import Signature
from ..ndarray import autograd, backward
from ..ndarray.backward import queued_with
from ..ndarray.ndarray import NDArray
from .trace import Trace, blocks_of, flatten_call


def hybrid_report(block: Any) -> ProgramReport:
    """block: a HybridBlock; without a call since hybridize() it has no programs. Inner blocks that
    were called from Python have their own programs."""
    rows, plans = [], []
    for graph in [g for b in blocks_of(block) for g in getattr(b, "_graphs", list)()]:
        for (training, *_), entry in list(graph.entries.items()):
            kind = "record" if entry.wanted else "train" if training else "predict"
            plans.append(entry.serving)
            change_at = min([b.change_at for b in queued_with(entry.serving)], default=None)
            rows.append(Row.of_signature(entry, kind, change_at))
    for (structure, *_), found in list(backward._programs.items()):
        plan = next((p for p in plans if any(p is q for q in structure[0:-1:2])), None)
        if plan is not None and found.serving is not None:
            inputs = ", ".join(map(str, plan.in_specs[:1]))
            change = found.change_at, found.waited_s
            rows.append(Row.of("backward", inputs, found.hits, change, found.serving))
    return ProgramReport(block.name, rows, "fix: hybridize() it and call it")


def memory_report(block: Any, args: Any) -> MemoryReport:
    """args: as the block is called. Raises what tracing raises."""
    args = block._arguments(*args)
    trained = signature(block, args, True)
    called = memory([signature(block, args, False)])
    return MemoryReport(block.name, called, memory([trained] if trained.wanted else []))


def signature(block: Any, args: Any, training: bool) -> Signature:
    """That of a graph of the block's own, which counts no calls. args: as the block's graph has
    them. Raises what tracing raises."""
    flat, _ = flatten_call(args, NDArray, "input")
    trace = Trace(block, args, training)
    trace.finish_parameters()
    trace.compile(block.name, block._recompute)
    arrays = [*flat, *trace.held.arrays()]
    wanted = [False] * len(flat) + [p.grad_req != "null" for p, _ in trace.placed]
    assert trace.graph is not None
    with autograd.pause(train_mode=training):
        return trace.graph.entry(arrays, tuple(wanted) if training and any(wanted) else ())
