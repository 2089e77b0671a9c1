"""Line charts as SVG text for a page: colours come from the page's CSS (`.line0`, `.line1`,
`.grid`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

WIDTH, HEIGHT = 460, 250  # units of the picture
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 34, 40  # of these, around the plotted area
N_TICKS = 5


def nice_step(span: float) -> float:
    """A step of 1, 2 or 5 times a power of ten that divides a span into about N_TICKS."""
    raw = span / N_TICKS if span > 0 else 1.0
    power = 10 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= raw)


def line_chart(
    title: str,
    x: Sequence[float],
    lines: dict[str, Sequence[float]],
    write: Callable[[float], str],
    x_name: str = "epoch",
) -> str:
    """Lines with a point at each value.

    lines: name -> values, one for each x; values that are not finite are left out. write: the text
    of a value on the axis.
    """
    finite = [v for values in lines.values() for v in values if math.isfinite(v)] or [0.0]
    step = nice_step(max(finite) - min(finite) or abs(finite[0]) or 1.0)
    low, high = math.floor(min(finite) / step) * step, math.ceil(max(finite) / step) * step
    high = high if high > low else low + step
    first, last = min(x), max(x)

    def place(at: float, value: float) -> tuple[float, float]:
        share = (at - first) / (last - first) if last > first else 0.5
        across = LEFT + share * (WIDTH - LEFT - RIGHT)
        up = HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return round(across, 1), round(up, 1)

    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{escape(title)}">',
        f'<text class="title" x="0" y="14">{escape(title)}</text>',
    ]
    for i in range(round((high - low) / step) + 1):
        value = low + i * step
        _, y = place(first, value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{write(value)}</text>')
    every = max(1, math.ceil(nice_step(last - first))) if last > first else 1
    for at in x:
        if at % every == 0 or len(x) <= N_TICKS:
            across, _ = place(at, low)
            parts.append(
                f'<text x="{across}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{at:g}</text>'
            )
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">'
        f"{escape(x_name)}</text>"
    )
    across = WIDTH - RIGHT
    for i, (name, values) in reversed(list(enumerate(lines.items()))):
        points = [(at, v) for at, v in zip(x, values) if math.isfinite(v)]
        path = " ".join("{},{}".format(*place(at, v)) for at, v in points)
        parts.append(f'<polyline class="line{i}" points="{path}"/>')
        for at, v in points:
            px, py = place(at, v)
            parts.append(
                f'<circle class="dot{i}" cx="{px}" cy="{py}" r="3.5">'
                f"<title>{escape(name)}, {escape(x_name)} {at:g}: {write(v)}</title></circle>"
            )
        parts.append(
            f'<text class="name{i}" x="{across}" y="14" text-anchor="end">{escape(name)}</text>'
        )
        across -= 8 * len(name) + 18
    return "".join([*parts, "</svg>"])
