"""The floors of the house: a room imports only rooms that stand before it in ROOMS, and no files
import each other in a circle. Every import counts: at the top of a file, inside a function, by
importlib, as text; and every include of C. What a device can do is asked of its Backend: outside
BACKENDS no code depends on the kind of a device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOMS = (
    "engine",
    "kernels",
    "graph",
    "ndarray",
    "symbol",
    "dist",
    "data",
    "training",
    "gluon",
    "compat",
    "tools",
)

# folders that know kinds of devices; tables/ has the entries of all backends, tools/compile writes
# the C of one
BACKENDS = ("engine", "kernels/cpu", "kernels/cuda", "kernels/tables", "tools/compile")
DEVICE_NAMES = {"cpu", "gpu", "cuda", "cpu_pinned", "cpu_shared"}
DEVICE_KINDS = re.compile(r"(is|on)_(gpu|cpu|cuda)|device_type(id)?|PL_(LANE|MEMORY)_GPU.*")
# lines that name a device as data, or use what one backend alone has: (file, a part of the line)
NAMED = {
    ("__init__.py", '"engine.device"'): "where public names are",
    (
        "data/io/csv.py",
        'ctx: str = "gpu",',
    ): "a default of MXNet's signature; the argument does nothing",
    ("data/io/image_record.py", 'option("gpu"'): "the same",
    ("data/io/libsvm.py", 'ctx: str = "gpu",'): "the same",
    ("data/io/mnist.py", 'ctx: str = "gpu",'): "the same",
    ("gluon/parameter.py", "ctx.device_typeid & 1"): "an index that libraries for MXNet compute",
    ("ndarray/serialization.py", "Context(device_type, device_id)"): "a device in a pickle",
    ("ndarray/serialization.py", "return _unpickle, "): "the same",
    ("ndarray/rtc.py", "from ..kernels.cuda."): "mx.rtc compiles CUDA C++ and nothing else",
    ("tools/benchmark/gpu_with_torch.py", ""): "a program for torch",
}


class Import(NamedTuple):
    """One import: the file's module, what it imports, both without the package's name."""

    module: str
    target: str
    path: Path
    line: int


def modules(root: Path) -> dict[str, Path]:
    """Every module of the package, by its name below the package: "" is the package itself."""
    files = [p for room in ROOMS for p in (root / room).rglob("*.py")]
    found = {}
    for path in [*files, root / "__init__.py", root / "__main__.py"]:
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(module: str, path: Path, known: dict[str, Path]) -> Iterator[Import]:
    """What a file imports of the package."""
    words = module.split(".") if module else []
    package = words if path.name == "__init__.py" else words[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = _above(package, node.level) + (node.module.split(".") if node.module else [])
            named = [".".join([*base, alias.name]) for alias in node.names]
            targets = [n if n in known else n.rpartition(".")[0] for n in named]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and module:
            targets = [_named(node.value, package)]
        else:
            continue
        for target in targets:
            if target in known and target not in ("", module):
                yield Import(module, target, path, node.lineno)


def _above(package: list[str], level: int) -> list[str]:
    return package[: len(package) - level + 1]


def _named(text: str, package: list[str]) -> str:
    """The module that a text names as import_module takes it: "..graph.tiers", "graph.tiers"."""
    if not re.fullmatch(r"\.*[a-z_]\w*(\.[a-z_]\w*)*", text):
        return ""
    name = text.lstrip(".")
    level = len(text) - len(name)
    if level:
        return ".".join([*_above(package, level), name])
    return name if "." in name and name.partition(".")[0] in ROOMS else ""


def every_import(root: Path) -> list[Import]:
    known = modules(root)
    return [i for module, path in known.items() for i in imports(module, path, known)]


def every_include(root: Path) -> Iterator[Import]:
    """What C and CUDA files include of the package; their names here keep their endings."""
    name = lambda path: ".".join(path.relative_to(root).parts)
    files = [p for room in ROOMS for p in (root / room).rglob("*")]
    for path in (p for p in files if p.suffix in (".c", ".h", ".cu", ".cuh")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if found := re.match(r'\s*#\s*include "(.*)"', line):
                near = (folder / found[1] for folder in (path.parent, root, root / "kernels/cpu"))
                for target in [p.resolve() for p in near if p.is_file()][:1]:
                    yield Import(name(path), name(target), path, number)


def upward(found: list[Import], root: Path) -> list[str]:
    """The imports of a room that stands later."""
    wrong = []
    for i in found:
        here, there = (name.partition(".")[0] for name in (i.module, i.target))
        if here in ROOMS and there in ROOMS and ROOMS.index(there) > ROOMS.index(here):
            place = f"{i.path.relative_to(root)}:{i.line}"
            wrong.append(f"{place}: {here}/ must not import {i.target}: {there}/ stands on it")
    return sorted(set(wrong))


def device_tests(found: list[Import], root: Path) -> list[str]:
    """Lines outside BACKENDS that depend on the kind of a device, or import what is one backend's;
    and entries of NAMED that no line needs any more."""
    asks: dict[Path, set[int]] = {}
    for path in modules(root).values():
        nodes = ast.walk(ast.parse(path.read_text()))
        asks[path] = {getattr(node, "end_lineno", 0) for node in nodes if _is_kind(node)}
    for i in found:
        if f"{i.target}.".startswith(("kernels.cpu.", "kernels.cuda.")):
            asks[i.path].add(i.line)
    wrong, unused = [], set(NAMED)
    for path, numbers in asks.items():
        name = path.relative_to(root).as_posix()
        if name.startswith(tuple(f"{folder}/" for folder in BACKENDS)):
            continue
        lines = path.read_text().splitlines()
        for number in sorted(numbers):
            line = lines[number - 1].strip()
            named = {key for key in NAMED if key[0] == name and key[1] in line}
            unused -= named
            if not named:
                wrong.append(f"{name}:{number}: depends on the kind of a device: {line}")
    return sorted(wrong) + [f"{name}: no line has {part!r}" for name, part in sorted(unused)]


def _is_kind(node: ast.AST) -> bool:
    """Does a node name a device, or ask what kind it is?"""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value in DEVICE_NAMES
    name = getattr(node, "attr", getattr(node, "id", ""))
    return isinstance(node, ast.Attribute | ast.Name) and bool(DEVICE_KINDS.fullmatch(name))


def circles(found: list[Import]) -> list[str]:
    """Files that import each other, directly or through others."""
    edges: dict[str, set[str]] = {}
    for i in found:
        if i.module:
            edges.setdefault(i.module, set()).add(i.target)
            edges.setdefault(i.target, set())
    return sorted(" <-> ".join(sorted(group)) for group in _components(edges) if len(group) > 1)


def _components(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of which each member reaches each other (Tarjan 1972), without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on: set[str] = set()
    groups = []
    for start in edges:
        if start in index:
            continue
        work = [(start, iter(sorted(edges[start])))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on.add(start)
        while work:
            name, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on.add(target)
                    work.append((target, iter(sorted(edges[target]))))
                    break
                if target in on:
                    low[name] = min(low[name], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    group = []
                    while not group or group[-1] != name:
                        group.append(stack.pop())
                        on.discard(group[-1])
                    groups.append(group)
    return groups


def problems(root: Path) -> list[str]:
    """All that is wrong, one line each."""
    found = every_import(root)
    return [*upward(found, root), *(f"in a circle: {c}" for c in circles(found))]
