"""Which of plait's C files hold the kernels of a network, by what each file defines and names.

kernels called -> their files -> what these name -> the files that define it -> ... -> headers
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CPU = ROOT / "kernels" / "cpu"
# what the runtime has its own form of
REPLACED = ("gemm_scratch.c", "isa.c", "traced_table.c", "pointwise_table.c")
NAME = re.compile(r"\bplk?_\w+")
COMMENT = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
INCLUDE = re.compile(r'^#(?:include|define \w+) "(.*\.h)"', re.MULTILINE)  # or a name for one
STRUCT = re.compile(r"^(?:typedef struct \{.*)?\} (plk_\w+);", re.MULTILINE)
# a declaration, or the head of a definition, at the beginning of a line
HEAD = re.compile(
    r"^(?!static|PLK_INLINE|typedef|#|\s)[\w \t*]*?\b(?:PLK_NAME|PLK_KERNEL)?\(?(plk_\w+)\)?\s*"
    r"(?:\([^;{}]*\)\s*)?([;{])",
    re.MULTILINE,
)


class Text(NamedTuple):
    """What one file defines for others, what it names, and which of plait's files it includes."""

    defines: frozenset[str]
    names: frozenset[str]
    includes: tuple[Path, ...]


@functools.cache
def text(path: Path) -> Text:
    """What there is to know of a file of C."""
    given = path.read_text()
    near = (
        (path.parent / name, ROOT / name, CPU / name) for name in INCLUDE.findall(given)
    )  # as the compiler looks for it
    found = [next((p.resolve() for p in places if p.is_file()), None) for places in near]
    given = COMMENT.sub(" ", given)
    heads = list(HEAD.finditer(given))
    defines = frozenset(m[1] for m in heads if m[2] == "{")
    for m in reversed(heads):
        if m[2] == ";":  # a declaration uses nothing
            given = given[: m.start()] + given[m.end() :]
    return Text(defines, frozenset(NAME.findall(given)), tuple(p for p in found if p))


@functools.cache
def _with_headers(path: Path) -> tuple[Path, ...]:
    """A file, what it includes, and what that includes."""
    found = {path: None}
    wanted = [path]
    while wanted:
        more = [p for p in text(wanted.pop()).includes if p not in found]
        found |= dict.fromkeys(more)
        wanted += more
    return tuple(found)


@functools.cache
def _definitions() -> dict[str, Path]:
    """Function -> the C file that defines it, itself or by a header that it includes."""
    return {
        name: path
        for path in sorted(CPU.glob("*.c"))
        if path.name not in REPLACED
        for file in _with_headers(path)
        for name in text(file).defines
    }


class Files(NamedTuple):
    """C files, and the headers that they need, in plait's folders."""

    sources: list[Path]
    headers: list[Path]


def needed(functions: Iterable[str], headers: Iterable[Path] = ()) -> Files:
    """The files of kernels, with all that they call. headers: that are needed too."""
    where = _definitions()
    found: dict[Path, None] = {}
    wanted = [where[f] for f in functions]
    while wanted:
        path = wanted.pop()
        if path not in found:
            found[path] = None
            names = {n for file in _with_headers(path) for n in text(file).names}
            wanted += [where[n] for n in sorted(names) if n in where]
    read = {p for path in (*found, *headers) for p in _with_headers(path)}
    return Files(sorted(found), sorted(read - found.keys()))


@functools.cache
def _structs() -> dict[str, Path]:
    """Struct -> the file that declares it."""
    files = [*sorted(CPU.glob("*.c")), *sorted(CPU.glob("*.h"))]
    return {name: path for path in files for name in STRUCT.findall(path.read_text())}


def declares(struct: str) -> Path:
    """The file that declares the struct of a kernel's parameters."""
    return _structs()[struct]
