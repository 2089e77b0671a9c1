"""Checks of layers' arguments."""

from __future__ import annotations

from typing import Any

from ...engine.error import InvalidValue
from ...kernels.record import several


def sizes(value: Any, n: int, name: str) -> tuple[int, ...]:
    value = tuple(several(value, n))
    if len(value) != n:
        raise InvalidValue(f"{name} must be a number or {n} of them, got {value}")
    return value


def known_layout(layout: str, allowed: tuple[str, ...]) -> str:
    if layout not in allowed:
        raise InvalidValue(f"layout must be one of {', '.join(allowed)}, got {layout!r}")
    return layout
