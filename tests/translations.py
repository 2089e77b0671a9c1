"""Keeps the Chinese pages in docs/zh in step with the English ones.

    make translations                                        what changed in English since
    make translations ARGS=docs/zh/guide/data.md             for this page only
    make translations ARGS="--done docs/zh/guide/data.md"    records that it is translated

A Chinese page has the headings, the code, the tables and the links of its English page, and in its
text the same code spans and numbers. Under each heading stands a digest of the English section that
was translated, <!-- en: 1a2b3c4d -->. If the English section has another one today, the Chinese
section is out of date: it is shown with the sentences that changed (git has the old ones).
Translate these; then --done records the digests, copies the English code, sets links, and breaks
lines. Nobody writes digests or copies code by hand.

A page without a translation is no fault, and its readers are led to the English one. To begin a
translation write the headings and the text, an empty code block where the English page has code
(two lines of ```), and call --done. The words to use are in docs/zh/glossary.md."""

import argparse
import difflib
import functools
import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import typesetting
from typesetting import HAN

ROOT = Path(__file__).resolve().parent.parent
HEADING = re.compile(r"(#{1,6}) (.*)")
MARK = re.compile(r"<!-- en: (\w+) -->")
LANGUAGE = re.compile(r"\[(?:English|中文)\]\([^)]*\)")  # the line that leads to the other language
ITEM = re.compile(r"\s*(?:[*-]|\d+\.) ")
TARGET = re.compile(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"")
CODE = re.compile(r"`[^`]+`")
NUMBER = re.compile(r"\d(?:[\d.,]*\d)?")
NARROW = str.maketrans({"、": ", ", "，": ", ", "；": "; ", "：": ": "})


