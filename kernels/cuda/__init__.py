"""CUDA kernels: sources, their compiler, and the table entries that choose among them; importing
this module fills the table. It happens when the first GPU array needs a kernel."""

import importlib

from .. import module_names, ops  # noqa: F401  (pointwise entries are made from the records)

checking = False  # a source that does not compile is an error; the tests switch it on

for _name in module_names(__file__):
    importlib.import_module(f"{__name__}.{_name}")

importlib.import_module("..tables", __name__)  # the entries of all devices

from . import trace  # noqa: E402  (after all tables: it takes what they leave)

trace.register()
