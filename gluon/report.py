"""Reports on hybridized blocks: what their graphs are and cost, and what memory is used for."""

from __future__ import annotations

from typing import NamedTuple

from ..engine import settings, stats
from ..engine.log import size
from ..graph.graph import topological
from ..graph.tiers import Tiered
from ..ndarray import autograd, backward
from ..ndarray.backward import compiled, n_fused, queued_with
from ..ndarray.cached import CachedGraph, GraphPlan
from ..ndarray.ndarray import NDArray
from .trace import Trace, blocks_of, flatten


class Row(NamedTuple):
    """One program of a block.

    kind: predict, train (training mode, unrecorded), record or backward. inputs: their specs.
    change_at: the first call at tier 1; 0: not known yet, or never. Graphs that are recorded change
    together, at a call of backward. waited_s: seconds that this call waited for the compiler.
    compile_s: seconds to make the program in use. estimate_us: what the kernels' cost models say.
    operators: of the forward graph, 0 for backward.
    """

    kind: str
    inputs: str
    hits: int
    tier: int
    change_at: int
    waited_s: float
    compile_s: float
    estimate_us: float
    operators: int
    instructions: int
    fused_groups: int
    planned_bytes: int
    naive_bytes: int


HEAD = ("kind", "inputs", "hits", "tier", "tier 1 at", "waited ms", "compile ms",
        "estimate us", "operators", "instructions", "fused", "planned", "unshared")  # fmt: skip


