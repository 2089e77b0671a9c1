"""Arrays in notebooks: what an array is, and a table of some of its values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine import is_ready, svg
from ..engine.error import MXNetError
from .protocol import plain

EDGE = 4  # rows and columns that are shown at each end
PATIENCE_MS = 250  # a notebook gets values that are done so soon


def array_html(array: Any, name: str = "") -> str:
    """HTML of an array. Values that are not computed yet are not waited for, but for a quarter of a
    second; the error of a failed computation is shown."""
    kind = name or type(array).__name__
    shape = "x".join(map(str, array.shape)) or "of one number"
    head = f"<b>{svg.escape(kind)}</b> {shape} {svg.escape(array._spec.dtype)}"
    head = f"<div>{head} {svg.escape(array.context)}</div>"
    try:
        if not is_ready(array._handle, PATIENCE_MS):
            return f"<div>{head}<i>still being computed</i></div>"
        values = plain(array)
    except MXNetError as error:
        return f'<div>{head}<pre style="color:#d32f2f">{svg.escape(error)}</pre></div>'
    where = ""
    if values.size == 0:
        return f"<div>{head}</div>"
    while values.ndim > 2:
        values = values[0]
        where += "0, "
    note = f"<div>[{where}:, :]</div>" if where else ""
    return f"<div>{head}{note}{_table(values)}</div>"


def _table(values: np.ndarray) -> str:
    rows = values.reshape(1, -1) if values.ndim < 2 else values
    n_rows, n_columns = rows.shape
    ups, lefts = _places(n_rows), _places(n_columns)
    cells = [
        ["" if i is None else i]
        + ["\u2026" if i is None or j is None else _number(rows[i, j]) for j in lefts]
        for i in ups
    ]
    if values.ndim < 2:
        cells = [["", *line[1:]] for line in cells]
    head = ["", *("\u2026" if j is None else j for j in lefts)] if values.ndim else ["", ""]
    return svg.table(head, cells, left=0)


def _places(n: int) -> list[int | None]:
    """The places to show of an axis; None where some are left out."""
    if n <= 2 * EDGE + 1:
        return list(range(n))
    return [*range(EDGE), None, *range(n - EDGE, n)]


def _number(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, (float, np.floating)) else str(value)
