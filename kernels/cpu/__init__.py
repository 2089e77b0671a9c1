"""CPU kernels: C sources, and the table entries that choose among them; importing this module fills
the table."""

from . import backend  # noqa: F401
