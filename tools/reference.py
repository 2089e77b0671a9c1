"""plait docs: the reference, docs/reference/*.md: the operators, and one page per module, generated
from docstrings."""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import MODULES
from . import onnx_reference, operator_reference

ROOT = __package__.partition(".")[0]


ROOMS = ("gluon", "training", "data")  # whose modules users import
HIDDEN = ("graph", "kernels", "tools", "testing")  # not imported by users


def public_modules() -> dict[str, ModuleType]:
    """Public name (mx.gluon.nn) -> module: those at the top level, and below them packages and
    modules with an __all__ that define public names."""
    found: dict[str, ModuleType] = {}
    for name, target in MODULES.items():
        module = importlib.import_module(f"{ROOT}.{target}")
        if module not in found.values():
            found[name] = module
    shown = {id(v) for m in found.values() for v in public(m).values()}
    for name, module in list(found.items()):
        for part in pkgutil.walk_packages(getattr(module, "__path__", ()), module.__name__ + "."):
            words = part.name.removeprefix(ROOT + ".").split(".")
            if words[0] not in ROOMS or any(w.startswith("_") or w in HIDDEN for w in words):
                continue
            inner = importlib.import_module(part.name)
            offers = {id(v) for v in public(inner).values()}
            lists_names = part.ispkg or hasattr(inner, "__all__")
            if lists_names and inner not in found.values() and offers - shown:
                found[name + part.name.removeprefix(module.__name__)] = inner
                shown |= offers
    return dict(sorted(found.items()))


def public(module: ModuleType) -> dict[str, object]:
    """The public names of a module: its __all__, or what it or a submodule defines."""
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    known = {n: getattr(module, n, None) for n in sorted(names)}
    return {n: v for n, v in known.items() if _is_of(v, module)}


def _is_of(value, module: ModuleType) -> bool:
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return False
    home = str(getattr(value, "__module__", ""))
    return home == module.__name__ or home.startswith(module.__name__ + ".")


def _signature(value) -> str:
    """The parameters and their defaults, without types: the docstring says more."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def _doc(value) -> str:
    return textwrap.dedent(inspect.getdoc(value) or "").strip()


def entry(name: str, value: Any, level: str = "###") -> str:
    """The text for one class or function; for a class, its public methods too."""
    lines = [f"{level} {name}\n", f"```text\n{name}{_signature(value)}\n```\n", _doc(value), ""]
    if inspect.isclass(value):
        for method, member in sorted(vars(value).items()):
            text = _doc(member)
            if method.startswith("_") or not text:
                continue
            call = _signature(member).replace("(self, ", "(").replace("(self)", "()")
            head = f"{method}{call if inspect.isroutine(member) else ''}"
            lines.append(f"- `{head}`: {' '.join(text.split())}")
        lines.append("")
    return "\n".join(lines)


def page(name: str, module: ModuleType) -> str:
    """The page of one module."""
    body = "\n".join(entry(n, value) for n, value in public(module).items())
    return f"# mx.{name}\n\n{_doc(module)}\n\n{body}"


def write(folder: Path) -> list[Path]:
    """Writes a page for each public module and index.md. Returns the files. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    written, index = [], []
    for name, module in public_modules().items():
        names = public(module)
        if not names:
            continue
        path = folder / f"{name}.md"
        path.write_text(page(name, module))
        written.append(path)
        first = " ".join(_doc(module).split("\n\n")[0].split())
        index.append(f"- [mx.{name}]({path.name}) ({len(names)} names): {first}")
    overview = folder / "index.md"
    overview.write_text(
        "# Reference\n\nMade by `make docs` from the sources.\n\n"
        "- [operators](operators.md): all of `nd` and `sym`\n" + "\n".join(index) + "\n"
    )
    return [*written, overview]


def main(argv: list[str]) -> int:
    """Writes the reference. Returns the exit status."""
    p = argparse.ArgumentParser(prog="python -m plait docs", description=__doc__)
    p.add_argument("folder", type=Path, help="where operators.md goes")
    folder = p.parse_args(argv).folder
    for path in (*operator_reference.write(folder) + onnx_reference.write(folder), *write(folder)):
        print(path)
    return 0
