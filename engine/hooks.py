"""Hooks: what a room needs of one that stands on it, which it may not import.

The table HOOKS in the package's `__init__` says what fills each; it is imported at the first use.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

_PACKAGE = __package__.rpartition(".")[0]


@functools.cache
def get(hook: str) -> Any:
    """The function, class or module that fills a hook."""
    module, attribute = sys.modules[_PACKAGE].HOOKS[hook]
    return getattr(importlib.import_module(f".{module}", _PACKAGE), attribute)
