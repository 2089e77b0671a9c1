"""The operator reference, docs/reference/operators.md, made from the records."""

from __future__ import annotations

from pathlib import Path

from ..engine import cpu
from ..kernels import backend, ops  # noqa: F401  (ops fills the registry)
from ..kernels.record import REGISTRY, REQUIRED, Operator, Param
from ..kernels.traits import kind_text

HEAD = """# Operators

Made by `make docs` from the operator records; {count} operators. Each is `nd.name(...)` and `sym.name(...)`, and `help(nd.name)`
prints its documentation.
`_contrib_x`, `_linalg_x` and `_image_x` are `nd.contrib.x`, `nd.linalg.x` and `nd.image.x`.

- **gradient**: *yes*, or *zero*, where there is nothing to differentiate.
- **kernel**: *C*, for the types that have a C kernel; else *NumPy*, the reference, which serves all others as well.
- **traits**: what few operators have and passes ask for (`kernels/traits.py`).

| name | inputs | parameters | gradient | kernel | traits | |
|---|---|---|---|---|---|---|
"""


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def parameter(p: Param) -> str:
    if p.default is REQUIRED:
        return f"**{p.name}**"
    return f"{p.name}={p.default!r}"


def row(op: Operator) -> str:
    kernels = backend.of(cpu()).kernels.entries
    names = [op.name, *op.aliases]
    inputs = ", ".join(op.inputs).replace("*", "\\*")
    params = ", ".join(parameter(p) for p in op.params if p.name != op.variadic_key)
    return (
        "| "
        + " | ".join(
            [
                ", ".join(f"`{n}`" for n in names),
                inputs,
                cell(params),
                "yes" if op.grad else "zero",
                "C" if op.name in kernels else "NumPy",
                ", ".join(sorted(map(kind_text, op.traits))),
                cell(op.doc),
            ]
        )
        + " |\n"
    )


def write(folder: Path) -> list[Path]:
    """Writes operators.md. Returns the files written. Raises OSError."""
    records = sorted(set(REGISTRY.values()), key=lambda op: op.name.lower())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "operators.md"
    path.write_text(HEAD.format(count=len(records)) + "".join(map(row, records)))
    return [path]
