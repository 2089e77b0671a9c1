"""Type stubs of the nd and sym namespaces, made from the operator records, and of the root, made
from its tables of names."""

from __future__ import annotations

import ast
import keyword
from pathlib import Path

from .record import REGISTRY, REQUIRED, Operator

KINDS = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "context": "str",
    "dtype": "Any",
    "shape": "int | Sequence[int]",
    "floats": "Sequence[float]",
}
HEADER = '''"""Made by kernels/stubs.py from the operator records; do not edit."""
from collections.abc import Sequence
from typing import Any

{imports}

def __getattr__(name: str) -> Any: ...

'''
NAMESPACES = {  # package: (array type, what its __init__ offers besides operators)
    "ndarray": ("NDArray", "from .creation import *\nfrom .ndarray import NDArray as NDArray"),
    "symbol": ("Symbol", "from .symbol import Symbol as Symbol"),
}


def write(root: Path) -> None:
    """Writes ndarray/__init__.pyi, symbol/__init__.pyi and __init__.pyi, when the package is
    built."""
    (root / "__init__.pyi").write_text(
        HEADER.format(imports=root_imports((root / "__init__.py").read_text()))
    )
    for package, (array, imports) in NAMESPACES.items():
        text = HEADER.format(imports=imports) + "".join(
            signature(op, name, array)
            for name, op in sorted(REGISTRY.items())
            if not name.startswith("_") and name.isidentifier() and not keyword.iskeyword(name)
        )
        (root / package / "__init__.pyi").write_text(text)


def root_imports(source: str) -> str:
    """Imports that say what the root's __getattr__ loads on first use; source: the text of the
    root's __init__.py."""
    tables = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("MODULES", "NAMES")
    }
    places = [(name, *path.rpartition(".")[::2]) for name, path in tables["MODULES"].items()]
    places += [(name, *place) for name, place in tables["NAMES"].items()]
    return "\n".join(
        [
            "__version__: str",
            *(f"from .{module} import {attribute} as {name}" for name, module, attribute in places),
        ]
    )


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
        parts.append(
            f"{p.name}: {kind} = ..."
            if p.default is not REQUIRED or not op.variadic
            else f"{p.name}: {kind}"
        )
    parts += [
        f"out: {array} | Sequence[{array}] | None = ...",
        "name: str | None = ...",
        "**kwargs: Any",
    ]
    many = callable(op.n_outputs) or callable(op.n_visible) or (op.n_visible or op.n_outputs) != 1
    return f"def {name}({', '.join(parts)}) -> {'Any' if many else array}: ...\n"
