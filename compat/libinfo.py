"""mx.libinfo: where the compiled core and its headers are."""

from __future__ import annotations

from pathlib import Path

from ..engine import _core
from ..engine.error import MXNetError


def find_lib_path(prefix: str = "libmxnet") -> list[str]:
    """[path of the compiled core]. prefix: ignored, the core has one name."""
    return [str(Path(_core.__file__).resolve())]


def find_include_path() -> str:
    """The folder of the core's C headers."""
    return str(Path(_core.__file__).resolve().parent / "core")


def find_conf_path(prefix: str = "tvmop") -> str:
    """Raises MXNetError: plait has no TVM operators and so no file of their settings."""
    raise MXNetError(f"find_conf_path: plait has no {prefix} operators")
