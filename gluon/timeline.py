"""`net.timeline(x)`: one step of a network as it ran: threads over time, layers, waits, arrows, and
the critical path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any

from ..engine import files, lib, profiler, waitall
from ..engine.critical_path import Piece, critical_path
from ..engine.error import InvalidValue
from ..engine.profile_events import Span, with_layers
from ..ndarray import autograd
from ..ndarray.ndarray import NDArray
from ..ndarray.nesting import flatten
from . import timeline_draw


class Timeline:
    """A recorded step. In Jupyter it shows its picture.

    spans: what ran, in the order of starts. phases: (name, start in ns) of forward, backward and
    update. critical_path: the pieces that the step's time consists of, in the order of time.
    """

    def __init__(self, spans: Sequence[Span], phases: Sequence[tuple[str, int]], title: str = ""):
        self.spans, self.phases, self.title = list(spans), list(phases), title
        self.programs = {s.seq: s for s in self.spans if s.category == "operator"}
        self.critical_path: list[Piece] = critical_path(self.spans)
        first = self.critical_path[0] if self.critical_path else None
        if first is not None and first.start > self.start:  # Python, before the first push
            first = Piece(first.thread, self.start, first.start, None)
            self.critical_path.insert(0, first)
        self._svg: str | None = None

    @property
    def seconds(self) -> float:
        """From the beginning of the step to the end of its last operation."""
        return (self.end - self.start) / 1e9

    @property
    def start(self) -> int:
        return self.phases[0][1]

    @property
    def end(self) -> int:
        ops = [s.end for s in self.spans if s.category == "operator"]
        return max(ops, default=self.start)

    def phase(self, span: Span) -> str:
        """forward, backward or update: when it, or the program that it is part of, was pushed."""
        if span.category == "instruction":
            span = self.programs.get(span.seq, span)
        at = span.pushed or span.start
        return [name for name, start in self.phases if start <= at or start == self.start][-1]

    @property
    def svg(self) -> str:
        """The picture, an SVG document."""
        if self._svg is None:
            self._svg = timeline_draw.draw(self)
        return self._svg

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the picture to a file. Raises FileError."""
        files.write(fspath(path), self.svg.encode())

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        """The time, and what the critical path consists of."""
        total = max(1, self.end - self.start)
        spent: Counter[str] = Counter()
        for p in self.critical_path:
            if p.span is None:
                spent["Python, and waking up"] += p.end - p.start
            else:
                spent[_whose(p.span, self.phase(p.span))] += p.end - p.start
        lines = [f"{self.title}: {total / 1e3:.0f} us; the critical path:"]
        lines += [f"  {n / 1e3:10.1f} us  {n / total:4.0%}  {k}" for k, n in spent.most_common(12)]
        return "\n".join(lines)

    __repr__ = __str__


def _whose(span: Span, phase: str) -> str:
    layer = span.args.get("layer")
    return f"{phase}: {span.name}" + (f" [{layer}]" if layer else "")


def _own_wait(wait: Span, end: int) -> Span:
    """A wait up to the end of the step; without a name where it is this file's own."""
    own = wait.name in ("timeline", "recording")
    name = "wait" if own else wait.name
    args = {} if own else wait.args
    return wait._replace(name=name, args=args, end=min(wait.end, end))


def timeline(
    block: Any,
    inputs: Sequence[Any],
    loss: Any = None,
    labels: Any = None,
    backward: bool = False,
    trainer: Any = None,
    warmup: int = 3,
) -> Timeline:
    """See Block.timeline."""
    if warmup < 0:
        raise InvalidValue(f"timeline: warmup must be >= 0, got {warmup}")
    given = () if labels is None else labels if isinstance(labels, (list, tuple)) else (labels,)
    if given and loss is None:
        raise InvalidValue("timeline: labels are given without loss\n  fix: loss=gluon.loss....")
    learns = backward or trainer is not None

    def step() -> list[tuple[str, int]]:
        phases = [("forward", lib.pl_profiler_now())]
        with autograd.record(train_mode=learns) if learns else autograd.pause(train_mode=False):
            out = block(*inputs)
            if loss is not None:
                out = loss(out, *given)
        heads = [a for a in flatten(out, NDArray, lambda *_: -1)[0] if isinstance(a, NDArray)]
        if learns:
            phases.append(("backward", lib.pl_profiler_now()))
            autograd.backward(heads)
        if trainer is not None:
            phases.append(("update", lib.pl_profiler_now()))
            trainer.step(inputs[0].shape[0])
        for head in heads:
            head.wait_to_read()
        return phases

    for _ in range(warmup):
        step()
    waitall()
    with profiler.recording() as spans:
        phases = step()
        waitall()
    end = max((s.end for s in spans if s.category == "operator"), default=0)
    own = [_own_wait(s, end) if s.category == "wait" else s for s in spans if s.start < end]
    name = type(block).__name__
    shapes = ", ".join(str(tuple(a.shape)) for a in inputs if isinstance(a, NDArray))
    return Timeline(
        with_layers(own), phases, f"{name}, {', '.join(p for p, _ in phases)}, {shapes}"
    )
