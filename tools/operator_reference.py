"""The operator reference, docs/reference/operators/: a page for each record, and an index of all by
family."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..engine import cpu, gpu
from ..engine.error import MXNetError
from ..kernels import backend, ops
from ..kernels.record import REGISTRY, REQUIRED, Operator, Param, Sample, Type
from ..kernels.traits import Front, LossLayer, kind_text
from ..ndarray import functions as nd_functions
from . import docstring
from .signature import call
from .source import parsed

FOLDER = Path(ops.__file__).resolve().parent  # of the records
ROOT = FOLDER.parent.parent
SPACES = ("contrib", "linalg", "image", "random", "sparse")  # _linalg_det is nd.linalg.det
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")
MANY = 3  # samples whose shapes a page shows

HEAD = """# Operators

{count} operators that users call, and those inside graphs below them. Each is a function `nd.NAME` of arrays, `sym.NAME` of symbols and `F.NAME` in a hybridized block, and
has MXNet's name. `help(nd.NAME)` prints its documentation; every function takes `out=`, an array for the result.

A page says for each operator: its signature and parameters, shapes of some calls, for which types of inputs there are
kernels (**C** on CPUs, **CUDA** on GPUs; **reference** serves all other types: compiled where it can be, else by
NumPy), its gradient, and its *traits*: what [passes](../../design/kernels.md) ask for.
"""
INTERNAL = """## Operators inside graphs

Made by passes, gradients, optimizers and `mx.np`. They stand in graphs and files, and are not meant to be called.

| operator | gradient | |
|---|---|---|"""


def public_name(op: Operator) -> str:
    """How users call it: nd.linalg.det; "" where they do not."""
    for name in (op.name, *op.aliases):
        if not name.startswith("_"):
            return f"nd.{name}"
    for name in (op.name, *op.aliases):
        for space in SPACES:
            if name.startswith(f"_{space}_"):
                return f"nd.{space}.{name.removeprefix(f'_{space}_')}"
    return ""


def types_of(op: Operator, sample: Sample, dtype: str) -> list[Type]:
    """The types of a sample's inputs; those that the sample gives as values keep their dtype."""
    found = []
    for given in sample.inputs:
        drawn = given and isinstance(given[0], str)
        if drawn and given[0] == "values":
            found.append(Type(np.shape(given[1]), dtype if given[2] == "float32" else given[2]))
        else:
            found.append(Type(tuple(given[1]) if drawn else tuple(given), dtype))
    return found


def results(op: Operator, sample: Sample, dtype: str) -> tuple[list[Type], list[Type], dict] | None:
    """(inputs, outputs, attributes) of a sample with this dtype, or None where it is refused."""
    try:
        attrs = op.counted(dict(sample.attrs), len(sample.inputs))
        full = op.parse(attrs) | ({"train": True} if op.train_aware else {})
        ins = types_of(op, sample, dtype)
        return ins, list(op.infer(ins, **full)), full
    except (MXNetError, TypeError, ValueError, KeyError):
        return None


def has_kernel(
    op: Operator, device: Any, ins: Sequence[Type], outs: Sequence[Type], attrs: dict
) -> bool:
    """Is there a kernel for a call on a device? Kernels that are made of references are not asked
    for: that would compile each."""
    try:
        found = backend.of(device).kernels.choose(op, ins, outs, attrs, derived=False)
    except MXNetError:  # what it would be composed of does not take these types
        found = None
    return found is not None


def type_rows(op: Operator) -> list[str]:
    """The rows of the table of types: those of inputs with the same results and kernels."""
    for sample in op.samples:
        rows = []
        for dtype in DTYPES:
            found = results(op, sample, dtype)
            if found is None:
                continue
            ins, outs, attrs = found
            out = ", ".join(dict.fromkeys(t.dtype for t in outs[: op.visible(attrs)]))
            ran = [
                word if has_kernel(op, device, ins, outs, attrs) else "reference"
                for device, word in ((cpu(), "C"), (gpu(), "CUDA"))
            ]
            rows.append(f"| {dtype} | {out} | {ran[0]} | {ran[1]} |")
        if rows:
            return rows
    return []


