"""mx.attribute: AttrScope, attributes for every node created in a scope; and the rules for legal
attributes."""

from __future__ import annotations

import threading
from typing import ClassVar

from ..engine.error import InvalidValue

# stored as __key__, shown under both names
HIDDEN = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage")


def hide(attrs: dict[str, str]) -> dict[str, str]:
    """Attributes as nodes store them: a hidden key between double underscores."""
    return {f"__{k}__" if k in HIDDEN else k: v for k, v in attrs.items()}


def show(attrs: dict[str, str]) -> dict[str, str]:
    """Attributes as users see them: hidden keys under both names."""
    return attrs | {k: attrs[f"__{k}__"] for k in HIDDEN if f"__{k}__" in attrs}


def is_user_key(key: str) -> bool:
    """Is it a user attribute `__x__`, not a parameter?"""
    return len(key) > 4 and key.startswith("__") and key.endswith("__")


def check_text(attrs: dict, what: str) -> None:
    """Raises ValueError if an attribute is not a string."""
    for key, value in attrs.items():
        if not isinstance(value, str):
            raise InvalidValue(
                f"{what}: attributes must be strings, got {key}={value!r}\n  fix:"
                f" {key}={str(value)!r}"
            )  # noqa: TRY004 - as MXNet


class _ClassProperty:
    def __get__(self, instance, owner):
        return _current.value


class AttrScope:
    """`with mx.AttrScope(ctx_group="a"):` sets these attributes on every node created inside.
    Scopes nest.

    Raises ValueError for values that are not strings.
    """

    current = _ClassProperty()
    _current: ClassVar[_Current]

    def __init__(self, **kwargs: str):
        check_text(kwargs, "AttrScope")
        self._given, self._attr = kwargs, kwargs

    def get(self, attr: dict[str, str] | None) -> dict[str, str]:
        """The scope's attributes with `attr` over them."""
        return {**self._attr, **(attr or {})}

    def __enter__(self):
        _current.outer.append(_current.value)
        self._attr = {**_current.value._attr, **self._given}
        _current.value = self
        return self

    def __exit__(self, *error):
        _current.value = _current.outer.pop()


class _Current(threading.local):
    def __init__(self) -> None:
        self.value = AttrScope()
        self.outer: list[AttrScope] = []  # the enclosing scope of each `with`


_current = _Current()
AttrScope._current = _current  # MXNet's name


def current() -> AttrScope:
    """The AttrScope of this thread."""
    return _current.value
