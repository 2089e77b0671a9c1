"""CUDA kernels: sources, their compiler, and the table entries that choose among them; importing
this module fills the table. It happens when the first GPU array needs a kernel."""

from . import backend  # noqa: F401
