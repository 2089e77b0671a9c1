"""Where the user's code called: file and line of the first frame outside the package, as a small int."""
from __future__ import annotations

import sys

_ROOT = __name__.split(".")[0] + "."
_ids: dict[tuple, int] = {}
_known: list[tuple] = []


def capture() -> int:
    """The id of the caller's line outside the package."""
    frame = sys._getframe(1)
    while frame is not None and (frame.f_globals.get("__name__", "") + ".").startswith(_ROOT):
        frame = frame.f_back
    if frame is None:
        return -1
    key = (frame.f_code, frame.f_lineno)
    found = _ids.get(key)
    if found is None:
        found = _ids[key] = len(_known)
        _known.append(key)
    return found


def text(location: int) -> str | None:
    """"file:line" of an id."""
    if not 0 <= location < len(_known):
        return None
    code, line = _known[location]
    return f"{code.co_filename}:{line}"
