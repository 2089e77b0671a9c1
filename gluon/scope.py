"""Name scopes: the prefixes of blocks, their counters, and the parameters that nested blocks
share."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Protocol

from ..symbol import name as naming
from .parameter_dict import ParameterDict


class _Current(threading.local):
    def __init__(self) -> None:
        self.value: BlockScope | None = None
        self.outer: list[tuple] = []  # the scope of each `with`, and its names


_current = _Current()


class Scoped(Protocol):
    """A block, as its scope knows it."""

    _empty_prefix: bool

    @property
    def params(self) -> ParameterDict: ...
    @property
    def prefix(self) -> str: ...


class BlockScope:
    """The scope of one block: blocks created inside get prefixes that extend its own. Keeps no
    block alive."""

    def __init__(self, block: Scoped):
        self._block = weakref.ref(block)
        self._counter: dict[str, int] = {}

    @staticmethod
    def create(prefix: str | None, params: Any, hint: str) -> tuple[str, ParameterDict]:
        """Prefix and ParameterDict of a block that is being created in the current scope."""
        scope = _current.value
        if scope is None:
            if prefix is None:
                prefix = naming.current().get(None, hint) + "_"
            return prefix, (
                ParameterDict(prefix) if params is None else ParameterDict(params.prefix, params)
            )
        if prefix is None:
            count = scope._counter.get(hint, 0)
            scope._counter[hint] = count + 1
            prefix = f"{hint}{count}_"
        parent = scope._block()
        assert parent is not None  # it is inside its `with`
        if params is None:
            params = ParameterDict(parent.params.prefix + prefix, parent.params._shared)
        else:
            params = ParameterDict(params.prefix, params)
        return parent.prefix + prefix, params

    def __enter__(self):
        block = self._block()
        if block is None or block._empty_prefix:
            _current.outer.append((_current.value, None))
            return self
        names = naming.Prefix(block.prefix)
        _current.outer.append((_current.value, names))
        _current.value = self
        names.__enter__()
        return self

    def __exit__(self, *error):
        outer, names = _current.outer.pop()
        if names is not None:
            names.__exit__(*error)
            _current.value = outer
