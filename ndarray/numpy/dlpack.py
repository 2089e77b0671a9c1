"""np.from_dlpack: arrays of other libraries as arrays of mx.np."""

from __future__ import annotations

from typing import Any

from ...engine import Context
from ...engine.error import compose
from ..interop import imported
from .array import fresh, ndarray


def from_dlpack(x: Any, /, *, device: Context | None = None, copy: bool | None = None) -> ndarray:
    """An array on the memory of another library's array, or of a capsule.

    Read-only memory, as JAX's, gives a read-only array. copy: True copies; False never does; None
    copies only what kernels cannot use: memory that is not contiguous or not aligned.
    Raises BufferError where copy=False needs a copy, TypeError for what has no __dlpack__.
    """
    made = imported(x, copy, read_only=True)
    if device is not None and device != made.context:
        if copy is False:
            rule = f"from_dlpack: copy=False cannot move an array from {made.context} to {device}"
            raise BufferError(compose(rule, fix="copy=None"))
        made = made.as_in_context(device)
    return fresh(made)


__all__ = ["from_dlpack"]
