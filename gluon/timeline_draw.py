"""A Timeline as SVG: a lane for each thread, time to the right."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import Protocol

from ..engine.critical_path import Piece
from ..engine.profile_events import Span
from ..engine.profile_trace import ORDER, in_flight, kinds, row
from ..engine.svg import SCALED


class Step(Protocol):
    """A Timeline, as its picture needs it."""

    title: str
    spans: list[Span]
    critical_path: list[Piece]

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    def phase(self, span: Span) -> str: ...


WIDTH, LEFT, RIGHT, TOP = 1200, 152, 24, 66  # of the picture, in pixels
BOX, INNER, GAP = 22, 24, 14  # heights: an operation, an instruction, between lanes
LETTER = 5.6  # the width of a letter at FONT pixels, at most on average
FONT = 10
COLORS = {
    "forward": ("#d3e5f8", "#7da7d6"),
    "backward": ("#fde3c8", "#dfa05c"),
    "update": ("#d9efd2", "#83b973"),
    "wait": ("#f1f1f4", "#b9bac4"),
    "copy": ("#e8def6", "#a88bd0"),
    "communication": ("#fbdbe6", "#d98aa6"),
}
PATH, INK, SOFT, RULE = "#c8323c", "#1d2a36", "#62707d", "#e4e8ec"
MARK = (
    "<defs><marker id='tip' viewBox='0 0 6 6' refX='6' refY='3' markerWidth='5' markerHeight='5'"
    " orient='auto'><path d='M0 0L6 3L0 6z' fill='#9aa5b1'/></marker></defs>"
)


class _Lane:
    """A thread's place. inner: it has programs, whose instructions stand below."""

    def __init__(self, name: str, y: float, inner: bool):
        self.name, self.y, self.inner = name, y, inner
        self.height = BOX + (INNER if inner else 0)


def draw(line: Step) -> str:
    """The picture of a timeline."""
    return _Picture(line).text()


