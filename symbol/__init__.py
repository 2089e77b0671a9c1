"""sym: graphs. `sym.var("data")`, `sym.FullyConnected(...)`; modules are imported at first use."""

import importlib
import types

from ..engine.error import MissingName

# a namespace of operators: the prefix of their names in the registry
NAMESPACES = {
    "linalg": "_linalg_",
    "sparse": "_sparse_",
    "image": "_image_",
    "_internal": "_",
    "op": "",
}


class _Namespace(types.ModuleType):
    """Operators whose names start with a prefix: sym.linalg.gemm2 is the operator _linalg_gemm2."""

    def __init__(self, name: str, prefix: str):
        super().__init__(f"{__name__}.{name}", f"Symbolic operators {prefix}*.")
        self._prefix = prefix

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        symbol = importlib.import_module(".symbol", __package__)
        registry = symbol.REGISTRY
        op = registry.get(self._prefix + name) or (
            registry.get(name) if self._prefix == "_" else None
        )
        if op is None:
            raise MissingName(f"{self.__name__} has no operator {name!r}")
        function = symbol.symbol_function(op, name)
        setattr(self, name, function)
        return function

    def __dir__(self):
        registry = importlib.import_module(".symbol", __package__).REGISTRY
        return sorted(n[len(self._prefix) :] for n in registry if n.startswith(self._prefix))


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    if name in NAMESPACES:
        value = _Namespace(name, NAMESPACES[name])
    elif name in (
        "random",
        "contrib",
        "symbol",
        "functions",
        "executor",
        "name",
        "attribute",
        "viz",
        "json",
        "inference",
    ):
        return importlib.import_module(f".{name}", __package__)
    else:
        functions = importlib.import_module(".functions", __package__)
        known = name in functions.__all__ or name in functions.REGISTRY
        value = getattr(functions, name) if known else functions.__getattr__(name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*dir(importlib.import_module(".functions", __package__)), *NAMESPACES, "random"})
