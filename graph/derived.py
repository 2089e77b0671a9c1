"""Derived: parts of an object that can be made again from the rest of it."""

from __future__ import annotations

from typing import Any, ClassVar


class Derived:
    """`forget` drops the parts; the next read of one makes all of them again, as they were.

    parts: the names of attributes that only `derive` makes. A read of a part that is there costs
    what an attribute costs. Threads may read and forget at once: each gets a whole part.
    """

    __slots__ = ()
    parts: ClassVar[tuple[str, ...]] = ()

    def derive(self) -> dict[str, Any]:
        """The parts by name; other attributes may be among them."""
        raise NotImplementedError

    def make(self) -> dict[str, Any]:
        """Sets what `derive` gives, and returns it."""
        made = self.derive()
        for name, value in made.items():
            setattr(self, name, value)
        return made

    def forget(self) -> None:
        for name in self.parts:
            try:
                delattr(self, name)
            except AttributeError:  # forgotten already
                pass

    def __getattr__(self, name: str) -> Any:
        if name not in type(self).parts:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.make()[name]
