"""The C type under NDArray as a type checker sees it. Operators and methods
are in ndarray/_methods.pyi, made from the operator records.
"""

from collections.abc import Callable
from typing import Any

class Array:
    _handle: int
    _spec: Any
    _tape: Any
    _parts: Any  # of sparse arrays, as the next two
    _take: Any
    _copy_between: Any

RELEASE: int
bind: Callable[..., None]
set_class: Callable[[type, Any, Callable[..., None]], None]
make_of: Callable[[type, int, Any], Any]
set_np_class: Callable[[type], None]
exchange: Callable[[Any, Any], None]
lend: Callable[[int], Any]
make: Callable[[int, Any], Any]
invoke: Callable[..., Any]
invoke1: Callable[..., Any]
shared: Callable[..., Any]
versions: Callable[..., tuple[bytes, int]]
run: Callable[..., Any]
