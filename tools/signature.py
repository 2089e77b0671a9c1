"""Signatures as the reference prints them."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

COLUMNS = 88  # of a signature


def parameters(value: Any) -> list[inspect.Parameter] | None:
    """The parameters of a call, without self; None where Python does not tell them."""
    try:
        found = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return None
    return [p for i, p in enumerate(found) if i or p.name not in ("self", "cls")]


class Text(str):
    """A default, printed as it is."""

    __repr__ = str.__str__


def shown(default: Any) -> Any:
    """A default as people write it: float32, not <class 'numpy.float32'>."""
    if inspect.isclass(default) and default is not inspect.Parameter.empty:
        return Text(default.__name__)
    return Text("...") if "<" in repr(default) and " at 0x" in repr(default) else default


def call(name: str, value: Any) -> str:
    """The call with parameters and defaults, in lines that fit."""
    found = parameters(value)
    if found is None:
        return f"{name}(...)"
    plain = inspect.Signature(
        [p.replace(annotation=p.empty, default=shown(p.default)) for p in found]
    )
    text = f"{name}{plain}"
    if len(text) <= COLUMNS:
        return text
    inside = str(plain)[1:-1]
    lines = textwrap.wrap(inside, COLUMNS - 4, break_long_words=False, break_on_hyphens=False)
    return f"{name}(\n" + "".join(f"    {line}\n" for line in lines) + ")"
