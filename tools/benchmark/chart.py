"""`plait bench --chart FILE`: the ratios of a speed table as an SVG picture.

The table is read from Markdown (README.md) or from what `plait bench` printed, so that table and
chart cannot differ. The picture has light and dark colours, each with its own background, and
follows the reader's setting.
"""

from __future__ import annotations

import math
import re
from html import escape
from typing import NamedTuple

from ...engine.error import InvalidValue

LEFT, TOP, WIDTH, ROW_HEIGHT, BOTTOM = 270, 58, 530, 22, 34  # pixels
RIGHT = 20
# a colour and a shape for each peer, in the order of the table's columns
COLORS = ("#d55e00", "#0072b2", "#009e73", "#c05a96", "#8a7000")
DARK_COLORS = ("#ff8c42", "#56b4e9", "#2fd3a0", "#f29cc8", "#e6c700")
SHAPES = (
    '<circle class="c{c}" cx="{x:g}" cy="{y:g}" r="5"/>',
    '<rect class="c{c}" x="{left:g}" y="{top:g}" width="9" height="9"/>',
    '<path class="c{c}" d="M{x:g} {y:g}m0 -6l6 6l-6 6l-6 -6z"/>',
    '<path class="c{c}" d="M{x:g} {y:g}m0 -6l5.5 10h-11z"/>',
    '<path class="c{c}" d="M{x:g} {y:g}m0 6l5.5 -10h-11z"/>',
)


class Table(NamedTuple):
    """The ratios of a speed table."""

    peers: list[str]
    rows: list[tuple[str, list[float | None]]]  # workload, ratio to each peer


def _ratio(text: str) -> float | None:
    """Of a cell: "-" or the ratio of the medians, perhaps with that of the minima behind it."""
    return None if text == "-" else float(text.split()[0])


def read(text: str) -> Table:
    """The speed table in a Markdown page, or what `plait bench` printed. Raises ValueError."""
    lines = iter(text.splitlines())
    for line in lines:
        if re.match(r"\|? *workload ", line) and "/ " in line:
            break
    else:
        raise InvalidValue(
            "the file has no speed table: no line starts with 'workload' and names a peer"
            " ('/ torch')"
        )
    if not line.startswith("|"):
        peers = re.findall(r"/ (\w+)", line)
        cells = (row.split() for row in lines if row.strip())
        return Table(peers, [(c[0], [_ratio(t) for t in c[-1 - len(peers) : -1]]) for c in cells])
    head = [c.strip() for c in line.strip("| ").split("|")]
    columns = [i for i, name in enumerate(head) if name.startswith("/ ")]
    next(lines, "")  # the rule |---|
    table = Table([head[i][2:] for i in columns], [])
    for row in lines:
        if not row.startswith("|"):
            break
        fields = [c.strip() for c in row.strip("| ").split("|")]
        table.rows.append((fields[0], [_ratio(fields[i]) for i in columns]))
    return table


def _style() -> str:
    def rules(back, text, grid, one, colors):
        marks = "".join(f".c{i}{{fill:{color}}}" for i, color in enumerate(colors))
        return (
            f".back{{fill:{back}}}[class^=c]{{stroke:{back}}}text{{fill:{text}}}.grid{{stroke:{grid}}}.one{{stroke:{one}}}"
            + marks
        )

    light = rules("#ffffff", "#24292f", "#d8dee4", "#24292f", COLORS)
    dark = rules("#0d1117", "#e6edf3", "#30363d", "#e6edf3", DARK_COLORS)
    return (
        "<style>text{font:13px system-ui,Helvetica,Arial,sans-serif}"
        f"{light}@media(prefers-color-scheme:dark){{{dark}}}</style>"
    )


def draw(table: Table) -> str:
    """The picture: one row per workload, one mark per peer, ratios on a logarithmic axis.

    Raises ValueError if the table has no ratio.
    """
    found = [r for _, ratios in table.rows for r in ratios if r]
    if not found:
        raise InvalidValue("the table has no ratio: plait was not compared with another framework")
    low = min(-1, math.floor(math.log2(min(found))))  # powers of two: ends of the axis
    high = max(1, math.ceil(math.log2(max(found))))
    bottom = TOP + ROW_HEIGHT * len(table.rows)
    width, height = LEFT + WIDTH + RIGHT, bottom + BOTTOM

    def place(ratio: float) -> float:
        return round(LEFT + WIDTH * (math.log2(ratio) - low) / (high - low), 1)

    def mark(i: int, x: float, y: float) -> str:
        i %= len(SHAPES)
        return SHAPES[i].format(c=i, x=x, y=y, left=x - 4.5, top=y - 4.5)

    def label(x: float, y: float, text: str, anchor: str = "start") -> str:
        return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}">',
        _style(),
        f'<rect class="back" width="{width}" height="{height}" rx="6"/>',
        label(14, 24, "time of the peer / time of plait: right of 1, plait is faster"),
    ]
    x: float = LEFT
    for i, peer in enumerate(table.peers):
        parts += [mark(i, x, 41), label(x + 11, 46, peer)]
        x += 40 + 8 * len(peer)
    for power in range(low, high + 1):
        x = place(2**power)
        kind = "one" if power == 0 else "grid"
        parts.append(f'<line class="{kind}" x1="{x:g}" x2="{x:g}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(label(x, bottom + 20, f"{2**power:g}", "middle"))
    for n, (name, ratios) in enumerate(table.rows):
        y = TOP + ROW_HEIGHT * (n + 0.5)
        parts.append(label(LEFT - 12, y + 4.5, name, "end"))
        parts += [mark(i, place(r), y) for i, r in enumerate(ratios) if r]
    return "\n".join([*parts, "</svg>", ""])
