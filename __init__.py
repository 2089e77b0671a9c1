"""plait: eager arrays and symbolic graphs on one threaded engine, with the API of MXNet 1.9.
`import plait as mx`.

Names that MXNet has at its top level come from where they live, on first use: MODULES and NAMES say
where.
"""

import importlib
import importlib.machinery
import sys

__version__ = "0.1.0"

MODULES = {  # attribute of mx -> module of this package
    "nd": "ndarray",
    "ndarray": "ndarray",
    "sym": "symbol",
    "symbol": "symbol",
    "gluon": "gluon",
    "engine": "engine",
    "kernels": "kernels",
    "compat": "compat",
    "autograd": "ndarray.autograd",
    "random": "ndarray.random",
    "rnd": "ndarray.random",
    "context": "engine.device",
    "base": "engine.base",
    "error": "engine.base",
    "libinfo": "engine.libinfo",
    "runtime": "kernels.runtime",
    "util": "ndarray.numpy_mode",
    "rtc": "ndarray.rtc",
    "library": "ndarray.library",
    "log": "gluon.logger",
    "registry": "gluon.registry",
    "profiler": "engine.profiler",
    "name": "symbol.name",
    "attribute": "symbol.attribute",
    "executor": "symbol.executor",
    "viz": "symbol.viz",
    "visualization": "symbol.viz",
    "init": "gluon.initializer",
    "initializer": "gluon.initializer",
    "metric": "gluon.metric",
    "opt": "gluon.optimizer",
    "optimizer": "gluon.optimizer",
    "lr_scheduler": "gluon.lr_scheduler",
    "misc": "gluon.lr_scheduler_old",
    "callback": "gluon.callback",
    "checkpoint": "gluon.checkpoint",
    "recordio": "gluon.data.recordio",
    "io": "gluon.io",
    "image": "gluon.image",
    "img": "gluon.image",
    "kv": "gluon.kvstore",
    "kvstore": "gluon.kvstore",
    "mod": "gluon.module",
    "module": "gluon.module",
    "model": "gluon.model",
    "rnn": "gluon.symbolic_rnn",
    "mon": "gluon.monitor",
    "monitor": "gluon.monitor",
    "executor_manager": "gluon.executor_manager",
    "operator": "ndarray.custom",
    "contrib": "gluon.mxcontrib",
    "notebook": "gluon.notebook",
    "test_utils": "gluon.test_utils",
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
    "wait_compiled": ("symbol.tiers", "wait_compiled"),
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


def __getattr__(name):
    if name in MODULES:
        value = importlib.import_module(f".{MODULES[name]}", __name__)
    elif name in NAMES:
        module, attribute = NAMES[name]
        value = getattr(importlib.import_module(f".{module}", __name__), attribute)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *MODULES, *NAMES})


class _Finder:
    """Finds `plait.io` and all below it where MODULES says: one module under both names."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if not fullname.startswith(f"{__name__}."):
            return None
        first, *rest = fullname.split(".")[1:]
        place = MODULES.get(first, first)
        if place == first:
            return None
        real = ".".join([__name__, place, *rest])
        return importlib.machinery.ModuleSpec(fullname, _Finder, loader_state=real)

    @staticmethod
    def create_module(spec):
        module = importlib.import_module(spec.loader_state)
        spec.loader_state = module.__spec__
        return module

    @staticmethod
    def exec_module(module):
        module.__spec__ = module.__spec__.loader_state  # the module keeps its own identity


sys.meta_path.insert(0, _Finder)
