"""plait: eager arrays and symbolic graphs on one threaded engine, with the API of MXNet 1.9.
`import plait as mx`.

Names that MXNet has at its top level come from where they live, on first use: MODULES and NAMES say
where.
"""

import importlib
import importlib.machinery
import sys
import types

__version__ = "0.4.0"

MODULES = {  # attribute of mx -> module of this package
    # rooms
    "engine": "engine",
    "kernels": "kernels",
    "graph": "graph",
    "nd": "ndarray",
    "np": "ndarray.numpy",
    "npx": "ndarray.numpy_extension",
    "numpy": "ndarray.numpy",
    "numpy_extension": "ndarray.numpy_extension",
    "ndarray": "ndarray",
    "sym": "symbol",
    "symbol": "symbol",
    "dist": "dist",
    "data": "data",
    "training": "training",
    "gluon": "gluon",
    "interop": "gluon.interop",
    "compat": "compat",
    "tools": "tools",
    # engine, kernels
    "context": "engine.device",
    "base": "engine.base",
    "error": "engine.base",
    "profiler": "engine.profiler",
    "registry": "engine.registry",
    "runtime": "kernels.runtime",
    # arrays
    "autograd": "ndarray.autograd",
    "random": "ndarray.random",
    "rnd": "ndarray.random",
    "util": "ndarray.numpy_mode",
    "operator": "ndarray.custom",
    "rtc": "ndarray.rtc",
    # symbols
    "attribute": "symbol.attribute",
    "executor": "symbol.executor",
    "name": "symbol.name",
    "viz": "symbol.viz",
    "visualization": "symbol.viz",
    # data
    "image": "data.image",
    "img": "data.image",
    "io": "data.io",
    "recordio": "data.recordio",
    # training
    "callback": "training.callback",
    "checkpoint": "training.checkpoint",
    "init": "training.initializer",
    "initializer": "training.initializer",
    "kv": "training.kvstore",
    "kvstore": "training.kvstore",
    "lr_scheduler": "training.lr_scheduler",
    "metric": "training.metric",
    "mod": "training.module",
    "module": "training.module",
    "mon": "training.monitor",
    "monitor": "training.monitor",
    "opt": "training.optimizer",
    "optimizer": "training.optimizer",
    # what only MXNet's users look for
    "caffe": "compat.caffe",
    "contrib": "compat.contrib",
    "executor_manager": "compat.executor_manager",
    "libinfo": "compat.libinfo",
    "library": "compat.library",
    "log": "compat.log",
    "misc": "compat.misc",
    "model": "compat.model",
    "notebook": "compat.notebook",
    "onnx": "compat.onnx",
    "rnn": "compat.rnn",
    "test_utils": "compat.test_utils",
}
NUMPY_FILES = "_op arrayprint function_base io set_functions stride_tricks utils".split()
PATHS = {  # modules that are not in the folder where users import them
    "compat.contrib.amp": "gluon.amp",
    "compat.contrib.onnx": "compat.onnx",
    "compat.contrib.compress": "gluon.compress",
    "compat.contrib.nd": "compat.contrib.ndarray",
    "compat.contrib.quantization": "gluon.quantization",
    "compat.contrib.svrg_optimization": "training.svrg_optimization",
    "compat.contrib.sym": "compat.contrib.symbol",
    "compat.contrib.text": "data.text",
    "gluon.data.sampler": "data.sampler",
    "gluon.metric": "training.metric",
    "ndarray.np": "ndarray.numpy",
    "ndarray.npx": "ndarray.numpy_extension",
    "ndarray.numpy.multiarray": "ndarray.numpy.array",
    "ndarray.numpy.fallback_linalg": "ndarray.numpy.linalg",
    **{f"ndarray.numpy.{name}": "ndarray.numpy" for name in NUMPY_FILES},
    **{f"ndarray.numpy_extension.{name}": "ndarray.numpy_extension" for name in ("_op", "utils")},
    "ndarray.numpy_extension.image": "data.image.numpy",
    "symbol.np": "symbol.numpy",
    "symbol.npx": "symbol.numpy_extension",
    "symbol.numpy._op": "symbol.numpy",
    "symbol.numpy._symbol": "symbol.numpy",
    "symbol.numpy_extension._op": "symbol.numpy_extension",
}
NAMES = {  # attribute of mx -> (module, name there)
    "Context": ("engine.device", "Context"),
    "cpu": ("engine.device", "cpu"),
    "gpu": ("engine.device", "gpu"),
    "cpu_pinned": ("engine.device", "cpu_pinned"),
    "current_context": ("engine.device", "current_context"),
    "num_gpus": ("engine.device", "num_gpus"),
    "gpu_memory_info": ("engine.device", "gpu_memory_info"),
    "MXNetError": ("engine.error", "MXNetError"),
    "AttrScope": ("symbol.attribute", "AttrScope"),
    "NDArray": ("ndarray.ndarray", "NDArray"),
    "Symbol": ("symbol.symbol", "Symbol"),
    "wait_compiled": ("graph.tiers", "wait_compiled"),
    "is_np_shape": ("ndarray.numpy_mode", "is_np_shape"),
    "is_np_array": ("ndarray.numpy_mode", "is_np_array"),
    "np_shape": ("ndarray.numpy_mode", "np_shape"),
    "np_array": ("ndarray.numpy_mode", "np_array"),
    "set_np_shape": ("ndarray.numpy_mode", "set_np_shape"),
    "use_np": ("ndarray.numpy_mode", "use_np"),
    "use_np_array": ("ndarray.numpy_mode", "use_np_array"),
    "use_np_shape": ("ndarray.numpy_mode", "use_np_shape"),
    "seed_all": ("ndarray.random", "seed_all"),
    "stream": ("ndarray.streaming", "stream"),
}
HOOKS = {  # what a room needs of one that stands on it: engine/hooks.py
    "server of stores": ("training.kvstore.kvstore_server", "serve"),
    "leave servers": ("training.kvstore.requests", "leave"),
    "compiled graph": ("ndarray.cached", "CachedGraph"),
    "functions of arrays": ("ndarray", "functions"),
    "types of a front": ("graph.fronts", "types"),
    "operators of a front": ("graph.fronts", "operators_of"),
    "kernel of a decomposition": ("graph.decompositions", "decomposition_entry"),
    "collective": ("dist.collectives", "run"),
    "state of traces": ("gluon.tracing", "tracing_state"),
    "place in a job": ("dist.environment", "of_environment"),
    "trace of a block": ("gluon.trace", "Trace"),
    "signature of a block": ("gluon.report", "signature"),
    "drawing of an error": ("symbol.plot_error", "plot_error"),
    "export to ONNX": ("compat.onnx", "export_model"),
    "block of a symbol": ("gluon.symbol_block", "SymbolBlock"),
    "custom instances": ("ndarray.custom", "Instances"),
    "operator of graphs": ("symbol.contrib", "operator_of"),
    "fused layer": ("graph.fused_layers", "fused_layer"),
    "loops of symbols": ("symbol", "contrib"),
    "symbols of np": ("symbol.numpy.symbol", "_Symbol"),
    "symbol of a tape": ("symbol.from_tape", "symbol_of"),
    "symbol of a custom operator": ("symbol.functions", "custom_symbol"),
}


