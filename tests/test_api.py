"""Every public name of MXNet 1.9.1 (tests/fixtures/api.tsv), every method of a public class
(methods.tsv), and every name of its NumPy interface (np_api.tsv), is here with the same signature.

The tables were taken from the real MXNet: module, kind, name, signature, members of classes.
Run this file to see the share and what is missing: python tests/test_api.py
"""

import functools
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

TABLE = Path(__file__).parent / "fixtures" / "api.tsv"
METHODS = TABLE.with_name("methods.tsv")
NUMPY = TABLE.with_name("np_api.tsv")
# areas that are not part of classic MXNet on a CPU
EXCLUDED = {
    r"mxnet\.numpy.*|mxnet\.np_.*": "the NumPy interface, which has a table of its own",
    r"mxnet\.contrib\.quantization": "quantization",
    r"mxnet\.contrib\.onnx|mxnet\.onnx": "ONNX",
    r"mxnet\.tvmop|mxnet\.space": "TVM",
    r"mxnet\.torch": "the plug-in for Lua's Torch, empty in MXNet's wheels",
}
# names whose signature differs on purpose, and why
DIFFERENT = {
    "NDArray": "made by nd.array and the like, not from a handle of MXNet's C library",
    "BaseSparseNDArray": "not made from a handle of MXNet's C library",
    "CSRNDArray": "made by nd.sparse.csr_matrix, not from a handle of MXNet's C library",
    "RowSparseNDArray": "made by nd.sparse.row_sparse_array, not from a handle",
    "Symbol": "made by sym.var and operators, not from a handle of MXNet's C library",
    "Executor": "made by bind and simple_bind, not from a handle of MXNet's C library",
    "CudaKernel": "made by CudaModule.get_kernel, not from a handle of MXNet's C library",
    "plot_network": "save_format is svg, which needs no program beside Python",
}
# methods whose signature differs on purpose, and why
DIFFERENT_METHODS = {
    "hybrid_forward": "called by forward, which gives the parameters by name",
    "BidirectionalCell.forward": "refuses any call: unroll it",
    "ModifierCell.begin_state": "batch_size is the first argument, as of every other cell",
}
# names of the NumPy interface whose signature differs on purpose, and why
DIFFERENT_NUMPY = {
    "np.ndarray": "made by np.array and the like, not from a handle of MXNet's C library",
    "np.finfo": "NumPy's",
    "np.trace": "dtype is before out, as in NumPy",
    "np.linalg.pinv": "rcond=None is 1e-15",
    "npx.image.copyMakeBorder": "src is required",
    "ndarray.reshape": "takes sizes, or a shape",
}
# what inspect says of a class without a signature, and of a function generated at run time
ANY = ("(self, /, *args, **kwargs)", "(*args, **kwargs)", "(self, *args, **kwargs)")


EXCLUDED_NAMES = {
    "mxnet.test_utils.np_symbol": "the NumPy interface",
    "mxnet.notebook.bokeh": "stands for a package that was not installed",
    "mxnet.notebook.Bokeh_Failed_To_Import": "stands for a package that was not installed",
    "mxnet.notebook.callback.pd": "stands for a package that was not installed",
    "mxnet.notebook.callback.Pandas_Failed_To_Import": "stands for an absent package",
}


def rows():
    for line in TABLE.read_text().splitlines():
        if not line.startswith("#"):
            module, kind, name, signature, *members = line.split("\t")
            if f"{module}.{name}" not in EXCLUDED_NAMES and not any(
                re.fullmatch(area, module) for area in EXCLUDED
            ):
                yield module, kind, name, signature, members[0].split() if members else []


def parameters(text):
    """[(name, default as text or None)] of a signature's text, without self."""
    found = []
    depth, item = 0, ""
    for c in text.strip()[1:-1] + ",":
        if c == "," and depth == 0:
            if item.strip():
                name, _, default = item.strip().partition("=")
                found.append((name.split(":")[0].strip(), default.strip() or None))
            item = ""
            continue
        depth += (c in "([{<") - (c in ")]}>")
        item += c
    return [p for p in found if p[0] not in ("self", "/")]


def same_default(theirs, ours):
    """Is our default what the table's text says?"""
    if theirs is None:
        return True  # required there, with a default here: every call works
    if ours is inspect.Parameter.empty:
        return False
    if re.match(r"<(class|function|built-in|bound|mxnet|.* object at)|_Null", theirs):
        return True  # a class or object that only its owner can name
    if inspect.ismodule(ours):
        return ours.__name__ == theirs
    ours = list(ours) if isinstance(ours, tuple) and theirs.startswith("[") else ours
    shown = re.sub(r" at 0x[0-9a-f]+", "", repr(ours))  # the table has no addresses either
    return shown == theirs or str(ours) == theirs or _value(theirs) == ours


