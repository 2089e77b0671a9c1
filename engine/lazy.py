"""Submodules that are imported on first use, so that importing their package is fast."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from types import ModuleType


def submodule(package: str, name: str) -> ModuleType | None:
    """What `import package.name` imports, or None where there is no such module."""
    root, _, below = package.partition(".")
    full = f"{package}.{name}"
    real = f"{root}.{sys.modules[root].place(f'{below}.{name}')}"
    if real == full:
        path = sys.modules[package].__path__
        if name.startswith("__") or not importlib.machinery.PathFinder.find_spec(full, path):
            return None
    module = importlib.import_module(real)
    setattr(sys.modules[package], name, module)  # also under a name of another folder
    return module
