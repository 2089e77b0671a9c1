"""The API reference, docs/reference/*.md: a page for each module, from its docstrings."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import textwrap
from pathlib import Path
from types import ModuleType

from .. import MODULES

ROOT = __package__.partition(".")[0]


def public_modules() -> dict[str, ModuleType]:
    """Name as users write it (mx.gluon.nn) -> module: the top level's, and the packages in them."""
    found: dict[str, ModuleType] = {}
    for name, target in MODULES.items():
        module = importlib.import_module(f"{ROOT}.{target}")
        if module not in found.values():
            found[name] = module
    for name, module in list(found.items()):
        for part in pkgutil.walk_packages(getattr(module, "__path__", ()), module.__name__ + "."):
            if part.ispkg and "._" not in part.name and "benchmark" not in part.name:
                package = importlib.import_module(part.name)
                if package not in found.values():
                    found[name + part.name.removeprefix(module.__name__)] = package
    return dict(sorted(found.items()))


def public_names(module: ModuleType) -> list[str]:
    """What a module offers: its __all__, else the classes and functions that plait defines."""
    listed = getattr(module, "__all__", None)
    names = listed if listed is not None else [n for n in vars(module) if not n.startswith("_")]
    return sorted({n for n in names if _is_ours(getattr(module, n, None))})


def _is_ours(value) -> bool:
    return (inspect.isclass(value) or inspect.isroutine(value)) and str(
        getattr(value, "__module__", "")
    ).startswith((ROOT, "mxnet"))


def _signature(value) -> str:
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(...)"
    return text.partition(" -> ")[0]


def _doc(value) -> str:
    return textwrap.dedent(inspect.getdoc(value) or "").strip()


def entry(name: str, value, level: str = "###") -> str:
    """The text for one class or function; for a class, its public methods too."""
    lines = [f"{level} {name}\n", f"```text\n{name}{_signature(value)}\n```\n", _doc(value), ""]
    if inspect.isclass(value):
        for method, member in sorted(vars(value).items()):
            text = _doc(member)
            if method.startswith("_") or not text:
                continue
            call = _signature(member).replace("(self, ", "(").replace("(self)", "()")
            head = f"**{method}{call if inspect.isroutine(member) else ''}**".replace("*", "\\*", 0)
            lines.append(f"- {head}: {' '.join(text.split())}")
        lines.append("")
    return "\n".join(lines)


def page(name: str, module: ModuleType) -> str:
    """The page of one module."""
    names = public_names(module)
    body = "\n".join(entry(n, getattr(module, n)) for n in names)
    return f"# mx.{name}\n\n{_doc(module)}\n\n{body}"


def write(folder: Path) -> list[Path]:
    """Writes a page for each public module and index.md. Returns the files. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    written, index = [], []
    for name, module in public_modules().items():
        names = public_names(module)
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
