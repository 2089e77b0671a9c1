"""Namespaces derived from operator names: nd.linalg.gemm is the operator _linalg_gemm."""

from __future__ import annotations

import sys

from ..engine import missing
from ..kernels.record import REGISTRY
from . import functions


def derive(module: str, *prefixes: str):
    """(__getattr__, __dir__) of a module whose functions are the operators `prefix + name`."""

    def get(name: str):
        for prefix in prefixes:
            if prefix + name in REGISTRY and not name.startswith("__"):
                function = getattr(functions, prefix + name)
                setattr(sys.modules[module], name, function)
                return function
        raise missing.attribute(module, name, f"module {module!r} has no function {name!r}")

    def names():
        return sorted(
            {
                n.removeprefix(p)
                for p in prefixes
                for n in REGISTRY
                if n.startswith(p) and (p == "_" or not n.removeprefix(p).startswith("_"))
            }
        )

    return get, names
