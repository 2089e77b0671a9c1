"""Devices (MXNet calls them contexts): cpu(i), gpu(i), and the current one of each thread."""
from __future__ import annotations

import threading

from .error import DeviceError


class Context:
    """A device. Use it in a `with` statement to make it the current one of this thread."""
    devtype2str = {1: "cpu", 2: "gpu", 3: "cpu_pinned", 5: "cpu_shared"}
    devstr2type = {name: n for n, name in devtype2str.items()}
    _current = threading.local()

    def __init__(self, device_type, device_id: int = 0):
        if isinstance(device_type, Context):
            device_type, device_id = device_type.device_type, device_type.device_id
        if device_type not in self.devstr2type:
            raise DeviceError(f"device type must be one of {', '.join(self.devstr2type)}, got {device_type!r}")
        self.device_typeid, self.device_id = self.devstr2type[device_type], int(device_id)
        self._hash = hash((self.device_typeid, self.device_id))

    @property
    def device_type(self) -> str:
        return self.devtype2str[self.device_typeid]

    def __hash__(self):
        return self._hash

    def __eq__(self, other):
        return self is other or (isinstance(other, Context) and self.device_typeid == other.device_typeid
                                 and self.device_id == other.device_id)

    def __repr__(self):
        return f"{self.device_type}({self.device_id})"

    def __enter__(self):
        stack = self._current.__dict__.setdefault("stack", [])
        stack.append(self)
        return self

    def __exit__(self, *error):
        self._current.stack.pop()

    def check(self) -> None:
        """Raises DeviceError when this build cannot use the device."""
        if self.device_typeid == 2:
            raise DeviceError(f"{self}: this build of plait has no GPU support\n  fix: pip install plait[cuda13], "
                              "or use mx.cpu()")


_CPU = Context("cpu", 0)


def cpu(device_id: int = 0) -> Context:
    return Context("cpu", device_id) if device_id else _CPU


def gpu(device_id: int = 0) -> Context:
    return Context("gpu", device_id)


def current_context() -> Context:
    """The device that creation functions of this thread use."""
    stack = Context._current.__dict__.get("stack")
    return stack[-1] if stack else _CPU
