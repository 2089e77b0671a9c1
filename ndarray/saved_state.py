"""The state of objects as plain data: numbers, texts, lists, dicts and arrays, in a file of arrays
and JSON. Reading such a file runs no code."""

from __future__ import annotations

import json
import os
import random
from collections import deque
from os import PathLike
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..engine import files
from ..engine.error import MXNetError, compose
from . import NDArray, serialization
from .launch import copy_into
from .ndarray import from_memory

CHECKPOINT = "plait-checkpoint-1"  # the file format of checkpoints
META = "__meta__"  # the array whose bytes are the JSON text
SHA256_DIGITS = 64
PLAIN = (type(None), bool, int, float, str)
ARRAYS = (NDArray, np.ndarray, np.generic)


class StateError(MXNetError, ValueError):
    """A saved state that does not match the object to restore."""


class Saved(NamedTuple):
    """The state of an object, with the name of its class."""

    kind: str
    state: Any


# ---- objects -------------------------------------------------------------------------------------


class Stateful:
    """state_dict and load_state_dict for classes whose attributes are their state.

    Attributes that are numbers, texts, arrays, generators of random numbers, objects that have a
    state_dict, and lists, tuples, sets and dicts of these are saved; all others (functions, data
    sets, parameters) and those in `not_state` are construction arguments, which are kept.
    """

    not_state: ClassVar[tuple[str, ...]] = ()

    def state_dict(self) -> dict:
        """The state as plain data; a copy."""
        return attributes_of(self, self.not_state)

    def load_state_dict(self, state: dict) -> None:
        """Restores the result of state_dict. Raises StateError if it does not match."""
        set_attributes(self, state)


def attributes_of(thing: Any, without: Any = ()) -> dict:
    """The attributes of an object that are data."""
    found = vars(thing).items()
    return {k: copied(v) for k, v in found if k not in without and is_data(v)}


def set_attributes(thing: Any, state: dict) -> None:
    """Sets those attributes that the object has."""
    for name, saved in state.items():
        if name in vars(thing):
            vars(thing)[name] = merged(vars(thing)[name], saved, f"{type(thing).__name__}.{name}")


def is_data(value: Any) -> bool:
    """Can it be saved?"""
    if isinstance(value, dict):
        return all(is_data(k) and is_data(v) for k, v in value.items())
    if isinstance(value, (list, tuple, set, deque)):
        return all(map(is_data, value))
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    if isinstance(value, (*PLAIN, *ARRAYS, Saved)) or has_state(value):
        return True
    # not in a table: np.random is imported at its first use
    return isinstance(value, (np.random.Generator, np.random.RandomState, random.Random))


def has_state(value: Any) -> bool:
    """Does it have state_dict and load_state_dict?"""
    return (
        not isinstance(value, type)
        and callable(getattr(value, "state_dict", None))
        and callable(getattr(value, "load_state_dict", None))
    )


def copied(value: Any) -> Any:
    """A copy that later changes of the value do not affect: objects become Saved."""
    if isinstance(value, Saved):
        return Saved(value.kind, copied(value.state))
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    if isinstance(value, (list, deque)):
        return [copied(v) for v in value]
    if isinstance(value, tuple):
        return tuple([copied(v) for v in value])
    if isinstance(value, set):
        return set(value)
    if isinstance(value, ARRAYS):
        return value.copy()
    if isinstance(value, PLAIN):
        return value
    return saved(value)


def saved(thing: Any) -> Saved:
    """The state of an object or a generator of random numbers."""
    kind = type(thing).__name__
    if isinstance(thing, np.random.Generator):
        return Saved(kind, copied(thing.bit_generator.state))
    if isinstance(thing, np.random.RandomState):
        return Saved(kind, thing.get_state(legacy=False))
    if isinstance(thing, random.Random):
        return Saved(kind, copied(thing.getstate()))
    return Saved(kind, thing.state_dict() if has_state(thing) else attributes_of(thing))


