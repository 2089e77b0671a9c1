"""A device without kernels of its own: each operator runs by its NumPy reference, in the host's
memory. It shows what a backend must have, and that a new one needs no change of the package.

    pytest --backend reference tests/kernels/test_records.py
"""

from plait.engine.device import Context, DeviceType, add_type
from plait.kernels.backend import Backend, register

add_type(DeviceType("reference", 16, backend="reference"))
register(Backend("reference"))


def reference(device_id: int = 0) -> Context:
    """The device of a number, as cpu(i)."""
    return Context("reference", device_id)
