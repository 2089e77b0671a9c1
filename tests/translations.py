"""Keeps the Chinese pages in docs/zh in step with the English ones.

    make translations                                   what is out of date, and what else differs
    make translations ARGS="docs/zh/guide/data.md"      of this page only
    make translations ARGS="--done docs/zh/guide/data.md"

A Chinese page has the headings, code blocks, tables and links of the English page. Under each
heading it records a digest of the English section that was translated: <!-- en: 1a2b3c4d -->. A
section whose digest is another one today is out of date. For each, the first call prints the
sentences that changed in English (the old ones come from git), and the Chinese text. Translate what
changed; then `--done` records the new digests, copies the English code blocks, and sets the lines.

A page that has no translation is no fault. To begin one: write the headings and the text, an empty
code block (two lines of ```) for each code block, and call --done."""

import argparse
import difflib
import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import chinese

ROOT = Path(__file__).resolve().parent.parent
ZH = ROOT / "docs/zh"
HEADING = re.compile(r"(#{1,6}) (.*)")
MARK = re.compile(r"<!-- en: ([0-9a-f]{8}) -->")
LANGUAGE = re.compile(r"\[(?:English|中文)\]\([^)]*\)")  # the line that leads to the other language
CODE = re.compile(r"`[^`]+`")
TARGET = re.compile(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"")
NARROW = str.maketrans({"、": ", ", "；": "; ", "：": ": ", "，": ", "})
NUMBER = re.compile(r"\d(?:[\d.,]*\d)?")


@dataclass
class Section:
    """A heading and what follows it, up to the next heading."""

    level: int
    title: str
    line: int  # of the heading, from 1
    mark: str | None = None  # the digest under the heading
    body: list[str | list[str]] = field(default_factory=list)  # lines of prose; blocks of code

    @property
    def prose(self) -> list[str]:
        return [line for line in self.body if isinstance(line, str)]

    @property
    def blocks(self) -> list[list[str]]:
        return [block for block in self.body if isinstance(block, list)]

    @property
    def digest(self) -> str:
        """Of the words: lines may be broken elsewhere."""
        words = " ".join([self.title, *self.prose]).split()
        return hashlib.sha256(" ".join(words).encode()).hexdigest()[:8]

    @property
    def slug(self) -> str:
        """The heading's name in links, as GitHub makes it."""
        return re.sub(r"[^\w\- ]", "", self.title.lower()).replace(" ", "-")


def parse(text: str) -> list[Section]:
    sections: list[Section] = []
    block: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if block is not None:
            block.append(line)
            block = None if line.startswith("```") else block
        elif line.startswith("```"):
            block = [line]
            sections[-1].body.append(block)
        elif match := HEADING.fullmatch(line):
            sections.append(Section(len(match[1]), match[2], number))
        elif match := MARK.fullmatch(line):
            sections[-1].mark = match[1]
        elif not LANGUAGE.fullmatch(line):
            sections[-1].body.append(line)
    return sections


def english_of(page: Path) -> Path:
    """The page of which `page` in docs/zh is the translation."""
    name = page.relative_to(ZH)
    return ROOT / name if name == Path("README.md") else ROOT / "docs" / name


def chinese_of(page: Path) -> Path | None:
    """The translation of an English page, if there is one."""
    page = page.resolve()
    other = ZH / "README.md" if page == ROOT / "README.md" else None
    if page.is_relative_to(ROOT / "docs") and not page.is_relative_to(ZH):
        other = ZH / page.relative_to(ROOT / "docs")
    return other if other is not None and other.is_file() else None


def pages() -> list[Path]:
    """The translated pages. Those of docs/zh that have no English page are not translations."""
    return [page for page in sorted(ZH.rglob("*.md")) if english_of(page).exists()]


def link(target: str, english: Path, page: Path) -> str:
    """What the Chinese `page` writes where `english` links to `target`: the translation, where
    there is one."""
    path, hash_, anchor = target.partition("#")
    if ":" in target:
        return target
    file = (english.parent / path).resolve() if path else english
    if other := chinese_of(file):
        slugs = [section.slug for section in parse(file.read_text())]
        if anchor in slugs:
            anchor = parse(other.read_text())[slugs.index(anchor)].slug
        file = other
    return (os.path.relpath(file, page.parent) if path else "") + hash_ + anchor


