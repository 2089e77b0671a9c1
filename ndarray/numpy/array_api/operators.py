"""What the namespace stands on: functions of mx.np, by name."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as onp

from ... import numpy as np
from ...ndarray import NDArray, from_memory
from ..array import fresh, ndarray

# what NumPy computes on the host: there is no operator, and the gradient is zero
ON_HOST = ("nextafter", "searchsorted", "signbit")


@functools.cache
def of_np(name: str) -> Callable[..., Any]:
    """A function of mx.np: "sum", "linalg.svd"."""
    return _on_host(name) if name in ON_HOST else operator.attrgetter(name)(np)


def _on_host(name: str) -> Callable[..., ndarray]:
    function = getattr(onp, name)

    def call(*xs: Any, **options: Any) -> ndarray:
        device = next(x.context for x in xs if isinstance(x, NDArray))
        values = [x.asnumpy() if isinstance(x, NDArray) else x for x in xs]
        return fresh(from_memory(onp.asarray(function(*values, **options)), device))

    return call
