"""Type stubs of the nd and sym namespaces, made from the operator records when the package is built."""
from __future__ import annotations

import keyword
from pathlib import Path

from .record import REGISTRY, REQUIRED, Operator

KINDS = {"int": "int", "float": "float", "bool": "bool", "str": "str", "dtype": "Any",
         "shape": "int | Sequence[int]", "floats": "Sequence[float]"}
HEADER = '''"""Made by kernels/stubs.py from the operator records; do not edit."""
from collections.abc import Sequence
from typing import Any

{imports}

def __getattr__(name: str) -> Any: ...

'''
NAMESPACES = {       # package: (array type, what its __init__ offers besides operators)
    "ndarray": ("NDArray", "from .creation import *\nfrom .ndarray import NDArray as NDArray"),
    "symbol": ("Symbol", "from .symbol import Symbol as Symbol"),
}


def write(root: Path) -> None:
    """Writes ndarray/__init__.pyi and symbol/__init__.pyi."""
    for package, (array, imports) in NAMESPACES.items():
        text = HEADER.format(imports=imports) + "".join(
            signature(op, name, array) for name, op in sorted(REGISTRY.items())
            if not name.startswith("_") and name.isidentifier() and not keyword.iskeyword(name))
        (root / package / "__init__.pyi").write_text(text)


def signature(op: Operator, name: str, array: str) -> str:
    """One function of a stub file."""
    if op.variadic:
        parts = [f"*{op.inputs[0][1:]}: {array}"]
    else:
        parts = [f"{i}: {array} | None = ..." for i in op.inputs]
    for p in op.params:
        if p.name in op.inputs or p.name == op.variadic_key or keyword.iskeyword(p.name):
            continue
        kind = "str | None" if isinstance(p.kind, tuple) else KINDS[p.kind.removesuffix("?")]
        if p.kind[-1] == "?" or p.default is None:
            kind = kind if "None" in kind or kind == "Any" else f"{kind} | None"
        parts.append(f"{p.name}: {kind} = ..." if p.default is not REQUIRED or not op.variadic else f"{p.name}: {kind}")
    parts += [f"out: {array} | Sequence[{array}] | None = ...", "name: str | None = ...", "**kwargs: Any"]
    many = callable(op.n_outputs) or callable(op.n_visible) or (op.n_visible or op.n_outputs) != 1
    return f"def {name}({', '.join(parts)}) -> {'Any' if many else array}: ...\n"
