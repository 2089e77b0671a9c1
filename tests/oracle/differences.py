"""The differences from MXNet that we know and mean, each with its reason and the call that shows
it. A difference that no entry explains is a bug; an entry that explains nothing in a run of all
operators is reported as stale."""

from __future__ import annotations

import re

from . import conditions as c
from .known import Known, arrays, layers, updates, vision

KNOWN = [*arrays.KNOWN, *layers.KNOWN, *vision.KNOWN, *updates.KNOWN]
# what a condition raises on a call that it does not speak of
UNSPOKEN = (ArithmeticError, LookupError, TypeError, ValueError)


def _explains(k: Known, call, d) -> bool:
    if not (
        re.fullmatch(k.operator, call.ours)
        and re.fullmatch(k.what, d.what)
        and re.search(k.text, d.text)
    ):
        return False
    try:
        return k.when(call) and (
            k.where is c.everywhere or d.wrong is not None and k.where(call, d)
        )
    except UNSPOKEN:
        return False


def explanation(call, d) -> Known | None:
    """The first entry that explains a difference of a call."""
    return next((k for k in KNOWN if _explains(k, call, d)), None)
