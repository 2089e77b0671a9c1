"""Where things are defined: their files and lines. Each file is parsed once."""

from __future__ import annotations

import ast
import functools
import inspect
from pathlib import Path
from typing import Any


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def _classes(path: Path) -> dict[str, int]:
    """Class, by its qualified name -> its first line, decorators included."""
    found: dict[str, int] = {}

    def visit(body: list[ast.stmt], outer: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                first = node.decorator_list[0] if node.decorator_list else node
                found.setdefault(outer + node.name, first.lineno)
                visit(node.body, f"{outer}{node.name}.")
            elif isinstance(node, (ast.If, ast.Try)):
                visit(node.body + node.orelse, outer)

    visit(parsed(path).body, "")
    return found


def place(value: Any) -> tuple[Path, int]:
    """The file and the first line of a function or class. Raises TypeError or LookupError for what
    is made at run time."""
    value = inspect.unwrap(value)
    code = getattr(value, "__code__", None)
    if code is not None:
        return Path(code.co_filename).resolve(), code.co_firstlineno
    path = Path(inspect.getsourcefile(value) or "").resolve()
    return path, _classes(path)[value.__qualname__]
