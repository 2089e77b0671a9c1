"""CPU kernels: C sources, and the table entries that choose among them; importing this module fills
the table."""

import importlib
import pkgutil

from .. import ops  # noqa: F401  (pointwise entries are made from the records)

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
