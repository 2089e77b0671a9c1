"""Where the user's code stands: file and line as a small int that operations carry, and back."""

from __future__ import annotations

import functools
import sys
from types import CodeType, FrameType

PACKAGE = __name__.partition(".")[0]
MAX_LOCATIONS = 1 << 20

_codes: list[CodeType] = []  # of each location, and the instruction in it
_instructions: list[int] = []
_ids: dict[
    int, dict[int, int]
] = {}  # id(code) -> instruction -> location; the list keeps the code alive


@functools.cache
def _is_inside(module: str) -> bool:
    return module == PACKAGE or module.startswith(PACKAGE + ".")


def capture_call() -> tuple[int, str]:
    """`capture`, and the name of the package's function that was called there."""
    frame: FrameType | None = sys._getframe(1)
    name = ""
    while frame is not None and _is_inside(frame.f_globals.get("__name__", "")):
        name, frame = frame.f_code.co_name, frame.f_back
    return _of_frame(frame), name


def capture() -> int:
    """The location of the innermost frame outside the package; -1 if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_inside(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return _of_frame(frame)


def _of_frame(frame: FrameType | None) -> int:
    if frame is None:
        return -1
    code, instruction = frame.f_code, frame.f_lasti
    known = _ids.get(id(code))
    if known is not None and instruction in known:
        return known[instruction]
    if len(_codes) >= MAX_LOCATIONS:
        return -1
    _codes.append(code)  # two threads may both append: each id stays right
    _instructions.append(instruction)
    at = len(_codes) - 1
    while _codes[at] is not code or _instructions[at] != instruction:
        at -= 1
    return _ids.setdefault(id(code), {}).setdefault(instruction, at)


def text(location: int) -> str | None:
    """'file.py:41' of a location, or None when it is not known."""
    if not 0 <= location < len(_instructions):
        return None
    code, instruction = _codes[location], _instructions[location]
    line = code.co_firstlineno
    for start, end, at in code.co_lines():
        if start <= instruction < end and at is not None:
            line = at
    return f"{code.co_filename}:{line}"