def _value(text):
    import ast

    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return object()


def difference(ours, text):
    """What keeps a call written for the table's signature from working here, or None."""
    if text in ANY:
        return None
    try:
        mine = list(inspect.signature(ours).parameters.values())
    except (TypeError, ValueError):
        return "has no signature"
    takes_rest = any(p.kind is p.VAR_POSITIONAL for p in mine)
    takes_keys = any(p.kind is p.VAR_KEYWORD for p in mine)
    named = {p.name: p for p in mine}
    if inspect.isfunction(ours) and mine and mine[0].name == "self":
        mine = mine[1:]
    for i, (name, default) in enumerate(parameters(text)):
        if name == "*":
            break
        if name.startswith("**"):
            continue  # what it takes there is named here, or refused by name
        if name.startswith("*"):
            if not takes_rest:
                return f"takes no {name}"
            continue
        p = named.get(name)
        if p is None:
            if takes_keys and takes_rest:
                continue
            return f"has no parameter {name}"
        if i < len(mine) and mine[i].name != name and not takes_rest:
            return f"parameter {i} is {mine[i].name}, not {name}"
        if not same_default(default, p.default):
            return f"{name}={p.default!r}, not {default}"
    required = [
        p.name
        for p in mine
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    theirs = [name for name, _ in parameters(text)]
    extra = [name for name in required if name not in theirs]
    return f"requires {extra[0]}" if extra and "*args" not in theirs else None


def wrong_methods():
    """[(name, what is wrong)] and the number of rows. In compatibility mode."""
    wrong, count = [], 0
    for line in METHODS.read_text().splitlines():
        if line.startswith("#"):
            continue
        module, owner, name, signature = line.split("\t")
        if name in DIFFERENT_METHODS or f"{owner}.{name}" in DIFFERENT_METHODS:
            continue
        count += 1
        kind = find(module, owner)
        ours = getattr(kind, name, None)
        if not callable(ours):
            wrong.append((f"{module}.{owner}.{name}", "is missing"))
            continue
        static = inspect.getattr_static(kind, name)
        if not isinstance(static, (staticmethod, classmethod)):
            ours = _called(ours)
        text = difference(ours, signature)
        if text:
            wrong.append((f"{module}.{owner}.{name}", text))
    return wrong, count


def _called(method):
    """A method as its caller sees it: without its first parameter, whatever its name."""
    signature = inspect.signature(method)

    def bound():
        pass

    bound.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])
    return bound


def wrong_numpy():
    """[(name, what is wrong)] of the NumPy interface and the number of rows."""
    import plait

    places = {"ndarray": "np.ndarray"}
    wrong, count = [], 0
    for line in NUMPY.read_text().splitlines():
        if line.startswith("#"):
            continue
        space, kind, name, signature = line.split("\t")
        full, count = f"{space}.{name}", count + 1
        if name == "current_context" and space.startswith("sym"):
            continue  # what MXNet's module imports
        try:
            owner = functools.reduce(getattr, places.get(space, space).split("."), plait)
            ours = getattr(owner, name)
        except AttributeError:
            wrong.append((full, "is missing"))
            continue
        if kind in ("function", "method") and callable(ours) and full not in DIFFERENT_NUMPY:
            text = difference(_called(ours) if kind == "method" else ours, signature)
            wrong += [(full, text)] if text else []
    return wrong, count


def find(module, name):
    owner = importlib.import_module(module)
    return functools.reduce(getattr, name.split("."), owner)


def missing():
    """[(name, what is wrong)] and the number of rows. In compatibility mode."""
    import plait.compat

    plait.compat.install()
    wrong, count = [], 0
    for module, kind, name, signature, members in rows():
        count += 1
        full = f"{module}.{name}"
        try:
            ours = find(module, name)
        except (ImportError, AttributeError) as error:
            wrong.append((full, f"is missing ({type(error).__name__})"))
            continue
        if kind == "class" and not inspect.isclass(ours):
            wrong.append((full, "is no class"))
            continue
        text = difference(ours, signature)
        if text and not full.endswith(tuple(DIFFERENT)):
            wrong.append((full, text))
        wrong += [(full, f"has no member {m}") for m in members if not hasattr(ours, m)]
    return wrong, count


