"""The pages of the documentation: which there are, in what order, and whether their links lead
somewhere. Read by the site (stage.py) and by tests/test_site.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
FENCE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2`*\s*?$", re.M | re.S)
SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.S)
LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))|(?<=src=\")[^\"]+(?=\")")
HEADING = re.compile(r"^(#{1,6}) +(.+?) *#*$", re.M)
ADDRESS = re.compile(r"[a-z][a-z+.-]*:")  # of something that is not a file


class Section(NamedTuple):
    """A part of README.md: its heading and the text below it."""

    title: str
    body: str


def blank(match: re.Match[str]) -> str:
    """As long as the match and with its lines, and says nothing."""
    return re.sub(r"[^\n]", " ", match[0])


def prose(text: str) -> str:
    """Markdown without its code, everything else at its place."""
    return SPAN.sub(blank, FENCE.sub(blank, text))


def links(text: str) -> Iterator[re.Match[str]]:
    """The targets of links and pictures, with their places in the text."""
    return LINK.finditer(prose(text))


def title(path: Path) -> str:
    """The first heading of a page. Raises ValueError where it has none."""
    text = path.read_text(encoding="utf-8")
    found = HEADING.search(FENCE.sub(blank, text))
    if found is None or found[1] != "#":
        raise ValueError(f"{path} does not begin with a heading: # Title")
    return found[2].replace("`", "")


def first_sentence(path: Path) -> str:
    """What a page says first, as Markdown without links; of design pages, what they chose."""
    text = path.read_text(encoding="utf-8")
    for paragraph in re.split(r"\n\s*\n", text)[1:]:
        plain = " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", paragraph).split())
        if re.match(r"[#|<`!>*\d-] ?", plain) and not plain.startswith(("**", "`")):
            continue
        plain = re.sub(r"^\*\*\w+\.\*\* ", "", plain)  # **Problem.**
        return re.split(r"(?<=[.!?:])\s|(?<=。)", plain)[0].rstrip(":") if plain else ""
    return ""


def anchor(heading: str, seen: dict[str, int]) -> str:
    """The anchor that forges give a heading. seen: how often each was given on this page."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
    seen[slug] = seen.get(slug, -1) + 1
    return f"{slug}-{seen[slug]}" if seen[slug] else slug


def anchors(path: Path) -> set[str]:
    """All anchors of a page."""
    text, seen = FENCE.sub(blank, path.read_text(encoding="utf-8")), {}
    return {anchor(h[2], seen) for h in HEADING.finditer(text)}


def readme_sections() -> dict[str, Section]:
    """Anchor -> section of README.md; "": what stands before the first one."""
    parts = re.split(r"^## +(.+)$", README.read_text(encoding="utf-8"), flags=re.M)
    found = {"": Section(title(README), re.sub(r"\A# .+\n", "", parts[0]))}
    for name, body in zip(parts[1::2], parts[2::2]):
        found[anchor(name, {})] = Section(name, body)
    return found


def in_order(folder: Path) -> list[Path]:
    """The pages of a folder of docs/: as README.md links them, then the rest by title. Pages in
    another language have the order of those that they translate."""
    told: list[str] = []
    for target in links(README.read_text(encoding="utf-8")):
        path = ROOT / target[0].partition("#")[0]
        if path.suffix == ".md" and path.parent.name == folder.name and path.parent.parent == DOCS:
            told += [path.name] if path.name not in told else []
    here = {p.name: p for p in folder.glob("*.md") if p.name not in ("README.md", "index.md")}
    rest = sorted(here.keys() - set(told), key=lambda name: title(here[name]).lower())
    return [here[name] for name in (*told, *rest) if name in here]


def written() -> list[Path]:
    """Every Markdown page that people wrote."""
    made = DOCS / "reference"
    return [
        README,
        ROOT / "CHANGELOG.md",
        *sorted(p for p in DOCS.rglob("*.md") if made not in p.parents),
    ]


def broken_links(path: Path) -> list[str]:
    """What is wrong with the links and pictures of a page: the file is not there, or the heading
    in it; or a path that works on this machine only."""
    text = path.read_text(encoding="utf-8")
    found = []
    for link in links(text):
        name, _, place = link[0].partition("#")
        if ADDRESS.match(link[0]):
            continue
        target = path if not name else path.parent / name
        line = text.count("\n", 0, link.start()) + 1
        if name.startswith("/") or ROOT not in target.resolve().parents:
            problem = "leads out of the repository"
        elif not target.exists():
            problem = "leads to no file"
        elif place and target.suffix == ".md" and place not in anchors(target):
            problem = f"names a heading that {target.name} does not have"
        else:
            continue
        found.append(f"{path.relative_to(ROOT)}:{line}: {link[0]} {problem}")
    return found
