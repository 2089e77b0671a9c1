"""The table of operators that export to ONNX, docs/reference/onnx-operators.md, made from the
rules."""

from __future__ import annotations

from pathlib import Path

from ..compat.onnx.export import support

HEAD = """# Operators in ONNX files

Made by `make docs` from the rules of `compat/onnx/export/`; {written} of {count} operators are
written.

- *rule*: as ONNX's own operators. *decomposition*: as other operators of plait. *reference*: as
  what the operator's reference computes.
- *none*: the last column says why.

| operator | written as | |
|---|---|---|
"""


def write(folder: Path) -> list[Path]:
    """Writes onnx-operators.md. Returns the files written. Raises OSError."""
    rows = list(support.rows())
    written = sum(way != "none" for _, way, _ in rows)
    lines = [f"| `{name}` | {way} | {reason} |\n" for name, way, reason in rows]
    path = folder / "onnx-operators.md"
    path.write_text(HEAD.format(written=written, count=len(rows)) + "".join(lines))
    return [path]
