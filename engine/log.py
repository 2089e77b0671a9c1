"""The log topics that PLAIT_LOG names, as lines on standard error."""

from __future__ import annotations

import sys

from . import settings


def wants(topic: str) -> bool:
    """Does PLAIT_LOG name the topic?"""
    return topic in settings.get("PLAIT_LOG")


def write(topic: str, text: str) -> None:
    """Prints a line if PLAIT_LOG names its topic."""
    if wants(topic):
        print(f"plait {topic}: {text}", file=sys.stderr, flush=True)


def size(nbytes: float) -> str:
    """A number of bytes for people: 1.5 MB."""
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.2f} GB"
