"""mx.libinfo: paths of the compiled core and its headers."""

from __future__ import annotations

from pathlib import Path

from ..engine import _core
from ..engine.error import MXNetError


def find_lib_path(prefix: str = "libmxnet") -> list[str]:
    """[path of the compiled core]. prefix: ignored."""
    return [str(Path(_core.__file__).resolve())]


def find_include_path() -> str:
    """The folder of the core's C headers."""
    return str(Path(_core.__file__).resolve().parent / "core")


def find_conf_path(prefix: str = "tvmop") -> str:
    """Raises MXNetError: plait has no TVM operators, so there is no configuration file."""
    raise MXNetError(f"find_conf_path: plait has no {prefix} operators")
