"""Differences from MXNet that we know and mean: what an entry says. The entries stand in a file for
each family of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .. import conditions as c


class Known(NamedTuple):
    """operator, what, text: patterns that match whole names, kinds and parts of messages; when: a
    condition on the call; where: on the elements that differ. The reason was found by the call in
    `shows`."""

    operator: str
    what: str
    reason: str
    shows: str
    when: Callable
    text: str = ""
    where: Callable = c.everywhere


ANY = ".*"
VALUES = "values|gradient"
REFUSED = "refusal|symbol"
UPDATES = r".*(update.*|lamb.*|multi_lars)"


def every_call(call) -> bool:
    """Only for entries whose text and where pin down what differs."""
    return True
