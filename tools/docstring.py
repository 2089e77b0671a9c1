"""Docstrings, read as the project writes them, as Markdown.

A docstring is prose, then fields: `Args:` with one parameter a line (or several, `a: text. b:
text`), `Shapes:`, `Returns:`, `Raises:`, `Source:` and others like them, and examples (`>>>`).
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Collection
from typing import NamedTuple

FIELD = re.compile(r"(Args|Shapes?|Returns|Yields|Raises|Source|Example|Files?): ?(.*)\Z", re.S)
PARAMETER = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*): +(.*)\Z", re.S)
SPAN = re.compile(r"(`[^`\n]+`|https?://\S+)")


class Docstring(NamedTuple):
    """The parts of a docstring. prose: Markdown. parameters: name -> what it is, as Markdown.
    fields: (Returns, Markdown) and others. example: code with `>>>`, or ""."""

    prose: str
    parameters: dict[str, str]
    fields: list[tuple[str, str]]
    example: str

    @property
    def summary(self) -> str:
        """The first sentence, on one line."""
        first = " ".join(self.prose.split("\n\n")[0].split())
        return re.split(r"(?<=[.!?])\s+(?=[A-Z`(])", first)[0]


def escape(text: str) -> str:
    """Plain text as Markdown that reads the same; code between backticks stays."""
    parts = SPAN.split(text)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([*<>\[\]|\\])|(?<!\w)_|_(?!\w)", lambda m: "\\" + m[0], parts[i])
    return "".join(parts)


def read(text: str, names: Collection[str] = ()) -> Docstring:
    """The parts of a docstring. names: of the parameters, which tell `a: text. b: text` apart."""
    prose: list[str] = []
    fields: list[tuple[str, str]] = []
    parameters: dict[str, str] = {}
    example: list[str] = []
    for block in blocks(inspect.cleandoc(text)):
        found = FIELD.match(block)
        if ">>> " in block.split("\n")[0]:
            example.append(textwrap.dedent(block))
        elif found is None:
            prose.append(markdown(block))
        elif found[1] == "Args":
            parameters |= arguments(found[2], set(names))
        else:
            fields.append((found[1], escape(" ".join(found[2].split()))))
    return Docstring("\n\n".join(prose), parameters, fields, "\n\n".join(example))


def blocks(text: str) -> list[str]:
    """Paragraphs, fields and examples, in their order."""
    found: list[list[str]] = [[]]
    for line in text.split("\n"):
        is_new = (
            not line.strip()
            or bool(FIELD.match(line))
            or (line.lstrip().startswith(">>> ") and not inside_example(found[-1]))
        )
        if is_new:
            found.append([])
        if line.strip():
            found[-1].append(line)
    return ["\n".join(lines) for lines in found if lines]


def inside_example(lines: list[str]) -> bool:
    return bool(lines) and lines[0].lstrip().startswith(">>> ")


def markdown(block: str) -> str:
    """A paragraph. Indented ones are code; lists stay lists."""
    if all(line.startswith("    ") for line in block.split("\n")):
        return f"```python\n{textwrap.dedent(block)}\n```"
    if re.match(r" *[-*] ", block):
        items = re.split(r"\n *(?=[-*] )", textwrap.dedent(block))
        return "\n".join("- " + escape(" ".join(item[2:].split())) for item in items)
    return escape(" ".join(block.split()))


def arguments(text: str, names: set[str]) -> dict[str, str]:
    """The lines of `Args:` as name -> Markdown; what is no parameter's line stands under ""."""
    lines = textwrap.dedent(text.strip("\n")).split("\n") if "\n" in text else [text.strip()]
    entries: list[str] = []
    for line in lines:
        if line.startswith(" ") and entries:
            entries[-1] += " " + line.strip()
        elif line.strip():
            entries.append(line.strip())
    found: dict[str, str] = {}
    for entry in entries:
        for part in re.split(r"(?<=[.;]) (?=\*{0,2}\w+(?:, \*{0,2}\w+)*: )", entry):
            match = PARAMETER.match(part)
            keys = match[1].replace("*", "").split(", ") if match else []
            if match and (not names or names & set(keys)):
                for key in keys:
                    found[key] = escape(match[2])
            elif found:
                last = next(reversed(found))
                found[last] += " " + escape(part)
            else:
                found[""] = escape(part)
    return found