def restore(thing: Any, state: Any, where: str) -> None:
    """Restores an object from the result of `saved` for an object of its class. Raises
    StateError."""
    kind = type(thing).__name__
    if not isinstance(state, Saved) or state.kind != kind:
        given = state.kind if isinstance(state, Saved) else type(state).__name__
        raise StateError(f"{where}: the saved state is one of {given}, not of {kind}")
    try:
        if isinstance(thing, np.random.Generator):
            thing.bit_generator.state = state.state
        elif isinstance(thing, np.random.RandomState):
            thing.set_state(state.state)
        elif isinstance(thing, random.Random):
            thing.setstate(state.state)
        elif has_state(thing):
            thing.load_state_dict(state.state)
        else:
            set_attributes(thing, state.state)
    except MXNetError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise StateError(
            f"{where}: the saved state does not fit {kind}: {type(error).__name__}: {error}"
        ) from error


def merged(now: Any, state: Any, where: str) -> Any:
    """The value that replaces `now`. Objects in it are kept and restored."""
    if isinstance(state, Saved):
        restore(now, state, where)
        return now
    if isinstance(state, dict) and isinstance(now, dict):
        found = {
            k: merged(now.get(k), v, f"{where}[{k!r}]") if k in now else v for k, v in state.items()
        }
        now.clear()  # in place: it may be referenced elsewhere
        now.update(found)
        return now
    if isinstance(state, list) and isinstance(now, (list, deque)):
        if any(isinstance(v, Saved) for v in state) and len(state) != len(now):
            raise StateError(f"{where}: {len(state)} were saved, there are {len(now)} now")
        pairs = zip(state, [*now, *[None] * len(state)])
        items = [merged(old, v, f"{where}[{i}]") for i, (v, old) in enumerate(pairs)]
        now.clear()
        now.extend(items)
        return now
    if isinstance(state, NDArray) and isinstance(now, NDArray):
        return state.as_in_context(now.context)
    return state


def device_copies(arrays: Any) -> list[NDArray]:
    """The arrays of all devices; one where they are equal."""
    first = arrays[0]
    if len(arrays) > 1 and first.stype == "default":
        bits = first.asnumpy().tobytes()
        if all(a.asnumpy().tobytes() == bits for a in arrays[1:]):
            return [first]
    return list(arrays)


def spread(sources: Any, targets: Any) -> None:
    """Copies an array to each device: each its own, or one for all."""
    for i, target in enumerate(targets):
        copy_into(sources[i % len(sources)].as_in_context(target.context), target)


# ---- files ---------------------------------------------------------------------------------------


