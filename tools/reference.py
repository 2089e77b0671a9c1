"""plait docs: the reference, docs/reference/: a page for each public module, made from signatures
and docstrings; a page for each operator, made from its record."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from .. import MODULES, NAMES
from ..kernels.record import REGISTRY
from . import docstring, onnx_reference, operator_reference
from .signature import call, parameters, shown
from .source import place

ROOT = __package__.partition(".")[0]
FOLDER = Path(__file__).resolve().parent.parent

ROOMS = ("gluon", "training", "data")  # whose modules users import
HIDDEN = ("graph", "kernels", "tools", "testing")  # not imported by users
BELOW = (  # modules of arrays and symbols that users reach through their packages
    *("nd.contrib", "nd.image", "nd.linalg", "nd.sparse", "np.fft", "np.linalg", "np.random"),
    *("npx.image", "npx.random", "sym.contrib", "sym.image", "sym.linalg", "sym.random"),
)
GROUPS = {  # of the overview: first word of a module's name
    "Arrays": ("mx", "nd", "np", "npx", "autograd", "random", "context", "util", "operator", "rtc"),
    "Networks": ("gluon",),
    "Graphs": ("sym", "viz", "executor", "name", "attribute"),
    "Training": (
        *("init", "opt", "lr_scheduler", "metric", "kv", "mod", "callback", "mon", "checkpoint"),
        *("training", "rnn", "model"),
    ),
    "Data": ("io", "recordio", "image", "data"),
    "Many processes": ("dist",),
    "Files and other frameworks": ("onnx", "interop", "caffe", "compat"),
}
MADE = (f"{ROOT}.ndarray.functions", f"{ROOT}.symbol.symbol")  # have functions of records


class Entry(NamedTuple):
    """One public name: its page, and its anchor there."""

    name: str
    page: str
    anchor: str


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
    for name in BELOW:
        first, _, rest = name.partition(".")
        found[name] = importlib.import_module(f"{found[first].__name__}.{rest}")
    return dict(sorted(found.items()))


def public(module: ModuleType) -> dict[str, Any]:
    """The public names of a module: its __all__, or what it or a submodule defines. Functions that
    are operators have pages of their own."""
    names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
    known = {n: getattr(module, n, None) for n in sorted(names)}
    return {n: v for n, v in known.items() if _is_of(v, module) and not is_operator(v)}


def is_operator(value: Any) -> bool:
    """Is it a function of nd or sym that was made from an operator's record?"""
    home = getattr(value, "__module__", "")
    prefixes = ("", "_npx_", *(f"_{s}_" for s in operator_reference.SPACES))
    return home in MADE and any(p + value.__name__ in REGISTRY for p in prefixes)


def _is_of(value: Any, module: ModuleType) -> bool:
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return False
    home = str(getattr(value, "__module__", ""))
    return home == module.__name__ or home.startswith(module.__name__ + ".")


def slug(heading: str, seen: dict[str, int]) -> str:
    """The anchor that forges and the site give a heading. seen: how often each was given."""
    text = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    seen[text] = seen.get(text, -1) + 1
    return f"{text}-{seen[text]}" if seen[text] else text


def kind(p: inspect.Parameter) -> str:
    """A parameter's type, in the words of its annotation."""
    if p.annotation is p.empty:
        return ""
    text = p.annotation if isinstance(p.annotation, str) else inspect.formatannotation(p.annotation)
    return "" if text == "Any" else f"`{text}`".replace("|", "\\|")