@dataclass
class Section:
    """A heading and what follows it, up to the next heading."""

    level: int
    title: str
    line: int  # of the heading, from 1
    mark: str | None = None  # the digest under the heading
    body: list[str | list[str]] = field(default_factory=list)  # lines; blocks of code as lists

    @property
    def prose(self) -> list[str]:
        return [part for part in self.body if isinstance(part, str)]

    @property
    def code(self) -> list[list[str]]:
        return [part for part in self.body if isinstance(part, list)]

    @property
    def text(self) -> str:
        return "\n".join([self.title, *self.prose])

    @property
    def digest(self) -> str:
        """Of the words of title and prose, wherever lines break."""
        words = " ".join(self.text.split())
        return hashlib.sha256(words.encode()).hexdigest()[:8]

    @property
    def slug(self) -> str:
        """The heading's name in links, as GitHub makes it."""
        return re.sub(r"[^\w\- ]", "", self.title.lower()).replace(" ", "-")

    @property
    def links(self) -> list[str]:
        return [a or b for a, b in TARGET.findall("\n".join(self.prose))]

    @property
    def items(self) -> int:
        return sum(bool(ITEM.match(line)) for line in self.prose)

    @property
    def rows(self) -> list[list[str]]:
        """The cells of its tables."""
        lines = [line for line in self.prose if line.startswith("|")]
        return [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def parse(text: str, name: str = "the page") -> list[Section]:
    if not HEADING.match(text):
        raise ValueError(f"{name} must begin with its heading, not with {text[:40]!r}")
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


class Translations:
    """The pages of a folder: README.md and docs/, and their translations in docs/zh."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root, self.zh = root, root / "docs/zh"

    def pages(self) -> list[Path]:
        """The Chinese pages that are translations, so not the glossary."""
        return [page for page in sorted(self.zh.rglob("*.md")) if self.english(page).is_file()]

    def english(self, page: Path) -> Path:
        """The page of which a Chinese `page` is the translation."""
        name = page.relative_to(self.zh)
        return self.root / name if name == Path("README.md") else self.root / "docs" / name

    def chinese(self, page: Path) -> Path | None:
        """The translation of an English page, if there is one."""
        return next((other for other in self.pages() if self.english(other) == page), None)

    def name(self, page: Path) -> str:
        return str(page.relative_to(self.root))

    def read(self, page: Path) -> list[Section]:
        return parse(page.read_text(), self.name(page))

    def link(self, target: str, page: Path) -> str:
        """What the Chinese `page` writes for a link of the English one: to a translation, if
        there is one."""
        path, sharp, anchor = target.partition("#")
        english = self.english(page)
        file = (english.parent / path).resolve() if path else english
        if ":" in target or not file.exists():
            return target
        if other := self.chinese(file):
            slugs = [section.slug for section in self.read(file)]
            if anchor in slugs:
                anchor = self.read(other)[slugs.index(anchor)].slug
            file = other
        return (os.path.relpath(file, page.parent) if path else "") + sharp + anchor

    def back(self, target: str, page: Path) -> str:
        """The link of the English page for which the Chinese `page` has `target`; a target that
        leads nowhere is taken for one that was copied from there."""
        path, sharp, anchor = target.partition("#")
        file = (page.parent / path).resolve()
        if ":" in target or not path or not file.exists():
            return target
        file = self.english(file) if file in self.pages() else file
        return os.path.relpath(file, self.english(page).parent) + sharp + anchor

    def pairs(self, page: Path) -> Iterator[tuple[Section | None, Section | None]]:
        """English and Chinese sections that belong together; None where one has no other."""
        ours = self.read(page)
        theirs = self.read(self.english(page))
        if [s.level for s in theirs] == [s.level for s in ours]:
            yield from zip(theirs, ours)
            return
        matcher = difflib.SequenceMatcher(None, [s.digest for s in theirs], [s.mark for s in ours])
        for _, a, b, c, d in matcher.get_opcodes():
            if b - a == d - c:
                yield from zip(theirs[a:b], ours[c:d])
            else:
                yield from ((section, None) for section in theirs[a:b])
                yield from ((None, section) for section in ours[c:d])

    def stale(self, page: Path) -> list[tuple[Section | None, Section | None]]:
        """The pairs whose English text is not the one that was translated."""
        return [(a, b) for a, b in self.pairs(page) if not (a and b and a.digest == b.mark)]

    def differences(self, page: Path) -> Iterator[str]:
        """How `page` differs from the English page in what is the same in all languages."""
        for a, b in self.pairs(page):
            if a is None or b is None:
                continue  # stale
            where = f'{self.name(page)}:{b.line} "{b.title}" ("{a.title}"):'
            if a.level != b.level:
                yield f"{where} a heading of level {b.level}, not {a.level}"
            if a.code != b.code:
                yield f"{where} its code is not the English page's"
            if a.items != b.items:
                yield f"{where} its lists have {b.items} items, not {a.items}"
            links = [self.link(target, page) for target in a.links]
            ours = [t for t in b.links if t in links or not self.is_only_chinese(t, page)]
            yield from (f"{where} {text}" for text in unlike("links", links, ours))
            yield from (f"{where} {text}" for text in unlike("text", facts(a.text), facts(b.text)))
            if [len(row) for row in a.rows] != [len(row) for row in b.rows]:
                yield f"{where} its tables have other rows or columns"
                continue
            for x, y in ((x, y) for r, s in zip(a.rows, b.rows) for x, y in zip(r, s)):
                translated = re.search(f"[{HAN}]", y) and facts(x) == facts(y)
                if not translated and x != y.translate(NARROW):
                    yield f"{where} a table has | {y} | for | {x} |"

    def is_only_chinese(self, target: str, page: Path) -> bool:
        """Is it a page of docs/zh that has no English one, such as the glossary?"""
        file = (page.parent / target.partition("#")[0]).resolve()
        return file.is_relative_to(self.zh) and file.is_file() and file not in self.pages()

    def typography(self, page: Path) -> Iterator[str]:
        for section in self.read(page):
            lines = [section.title, "", *section.prose, ""]
            for line, following in zip(lines, lines[1:]):
                if re.match(r"\||<|$", following) or ITEM.match(following):
                    following = ""  # no line of the same paragraph
                for fault in typesetting.faults(line, following):
                    yield f"{self.name(page)} {section.title}: {fault}, in: {line}"

    @functools.cache
    def versions(self, page: Path) -> list[list[Section]]:
        """The sections of a page at each commit that changed it, the newest first."""

        def git(*words: str) -> str:
            command = ["git", "-C", str(self.root), *words]
            return subprocess.run(command, capture_output=True, text=True).stdout

        commits = git("log", "--full-history", "--format=%H", "--", self.name(page)).split()
        texts = [git("show", f"{commit}:./{self.name(page)}") for commit in commits]
        return [parse(text) for text in texts if HEADING.match(text)]  # none where it is deleted

    def report(self, page: Path) -> Iterator[str]:
        """What is out of date in `page`: what changed in English, and the Chinese text."""
        english = self.english(page)
        for a, b in self.stale(page):
            if a is None:
                yield f'\n=== {self.name(page)}:{b.line} "{b.title}": no such section in English'
                continue
            yield f'\n=== {self.name(english)}:{a.line} "{a.title}"'
            if b is None:
                yield f"new, not in {self.name(page)}:\n{a.text}"
                continue
            found = (s for version in self.versions(english) for s in version if s.digest == b.mark)
            old = next(found, None)
            if old is None:
                yield "(git has no text with the recorded digest: this is all of today's)"
            changes = difflib.ndiff(sentences(old) if old else [], sentences(a))
            yield from (line for line in changes if line[0] in "+-")
            yield f"--- {self.name(page)}:{b.line}\n" + re.sub(r"\n{3,}", "\n\n", b.text)

    def done(self, page: Path) -> None:
        """Records that `page` is translated: writes the digests, the English code, the links and
        the lines. Raises ValueError if the headings are not the English page's."""
        text = page.read_text()
        theirs, ours = self.read(self.english(page)), self.read(page)
        if [s.level for s in theirs] != [s.level for s in ours]:
            headings = "".join(f"\n  {'#' * s.level} {s.title}" for s in theirs)
            raise ValueError(f"{self.name(page)}: its headings must be those of:{headings}")
        language = LANGUAGE.search(text)
        lines = []
        for a, b in zip(theirs, ours):
            lines += ["#" * b.level + " " + b.title, f"<!-- en: {a.digest} -->", ""]
            if language and b is ours[0]:
                lines += [language[0], ""]
            code = iter(a.code if len(a.code) == len(b.code) else b.code)
            body = [part if isinstance(part, str) else next(code) for part in b.body]
            lines += ["\n".join(self.set(body, page)).strip(), ""]
        page.write_text("\n".join(lines).rstrip() + "\n")

    def set(self, body: list[str | list[str]], page: Path) -> list[str]:
        """The lines of a section: paragraphs and list items are broken anew."""
        lines: list[str] = []
        paragraph: list[str] = []

        def end() -> None:
            if paragraph:
                indent = ITEM.match(paragraph[0])
                text = typesetting.spaced(typesetting.joined(paragraph))
                lines.extend(typesetting.wrap(text, " " * len(indent[0]) if indent else ""))
                paragraph.clear()

        def linked(match: re.Match) -> str:
            target = match[1] or match[2]
            return match[0].replace(target, self.link(self.back(target, page), page))

        for part in [*body, ""]:
            if isinstance(part, list):
                end()
                lines += part
                continue
            line = TARGET.sub(linked, part)
            alone = re.match(r"\||<|\s*$", line)
            if alone or ITEM.match(line):
                end()
            (lines if alone else paragraph).append(line)
        return lines


def facts(text: str) -> list[str]:
    """What no translation changes: code spans and numbers."""
    code = {" ".join(span.split()) for span in CODE.findall(text)}
    return sorted({*code, *NUMBER.findall(TARGET.sub("", CODE.sub("", text)))})


def unlike(what: str, theirs: list[str], ours: list[str]) -> Iterator[str]:
    lacks, more = Counter(theirs) - Counter(ours), Counter(ours) - Counter(theirs)
    if lacks or more:
        yield f"{what}: lacks {[*lacks]}, has {[*more]}"


def sentences(section: Section) -> list[str]:
    text = re.sub(r"\n(?![\n|*-])", " ", section.text.replace("\n", ".\n", 1))
    return [part for part in re.split(r"(?<=[.:;]) +|\n+", text) if part.strip()]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Keeps docs/zh in step with the English pages.")
    parser.add_argument("pages", nargs="*", type=Path, help="Chinese pages (default: all)")
    parser.add_argument("--done", action="store_true", help="record that the pages are translated")
    options = parser.parse_args(arguments)
    if options.done and not options.pages:
        parser.error("--done: name the pages that you translated")
    translations = Translations()
    known = translations.pages()
    chosen = [page.resolve() for page in options.pages] or known
    for page in chosen:
        if page not in known:
            parser.error(f"{page}: no translation; those of docs/guide/X.md are docs/zh/guide/X.md")
    try:
        for page in chosen if options.done else []:
            translations.done(page)
    except ValueError as error:
        parser.error(str(error))
    found = [
        line
        for page in chosen
        for check in (translations.report, translations.differences, translations.typography)
        for line in check(page)
    ]
    print("\n".join(found) or f"translations: ok ({len(chosen)} pages)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