def test_the_whole_api_is_here():
    """In a process of its own: compatibility mode changes the process."""
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, timeout=300, check=False
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_whole_numpy_interface_is_here():
    wrong, count = wrong_numpy()
    assert count > 600
    assert not wrong, "\n".join(f"{name} {text}" for name, text in wrong)


# public names of namespaces that MXNet does not have there
OURS = {
    "mxnet": "NDArray Symbol gpu_memory_info num_gpus seed_all stream wait_compiled",
    "mxnet.contrib.amp": "autocast convert_bucketing_module",
    "mxnet.engine": "Context DeadlineExceeded MXNetError PENDING Var abort cpu cpu_pinned"
    " cpu_shared current_context ffi gpu gpu_memory_info is_naive num_gpus push raise_last"
    " set_naive stats trim wait wait_for_var waitall",
    "mxnet.gluon.contrib.estimator": "HistoryHandler ProgressBarHandler TensorBoardHandler",
    "mxnet.gluon.contrib.rnn": "dynamic_unroll",
    "mxnet.gluon.data": "IntervalSampler SplitSampler",
    "mxnet.gluon.data.vision": "Digits",
    "mxnet.gluon.model_zoo.vision": "MODELS UnknownModelError",
    "mxnet.gluon.nn": "Identity",
    "mxnet.kvstore": "BytePS Horovod",
    "mxnet.module": "DataParallelExecutorGroup",
    "mxnet.ndarray": "Custom Function hypot save_tobuffer",
    "mxnet.ndarray.sparse": "StorageFallback",
    "mxnet.optimizer": "GroupAdaGrad multi_lamb_update multi_mp_lamb_update",
    "mxnet.symbol": "Custom",
}


def test_namespaces_offer_no_helpers():
    """Packages, and modules whose names are made when first used, show MXNet's names, operators,
    modules of plait and OURS; in plain modules one expects what they import."""
    known = {}
    for module, _, name, *_ in rows():
        known.setdefault(module, set()).add(name)
    from plait.kernels.record import REGISTRY

    wrong = []
    for name, names in known.items():
        module = importlib.import_module("plait" + name.removeprefix("mxnet"))
        if not hasattr(module, "__path__") and not hasattr(module, "__getattr__"):
            continue
        for shown in getattr(module, "__all__", None) or dir(module):
            if shown.startswith("_") or shown in names or shown in REGISTRY:
                continue
            value = getattr(module, shown)
            ours = inspect.ismodule(value) and value.__name__.startswith("plait.")
            if not ours and shown not in OURS.get(name, "").split():
                wrong.append(f"{name}.{shown}")
    assert not wrong


def test_modules_are_attributes_without_their_import():
    """`import mxnet` imports all modules: `mx.gluon.data.sampler` needs no import of its own."""
    modules = sorted({module for module, *_ in rows()} | {"mxnet.gluon.data.sampler"})
    script = f"""
import functools
import plait
for module in {modules!r}:
    functools.reduce(getattr, module.split(".")[1:], plait)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_nd_and_sym_reach_no_helpers():
    import plait

    for namespace in (plait.nd, plait.sym):
        helpers = vars(namespace.functions).keys() - dir(namespace)
        reached = [n for n in helpers if n[0] != "_" and hasattr(namespace, n)]
        assert "Callable" in helpers
        assert [n for n in reached if not inspect.ismodule(getattr(namespace, n))] == []


def test_difference_sees_what_differs():
    def f(a, b=1, *, c="x"):
        pass

    assert difference(f, "(a, b=1, *, c='x')") is None
    assert difference(f, "(a, b=2)") == "b=1, not 2"
    assert difference(f, "(b, a)") == "parameter 0 is a, not b"
    assert difference(f, "(a, b=1, d=None)") == "has no parameter d"
    assert difference(f, "(b=1)") == "parameter 0 is a, not b"
    assert difference(lambda x, y: 0, "(x)") == "requires y"


if __name__ == "__main__":
    wrong, count = missing()
    wrong_of_methods, count_of_methods = wrong_methods()
    wrong, count = wrong + wrong_of_methods, count + count_of_methods
    names = {name for name, _ in wrong}
    print(f"{count - len(names)} of {count} public names, {100 * (1 - len(names) / count):.2f} %")
    for name, text in wrong:
        print(f"  {name}: {text}")
    sys.exit(bool(wrong))
