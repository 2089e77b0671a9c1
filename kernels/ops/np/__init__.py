"""The operators of mx.np, fronts of those beside this folder: every module fills the registry when
it is imported. `lookup` imports this folder when a name of it is asked for."""

import importlib

from ... import module_names

for _name in module_names(__file__):
    importlib.import_module(f"{__name__}.{_name}")
