"""Objects with cached attributes that are dropped to save memory and computed again when read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar


class Derived(ABC):
    """Base class: `forget` drops the cached attributes, and the next read of one of them computes
    all of them again, with the same values.

    parts: the names of the cached attributes. Reading one that is there costs an ordinary attribute
    read. Threads may read and forget at the same time: a reader always gets a complete value, but
    two reads may give parts of two computations, whose nodes differ: `whole` gives those of one.
    """

    __slots__ = ("_whole",)
    parts: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def derive(self) -> dict[str, Any]:
        """Computes the cached attributes, by name; it may return other attributes too."""

    def make(self) -> dict[str, Any]:
        """Sets the attributes that `derive` returns, and returns them."""
        return self._take(self.derive())

    def _take(self, made: dict[str, Any]) -> dict[str, Any]:
        for name, value in list(made.items()):
            setattr(self, name, value)
        self._whole = made
        return made

    def whole(self, *names: str) -> list[Any]:
        """Cached attributes, all of one computation."""
        made = getattr(self, "_whole", None) or self.make()
        return [made[name] for name in names]

    def forget(self) -> None:
        """Drops the cached attributes."""
        for name in (*self.parts, "_whole"):
            try:
                delattr(self, name)
            except AttributeError:  # dropped already
                pass

    def __getattr__(self, name: str) -> Any:
        if name not in type(self).parts:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.make()[name]
