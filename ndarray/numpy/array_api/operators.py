"""What the namespace stands on: functions of mx.np, by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as onp

from ... import numpy as np
from ...ndarray import NDArray, from_memory
from ..array import fresh


@functools.cache
def of_np(name: str) -> Callable[..., Any]:
    """A function of mx.np; of NumPy, on the host, where mx.np has none."""
    found = getattr(np, name, None)
    return _on_host(getattr(onp, name)) if found is None else found


def _on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*xs: Any, **options: Any) -> Any:
        device = next(x.context for x in xs if isinstance(x, NDArray))
        with onp.errstate(all="ignore"):
            made = function(*[x.asnumpy() if isinstance(x, NDArray) else x for x in xs], **options)
        if isinstance(made, (list, tuple)):
            return [fresh(from_memory(onp.asarray(m), device)) for m in made]
        return fresh(from_memory(onp.asarray(made), device))

    return call