class HybridReport:
    """The programs of a block, a Row for each; prints as a table."""

    def __init__(self, name: str, rows: list[Row]):
        self.name, self.rows = name, rows

    @classmethod
    def of(cls, block) -> HybridReport:
        """block: a HybridBlock; without a call since hybridize() it has no programs. Blocks inside
        that were called from Python have programs of their own."""
        rows, plans = [], []
        for graph in [g for b in blocks_of(block) for g in getattr(b, "_graphs", list)()]:
            for (training, *_), entry in list(graph.entries.items()):
                kind = "record" if entry.wanted else "train" if training else "predict"
                inputs = ", ".join(map(str, entry.in_specs[: graph.n_data]))
                n = sum(node.op is not None for node in topological(entry.outputs))
                rows.append(_row(kind, inputs, entry, entry.plan, n))
                plans.append(entry.plan)
        for (structure, *_), found in list(backward._programs.items()):
            plan = next((p for p in plans if any(p is q for q in structure[0:-1:2])), None)
            if plan is not None and found.serving is not None:
                inputs = ", ".join(map(str, plan.in_specs[:1]))
                rows.append(_row("backward", inputs, found, found.serving, 0))
        return cls(block.name, rows)

    def __str__(self):
        if not self.rows:
            return f"{self.name}: no programs\n  fix: hybridize() it and call it"
        lines = [HEAD, *map(_cells, self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
        aligned = [
            "  ".join(
                c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(x, widths))
            )
            for x in lines
        ]
        return "\n".join([self.name, *(line.rstrip() for line in aligned)])

    __repr__ = __str__


def _row(kind: str, inputs: str, at: Tiered, made, operators: int) -> Row:
    p = made.program
    sizes = (len(p.plans), n_fused(p), p.arena_bytes, p.naive_bytes)
    change = min([b.change_at for b in queued_with(made)], default=at.change_at), at.waited_s
    return Row(
        kind, inputs, at.hits, made.tier, *change, made.seconds, p.cost_us, operators, *sizes
    )


def _cells(r: Row) -> tuple[str, ...]:
    return (
        r.kind,
        r.inputs,
        str(r.hits),
        str(r.tier),
        str(r.change_at or ""),
        f"{r.waited_s * 1e3:.1f}" if r.tier else "",
        f"{r.compile_s * 1e3:.1f}",
        f"{r.estimate_us:.0f}",
        str(r.operators or ""),
        str(r.instructions),
        str(r.fused_groups),
        size(r.planned_bytes),
        size(r.naive_bytes),
    )


# ---- memory --------------------------------------------------------------------------------------


class MemoryReport:
    """Bytes by use, for a call (`inference`) and a training step (`training`); prints as a table.

    parameters, gradients, inputs, outputs: arrays of their own. residuals: what forward keeps for
    backward. arena: intermediate results, at the largest of the programs; arena_unshared: what they
    would take if none shared memory. prepared: what is worked out from parameters once. workspace:
    what the threads' kernels hold by now for packing and the like, for all programs of the process.
    total: all but arena_unshared.
    """

    def __init__(self, name: str, inference: dict[str, int], training: dict[str, int]):
        self.name, self.inference, self.training = name, inference, training

    @classmethod
    def of(cls, block, args) -> MemoryReport:
        """args: as the block is called. Raises what tracing raises."""
        args = block._arguments(*args)
        return cls(block.name, _inference(block, args), _training(block, args))

    def __str__(self):
        uses = list(dict.fromkeys([*self.inference, *self.training]))
        lines = [f"{self.name:<16}{'inference':>12}{'training':>12}"]
        for use in uses:
            cells = (r.get(use) for r in (self.inference, self.training))
            texts = ("" if n is None else size(n) for n in cells)
            lines.append(f"{use:<16}" + "".join(f"{t:>12}" for t in texts))
        return "\n".join(lines)

    __repr__ = __str__


def _graph(block, args, training: bool):
    """(a graph of the block's own, its arrays, its parameters)."""
    flat: list[NDArray] = []
    flatten(args, NDArray, "input", flat)
    trace = Trace(block, args, training)
    trace.finish_parameters()
    trace.compile(block.name, block._recompute)
    arrays = [*flat, *(p._data_on(c) for p, c in trace.placed)]
    return trace.graph, arrays, [p for p, _ in trace.placed]


def _used(graph: CachedGraph, arrays, plan: GraphPlan, arena: int, unshared: int) -> dict[str, int]:
    n, p = graph.n_data, plan.program
    prepack = [s.nbytes for s in p.prepack.program.out_specs] if p.prepack is not None else []
    return {
        "parameters": sum(a._spec.nbytes for a in arrays[n:]),
        "prepared": sum(prepack) + sum(a._spec.nbytes for a in p.constants),
        "inputs": sum(a._spec.nbytes for a in arrays[:n]),
        "outputs": sum(s.nbytes for s in plan.out_specs),
        "arena": arena,
        "arena_unshared": unshared,
        "workspace": stats()["workspace_bytes"],
    }


def _with_total(used: dict[str, int]) -> dict[str, int]:
    return {**used, "total": sum(v for k, v in used.items() if k != "arena_unshared")}


def _inference(block, args) -> dict[str, int]:
    graph, arrays, _ = _graph(block, args, False)
    with autograd.pause(train_mode=False):
        plan = GraphPlan(graph.entry(arrays, ()), settings.get("PLAIT_TIER") != 0)
    p = plan.program
    return _with_total(_used(graph, arrays, plan, p.arena_bytes, p.naive_bytes))


def _training(block, args) -> dict[str, int]:
    graph, arrays, params = _graph(block, args, True)
    wanted = tuple([False] * graph.n_data + [p.grad_req != "null" for p in params])
    if not any(wanted):
        return {}
    with autograd.pause(train_mode=True):
        plan = GraphPlan(graph.entry(arrays, wanted), settings.get("PLAIT_TIER") != 0)
    p = plan.program
    numbers = iter(range(sum(wanted)))
    refs = tuple(next(numbers) if w else None for w in wanted)
    heads = tuple((0, i) for i in range(plan.n_out))
    key = ((plan, refs, heads), (True,) * plan.n_out, ("write",) * sum(wanted))
    b = compiled(key, plan.tier).program
    used = _used(
        graph, arrays, plan, max(p.arena_bytes, b.arena_bytes), p.naive_bytes + b.naive_bytes
    )
    used["gradients"] = sum(a._spec.nbytes for a, w in zip(arrays, wanted) if w)
    used["residuals"] = sum(s.nbytes for s in p.out_specs[plan.n_out :])
    return _with_total(used)
