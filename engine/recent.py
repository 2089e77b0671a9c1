"""Recent: the cache that everything here uses which is made for a shape and may be made again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

_contains, _len, _set = dict.__contains__, dict.__len__, dict.__setitem__


class Recent(dict):
    """The values used last, by key: at least `size` of them, at most twice as many.

    `cache[key]` gives None for a key that is not there. Two dicts hold the values: this one, and
    `older`. A value found in `older` moves here; when this dict is full it becomes `older`, and
    what was left in `older` is dropped. So a hit writes nothing and costs what a dict costs.

    Values of different sizes: weigh(value) gives a value's weight, and a dict is full too when the
    weights of its values reach `capacity`. So what is kept of large graphs is bounded as well.
    dropped(items) gets what is about to be dropped: pairs of keys and values.

    >>> from plait.engine.recent import Recent
    >>> cache = Recent(2)
    >>> for i in range(6):
    ...     cache[i] = str(i)
    ...     _ = cache[0]
    >>> sorted(cache)
    [0, 4, 5]
    """

    __slots__ = ("_weight", "older", "capacity", "dropped", "size", "weigh")

    def __init__(
        self,
        size: int,
        capacity: int = 0,
        weigh: Callable[[Any], int] | None = None,
        dropped: Callable[[list[tuple]], None] | None = None,
    ):
        self.size, self.capacity, self.weigh, self.dropped = size, capacity, weigh, dropped
        self._weight = 0  # the weight of the values in this dict, at most
        self.older: dict = {}

    def __missing__(self, key) -> Any:
        found = self.older.pop(key, None) if self.older else None
        if found is not None:
            self[key] = found
        return found

    def __setitem__(self, key, value) -> None:
        weigh, n = self.weigh, _len(self)
        if (weigh is not None or n >= self.size) and not _contains(self, key):
            weight = weigh(value) if weigh is not None else 0
            if n >= self.size or (n and self._weight + weight > self.capacity > 0):
                if self.dropped is not None:
                    self.dropped(list(self.older.copy().items()))
                self.older = dict.copy(self)  # in one piece: other threads may write
                dict.clear(self)
                self._weight = 0
            self._weight += weight
        if self.older:
            self.older.pop(key, None)
        _set(self, key, value)

    # ---- as one dict, for reports and tests: the newest last -------------------------------------

    def __len__(self) -> int:
        return len(self.older) + dict.__len__(self)

    def __contains__(self, key) -> bool:
        return dict.__contains__(self, key) or key in self.older

    def __iter__(self) -> Iterator:
        return iter([*self.older, *dict.keys(self)])

    def items(self) -> Any:
        return [*self.older.items(), *dict.items(self)]

    def values(self) -> Any:
        return [*self.older.values(), *dict.values(self)]

    def get(self, key: Any, default: Any = None) -> Any:
        found = self[key]
        return default if found is None else found

    def setdefault(self, key: Any, default: Any = None) -> Any:
        found = self[key]
        if found is None:
            found = self[key] = default
        return found

    def pop(self, key: Any, default: Any = None) -> Any:
        found = self[key]
        dict.pop(self, key, None)
        return default if found is None else found

    def clear(self) -> None:
        self.older, self._weight = {}, 0
        dict.clear(self)
