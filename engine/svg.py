"""Pictures and tables for notebooks, as text: SVG and HTML without scripts, readable on light and
on dark ground. Texts are escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any

from . import files

MARKUP = (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot"), ("'", "#x27"))
INK = "currentColor"  # the notebook's
FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
SCALED = "max-width:100%;height:auto"  # a cell may be narrower
LINES = "rgba(128,128,128,.4)"
COLORS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#9c755f", "#edc948")


def escape(text: Any) -> str:
    """A text in HTML or SVG, attributes included."""
    made = str(text)
    for character, name in MARKUP:
        made = made.replace(character, f"&{name};")
    return made


class Picture:
    """An SVG; shows itself in Jupyter. `source` is its text."""

    def __init__(self, source: str):
        self.source = source

    def _repr_svg_(self) -> str:
        return self.source

    def save(self, path: str | PathLike[str]) -> str:
        """Writes the SVG atomically; returns the path."""
        files.write(fspath(path), self.source.encode())
        return fspath(path)


def svg(width: float, height: float, parts: Sequence[str]) -> str:
    """An SVG of these elements."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
        f' style="{SCALED}" viewBox="0 0 {width:g} {height:g}" font-family="{FONT}"'
        f' font-size="11" fill="{INK}">' + "".join(parts) + "</svg>"
    )


def text(x: float, y: float, content: Any, anchor: str = "start", more: str = "") -> str:
    """A line of text. anchor: start, middle or end."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    """A thin line of an axis or a grid."""
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{LINES}" fill="none"/>'


def curve(
    series: dict[str, Sequence[tuple[float, float]]], width: float = 420, height: float = 180
) -> str:
    """An SVG of lines over a common axis; points that are not finite are left out."""
    finite = {
        name: [(x, y) for x, y in points if abs(y) < float("inf")]
        for name, points in series.items()
    }
    every = [p for points in finite.values() for p in points]
    if not every:
        return svg(width, 20, [text(4, 14, "no values yet")])
    left, right, top, bottom = 56, width - 8, 8, height - 34
    xs, ys = [x for x, _ in every], [y for _, y in every]
    low, high = min(ys), max(ys)
    to_x = lambda x: left + (right - left) * (x - min(xs)) / ((max(xs) - min(xs)) or 1)
    to_y = lambda y: bottom - (bottom - top) * (y - low) / ((high - low) or 1)
    parts = [line(left, y, right, y) for y in (top, bottom)]
    parts += [text(left - 4, to_y(y) + 4, f"{y:.4g}", "end") for y in dict.fromkeys((low, high))]
    parts += [
        text(left, bottom + 13, f"{min(xs):g}"),
        text(right, bottom + 13, f"{max(xs):g}", "end"),
    ]
    for i, (name, points) in enumerate(finite.items()):
        ink = COLORS[i % len(COLORS)]
        way = " ".join(f"{to_x(x):.1f},{to_y(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{way}" fill="none" stroke="{ink}" stroke-width="1.5"/>')
        parts += [
            f'<circle cx="{to_x(x):.1f}" cy="{to_y(y):.1f}" r="2" fill="{ink}"/>'
            for x, y in points[-1:]
        ]
        at = left + i * 110
        parts.append(f'<rect x="{at}" y="{height - 13}" width="9" height="9" fill="{ink}"/>')
        parts.append(text(at + 13, height - 5, name))
    return svg(width, height, parts)


def table(
    head: Sequence[Any], rows: Sequence[Sequence[Any]], left: int = 1, title: str = ""
) -> str:
    """An HTML table. left: how many columns are aligned at the left, as text; the others are
    numbers."""
    cell = "padding:2px 8px;border-bottom:1px solid rgba(128,128,128,.25);white-space:pre"

    def row(cells: Sequence[Any], tag: str) -> str:
        sides = ["left"] * left + ["right"] * len(cells)
        styles = [f"{cell};text-align:{side}" for side in sides]
        made = [f'<{tag} style="{s}">{escape(c)}</{tag}>' for s, c in zip(styles, cells)]
        return "".join(made)

    lines = [f"<tr>{row(cells, 'td')}</tr>" for cells in rows]
    caption = f'<caption style="text-align:left;font-weight:bold">{escape(title)}</caption>'
    return (
        f'<table style="border-collapse:collapse;color:inherit;background:transparent">'
        f"{caption if title else ''}<thead><tr>{row(head, 'th')}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
    )
