"""The differences from MXNet that we know and mean, each with its reason. A difference that no line
explains is a bug."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


class Known(NamedTuple):
    """operator, what, text: patterns that match whole names, kinds and parts of messages."""

    operator: str
    what: str
    reason: str
    text: str = ""
    when: Callable = lambda call: True


KNOWN: list[Known] = []


def explanation(call, what: str, text: str) -> str | None:
    for k in KNOWN:
        if (
            re.fullmatch(k.operator, call.ours)
            and re.fullmatch(k.what, what)
            and re.search(k.text, text)
            and k.when(call)
        ):
            return k.reason
    return None
