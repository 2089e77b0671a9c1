"""Reports on what runs graphs: what their programs are and cost, and what memory is used for."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ..engine import settings, stats, svg
from ..engine.log import size
from .runner import Forward, Gradient, Signature, n_fused


class Row(NamedTuple):
    """One program.

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

    @classmethod
    def of(
        cls,
        kind: str,
        inputs: str,
        hits: int,
        change: tuple[int, float],
        made: Forward | Gradient,
        operators: int = 0,
    ) -> Row:
        """change: change_at and waited_s."""
        p = made.program
        sizes = (len(p.ops), n_fused(p), p.arena_bytes, p.naive_bytes)
        costs = made.seconds, p.cost_us
        return cls(kind, inputs, hits, made.tier, *change, *costs, operators, *sizes)

    @classmethod
    def of_signature(cls, at: Signature, kind: str, change_at: int | None = None) -> Row:
        """change_at: where something else decides that."""
        change = at.change_at if change_at is None else change_at, at.waited_s
        return cls.of(kind, at.inputs, at.hits, change, at.serving, at.n_operators)

    def cells(self) -> tuple[str, ...]:
        return (
            self.kind,
            self.inputs,
            str(self.hits),
            str(self.tier),
            str(self.change_at or ""),
            f"{self.waited_s * 1e3:.1f}" if self.tier else "",
            f"{self.compile_s * 1e3:.1f}",
            f"{self.estimate_us:.0f}",
            str(self.operators or ""),
            str(self.instructions),
            str(self.fused_groups),
            size(self.planned_bytes),
            size(self.naive_bytes),
        )


HEAD = ("kind", "inputs", "hits", "tier", "tier 1 at", "waited ms", "compile ms",
        "estimate us", "operators", "instructions", "fused", "planned", "unshared")  # fmt: skip


class ProgramReport:
    """The programs of a block, an executor or a Module, a Row for each; prints as a table."""

    def __init__(self, name: str, rows: list[Row], why: str):
        """why: there are no programs, or what makes some, if there are none."""
        self.name, self.rows, self.why = name, rows, why

    def __str__(self):
        if not self.rows:
            return f"{self.name}: no programs\n  {self.why}"
        lines = [HEAD, *(row.cells() for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
        aligned = [
            "  ".join(
                c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(x, widths))
            )
            for x in lines
        ]
        return "\n".join([self.name, *(line.rstrip() for line in aligned)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if not self.rows:
            return f"<pre>{svg.escape(self)}</pre>"
        return svg.table(HEAD, [row.cells() for row in self.rows], 2, self.name)


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

    def __str__(self):
        uses = list(dict.fromkeys([*self.training, *self.inference]))
        lines = [f"{self.name:<16}{'inference':>12}{'training':>12}"]
        for use in uses:
            cells = (r.get(use) for r in (self.inference, self.training))
            texts = ("" if n is None else size(n) for n in cells)
            lines.append(f"{use:<16}" + "".join(f"{t:>12}" for t in texts))
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        uses = dict.fromkeys([*self.training, *self.inference])
        both = (self.inference, self.training)
        rows = [[u, *("" if u not in r else size(r[u]) for r in both)] for u in uses]
        return svg.table(["bytes", "inference", "training"], rows, title=self.name)


class Call(NamedTuple):
    """A call of a graph, whose memory is counted. data: numbers of the inputs that are no
    parameters. gradient: of a training step."""

    forward: Forward
    data: Collection[int]
    gradient: Gradient | None = None

    @classmethod
    def of(cls, signature: Signature) -> Call:
        """Compiled as it will be in the end; runs nothing."""
        forward = signature.forward(int(settings.get("PLAIT_TIER") != 0))
        training = forward.gradient((True,) * forward.n_out) if signature.wanted else None
        return cls(forward, signature.data, training)

    def memory(self) -> dict[str, int]:
        """Bytes by use, without the workspace that all programs share."""
        f, p = self.forward, self.forward.program
        nbytes = [s.nbytes for s in f.in_specs]
        data = sum(nbytes[i] for i in self.data)
        prepack = [s.nbytes for s in p.prepack.specs] if p.prepack else []
        used = {
            "parameters": sum(nbytes) - data,
            "prepared": sum(prepack) + sum(a._spec.nbytes for a in p.constants),
            "inputs": data,
            "outputs": sum(s.nbytes for s in f.out_specs),
            "arena": p.arena_bytes,
            "arena_unshared": p.naive_bytes,
        }
        if self.gradient is None:
            return used
        back = self.gradient.program
        used["arena"] = max(p.arena_bytes, back.arena_bytes)
        used["arena_unshared"] += back.naive_bytes
        used["gradients"] = sum(n for n, r in zip(nbytes, f.requests) if r != "null")
        used["residuals"] = sum(s.nbytes for s in f.kept_specs[f.n_out :])
        return used


def memory(graphs: Iterable[Signature]) -> dict[str, int]:
    """Bytes by use of graphs that have arrays of their own each; {} of none."""
    found: dict[str, int] = {}
    for signature in graphs:
        for use, n in Call.of(signature).memory().items():
            found[use] = found.get(use, 0) + n
    if found:
        found["workspace"] = stats()["workspace_bytes"]
        found["total"] = sum(n for use, n in found.items() if use != "arena_unshared")
    return found
