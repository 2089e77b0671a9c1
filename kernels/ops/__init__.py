"""The operator records: every module of this folder fills the registry when it is imported."""

import importlib

from .. import module_names

for _name in module_names(__file__):
    importlib.import_module(f"{__name__}.{_name}")
importlib.import_module("..fused", __name__)  # its records stand beside the compiler of groups
