"""Parameters of iterators as dataclasses: read from keywords (values may be text, as in MXNet), and
shown in signature and docstring."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import numpy as np

from ...engine.error import InvalidType, InvalidValue
from ...kernels.record import REQUIRED
from .source import parsed, warn_unknown


def option(default: Any, doc: str) -> Any:
    """A field of a dataclass of options; the value has the default's type."""
    return dataclasses.field(default=default, metadata={"doc": doc})


def _options(kind) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(kind) if field.init]


def _value(where: str, field, value):
    """A keyword's value in the type of the field's default."""
    kind, name = type(field.default), f"{where}: {field.name}"
    if kind is str:
        return str(value) if value is not None else ""
    value = parsed(value)
    if kind is bool and value in (0, 1):
        return bool(value)
    if kind is tuple:
        value = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        if all(isinstance(v, (int, float, np.number)) for v in value):
            return value
    if kind is int and isinstance(value, (int, np.integer, float)) and int(value) == value:
        return int(value)
    if kind is float and isinstance(value, (int, float, np.number)):
        return float(value)
    if field.default is None or field.default is REQUIRED:
        return value
    raise InvalidValue(f"{name} must be {kind.__name__}, got {value!r}")


def read(where: str, kinds: Any, keywords: dict) -> list:
    """One instance of each dataclass from the keywords; unknown ones give a warning.

    Raises: TypeError for a required keyword that is missing, ValueError for a wrong value.
    """
    left = dict(keywords)
    made = []
    for kind in kinds:
        chosen = {}
        for field in _options(kind):
            if field.name in left:
                chosen[field.name] = _value(where, field, left.pop(field.name))
            elif field.default is REQUIRED:
                raise InvalidType(f"{where}: parameter {field.name!r} is required")
        made.append(kind(**chosen))
    warn_unknown(where, left)
    return made


def shows(*kinds: Any) -> Any:
    """Decorator: the function's signature and docstring list the fields of these dataclasses."""

    def add(function):
        fields = [field for kind in kinds for field in _options(kind)]
        empty = inspect.Parameter.empty
        function.__signature__ = inspect.Signature(
            [
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=empty if field.default is REQUIRED else field.default,
                )
                for field in sorted(fields, key=lambda f: f.default is not REQUIRED)
            ]
        )
        lines = "\n".join(f"        {field.name}: {field.metadata['doc']}" for field in fields)
        function.__doc__ = f"{function.__doc__.rstrip()}\n\n    Args:\n{lines}\n    "
        return function

    return add