def shape_lines(op: Operator) -> list[str]:
    """Calls of samples: shapes of inputs, attributes, shapes of results."""
    lines = []
    for sample in op.samples:
        found = next(filter(None, (results(op, sample, d) for d in ("float32", "int32"))), None)
        if found is None:
            continue
        ins, outs, attrs = found
        names = op.names_in(attrs, len(ins))
        given = [f"{n} {shape(t)}" for n, t in zip(names, ins)]
        given += [f"{k}={v!r}" for k, v in sample.attrs.items() if k != op.variadic_key]
        out = ", ".join(shape(t) for t in outs[: op.visible(attrs)])
        line = f"({', '.join(given)}) -> {out}"
        if line not in lines and len(line) < 160:
            lines.append(line)
        if len(lines) == MANY:
            break
    return lines


def shape(t: Type) -> str:
    return str(tuple(t.shape)).replace(" ", "") if len(t.shape) != 1 else f"({t.shape[0]},)"


def gradient(op: Operator) -> str:
    if op.has(LossLayer):
        return "that of the loss that it stands for, whatever gradient comes in"
    return "yes, of every order" if op.grad else "zero"


def parameter_table(op: Operator) -> str:
    rows = []
    for name in op.inputs:
        told = "written in place" if not callable(op.mutates) and name in op.mutates else ""
        kind = "arrays" if name.startswith("*") else "array"
        rows.append((f"`{name.lstrip('*')}`", kind, "", told))
    for p in op.params:
        if p.name != op.variadic_key:
            default = "required" if p.default is REQUIRED else f"`{p.default!r}`"
            told = docstring.escape(p.doc) + (" (not in MXNet)" if p.keyword else "")
            rows.append((f"`{p.name}`", kind_of(p), default, told.strip()))
    if not rows:
        return ""
    columns = 4 if any(row[3] for row in rows) else 3
    head = ("parameter", "type", "default", "")
    lines = [head, ("---",) * 4, *rows]
    return "".join(f"| {' | '.join(line[:columns])} |\n" for line in lines)


def kind_of(p: Param) -> str:
    if isinstance(p.kind, tuple):
        return ", ".join(f"`{v}`" for v in p.kind)
    kind = p.kind.rstrip("?")
    return kind + (" or None" if p.kind.endswith("?") else "")


