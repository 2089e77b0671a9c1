"""gluon.contrib: layers and tools outside MXNet's core list."""

from . import data, nn  # noqa: F401
