"""Names of MXNet that plait lacks: what they are, and what to use instead.

A row is removed when plait gets its name. Code that finds no such name calls `attribute` or
`module` for the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .error import MissingName, MXNetError, compose

# of the name below mx, whole (regular expression): (what is missing, what to use)
TABLE = {
    r"_numpy_op_doc|numpy_(dispatch_protocol|op_signature|op_fallback)": (
        "this is how MXNet made its mx.np",
        "mx.np, mx.npx",
    ),
    r"contrib\.onnx2mx|contrib\.mx2onnx": ("mx.onnx is in one module", "mx.onnx.export_model"),
    r"(nd|sym)\.contrib\.intgemm_\w+": (
        "the bindings of the library intgemm are not in plait",
        "mx.contrib.quantization, whose products of int8 are plait's own",
    ),
    r"contrib\.tensorrt": ("TensorRT is not used by plait", "net.hybridize(), which compiles"),
    r"tvmop|space": (
        "operators that TVM compiles are not in plait",
        "mx.operator.CustomOp, or mx.rtc on a GPU",
    ),
    r"torch|th": ("the plug-in for Lua's Torch is not in plait", "mx.operator.CustomOp"),
    r"(np|npx|sym\.np)\.random\.(default_rng|Generator|RandomState|BitGenerator|SeedSequence|"
    r"MT19937|PCG64(DXSM)?|Philox|SFC64|bit_generator|[gs]et_bit_generator|mtrand)": (
        "plait has one stream of random numbers and no generator objects",
        "np.random.seed(n), then np.random.uniform, normal, randint ...; for a stream of its own"
        " np.array(numpy.random.default_rng(n).random(shape))",
    ),
    r"gluon\.probability": ("distributions came with MXNet 2", "mx.random, mx.nd.random"),
    r"amp": ("this is a name of MXNet 2", "mx.contrib.amp"),
    r"device": ("this is a name of MXNet 2", "mx.context"),
    r"_ctypes|_ffi|_cy3|cython|api|_api_internal": (
        "this is the way to MXNet's C library, which plait does not use",
        "the functions of mx.nd and mx.sym",
    ),
}
# beginnings of modules' names: below mx
_SAME = {
    "ndarray": "nd",
    "symbol": "sym",
}


class MissingModule(MXNetError, ModuleNotFoundError):
    """A module of MXNet that plait lacks."""


def _below(full: str) -> str:
    name = re.sub(r"^(plait|mxnet)(\.compat)?(\.|$)", "", full)
    for long, short in _SAME.items():
        if name == long or name.startswith(long + "."):
            name = short + name[len(long) :]
    return name


def reason(full: str) -> str | None:
    """The text for a name, with or without its package, or None for a name without
    advice."""
    name = _below(full)
    for pattern, (what, fix) in TABLE.items():
        if re.match(rf"({pattern})(\.|$)", name):
            return compose(f"mx.{name}: {what}", fix=fix)
    return None


def attribute(
    module: str, name: str, text: str = "", fix: Callable[[], str | None] = lambda: None
) -> Any:
    """The AttributeError of a module without a name. text, and what makes the advice: where the
    table has no row."""
    rule = text or f"module {module!r} has no attribute {name!r}"
    return MissingName(lambda: reason(f"{module}.{name}") or compose(rule, fix=fix()))


def check_module(full: str) -> None:
    """Raises the ImportError of a module in the table. The import system replaces the text of
    AttributeErrors, as in `from mxnet import np`, but not that of finders."""
    text = reason(full)
    if text is not None:
        raise MissingModule(text)