def table(value: Any, told: dict[str, str]) -> str:
    """The table of a call's parameters; "" where it would say nothing."""
    found = [p for p in parameters(value) or [] if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not any(told.get(p.name) or kind(p) for p in found):
        return ""
    has_text = any(told.get(p.name) for p in found)
    rows = ["| parameter | type | default |" + (" |" if has_text else "")]
    rows.append("|---|---|---|" + ("---|" if has_text else ""))
    for p in found:
        default = (
            "required" if p.default is p.empty else f"`{shown(p.default)!r}`".replace("|", "\\|")
        )
        text = f" {told.get(p.name, '')} |" if has_text else ""
        rows.append(f"| `{p.name}` | {kind(p)} | {default} |{text}")
    return "\n".join(rows) + "\n"


def source(value: Any, folder: Path) -> str:
    """A link to the line that defines it; "" for what is made at run time."""
    try:
        path, line = place(value)
        path = path.relative_to(FOLDER)
    except (LookupError, OSError, TypeError, ValueError):
        return ""
    to = os.path.relpath(FOLDER / path, folder.resolve())
    return f"[{path.as_posix()}:{line}]({Path(to).as_posix()}#L{line})"


class Writer:
    """Writes the pages of modules, and remembers where each name stands."""

    def __init__(self, folder: Path, operators: dict[str, str]) -> None:
        self.folder, self.operators = folder, operators  # function, nd.relu -> page
        self.entries: list[Entry] = []
        self.places: dict[int, tuple[str, str]] = {}  # a class's id -> (page, anchor)
        known = public_modules()
        self.modules = {n: m for n, m in known.items() if public(m) or self.functions(n, m)}
        for name, module in self.modules.items():
            seen: dict[str, int] = {}
            slug(f"mx.{name}", seen)
            for n, value in public(module).items():
                self.places.setdefault(id(value), (name, slug(n, seen)))
                for method, _ in methods(value):
                    slug(f"{n}.{method}", seen)

    def functions(self, name: str, module: ModuleType) -> dict[str, str]:
        """The functions of a module that are operators: name -> page."""
        prefix = "nd.random" if name == "random" else name
        found = {n: self.operators.get(f"{prefix}.{n}", "") for n in dir(module)}
        return {n: page for n, page in found.items() if page}

    def page(self, name: str, module: ModuleType) -> str:
        """The page of one module."""
        seen: dict[str, int] = {}
        found = public(module)
        about = docstring.read(inspect.getdoc(module) or "")
        text = [f"# mx.{name}\n\n{about.prose}\n"]
        if about.example:
            text.append(fenced(about.example, "pycon"))
        slug(f"mx.{name}", seen)
        body, rows = [], []
        for n, value in found.items():
            at = slug(n, seen)
            self.entries.append(Entry(f"{name}.{n}", name, at))
            if found_elsewhere := self.places.get(id(value), (name, at)) != (name, at):
                page, there = self.places[id(value)]
                body.append(f"## {n}\n\nThe same as [mx.{page}.{n}]({page}.md#{there}).\n")
            else:
                body.append(self.entry(n, value))
            if not found_elsewhere:
                for method, _ in methods(value):
                    there = slug(f"{n}.{method}", seen)
                    self.entries.append(Entry(f"{name}.{n}.{method}", name, there))
            else:
                for method, _ in methods(value):
                    seen.setdefault(slug(f"{n}.{method}", {}), -1)
            rows.append(f"| [{n}](#{at}) | {docstring.read(own_doc(value)).summary} |")
        if len(rows) > 3:
            text.append("| name | |\n|---|---|\n" + "\n".join(rows) + "\n")
        made = self.functions(name, module)
        if made:
            body.append("## Operators\n\n| function | |\n|---|---|")
            for n, page in made.items():
                told = docstring.read(REGISTRY[page].doc).summary
                body.append(f"| [{name}.{n}](operators/{page}.md) | {told} |")
            body.append("")
        return "\n".join([*text, *body])

    def entry(self, name: str, value: Any) -> str:
        """The text for one class or function; for a class, its public methods too."""
        text = [f"## {name}\n", self.description(name, value)]
        for method, member in methods(value):
            text.append(f"### {name}.{method}\n")
            text.append(self.description(method, member, is_method=True))
        return "\n".join(text)

    def description(self, name: str, value: Any, is_method: bool = False) -> str:
        """Signature, prose, parameters, fields, example and source of one name."""
        shown = value.fget if isinstance(value, property) else value
        if isinstance(shown, (staticmethod, classmethod)):
            shown = shown.__func__
        names = [p.name for p in parameters(shown) or []]
        told = docstring.read(own_doc(value), names)
        text = []
        if isinstance(value, property):
            text.append("*property*\n")
        else:
            text.append(fenced(call(name, shown)))
        text += [told.prose + "\n", told.parameters.get("", "") + "\n"]
        if not isinstance(value, property):
            text.append(table(shown, told.parameters))
        text += [f"**{field}:** {said}\n" for field, said in told.fields]
        if told.example:
            text.append(fenced(told.example, "pycon"))
        foot = [] if is_method else [self.bases(value), source(shown, self.folder)]
        text.append(" · ".join(filter(None, foot)) + "\n")
        return "\n".join(part for part in text if part.strip()) + "\n"

    def bases(self, value: Any) -> str:
        """What a class is based on, as links where that is public."""
        if not inspect.isclass(value):
            return ""
        found = [c for c in value.__mro__[1:] if id(c) in self.places][:1]
        links = [f"[{c.__name__}]({p}.md#{a})" for c in found for p, a in [self.places[id(c)]]]
        return f"Based on {links[0]}" if links else ""

    def write(self) -> list[Path]:
        """Writes a page for each public module, one for `mx` and index.md. Returns the files."""
        written = []
        for name, module in self.modules.items():
            path = self.folder / f"{name}.md"
            path.write_text(self.page(name, module), encoding="utf-8")
            written.append(path)
        for name, text in (("mx", self.top()), ("index", self.overview())):
            (self.folder / f"{name}.md").write_text(text, encoding="utf-8")
            written.append(self.folder / f"{name}.md")
        return written

    def top(self) -> str:
        """The page of the names of `mx` itself."""
        rows = []
        for name, (target, inner) in sorted(NAMES.items()):
            value = getattr(importlib.import_module(f"{ROOT}.{target}"), inner)
            page, at = self.places.get(id(value), ("", ""))
            label = f"[mx.{name}]({page}.md#{at})" if page else f"`mx.{name}`"
            rows.append(f"| {label} | {docstring.read(own_doc(value)).summary} |")
        shown = {id(m): n for n, m in self.modules.items()}
        modules = []
        for name, target in sorted(MODULES.items()):
            module = importlib.import_module(f"{ROOT}.{target}")
            if id(module) in shown:
                first = docstring.read(inspect.getdoc(module) or "").summary
                modules.append(f"| [mx.{name}]({shown[id(module)]}.md) | {first} |")
        return (
            "# mx\n\n`import plait as mx`: names at the top level. Modules are imported when they "
            "are first used.\n\n## Functions and classes\n\n| name | |\n|---|---|\n"
            + "\n".join(rows)
            + "\n\n## Modules\n\n| name | |\n|---|---|\n"
            + "\n".join(modules)
            + "\n"
        )

    def overview(self) -> str:
        """index.md: the modules in groups."""
        group_of = {word: group for group, words in GROUPS.items() for word in words}
        lines: dict[str, list[str]] = {group: [] for group in (*GROUPS, "Others")}
        lines["Arrays"].append("- [mx](mx.md): names at the top level")
        for name, module in self.modules.items():
            first = docstring.read(inspect.getdoc(module) or "").summary
            group = group_of.get(name.split(".")[0], "Others")
            n = len(public(module)) + len(self.functions(name, module))
            lines[group].append(f"- [mx.{name}]({name}.md) ({n} names): {first}")
        text = [
            "# Reference\n\nMade by `python -m plait docs` from signatures, docstrings and "
            "operator records.\n\n- [Operators](operators/index.md): all functions of `nd` and "
            "`sym` that compute something\n- [Operators in ONNX files](onnx-operators.md)\n"
        ]
        text += [f"## {g}\n\n" + "\n".join(found) + "\n" for g, found in lines.items() if found]
        names = "\n".join(["mx", *self.modules, "onnx-operators"])
        return "\n".join(text) + f"\n```{{toctree}}\n:hidden:\n:titlesonly:\n\n{names}\n```\n"


def own_doc(value: Any) -> str:
    """The docstring that stands at the name itself, not at what it inherits."""
    doc = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
    return inspect.cleandoc(doc) if isinstance(doc, str) else ""


def methods(value: Any) -> list[tuple[str, Any]]:
    """The public methods and properties of a class that say something, by name."""
    if not inspect.isclass(value):
        return []
    found = [(n, m) for n, m in sorted(vars(value).items()) if not n.startswith("_")]
    is_shown: Callable[[Any], bool] = lambda m: (
        (inspect.isroutine(m) or isinstance(m, property)) and bool(own_doc(m))
    )
    return [(n, m) for n, m in found if is_shown(m)]


def fenced(text: str, language: str = "python") -> str:
    return f"```{language}\n{text}\n```\n"


def names(entries: list[Entry]) -> Iterator[str]:
    """The lines of names.txt: a name as people write it, its page and its anchor. The last words
    of a name stand for it where no other has them."""
    short: dict[str, list[Entry]] = {}
    for e in entries:
        words = e.name.split(".")
        for i in range(len(words)):
            short.setdefault(".".join(words[i:]), []).append(e)
    for name, found in sorted(short.items()):
        is_one_word = "." not in name and name.islower()
        if len({(e.page, e.anchor) for e in found}) == 1 and not is_one_word:
            yield f"{name} {found[0].page} {found[0].anchor}"


def write(folder: Path) -> list[Path]:
    """Writes the reference. Returns the files. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    operators = operator_reference.Writer(folder / "operators")
    writer = Writer(folder, dict(operators.names()))
    written = [*operators.write(), *writer.write(), *onnx_reference.write(folder)]
    entries = [*writer.entries, *(Entry(n, f"operators/{p}", "") for n, p in operators.names())]
    (folder / "names.txt").write_text("\n".join(names(entries)) + "\n", encoding="utf-8")
    return written


def main(argv: list[str]) -> int:
    """Writes the reference. Returns the exit status."""
    p = argparse.ArgumentParser(prog="python -m plait docs", description=__doc__)
    p.add_argument("folder", type=Path, help="where the pages go")
    for path in write(p.parse_args(argv).folder):
        print(path)
    return 0
