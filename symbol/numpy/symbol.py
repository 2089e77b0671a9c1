"""The Symbol of mx.sym.np."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...ndarray.numpy.operators import add_operators
from ..base import Symbol


class _Symbol(Symbol):
    """A Symbol under NumPy's rules: what is computed from one is one."""

    __slots__ = ()
    __array_priority__ = 1001.0


add_operators(_Symbol, in_place=False)


def symbols(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose Symbols are under NumPy's rules, whatever it is given."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        return made.as_np_ndarray() if isinstance(made, Symbol) else made

    return call
