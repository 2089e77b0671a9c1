"""Counting tokens (the module's name is MXNet's)."""

from __future__ import annotations

import collections
import re
from typing import Any


def count_tokens_from_str(
    source_str: str,
    token_delim: str = " ",
    seq_delim: str = "\n",
    to_lower: bool = False,
    counter_to_update: Any = None,
) -> collections.Counter:
    r"""Counts the tokens of a text.

    Args:
        token_delim, seq_delim: regular expressions between tokens and between sequences.
        counter_to_update: a Counter to add to; None makes a new one.

    >>> count = mx.contrib.text.utils.count_tokens_from_str
    >>> sorted(count("Life is great !\nlife is good .", to_lower=True).items())
    [('!', 1), ('.', 1), ('good', 1), ('great', 1), ('is', 2), ('life', 2)]
    """
    tokens = filter(None, re.split(f"{token_delim}|{seq_delim}", source_str))
    counter = collections.Counter() if counter_to_update is None else counter_to_update
    counter.update(t.lower() for t in tokens) if to_lower else counter.update(tokens)
    return counter
