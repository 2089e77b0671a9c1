"""HookHandle: returned by hook registration; `detach` removes the hook."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

_next = itertools.count().__next__


class HookHandle:
    """Attaches a hook to a dict of hooks; detaches on `detach()` or at the end of a `with`
    block."""

    def __init__(self) -> None:
        self._hooks: weakref.ref | None = None
        self._id: int | None = None

    def attach(self, hooks_dict: Any, hook: Callable[..., Any]) -> HookHandle:
        """Adds hook to an OrderedDict of hooks."""
        if self._hooks is not None:
            raise RuntimeError("The same handle cannot be attached twice.")
        self._id = _next()
        hooks_dict[self._id] = hook
        self._hooks = weakref.ref(hooks_dict)
        return self

    def detach(self) -> None:
        """Removes the hook."""
        hooks = self._hooks() if self._hooks is not None else None
        if hooks is not None:
            hooks.pop(self._id, None)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.detach()
