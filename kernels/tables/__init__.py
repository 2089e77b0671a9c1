"""Table entries of operators, those of all devices in one file; importing this package registers
them. Tables of one device are in cpu/ and cuda/."""

import importlib

from .. import module_names

for _name in module_names(__file__):
    importlib.import_module(f"{__name__}.{_name}")