def __getattr__(name):
    if name in MODULES:
        value = importlib.import_module(f".{MODULES[name]}", __name__)
    elif name in NAMES:
        module, attribute = NAMES[name]
        value = getattr(importlib.import_module(f".{module}", __name__), attribute)
    else:
        from .engine import missing

        raise missing.attribute(__name__, name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({n for n in globals() if n.startswith("__")} | {*MODULES, *NAMES})


def place(path: str) -> str:
    """Where what is called mx.`path` lives: "io.io" is data.io.io."""
    first, dot, rest = path.partition(".")
    path = MODULES.get(first, first) + dot + rest
    for alias, found in PATHS.items():
        if path == alias or path.startswith(f"{alias}."):
            return found + path.removeprefix(alias)
    return path


class _Finder:
    """Finds `plait.io` and all below it where MODULES says: one module under both names."""

    @staticmethod
    def find_spec(
        fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(f"{__name__}."):
            return None
        name = fullname.removeprefix(f"{__name__}.")
        if place(name) == name:
            return None
        real = f"{__name__}.{place(name)}"
        loader = _Finder  # a class of static methods: importing importlib.abc takes longer
        return importlib.machinery.ModuleSpec(fullname, loader, loader_state=real)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = importlib.import_module(spec.loader_state)
        spec.loader_state = module.__spec__
        return module

    @staticmethod
    def exec_module(module: types.ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state  # the module keeps its own identity


class _Missing:
    """The last finder: says of modules of MXNet that plait lacks what to use instead."""

    @staticmethod
    def find_spec(fullname: str, path: object = None, target: object = None) -> None:
        if fullname.startswith(f"{__name__}."):
            from .engine import missing

            missing.check_module(fullname)


sys.meta_path.insert(0, _Finder)
sys.meta_path.append(_Missing)
