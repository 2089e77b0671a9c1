"""Recent: the cache that everything here uses which is made for a shape and may be made again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Recent(dict):
    """The values used last, by key: at least `size` of them, at most twice as many.

    `cache[key]` gives None for a key that is not there. Two dicts hold the values: this one, and
    `older`. A value found in `older` moves here; when this dict is full it becomes `older`, and
    what was left in `older` is dropped. So a hit writes nothing and costs what a dict costs.

    >>> from plait.engine.recent import Recent
    >>> cache = Recent(2)
    >>> for i in range(6):
    ...     cache[i] = str(i)
    ...     _ = cache[0]
    >>> sorted(cache)
    [0, 3, 4, 5]
    """

    __slots__ = ("older", "size")

    def __init__(self, size: int):
        self.size = size
        self.older: dict = {}

    def __missing__(self, key) -> Any:
        found = self.older.pop(key, None)
        if found is not None:
            self[key] = found
        return found

    def __setitem__(self, key, value) -> None:
        if dict.__len__(self) >= self.size and not dict.__contains__(self, key):
            self.older = dict(dict.items(self))
            dict.clear(self)
        self.older.pop(key, None)
        dict.__setitem__(self, key, value)

    # ---- as one dict, for reports and tests: the newest last -------------------------------------

    def __len__(self) -> int:
        return len(self.older) + dict.__len__(self)

    def __contains__(self, key) -> bool:
        return dict.__contains__(self, key) or key in self.older

    def __iter__(self) -> Iterator:
        return iter([*self.older, *dict.keys(self)])

    def items(self):
        return [*self.older.items(), *dict.items(self)]

    def values(self):
        return [*self.older.values(), *dict.values(self)]

    def get(self, key, default=None):
        found = self[key]
        return default if found is None else found

    def setdefault(self, key, default=None):
        found = self[key]
        if found is None:
            found = self[key] = default
        return found

    def pop(self, key, default=None):
        found = self[key]
        dict.pop(self, key, None)
        return default if found is None else found

    def clear(self) -> None:
        self.older = {}
        dict.clear(self)
