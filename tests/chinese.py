"""How Chinese text is set in Markdown: widths of lines, where they break, spaces, punctuation.

A line break in a paragraph is shown as a space. So a line may end only where a space belongs, or
where nobody sees one: between a Chinese word and a word in Latin letters, or after punctuation of
full width."""

import re
import unicodedata

COLUMNS = 120
HAN = r"\u3400-\u4dbf\u4e00-\u9fff"
FULL = "，。；：？！、）》」』】"  # after these a line may end
OPENS = "（《「『【"
LATIN = r"A-Za-z0-9`$%&@#+=\[<"  # begins a word that is set apart from Chinese by a space
# what a line never breaks: code, a link, a run of what is neither space nor Chinese
ATOM = re.compile(rf"`[^`]*`|\[[^]]*\]\([^)]*\)|[^\s`\[{HAN}{FULL}{OPENS}]+|\s+|.")


def columns(line: str) -> int:
    """Columns of `line` where wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def spaced(text: str) -> str:
    """`text` with a space between Chinese and Latin words, numbers and code."""
    text = re.sub(rf"(?<=[{HAN}])(?=\*{{0,2}}[A-Za-z0-9`])(?<!\*)", " ", text)
    return re.sub(rf"(?<=[A-Za-z0-9`%])(?=[{HAN}])", " ", text)


def wrap(paragraph: str, indent: str = "") -> str:
    """`paragraph` in lines of at most 120 columns; all but the first begin with `indent`."""
    lines, line, good = [], "", 0  # good: where `line` may be cut
    for atom in ATOM.findall(paragraph):
        if columns(line + atom.rstrip()) > COLUMNS and good > len(indent):
            lines.append(line[:good].rstrip())
            line, good = indent + line[good:].lstrip(), 0
        line += atom
        if atom.isspace() or atom in FULL:
            good = len(line)
    return "\n".join([*lines, line.rstrip()])


def faults(line: str, following: str) -> list[str]:
    """What is wrong with the spaces and the punctuation of a line of prose. following: the next
    line of the paragraph, or nothing."""
    found = []
    bare = re.sub(r"`[^`]*`", "`x`", line)
    bare = re.sub(r"\]\([^)]*\)", "]", bare)
    if match := re.search(rf"[{HAN}][A-Za-z0-9`]|[A-Za-z0-9`][{HAN}]", bare):
        found.append(f"no space between Chinese and Latin: {match[0]}")
    if match := re.search(rf"[{HAN}] ?[,;:?!](?![\w/])|[{HAN}][.(]|\)[{HAN}]", bare):
        found.append(f"punctuation of half width: {match[0]}")
    if match := re.search(rf"[{HAN}] [{HAN}]| [{FULL}{OPENS}]|[{FULL}{OPENS}] (?!\|)", bare):
        found.append(f"a space that does not belong there: {match[0]}")
    end, start = line[-1:], following.lstrip()[:1]
    if start and re.match(rf"[{HAN}{OPENS}]", end) and re.match(rf"[{HAN}{FULL}{OPENS}]", start):
        found.append(f"the line break would be shown as a space: {end}|{start}")
    return found
