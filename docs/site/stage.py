"""Lays out the sources of the site: python docs/site/stage.py FOLDER.

The pages of docs/ are taken as they are; only links that lead out of docs/ change. README.md gives
the start page and, a section each, some others. Lists of pages are made from what is there.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pages
from pages import DOCS, README, ROOT

STATUS = ("what-works", "what-does-not-work-yet", "compatibility-mode")
# a start page's link to that of another language, beside the site's own
OTHER_LANGUAGE = re.compile(r"^\[(?:English|中文)\]\(\S+\)\n+", re.MULTILINE)
PARTS = {  # page of the site: sections of README.md
    "commands": ("commands",),
    "performance": ("speed",),
    "status": STATUS,
}
LANGUAGE_LIST = "Languages"  # caption of a list that no navigation shows
LANGUAGES = {"zh": "中文"}  # folders of docs/ with pages in another language
WORDS = {  # what the made pages say
    "en": {
        "guide": (
            "Guide",
            "How to use each part of plait. Every example here is run by the tests.",
        ),
        "start": "Start",
        "more": "Reference",
        "source": "The script",
    },
    "zh": {"guide": ("指南", "plait 各部分的用法。"), "start": "开始", "more": "English"},
}
CARDS = (  # of the start page
    (
        "Guide",
        "docs/guide/ndarray.md",
        "Arrays, gradients, networks, data, many processes: step by step.",
    ),
    ("Examples", "docs/examples/README.md", "Three scripts that train on real data in a minute."),
    (
        "Coming from MXNet",
        "docs/guide/migrating.md",
        "Run your scripts as they are; every known difference.",
    ),
    (
        "Reference",
        "docs/reference/index.md",
        "Every public name: signature, parameters, shapes, errors.",
    ),
    (
        "Operators",
        "docs/reference/operators/index.md",
        "Types, gradients and kernels of all operators.",
    ),
    (
        "Performance",
        "README.md#speed",
        "Beside torch, JAX and ONNX Runtime, with the script that measures.",
    ),
    ("Design", "docs/design/spine.md", "How a call travels from Python to the kernel and back."),
    ("Contributing", "docs/contributing.md", "Add an operator, a pass or a backend."),
)
CARD = ":::{{container}} card\n**[{title}]({link})**\n\n{text}\n:::\n"
TREE = "```{{toctree}}\n:hidden:\n{options}\n{entries}\n```\n"


def tree(entries: Iterable[str], caption: str = "", titles: bool = True) -> str:
    """A list of pages for the navigation; the reader does not see it."""
    options = (f":caption: {caption}\n" if caption else "") + (":titlesonly:\n" if titles else "")
    return TREE.format(options=options, entries="\n".join(entries))


def relative(target: str, page: str) -> str:
    """The way from one page of the site to another file of it."""
    return os.path.relpath(target, os.path.dirname(page) or ".")


class Stage:
    """The sources of the site, being written to a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.page_of: dict[Path, str] = {}  # file of the repository -> page of the site
        self.sections = pages.readme_sections()
        self.part_of = {s: page for page, names in PARTS.items() for s in names}
        missing = [s for s in self.part_of if s not in self.sections]
        if missing:
            raise ValueError(f"README.md has no section {missing[0]!r}: see PARTS in {__file__}")

    def find_pages(self) -> None:
        """Says which page of the site each file becomes."""
        for path in (p for p in DOCS.rglob("*.md") if p.parent != Path(__file__).parent):
            name = path.relative_to(DOCS).with_suffix("").as_posix()
            self.page_of[path] = name[: -len("README")] + "index" if path.stem == "README" else name
        self.page_of[README] = "index"
        for name in ("reference/index", "reference/operators/index"):
            self.page_of[DOCS / f"{name}.md"] = name
        self.page_of[ROOT / "CHANGELOG.md"] = "changelog"
        for script in (DOCS / "examples").glob("*.py"):
            self.page_of[script] = f"examples/{script.stem}"

    def moved(self, text: str, origin: Path, page: str) -> str:
        """The text of a file as the text of a page: its links lead where they led."""
        done, out = 0, []
        for link in pages.links(text):
            out += [text[done : link.start()], self.target(link[0], origin, page)]
            done = link.end()
        return "".join([*out, text[done:]])

    def target(self, link: str, origin: Path, page: str) -> str:
        """The target of one link of `origin`, seen from `page`. Raises FileNotFoundError."""
        if pages.ADDRESS.match(link):
            return link
        name, hash_, place = link.partition("#")
        file = (origin.parent / name).resolve() if name else origin
        if file == README and place in self.part_of:  # a section that has a page of its own
            to = self.part_of[place]
            return relative(to + ".md", page) + (f"#{place}" if len(PARTS[to]) > 1 else "")
        if file in self.page_of:
            here = not name and self.page_of[file] == page
            return ("" if here else relative(self.page_of[file] + ".md", page)) + hash_ + place
        if not file.is_file():
            raise FileNotFoundError(f"{origin}: {link} leads to no file")
        if file.suffix in (".svg", ".png"):
            copy = file.relative_to(DOCS)
            self.put(copy, file.read_bytes())
            return relative(str(copy), page)
        return f"source:{file.relative_to(ROOT)}{hash_}{place}"

    def put(self, name: str | Path, data: bytes) -> None:
        """Writes a file, unless it is there as it is."""
        path = self.folder / name
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self.kept.add(path)

    def page(self, name: str, text: str, origin: Path | None = None) -> None:
        """Writes one page. origin: the file whose links the text has."""
        text = OTHER_LANGUAGE.sub("", text)
        if origin is not None:
            text = self.moved(text, origin, name)
        self.put(name + ".md", picture_tags(text).encode())

    def write(self, reference: bool = True) -> None:
        """Writes all, or all but the reference. What an earlier call left and this one did not
        write is removed."""
        self.kept: set[Path] = set()
        self.find_pages()
        for path, name in self.page_of.items():
            is_made = name.startswith("reference/")
            if path.suffix == ".md" and path != README and (reference or not is_made):
                self.page(name, path.read_text(encoding="utf-8"), path)
        self.start()
        for name, sections in PARTS.items():
            found = [self.sections[s] for s in sections]
            level = "#" if len(found) == 1 else "##"
            head = "" if len(found) == 1 else "# What works and what does not\n\n"
            body = "\n".join(f"{level} {s.title}\n{s.body}" for s in found)
            self.page(name, head + body, README)
        self.listing("guide", DOCS / "guide", "en")
        self.listing(
            "design",
            DOCS / "design",
            "en",
            (
                "Design",
                "How plait is built, and why: the problem, what was chosen, what was rejected.",
            ),
        )
        self.examples()
        for code in LANGUAGES:
            self.translation(code)
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in self.kept:
                path.unlink()

    def listing(
        self, name: str, folder: Path, code: str, words: tuple[str, str] | None = None
    ) -> None:
        """The page `name`/index: all pages of a folder, each with its first sentence."""
        head, text = words or WORDS[code]["guide"]
        found = pages.in_order(folder)
        lines = [f"# {head}\n\n{text}\n"]
        for path in found:
            to = relative(self.page_of[path] + ".md", f"{name}/index")
            lines.append(f"- [{pages.title(path)}]({to}): {pages.first_sentence(path)}")
        below = [self.page_of[p] for p in folder.rglob("*.md") if p.parent != folder]
        entries = [*(relative(self.page_of[p], f"{name}/index") for p in found)]
        entries += sorted(relative(p, f"{name}/index") for p in below)
        self.page(f"{name}/index", "\n".join(lines) + "\n\n" + tree(entries))

    def start(self) -> None:
        """The start page: README's beginning, its tour, and where to go on."""
        first, tour = self.sections[""].body, self.sections["a-short-tour"]
        cards = "".join(CARD.format(title=t, link=to, text=text) for t, to, text in CARDS)
        cards = f"::::{{container}} cards\n{cards}::::\n"
        text = f"# plait\n{first}\n{cards}\n## {tour.title}\n{tour.body}"
        text = self.moved(text, README, "index")
        text += tree(["self", "guide/index", "examples/index", "guide/migrating"], "Learn")
        text += tree(["reference/index", "reference/operators/index", "commands"], "Look up")
        text += tree(["status", "performance", "design/index"], "Know")
        text += tree(["contributing", "releasing", "changelog"], "Take part")
        there = [f"{code}/index" for code in LANGUAGES if (DOCS / code).is_dir()]
        text += tree(there, LANGUAGE_LIST) if there else ""
        self.page("index", text)

    def examples(self) -> None:
        """A page for each script of docs/examples/: what it says of itself, and its code."""
        scripts = sorted((DOCS / "examples").glob("*.py"))
        for script in scripts:
            code = script.read_text(encoding="utf-8")
            told = inspect.cleandoc(re.match(r'"""(.*?)"""', code, re.S)[1])
            told = re.sub(r"\n\n((?:(?: {4}.*|)\n?)+)", fenced, told)
            text = f"# {script.stem}.py\n\n{told}\n\n## {WORDS['en']['source']}\n\n"
            self.page(f"examples/{script.stem}", f"{text}```python\n{code}```\n")
        index = self.folder / "examples/index.md"
        names = [p.stem for p in scripts]
        told = index.read_text(encoding="utf-8")
        rest = [f"- [{n}.py]({n}.md)" for n in names if f"]({n}.md)" not in told]
        self.page("examples/index", "\n".join([told, *rest, "", tree(names)]))

    def translation(self, code: str) -> None:
        """The pages in another language: their start page and guide, as far as they are there."""
        folder = DOCS / code
        if not folder.is_dir():
            return
        if (folder / "guide").is_dir():
            self.listing(f"{code}/guide", folder / "guide", code)
        words = WORDS[code]
        index = self.folder / code / "index.md"
        text = index.read_text(encoding="utf-8") if index in self.kept else f"# {LANGUAGES[code]}\n"
        entries = ["self", *(["guide/index"] if (folder / "guide").is_dir() else [])]
        entries += [p.stem for p in pages.in_order(folder)]
        self.page(f"{code}/index", text + "\n" + tree(entries, words["start"]))


def picture_tags(text: str) -> str:
    """<img> as Markdown's pictures, which Sphinx copies and checks."""
    return re.sub(
        r'<img src="([^"]+)"[^>]*? alt="([^"]+)"[^>]*>',
        lambda m: f"![{' '.join(m[2].split())}]({m[1]})" + ("{.right}" if "right" in m[0] else ""),
        text,
    )


def fenced(block: re.Match[str]) -> str:
    """An indented block as a fenced one, so that its language is known."""
    code = inspect.cleandoc("\n" + block[1]).strip()
    if not code:
        return block[0]
    language = "sh" if re.match(r"python |apt", code) else "python"
    return f"\n\n```{language}\n{code}\n```\n\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    Stage(Path(sys.argv[1])).write()