class _Writer:
    """Plain data as JSON; arrays are named by their position."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray] = {}

    def encode(self, value: Any, path: str) -> Any:
        if type(value) in PLAIN:
            return value
        if isinstance(value, Saved):
            return {"object": [value.kind, self.encode(value.state, path)]}
        if isinstance(value, dict):
            pairs = value.items()
            return {
                "dict": [[self.encode(k, path), self.encode(v, f"{path}/{k}")] for k, v in pairs]
            }
        if isinstance(value, (list, deque)):
            return [self.encode(v, f"{path}/{i}") for i, v in enumerate(value)]
        if isinstance(value, tuple):
            return {"tuple": self.encode(list(value), path)}
        if isinstance(value, set):
            return {"set": self.encode(sorted(value, key=repr), path)}
        if isinstance(value, NDArray):
            return {"array": self._name(path, value)}
        if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
            text = np.frombuffer(value.tobytes(), np.uint8)
            scalar = isinstance(value, np.generic)
            name = self._name(path, from_memory(text)) if text.size else None
            return {"numpy": [value.dtype.str, list(value.shape), scalar, name]}
        for plain in (bool, int, float, str):  # of another class, such as an Enum's
            if isinstance(value, plain):
                return plain(value)
        raise StateError(
            compose(
                f"{path}: {type(value).__name__} cannot be saved",
                fix="numbers, texts, arrays, and lists, tuples, sets and dicts of them can",
            )
        )

    def _name(self, path: str, array: NDArray) -> str:
        name, n = path, 1
        while name in self.arrays:
            name, n = f"{path}~{n}", n + 1
        self.arrays[name] = array
        return name


def _decode(value, arrays: dict):
    if isinstance(value, list):
        return [_decode(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "object":
        return Saved(content[0], _decode(content[1], arrays))
    if tag == "dict":
        return {_decode(k, arrays): _decode(v, arrays) for k, v in content}
    if tag == "tuple":
        return tuple(_decode(content, arrays))
    if tag == "set":
        return set(_decode(content, arrays))
    if tag == "array":
        return arrays[content]
    if tag != "numpy":
        raise ValueError(f"unknown tag {tag!r}")
    dtype, shape, scalar, name = content
    text = b"" if name is None else arrays[name].asnumpy().tobytes()
    array = np.frombuffer(text, dtype).reshape(shape).copy()
    return array[()] if scalar else array


def encoded(state: Any) -> tuple[str, dict[str, NDArray]]:
    """Plain data as JSON text and the arrays in it by name; the same data gives the same names."""
    writer = _Writer()
    return json.dumps(writer.encode(state, "")), writer.arrays


def decoded(text: str, arrays: dict[str, NDArray]) -> Any:
    """The plain data of `encoded`."""
    return _decode(json.loads(text), arrays)


def write(path: str | PathLike[str], format: str, state: dict) -> None:
    """Writes plain data to a file, whole or not at all."""
    writer = _Writer()
    meta = {"format": format, "sha256": "0" * SHA256_DIGITS, "state": writer.encode(state, "")}
    text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    content = bytearray(serialization.save_tobuffer({META: from_memory(text), **writer.arrays}))
    at, digest = _digest(content)
    content[at : at + SHA256_DIGITS] = digest.encode()
    files.write(path, content)


def _digest(content: bytes | bytearray) -> tuple[int, str]:
    """The position of a file's SHA-256, and the SHA-256 of all its other bytes."""
    import hashlib  # here: it loads OpenSSL

    mark = b'"sha256": "'
    at = content.find(mark) + len(mark)
    found = hashlib.sha256(memoryview(content)[:at])
    found.update(memoryview(content)[at + SHA256_DIGITS :])
    return at, found.hexdigest()


def read(path: str | PathLike[str], format: str, what: str) -> dict:
    """The plain data of a file. what: the caller, for errors. Raises StateError for other files."""
    where = f"{what}: {os.fspath(path)!r}"
    given, found = parse(files.read(path, what), format, where)
    if given != format:
        raise StateError(f"{where}: the format must be {format}, got {given}")
    return found


def parse(content: bytes, format: str, where: str) -> tuple[str | None, Any]:
    """(the format named in a file, None for arrays without one; its data, if the format is the
    given one). Raises StateError if it is damaged."""
    arrays = serialization.load_frombuffer(content)
    if not isinstance(arrays, dict) or META not in arrays:
        return None, None
    try:
        meta = json.loads(arrays.pop(META).asnumpy().tobytes())
        if meta["format"] != format:
            return meta["format"], None
        if meta["sha256"] != _digest(content)[1]:
            raise ValueError("its checksum does not match")
        return format, _decode(meta["state"], arrays)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StateError(f"{where} is damaged: {type(error).__name__}: {error}") from None


def states_of(kind: str, found: Any) -> list[Saved]:
    """The states of objects of a class, wherever they are in plain data."""
    if isinstance(found, Saved):
        return [found] if found.kind == kind else states_of(kind, found.state)
    parts = found.values() if isinstance(found, dict) else found
    return [s for v in parts for s in states_of(kind, v)] if _is_nest(found) else []


def _is_nest(value) -> bool:
    return isinstance(value, (dict, list)) or type(value) is tuple
