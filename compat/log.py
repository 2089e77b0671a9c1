"""mx.log: loggers that write a letter for the level, the time, the process and the line of code."""

from __future__ import annotations

import logging
import warnings
from logging import CRITICAL, DEBUG, ERROR, INFO, NOTSET, WARNING
from typing import Any

__all__ = [
    "CRITICAL",
    "DEBUG",
    "ERROR",
    "INFO",
    "NOTSET",
    "WARNING",
    "getLogger",
    "get_logger",
]


class _Formatter(logging.Formatter):
    """`I1121 20:30:00 123 train.py:main:7] text`; with a prefix coloured by level on a terminal."""

    def __init__(self, colored: bool):
        super().__init__(
            "%(head)s%(asctime)s %(process)d %(pathname)s:%(funcName)s:%(lineno)d]%(tail)s"
            " %(message)s",
            datefmt="%m%d %H:%M:%S",
        )
        self.colored = colored

    def format(self, record: Any) -> Any:
        color = 31 if record.levelno >= WARNING else 32 if record.levelno >= INFO else 34
        record.head = (f"\x1b[{color}m" if self.colored else "") + record.levelname[0]
        record.tail = "\x1b[0m" if self.colored else ""
        return super().format(record)


def get_logger(
    name: str | None = None, filename: str | None = None, filemode: Any = None, level: Any = WARNING
) -> logging.Logger:
    """A logger with this format, configured at the first request; without a name the unchanged root
    logger.

    Args:
        filename: write there instead of standard error.
        filemode: mode of the file; default "a".
        level: the lowest level to write.
    """
    logger = logging.getLogger(name)
    if name is None or any(isinstance(h.formatter, _Formatter) for h in logger.handlers):
        return logger
    handler: logging.StreamHandler
    if filename:
        handler = logging.FileHandler(filename, filemode or "a")
        coloured = False
    else:
        handler = logging.StreamHandler()
        coloured = handler.stream.isatty()
    handler.setFormatter(_Formatter(coloured))
    logger.addHandler(handler)
    logger.setLevel(level)
    return logger


def getLogger(
    name: str | None = None, filename: str | None = None, filemode: Any = None, level: Any = WARNING
) -> Any:  # noqa: N802 - MXNet's name
    """The same as get_logger. Deprecated."""
    warnings.warn("getLogger is deprecated: use get_logger", DeprecationWarning, stacklevel=2)
    return get_logger(name, filename, filemode, level)