class _Picture:
    def __init__(self, line: Step):
        self.line = line
        self.start, self.span_ns = line.start, max(1, line.end - line.start)
        ends: dict[str, int] = {}
        self.rows = [(s, row(s, ends)) for s in line.spans]
        inner = {r for s, r in self.rows if s.category == "instruction"}
        pushers = {s.pusher for s in line.spans if s.pusher}
        names = {r for _, r in self.rows} | pushers
        rank = lambda n: (next((i for i, p in enumerate(ORDER) if n.startswith(p)), 1), n)
        y, self.lanes = float(TOP), dict[str, _Lane]()
        for name in sorted(names, key=rank):
            self.lanes[name] = _Lane(name, y, name in inner)
            y += self.lanes[name].height + GAP
        self.bottom = y
        self.critical = {id(p.span) for p in line.critical_path if p.span is not None}

    def x(self, ns: float) -> float:
        return LEFT + (ns - self.start) / self.span_ns * (WIDTH - LEFT - RIGHT)

    def text(self) -> str:
        height = self.bottom + 26
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height:.0f}'"
            f" width='{WIDTH}' height='{height:.0f}' style='{SCALED}' font-size='{FONT}'"
            f" font-family='system-ui, sans-serif' fill='{INK}' role='img'>"
        )
        parts = [head, f"<title>{escape(self.line.title)}</title>", MARK]
        parts.append(f"<rect width='{WIDTH}' height='{height:.0f}' fill='#fff'/>")
        total = _duration(self.span_ns)
        parts.append(
            f"<text x='{LEFT}' y='20' font-size='13' font-weight='600'>{escape(self.line.title)}"
            f"<tspan font-weight='400' fill='{SOFT}' dx='8'>{total}</tspan></text>"
        )
        parts += [*self._legend(), *self._axis(), *self._lane_names()]
        parts += [*self._arrows(), *self._critical(), *self._boxes()]
        return "\n".join([*parts, "</svg>"])

    def _legend(self) -> Iterator[str]:
        x, used = float(LEFT), {self._kind(s) for s in self.line.spans}
        for kind, (fill, edge) in COLORS.items():
            if kind not in used:
                continue
            yield (
                f"<rect x='{x:.0f}' y='31' width='12' height='12' rx='2' fill='{fill}'"
                f" stroke='{edge}'/><text x='{x + 17:.0f}' y='41' fill='{SOFT}'>{kind}</text>"
            )
            x += 30 + LETTER * len(kind)
        yield (
            f"<path d='M{x:.0f} 37h14' stroke='{PATH}' stroke-width='2.5'/>"
            f"<text x='{x + 19:.0f}' y='41' fill='{SOFT}'>critical path</text>"
        )

    def _axis(self) -> Iterator[str]:
        """Ticks at round numbers."""
        step = 10 ** math.floor(math.log10(self.span_ns / 5))
        step *= next(f for f in (1, 2, 5, 10) if self.span_ns / (step * f) <= 10)
        unit, size = ("ms", 1e6) if self.span_ns >= 2e6 else ("us", 1e3)
        unit = unit.replace("us", "\u00b5s")
        digits = max(0, -math.floor(math.log10(step / size)))
        for i in range(int(self.span_ns / step) + 1):
            x = self.x(self.start + i * step)
            label = f"{i * step / size:.{digits}f} {unit}"
            yield f"<path d='M{x:.1f} {TOP - 6}V{self.bottom:.0f}' stroke='{RULE}'/>"
            anchor = "end" if x > WIDTH - RIGHT - 20 else "middle"
            yield (
                f"<text x='{x:.1f}' y='{self.bottom + 14:.0f}' text-anchor='{anchor}'"
                f" fill='{SOFT}'>{label}</text>"
            )

    def _lane_names(self) -> Iterator[str]:
        for lane in self.lanes.values():
            room = int((LEFT - 16) / LETTER)
            name = lane.name if len(lane.name) <= room else lane.name[: room - 2] + ".."
            yield (
                f"<text x='{LEFT - 10}' y='{lane.y + 15:.0f}' text-anchor='end'"
                f" font-weight='600'>{escape(name)}<title>{escape(lane.name)}</title></text>"
            )
            middle = lane.y + BOX / 2
            yield f"<path d='M{LEFT} {middle:.0f}H{WIDTH - RIGHT}' stroke='{RULE}'/>"

    def _kind(self, s: Span) -> str:
        """The key of its color."""
        extra = kinds(s).rpartition(",")[2]
        if extra in COLORS:
            return extra
        return self.line.phase(s)

    def _boxes(self) -> Iterator[str]:
        for s, name in sorted(self.rows, key=lambda r: r[0].category == "instruction"):
            lane = self.lanes[name]
            is_inner = s.category == "instruction"
            x, y = self.x(s.start), lane.y + (BOX if is_inner else 0)
            width = max(1.0, self.x(s.end) - x)
            height = (INNER if is_inner else BOX) - 2
            fill, edge = COLORS[self._kind(s)]
            dash = " stroke-dasharray='3 2'" if s.category == "wait" else ""
            bar = f"<rect x='{x:.2f}' y='{y + height - 2:.0f}' width='{width:.2f}' height='2.2'"
            bar = f"{bar} fill='{PATH}'/>" if id(s) in self.critical else ""
            yield (
                f"<g><title>{escape(_about(s))}</title><rect x='{x:.2f}' y='{y:.0f}'"
                f" width='{width:.2f}' height='{height}' rx='2' fill='{fill}' stroke='{edge}'"
                f" stroke-width='.8'{dash}/>{bar}{_label(s, x, y, width, height)}</g>"
            )

    def _arrows(self) -> Iterator[str]:
        """From each push to its operation."""
        for s, name in self.rows:
            if s.category != "operator" or not s.pushed or s.pusher == s.thread or s.goes_on:
                continue
            a, b = self.lanes[s.pusher], self.lanes[name]
            x1, x2 = self.x(max(s.pushed, self.start)), self.x(s.start)
            y1 = a.y + (a.height if a.y < b.y else 0)
            y2 = b.y - 1 if a.y < b.y else b.y + b.height
            yield (
                f"<circle cx='{x1:.1f}' cy='{a.y + BOX / 2:.0f}' r='2.2' fill='#9aa5b1'>"
                f"<title>push {escape(s.name)}</title></circle><path d='M{x1:.1f} {y1:.0f}"
                f"L{x2:.1f} {y2:.0f}' stroke='#9aa5b1' stroke-width='.8' fill='none'"
                " marker-end='url(#tip)'/>"
            )

    def _critical(self) -> Iterator[str]:
        """A line below what is on the path, dotted where Python ran or a thread woke up, and from
        lane to lane."""
        before: tuple[float, float] | None = None
        row_of = {id(s): name for s, name in self.rows}
        for p in self.line.critical_path:
            name = row_of.get(id(p.span), p.thread)
            lane = self.lanes.get(name) or self.lanes[in_flight(name, 1)]
            y, x1, x2 = lane.y + lane.height + 3, self.x(max(p.start, self.start)), self.x(p.end)
            style = f"stroke='{PATH}' stroke-width='2'"
            if before is not None and before[1] != y:
                yield f"<path d='M{before[0]:.1f} {before[1]:.0f}L{x1:.1f} {y:.0f}' {style}/>"
            dots = " stroke-dasharray='2 3'" if p.span is None else ""
            yield f"<path d='M{x1:.1f} {y:.0f}H{x2:.1f}' {style}{dots}/>"
            before = (x2, y)


def _about(s: Span) -> str:
    """The tooltip."""
    lines = [f"{s.name}: {_duration(s.end - s.start)}"]
    if s.category == "wait":
        lines[0] = "wait: " + lines[0]
    words = {"layer": "layer", "shapes": "shapes", "line": "at", "for": "for"}
    lines += [f"{word} {s.args[key]}" for key, word in words.items() if key in s.args]
    if s.goes_on:
        lines.append("goes on, after a wait in the middle")
    elif s.pushed:
        lines.append(f"queued for {_duration(max(0, s.start - s.pushed))}")
    return "\n".join(lines)


def _label(s: Span, x: float, y: float, width: float, height: float) -> str:
    """The longest text that fits; none where no text does."""
    layer, name = s.args.get("layer", ""), s.name
    paths = ", ".join(part.partition(" (")[0] for part in layer.split(", "))
    texts = [f"{layer}: {name}", f"{paths}: {name}", layer, name, paths]
    if not layer:
        texts = [f"{name} {_duration(s.end - s.start)}", name]
    for text in texts:
        if text and len(text) * LETTER + 6 <= width:
            return (
                f"<text x='{x + width / 2:.1f}' y='{y + height / 2 + 3.5:.1f}'"
                f" text-anchor='middle'>{escape(text)}</text>"
            )
    return ""


def _duration(ns: float) -> str:
    return f"{ns / 1e6:.2f} ms" if ns >= 1e6 else f"{ns / 1e3:.1f} \u00b5s"
