"""What a module is given: names and descriptions of its data, and the errors where they do not
fit."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ...data.io import DataDesc
from ...engine.error import InvalidValue
from ...symbol.symbol import Symbol


class ModuleError(InvalidValue):
    """A module that is used before it is ready, or with arguments that do not fit."""


class MissingParameter(ModuleError):
    """A parameter that has no value."""


def as_list(value: Any) -> list:
    """A list from one thing, several, or None."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def check_input_names(symbol: Any, names: Sequence[str], typename: str, throw: bool) -> None:
    """Is every name an argument of the symbol? Raises ModuleError, or warns."""
    if not isinstance(symbol, Symbol):
        raise ModuleError(f"symbol must be a Symbol, got {type(symbol).__name__}")
    arguments = symbol.list_arguments()
    for name in names:
        if name in arguments:
            continue
        inputs = [a for a in arguments if not a.endswith(("_weight", "_bias", "_gamma", "_beta"))]
        text = (
            f"You created Module with Module(..., {typename}_names={list(names)}) but input with"
            f" name '{name}' is not found in symbol.list_arguments(). Did you mean one of:"
            f" {', '.join(inputs)}"
        )
        if throw:
            raise ModuleError(text)
        warnings.warn(text, stacklevel=4)


def descriptions(shapes: Any) -> list[DataDesc]:
    """DataDescs from DataDescs or pairs (name, shape)."""
    try:
        return [x if isinstance(x, DataDesc) else DataDesc(*x) for x in shapes]
    except TypeError:
        raise ModuleError(
            f"bind: shapes must be a list of DataDescs or pairs (name, shape), got {shapes!r}\n"
            "  fix: data_shapes=[('data', (32, 10))]"
        ) from None


def parse_data_desc(
    data_names: Sequence[str],
    label_names: Sequence[str],
    data_shapes: Any,
    label_shapes: Any | None,
) -> tuple[list[DataDesc], list[DataDesc] | None]:
    """(descriptions of data, of labels or None). Raises ModuleError where data names differ, warns
    where label names do."""
    data = descriptions(data_shapes)
    labels = None if label_shapes is None else descriptions(label_shapes)
    for names, found, kind in ((data_names, data, "data"), (label_names, labels or [], "label")):
        if sorted(names) == sorted(x.name for x in found):
            continue
        text = (
            f"Data provided by {kind}_shapes don't match names specified by {kind}_names"
            f" ({found} vs. {names})"
        )
        if kind == "data":
            raise ModuleError(text)
        warnings.warn(text, stacklevel=4)
    return data, labels
