"""CPU kernels: C sources, and the table entries that choose among them; importing this module fills
the table."""

import importlib

from .. import module_names, ops  # noqa: F401  (pointwise entries are made from the records)

for _name in module_names(__file__):
    importlib.import_module(f"{__name__}.{_name}")
importlib.import_module("..tables", __name__)  # the entries of all devices
