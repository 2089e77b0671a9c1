"""The tables of kernels: which kernel, if any, runs a call.

One file for each family of operators. The entries of all devices stand beside each other, so that
shapes, axes and limits are computed in one place. An entry sees types and attributes (native.py).
`cuda.NAME` is loaded when the first CUDA entry runs (cuda/__init__.py).
"""

import importlib

from .. import module_names, ops  # noqa: F401  (pointwise entries are made from the records)
from ..native import Table

CPU, CUDA = Table(widens=True), Table()
on_cpu, on_cuda = CPU.native, CUDA.native

for _name in module_names(__file__):
    importlib.import_module(f"{__name__}.{_name}")
