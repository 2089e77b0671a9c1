"""Arguments of command lines that several tools have."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any


def number(
    kind: type[int] | type[float], least: float, most: float = math.inf
) -> Callable[[str], Any]:
    """For argparse: reads a number of a kind, from `least` to `most`; neither NaN nor infinite."""
    name = {int: "a whole number", float: "a number"}[kind]
    limits = f"of {least} or more" if most == math.inf else f"from {least} to {most}"

    def read(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not (least <= value <= most and math.isfinite(value)):
            raise argparse.ArgumentTypeError(f"must be {name} {limits}, got {text!r}")
        return value

    return read
