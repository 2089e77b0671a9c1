"""How lines of Markdown are set, English and Chinese: how wide they are, where they may break, and
where spaces and punctuation of full width belong.

A line break inside a paragraph is shown as a space. Chinese words have no spaces between them, so a
line of Chinese ends only where a space belongs (between a Chinese word and a Latin one, a number or
code) or where it is not seen (after punctuation of full width)."""

import re
import unicodedata

COLUMNS = 120  # of C, CUDA and Markdown; ruff counts Python's
HAN = r"\u3400-\u4dbf\u4e00-\u9fff"
ENDS = "，。；：？！、）》"  # after these a line may end
OPENS = "（《"
# what no line breaks: a code span, a link, a run of Latin letters, a Chinese character
ATOM = re.compile(rf"`[^`]*`|\[[^]]*\]\([^)]*\)|\s+|[^\s`\[{HAN}{ENDS}{OPENS}]+|.")


def columns(line: str) -> int:
    """Columns of `line`: wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def wrap(paragraph: str, indent: str = "") -> list[str]:
    """The lines of `paragraph`, of at most COLUMNS columns where that can be; all but the first
    begin with `indent`."""
    lines, row = [], []  # row: the atoms of the line that grows
    for atom in ATOM.findall(paragraph):
        if columns("".join([*row, atom]).rstrip()) > COLUMNS and (end := line_end(row)):
            lines.append("".join(row[:end]).rstrip())
            row = [indent + "".join(row[end : end + 1]).lstrip(), *row[end + 1 :]]
        row.append(atom)
    return [*lines, "".join(row).rstrip()]


def line_end(row: list[str]) -> int:
    """How many atoms to keep on a line; 0: it cannot be broken. A space in its last quarter is the
    best place: a break after punctuation adds a little space. A number stays with its unit."""
    kept, spaces, ends = "", [], []
    for count, atom in enumerate(row, 1):
        if kept.strip() and (atom in ENDS or (atom.isspace() and not kept[-1].isdigit())):
            ends.append(count)
        kept += atom
        if ends[-1:] == [count] and atom.isspace() and columns(kept) > COLUMNS * 3 // 4:
            spaces.append(count)
    return max(spaces or ends, default=0)


def joined(lines: list[str]) -> str:
    """The lines of a paragraph as one."""
    text = lines[0]
    for line in map(str.lstrip, lines[1:]):
        tight = text[-1] in ENDS + OPENS or line[0] in ENDS + OPENS
        tight |= bool(re.match(rf"[{HAN}]{{2}}", text[-1] + line[0]))
        text += line if tight else " " + line
    return text


def spaced(text: str) -> str:
    """`text` with a space between Chinese words and Latin ones, numbers and code."""
    text = re.sub(rf"([{HAN}])(?=(?:\*\*)?[A-Za-z0-9`])", r"\1 ", text)
    return re.sub(rf"([A-Za-z0-9`%])(?=[{HAN}])", r"\1 ", text)


def faults(line: str, following: str = "") -> list[str]:
    """What is wrong with spaces, punctuation and the end of a line of Chinese. following: the next
    line of its paragraph."""
    bare = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "`x`", line))
    rules = {
        "no space between Chinese and Latin": rf"[{HAN}][A-Za-z0-9`]|[A-Za-z0-9`][{HAN}]",
        "punctuation of half width": rf"[{HAN}][,;:?!.(]|\)[{HAN}]",
        "a space that does not belong there": rf"[{HAN}] +[{HAN}]| [{ENDS}{OPENS}]|[{ENDS}] [^|]",
    }
    found = [(what, re.search(rule, bare)) for what, rule in rules.items()]
    result = [f"{what}: {match[0]}" for what, match in found if match]
    ends = line[-1:] + following.lstrip()[:1]
    if re.match(rf"[{HAN}{OPENS}][{HAN}{OPENS}]|.[{ENDS}]", ends):
        result.append(f"the line break would be shown as a space: {ends}")
    return result
