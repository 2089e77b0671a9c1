"""Compatibility mode: `import mxnet` imports plait, as do `import horovod.mxnet` and `import
byteps.mxnet`, and names that NumPy removed are restored, in this process only.

`plait.compat.install()`, or `python -m plait.compat script.py arguments ...` for an unchanged
script.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from typing import Any

import numpy as np

from .. import MODULES, place
from ..engine import missing

MXNET_VERSION = "1.9.1"  # mxnet.__version__: the API version that plait follows
_PACKAGE = __package__.rpartition(".")[0]


# modules that `import mxnet` imports, which scripts use without importing them
ALSO_IMPORTED = ("multiprocessing.pool", "urllib.request")


class Values(np.ndarray):
    """The result of asnumpy() in compatibility mode: an array of one element (of any shape)
    converts to a number, as before NumPy 2.4: `float(x)`, `"%f" % x`, `y[0] = x`.

    Views of it and results of arithmetic are Values too; concatenations, np.linalg's results and
    pickles are not.
    """

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __complex__(self):
        return complex(self.item())

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return array[()] if return_scalar else array.view(Values)

    def __repr__(self):
        return repr(self.view(np.ndarray))

    def __reduce__(self):
        return self.view(np.ndarray).__reduce__()


def _numpy_aliases() -> dict:
    return {
        "int": int,
        "float": float,
        "bool": bool,
        "complex": complex,
        "object": object,
        "str": str,
        "long": int,
        "unicode": str,
        "float_": np.float64,
        "complex_": np.complex128,
        "string_": np.bytes_,
        "unicode_": np.str_,
        "NaN": np.nan,
        "NAN": np.nan,
        "Inf": np.inf,
        "Infinity": np.inf,
        "infty": np.inf,
        "PINF": np.inf,
        "NINF": -np.inf,
        "product": np.prod,
        "cumproduct": np.cumprod,
        "alltrue": np.all,
        "sometrue": np.any,
        "round_": np.round,
        "row_stack": np.vstack,
        "mat": np.asmatrix,
        "asscalar": lambda a: a.item(),
        "msort": lambda a: np.sort(a, axis=0),
    }


# modules searched for names that an MXNet module has through its imports; "" is mxnet itself
IMPORTED = (
    "",
    "base",
    "util",
    "ndarray",
    "io",
    "model",
    "gluon",
    "gluon.utils",
    "gluon.nn",
    "initializer",
    "executor_manager",
    "kvstore",
    "runtime",
)


# operator names: unchanged
NAMESPACES = ("mxnet.ndarray", "mxnet.nd", "mxnet.symbol", "mxnet.sym", "mxnet.np", "mxnet.numpy")


class _Module(types.ModuleType):
    """A module under its name in MXNet.

    MXNet's modules import each other's names, and scripts take them from there (`from mxnet.metric
    import ndarray`): a missing name is searched in IMPORTED.
    """

    def __getattr__(self, name):
        if not name.startswith("__"):
            for place in IMPORTED:
                module = importlib.import_module(f"mxnet.{place}".rstrip("."))
                if name in dir(module):
                    return getattr(module, name)
        raise missing.attribute(self.__name__, name)


class _Package(types.ModuleType):
    """The module `mxnet`: plait under another name and with the version of the API."""

    __version__ = MXNET_VERSION

    def __getattr__(self, name):
        if name in MODULES:
            return importlib.import_module(f"mxnet.{name}")
        return getattr(sys.modules[_PACKAGE], name)

    def __dir__(self):
        return dir(sys.modules[_PACKAGE])


BESIDE = {"horovod": "compat.horovod", "byteps": "compat.byteps"}  # other libraries for MXNet


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Resolves mxnet.a.b to plait's module: one module object under both names."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname == "mxnet":
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        library = fullname.partition(".")[0]
        if library in BESIDE and _target(fullname):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        if fullname.startswith("mxnet."):
            if _target(fullname):
                return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
            missing.check_module(fullname)
        return None

    def create_module(self, spec: Any) -> Any:
        if spec.name == "mxnet":
            package = _Package("mxnet")
            package.__path__ = []
            for name in ALSO_IMPORTED:
                importlib.import_module(name)
            return package
        real = _target(spec.name)
        assert real is not None  # find_spec asked
        module = importlib.import_module(real)
        spec.loader_state = module.__spec__
        if spec.name.startswith("mxnet.") and not spec.name.startswith(NAMESPACES):
            module.__class__ = _Module
        return module

    def exec_module(self, module: Any) -> None:
        alias = module.__spec__
        if alias.loader_state is not None:
            module.__spec__ = alias.loader_state  # the module keeps its own identity


def _target(fullname: str) -> str | None:
    """The module of this package for mxnet.a.b or horovod.a.b, or None."""
    library, _, rest = fullname.partition(".")
    path = place(rest) if library == "mxnet" else f"{BESIDE[library]}.{rest}".rstrip(".")
    name = f"{_PACKAGE}.{path}"
    if name in sys.modules:
        return name
    try:
        found = importlib.util.find_spec(name)
    except ImportError:
        found = None
    if found is None:
        namespace = _namespace(*name.rpartition(".")[::2])
        if namespace is None:
            return None
        sys.modules[name] = namespace
    return name


def _namespace(parent: str, name: str) -> types.ModuleType | None:
    """A module that is only an attribute of another: sym.contrib."""
    try:
        names = importlib.import_module(parent).__dict__
        found = names[name] if name in names else names["__getattr__"](name)
    except (ImportError, KeyError, AttributeError):
        return None
    return found if isinstance(found, types.ModuleType) else None


def _engine_type(value: str) -> None:
    from ..engine import set_naive

    set_naive(value == "NaiveEngine")


def _backward_do_mirror(value: str) -> None:
    from ..graph import residuals

    residuals.default = "mirror" if value != "0" else residuals.default


def _update_on_kvstore(value: str) -> None:
    from ..training.kvstore import choose

    choose.update_on_store = value != "0"


def _profiler_autostart(value: str) -> None:
    from ..engine import profiler

    if value != "0":
        profiler.set_state("run")


def _storage_fallback_log_verbose(value: str) -> None:
    from ..ndarray.sparse import storage

    storage.warns = value != "0"


# MXNet's variables that have an effect here; MXNET_HOME and MXNET_GLUON_REPO are read where files
# are searched
ENVIRONMENT = {
    "MXNET_ENGINE_TYPE": _engine_type,
    "MXNET_BACKWARD_DO_MIRROR": _backward_do_mirror,
    "MXNET_UPDATE_ON_KVSTORE": _update_on_kvstore,
    "MXNET_PROFILER_AUTOSTART": _profiler_autostart,
    "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": _storage_fallback_log_verbose,
}


def install() -> None:
    """Makes `import mxnet`, `horovod.mxnet`, `byteps.mxnet` resolve to plait, restores NumPy's
    removed aliases, and makes arrays of one element convert to numbers (Values). Idempotent."""
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        if "mxnet" in sys.modules and not isinstance(sys.modules["mxnet"], _Package):
            raise ImportError(
                "compat: the real mxnet is already imported in this process"
                "\n  fix: call plait.compat.install() before anything imports mxnet"
            )
        sys.meta_path.insert(0, _Finder())
    for name, value in _numpy_aliases().items():
        if name not in np.__dict__:
            setattr(np, name, value)
    from ..engine.device import Context
    from ..ndarray.ndarray import NDArray

    # files written by programs refer to these classes
    if Context.__module__ != "mxnet.context":
        plain = NDArray.asnumpy
        setattr(NDArray, "asnumpy", functools.wraps(plain)(lambda self: plain(self).view(Values)))
    Context.__module__, NDArray.__module__ = "mxnet.context", "mxnet.ndarray.ndarray"
    for variable, apply in ENVIRONMENT.items():
        if os.environ.get(variable):
            apply(os.environ[variable])


def main(argv: list[str]) -> None:
    """python -m plait.compat script.py arguments ...: runs a script in compatibility mode."""
    import runpy

    if not argv or argv[0] in ("-h", "--help"):
        print(
            "usage: python -m plait.compat SCRIPT [ARGUMENTS ...]\n\nRuns a script written for"
            " MXNet: `import mxnet` means plait, and NumPy's removed aliases are back."
        )
        sys.exit(0 if argv else 2)
    if not os.path.exists(argv[0]):
        sys.exit(f"compat: no such script: {argv[0]}")
    install()
    sys.argv = list(argv)
    sys.path.insert(0, os.path.dirname(os.path.abspath(argv[0])))
    runpy.run_path(argv[0], run_name="__main__")
