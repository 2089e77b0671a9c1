"""Arrays that only one expression has, such as x.T in `x.T.copy()`: each is its own copy."""

from __future__ import annotations

import sys

from ..engine import lib
from .ndarray import NDArray, state

# Of a method in Python, the arguments that nothing else refers to have 1 reference, and 1 of
# getrefcount. From Python 3.14 on a caller's variable may not be counted.
TEMPORARY = 2 if sys.version_info < (3, 14) else -1


def is_sole(x: NDArray) -> bool:
    """Has nothing else the memory of an array, nor a tape the array?"""
    return (
        x._tape is None
        and not state.recording
        and x._spec.stype == "default"
        and bool(lib.pl_array_is_sole(x._handle))
    )
