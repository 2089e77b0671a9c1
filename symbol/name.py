"""mx.name: how nodes get their names. NameManager counts per operator, Prefix adds a prefix to
every name."""

from __future__ import annotations

import threading
from typing import ClassVar


class _ClassProperty:
    def __get__(self, instance, owner):
        return _current.value


class NameManager:
    """Names unnamed nodes by the lower-case operator name and a counter. Use it in a
    `with` statement."""

    current = _ClassProperty()

    _current: ClassVar[_Current]

    def __init__(self) -> None:
        self._counter: dict[str, int] = {}

    def get(self, name: str | None, hint: str) -> str:
        """`name` if given, else `hint` and the next number of that hint."""
        if name:
            return name
        n = self._counter.get(hint, 0)
        self._counter[hint] = n + 1
        return f"{hint}{n}"

    def __enter__(self):
        _current.outer.append(_current.value)
        _current.value = self
        return self

    def __exit__(self, *error):
        _current.value = _current.outer.pop()


class Prefix(NameManager):
    """A NameManager that puts a prefix before every operator's name, given or not."""

    def __init__(self, prefix: str):
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        return self._prefix + NameManager.get(self, name, hint)


class _Current(threading.local):
    def __init__(self) -> None:
        self.value = NameManager()
        self.outer: list[NameManager] = []  # the enclosing manager of each `with`


_current = _Current()
NameManager._current = _current  # MXNet's name


def current() -> NameManager:
    """The NameManager of this thread."""
    return _current.value