def links(section: Section, page: Path | None = None) -> list[str]:
    """The targets in a section; of a Chinese `page` without those that only Chinese readers need,
    such as the glossary."""
    found = ["".join(parts) for parts in TARGET.findall("\n".join(section.prose))]
    if page is None:
        return found
    only = [p for p in ZH.rglob("*.md") if not english_of(p).exists()]
    return [t for t in found if (page.parent / t.partition("#")[0]).resolve() not in only]


def rows(section: Section) -> list[list[str]]:
    """The cells of all tables of a section."""
    lines = [line for line in section.prose if line.startswith("|")]
    return [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def facts(text: str) -> list[str]:
    """What no translation changes: the code and the numbers in a text."""
    code = [" ".join(span.split()) for span in CODE.findall(text)]
    return sorted({*code, *NUMBER.findall(TARGET.sub("", CODE.sub("", text)))})


def items(section: Section) -> int:
    return sum(re.match(r"\s*(?:[*-]|\d+\.) ", line) is not None for line in section.prose)


def differences(page: Path) -> Iterator[str]:
    """How a Chinese page differs from the English one in what should be the same."""
    english = english_of(page)
    name, other = page.relative_to(ROOT), english.relative_to(ROOT)
    old, new = parse(english.read_text()), parse(page.read_text())
    if [s.level for s in old] != [s.level for s in new]:
        outline = [f"{'#' * s.level} {s.title}" for s in old]
        yield f"{name}: the headings are not those of {other}: " + "; ".join(outline)
        return
    for a, b in zip(old, new):
        where = f"{name}:{b.line} {b.title}:"
        if a.blocks != b.blocks:
            yield f'{where} its code is not that of "{a.title}" in {other}'
        if items(a) != items(b):
            yield f"{where} its lists have {items(b)} items, the English ones {items(a)}"
        for what, theirs, ours in (
            ("links", [link(t, english, page) for t in links(a)], links(b, page)),
            ("code or numbers", facts("\n".join(a.prose)), facts("\n".join(b.prose))),
        ):
            missing, more = Counter(theirs) - Counter(ours), Counter(ours) - Counter(theirs)
            if missing or more:
                yield f"{where} {what}: lacks {[*missing]}, has {[*more]} beyond the English text"
        if [len(row) for row in rows(a)] != [len(row) for row in rows(b)]:
            yield f"{where} its tables have other rows or columns"
            continue
        for theirs, ours in zip(rows(a), rows(b)):
            for x, y in zip(theirs, ours):
                same = x == y.translate(NARROW)
                if not same and (facts(x) != facts(y) or not re.search(f"[{chinese.HAN}]", y)):
                    yield f"{where} a table has | {y} | where the English one has | {x} |"


def stale(page: Path) -> list[tuple[Section, Section]]:
    """Sections that changed in English since they were translated: (English, Chinese)."""
    sections = zip(parse(english_of(page).read_text()), parse(page.read_text()))
    return [(a, b) for a, b in sections if a.digest != b.mark]


def typography(page: Path) -> Iterator[str]:
    for section in parse(page.read_text()):
        lines = [section.title, "", *section.prose, ""]
        for line, following in zip(lines, lines[1:]):
            joined = "" if re.match(r"\s*(?:[*-] |\d+\. |\||<|$)", following) else following
            for fault in chinese.faults(line, joined):
                yield f"{page.relative_to(ROOT)} {section.title}: {fault} in: {line}"


def before(english: Path, digest: str | None) -> Section | None:
    """The English section with that digest, from the newest commit that has it."""
    name = str(english.relative_to(ROOT))

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout

    for commit in git("log", "--format=%H", "--", name).split():
        for section in parse(git("show", f"{commit}:{name}")):
            if section.digest == digest:
                return section
    return None


def sentences(section: Section) -> list[str]:
    text = re.sub(r"\n(?![\n|*-])", " ", "\n".join([section.title + ".", *section.prose]))
    return [s for s in re.split(r"(?<=[.:;]) +|\n+", text) if s.strip()]


def show(page: Path, a: Section, b: Section) -> None:
    """Prints what changed in English, and the Chinese section."""
    english = english_of(page)
    print(f'\n=== {english.relative_to(ROOT)}:{a.line} "{a.title}" changed')
    old = before(english, b.mark)
    if old is None:
        print("(git knows no older text; this is the new one)")
    changes = difflib.ndiff(sentences(old) if old else [], sentences(a))
    print("\n".join(line for line in changes if line[0] in "+-"))
    print(f"--- {page.relative_to(ROOT)}:{b.line}")
    print("\n".join([b.title, *b.prose]).strip())


def done(page: Path) -> None:
    """Records that `page` is up to date: writes digests, English code, links to the translations
    there are, and lines of full width."""
    english_page = english_of(page)
    english = parse(english_page.read_text())

    def linked(match: re.Match) -> str:
        target = match[1] or match[2]
        path, hash_, anchor = target.partition("#")
        file = (page.parent / path).resolve()
        original = target  # written as in the English page
        if ":" not in target and path and file.exists():
            file = english_of(file) if file in pages() else file
            original = os.path.relpath(file, english_page.parent) + hash_ + anchor
        exists = (english_page.parent / original.partition("#")[0]).exists()
        return match[0].replace(target, link(original, english_page, page)) if exists else match[0]

    text = page.read_text()
    head = re.findall(rf"^{LANGUAGE.pattern}$", text, re.M)
    text = TARGET.sub(linked, text)
    sections = parse(text)
    if [s.level for s in english] != [s.level for s in sections]:
        sys.exit("\n".join(differences(page)))
    lines: list[str] = []
    for a, b in zip(english, sections):
        lines += ["#" * b.level + " " + b.title, f"<!-- en: {a.digest} -->", ""]
        if head:
            lines += [head.pop(), ""]
        blocks = iter(a.blocks if len(a.blocks) == len(b.blocks) else b.blocks)
        body = [line if isinstance(line, str) else next(blocks) for line in b.body]
        lines += ["\n".join(layout(body)).strip(), ""]
    page.write_text("\n".join(lines).rstrip() + "\n")


def layout(body: list[str | list[str]]) -> list[str]:
    """The lines of a section: paragraphs and items are set anew, the rest stays."""
    lines: list[str] = []
    paragraph: list[str] = []

    def end() -> None:
        if paragraph:
            start = re.match(r"\s*(?:[*-] |\d+\. )?", paragraph[0])
            joined = paragraph[0]
            for line in paragraph[1:]:
                joined += join(joined, line.lstrip()) + line.lstrip()
            lines.extend(chinese.wrap(chinese.spaced(joined), " " * len(start[0])).split("\n"))
            paragraph.clear()

    for line in body:
        if isinstance(line, list) or re.match(r"\||<|\s*$", line):
            end()
            lines += line if isinstance(line, list) else [line]
        else:
            if re.match(r"\s*(?:[*-] |\d+\. )", line):
                end()
            paragraph.append(line)
    end()
    return lines


def join(before: str, after: str) -> str:
    """What stands between two lines of a paragraph when they become one."""
    wide = f"[{chinese.HAN}{chinese.FULL}{chinese.OPENS}]"
    if before[-1] in chinese.FULL or (re.match(wide, before[-1]) and re.match(wide, after)):
        return ""
    return " "


def main() -> int:
    parser = argparse.ArgumentParser(description="Keeps docs/zh in step with the English pages.")
    parser.add_argument("pages", nargs="*", type=Path, help="Chinese pages; all, if none is named")
    parser.add_argument("--done", action="store_true", help="record that the pages are up to date")
    options = parser.parse_args()
    chosen = [page.resolve() for page in options.pages] or pages()
    if options.done:
        if not options.pages:
            parser.error("--done: name the pages that you translated")
        for page in chosen:
            done(page)
    wrong = 0
    for page in chosen:
        for a, b in stale(page):
            show(page, a, b)
            wrong += 1
        for problem in [*differences(page), *typography(page)]:
            print(problem)
            wrong += 1
    print("docs/zh: ok" if not wrong else f"docs/zh: {wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
