"""Python objects the core holds by number: functions on lanes, owners of memory, exceptions."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable
from typing import Any

from ._array import RELEASE as _RELEASE
from ._core import ffi, lib
from .error import MXNetError

_objects: dict[int, Any] = {}  # _array.bind gets it: RELEASE drops from it
_numbers = itertools.count(1)
# a pl_free_fn in C: it must run while an exception is on its way, and at the interpreter's end
RELEASE = ffi.cast("pl_free_fn", _RELEASE)


class _Pending:
    def __repr__(self) -> str:
        return "engine.PENDING"


PENDING = _Pending()  # what a pushed function returns that is not done: it is called again


class Cancellable:
    """A function for plpy_call, with what plpy_cancel calls."""

    __slots__ = ("cancel", "fn")

    def __init__(self, fn: Callable[[], Any], cancel: Callable[[], Any]):
        self.fn, self.cancel = fn, cancel

    def __call__(self) -> Any:
        return self.fn()


def keep(value: Any) -> int:
    """A number for `value`, which stays alive until RELEASE gets that number."""
    number = next(_numbers)
    _objects[number] = value
    return number


def kept(pointer) -> Any:
    """What stands behind a number the core gave back (as void *), or None."""
    return _objects.get(int(ffi.cast("uintptr_t", pointer)))


def pointer_to(number: int):
    return ffi.cast("void *", number)


def drop(number: int) -> None:
    _objects.pop(number, None)


def fail(error: BaseException, text: str | None = None) -> int:
    """The status by which a callback reports `error`: a wait raises its type, with it as cause.

    The locals of its frames are cleared: they may hold the poisoned arrays, which hold the error.
    """
    traceback.clear_frames(error.__traceback__)
    if text is None:
        text = str(error) if isinstance(error, MXNetError) else f"{type(error).__name__}: {error}"
    return lib.pl_fail_with(
        lib.PL_FAILED, text.encode(errors="replace"), RELEASE, pointer_to(keep(error))
    )


@ffi.def_extern(name="plpy_call", error=1)
def _call(arg) -> int:
    try:
        result = _objects[int(ffi.cast("uintptr_t", arg))]()
    except BaseException as error:  # noqa: BLE001  (also SystemExit: a lane cannot raise it)
        return fail(error)
    return lib.PL_PENDING if result is PENDING else lib.PL_OK


@ffi.def_extern(name="plpy_cancel", error=0)
def _cancel(arg) -> int:
    try:
        _objects[int(ffi.cast("uintptr_t", arg))].cancel()
    except BaseException as error:  # noqa: BLE001  (the operation's error, if its deadline is over)
        fail(error)
    return lib.PL_OK