class Writer:
    """Writes the pages of operators to a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found = sorted(set(REGISTRY.values()), key=lambda op: op.name.lower())
        self.records = [op for op in found if not op.has(Front)]  # mx.np lists those
        self.public = [op for op in self.records if public_name(op)]

    @cached_property
    def places(self) -> dict[str, tuple[Path, int]]:
        """Operator -> the file of the record and its line, where a call has the name first."""
        found: dict[str, tuple[Path, int]] = {}
        for path in sorted(FOLDER.rglob("*.py")):
            for node in ast.walk(parsed(path)):
                call = node.value if isinstance(node, ast.Expr) else None
                if isinstance(call, ast.Call) and call.args:
                    name = getattr(call.args[0], "value", None)
                    found.setdefault(name, (path, call.lineno)) if isinstance(name, str) else None
        return found

    def place(self, op: Operator) -> tuple[Path, int]:
        """The file and line of a record; of one that is made in a loop, where its rules are."""
        if op.name in self.places:
            return self.places[op.name]
        for rule in (op.grad, op.ref, op.infer):
            code = getattr(inspect.unwrap(rule), "__code__", None) if rule else None
            if code and FOLDER in (path := Path(code.co_filename).resolve()).parents:
                return path, code.co_firstlineno
        return FOLDER / "__init__.py", 1

    def names(self) -> Iterator[tuple[str, str]]:
        """(name as people write it, page) of every operator and alias."""
        for op in self.public:
            for name in (op.name, *op.aliases):
                bare = name
                for space in SPACES:
                    if name.startswith(f"_{space}_"):
                        bare = f"{space}.{name.removeprefix(f'_{space}_')}"
                if name.startswith("_npx_"):
                    yield f"npx.{name.removeprefix('_npx_')}", op.name
                for module in ("nd", "sym", "F", "mx.nd", "mx.sym"):
                    yield f"{module}.{bare}", op.name

    def page(self, op: Operator) -> str:
        """The page of one operator."""
        told = docstring.read(op.doc or op.name)
        name = public_name(op)
        path, line = self.place(op)
        to = Path(os.path.relpath(path, self.folder.resolve())).as_posix()
        others = [n for n in (op.name, *op.aliases) if f"nd.{n}" != name]
        text = [f"---\norphan: true\n---\n\n# {op.name}\n"]
        if name:
            text.append(f"```python\n{signature(op, name)}\n```\n")
        text += [told.prose + "\n", parameter_table(op)]
        lines = shape_lines(op)
        if lines:
            text.append("## Shapes\n\n```text\n" + "\n".join(lines) + "\n```\n")
        rows = type_rows(op)
        if rows:
            head = "## Types and kernels\n\n| inputs | result | CPU | GPU |\n|---|---|---|---|\n"
            text.append(head + "\n".join(rows) + "\n")
        facts = [f"- **Gradient**: {gradient(op)}."]
        if op.random:
            facts.append("- **Random**: draws numbers; `mx.random.seed` makes them repeat.")
        if op.traits:
            facts.append(f"- **Traits**: {', '.join(sorted(map(kind_text, op.traits)))}.")
        facts.append(f"- **MXNet's name**: `{op.name}`.")
        if others[1:] or (others and others != [op.name]):
            facts.append(
                f"- **Other names**: {', '.join(f'`{n}`' for n in others if n != op.name)}."
            )
        facts.append(f"- **Record**: [{path.relative_to(ROOT).as_posix()}:{line}]({to}#L{line}).")
        text.append("## Facts\n\n" + "\n".join(facts) + "\n\n[All operators](index.md)\n")
        return "\n".join(filter(None, text))

    def index(self) -> str:
        """All operators by the files of their records."""
        families: dict[Path, list[Operator]] = {}
        for op in self.public:
            families.setdefault(self.place(op)[0], []).append(op)
        text = [HEAD.format(count=len(self.public))]
        for path, found in sorted(families.items(), key=lambda item: family(item[0]).lower()):
            text.append(f"## {family(path)}\n\n" + rows(found))
        text.append(INTERNAL)
        for op in self.records:
            if not public_name(op):
                names = ", ".join(f"`{n}`" for n in (op.name, *op.aliases))
                text.append(
                    f"| {names} | {'yes' if op.grad else 'zero'} | {docstring.read(op.doc).summary} |"
                )
        text.append("")
        return "\n".join(text)

    def write(self) -> list[Path]:
        """Writes a page for each operator and index.md. Returns the files. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in self.folder.glob("*.md"):
            old.unlink()
        written = []
        for op in self.public:
            path = self.folder / f"{op.name}.md"
            path.write_text(self.page(op), encoding="utf-8")
            written.append(path)
        (self.folder / "index.md").write_text(self.index(), encoding="utf-8")
        return [*written, self.folder / "index.md"]


def signature(op: Operator, name: str) -> str:
    """The call of the nd function, in lines that fit."""
    space: Any = nd_functions
    words = name.split(".")[1:]
    if len(words) == 2:
        space = importlib.import_module(f"{__package__.partition('.')[0]}.ndarray.{words[0]}")
    return call(name, getattr(space, words[-1])).replace(", **kwargs", "")


def family(path: Path) -> str:
    """What a file of records says it holds."""
    told = ast.get_docstring(parsed(path)) or path.stem
    return " ".join(re.split(r"(?<=\.)\s|:\s|;\s", told)[0].split()).rstrip(".").replace("`", "")


def rows(found: Sequence[Operator]) -> str:
    """A table of operators: a link, whether there is a C kernel, and the first sentence."""
    lines = ["| operator | gradient | kernel | |", "|---|---|---|---|"]
    kernels = backend.of(cpu()).kernels
    for op in found:
        ways = ("yes" if op.grad else "zero", "C" if kernels.has(op) else "")
        told = docstring.read(op.doc).summary
        lines.append(f"| [`{public_name(op)}`]({op.name}.md) | {ways[0]} | {ways[1]} | {told} |")
    return "\n".join(lines) + "\n"
