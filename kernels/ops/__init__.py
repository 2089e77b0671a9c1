"""The operator records: every module of this folder fills the registry when it is imported."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
importlib.import_module("..fused", __name__)  # its records stand beside the compiler of groups
