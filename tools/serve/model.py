"""Networks as a server runs them: NumPy arrays in, NumPy arrays out, weights in memory once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...engine import files
from ...engine.error import MXNetError, compose, parse_json
from ...gluon import SymbolBlock
from ...ndarray import serialization
from ...ndarray.interop import from_numpy
from ...symbol import symbol
from ..model_folder import DESCRIPTION, Array, Description, describe
from .protocol import DATATYPES, NAMES, Tensor

ENDINGS = ("-symbol.json", "-model.json", ".onnx")


class Model(Protocol):
    """What the server asks of a network."""

    @property
    def platform(self) -> str:
        """As the protocol names it."""

    @property
    def inputs(self) -> Sequence[Tensor]:
        """In the order of `run`."""

    @property
    def outputs(self) -> Sequence[Tensor]:
        """In the order of `run`."""

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for one array for each input."""


class Network:
    """A network of plait, frozen."""

    def __init__(
        self, net: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor], platform: str
    ):
        self.platform, self.inputs, self.outputs = platform, list(inputs), list(outputs)
        self._net = net
        if platform == "plait_onnx" and self._depends_on_values():
            return  # runs node by node: there is no program to freeze
        net.freeze()

    def _depends_on_values(self) -> bool:
        self.run(examples(self.inputs, 1))
        return self._net._dynamic

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs; bfloat16 as float32. The arrays must not be written to any more."""
        given = [from_numpy(np.require(a, requirements=["C", "A"])) for a in arrays]
        found = self._net(*given)
        found = found if isinstance(found, (list, tuple)) else [found]
        wide = [x.astype("float32") if x._spec.dtype == "bfloat16" else x for x in found]
        return [x.asnumpy() for x in wide]


def examples(inputs: Sequence[Tensor], rows: int, seed: int | None = None) -> list[np.ndarray]:
    """Arrays that the inputs take, of so many rows; other sizes that vary are 1. Zeros, or with a
    seed numbers in [0, 1), and 0 and 1 for integers."""
    made, random = [], np.random.default_rng(seed)
    for i in inputs:
        first, *others = i.shape or (-1,)
        shape = [rows if first < 0 else first, *(max(n, 1) for n in others)]
        dtype = DATATYPES[i.datatype or "FP32"]
        if seed is None:
            made.append(np.zeros(shape, dtype))
        elif dtype.kind == "f":
            made.append(random.random(shape).astype(dtype))
        else:
            made.append(random.integers(0, 2, shape).astype(dtype))
    return made


def load(folder: Path) -> Network:
    """The network in a folder: `X-symbol.json` and `X-0000.params` of export (the highest number),
    `X-model.json` and `X-model.params` of Block.save, or `X.onnx`; `model.json` may describe it.

    Raises MXNetError or OSError, which names the file.
    """
    found = [f for f in sorted(folder.iterdir()) if f.name.endswith(ENDINGS) and f.is_file()]
    if len(found) != 1:
        names = ", ".join(f.name for f in found) or "none"
        raise MXNetError(
            compose(
                f"{folder} must hold one file *-symbol.json, *-model.json or *.onnx, found: {names}"
            )
        )
    path = found[0]
    said = _description(folder)
    try:
        if path.name.endswith(".onnx"):
            return _from_onnx(path, said)
        read = _from_save if path.name.endswith("-model.json") else _from_export
        return _from_symbol(*read(path), said)
    except MXNetError as error:
        if str(path) in str(error):
            raise
        raise MXNetError(f"{path}: {error}") from error


def is_model(folder: Path) -> bool:
    """Does a folder hold a network?"""
    return any(f.name.endswith(ENDINGS) and f.is_file() for f in folder.iterdir())


# ---- kinds of files ------------------------------------------------------------------------------


def _from_export(path: Path) -> tuple[Any, Any]:
    """(graph, parameters by name) of export's files."""
    prefix = path.name.removesuffix("-symbol.json")
    pattern = re.compile(re.escape(prefix) + r"-(\d{4,})\.params")
    saved = [f for f in path.parent.iterdir() if pattern.fullmatch(f.name)]
    if not saved:
        raise MXNetError(f"{path}: there is no {prefix}-0000.params beside it")
    newest = max(saved, key=lambda f: int(pattern.fullmatch(f.name)[1]))  # type: ignore[index]
    arrays = _arrays(newest)
    return symbol.load(str(path)), {name.partition(":")[2]: x for name, x in arrays.items()}


def _from_save(path: Path) -> tuple[Any, Any]:
    """(graph, parameters by name) of Block.save's files: the graph has the parameters' full names,
    the file of arrays those by attributes."""
    saved = parse_json(files.read(str(path), "load"), f"{path}: it")
    top = next(iter(saved.values()), None) if isinstance(saved, dict) else None
    if not isinstance(top, dict) or not isinstance(top.get("symbol"), str):
        raise MXNetError(
            f"{path} has no graph\n  fix: hybridize the block and call it once before Block.save"
        )
    arrays = _arrays(path.with_name(path.name.removesuffix(".json") + ".params"))
    graph = symbol.load_json(top["symbol"])
    full: dict[str, str] = {}
    _full_names(top, "", full)
    named = {}
    for name, x in arrays.items():
        block, _, own = name.rpartition(".")
        named[f"{full.get(block, block)}_{own}"] = x
    return graph, named


def _arrays(path: Path) -> dict[str, Any]:
    """The arrays of a file, by name."""
    arrays = serialization.load(str(path))
    if not isinstance(arrays, dict):
        raise MXNetError(f"{path} has arrays without names")
    return arrays


def _full_names(saved: dict, at: str, full: dict[str, str]) -> None:
    """Fills full: the name of each block, by its path of attributes."""
    full[at] = saved["orig_name"]
    parts = [v for k, v in saved.items() if isinstance(v, dict) and k != "children"]
    for part, attribute in zip(parts, saved.get("children", {}).values()):
        _full_names(part, f"{at}.{attribute}" if at else attribute, full)


def _from_symbol(graph: Any, arrays: Any, said: Description) -> Network:
    names = [n for n in graph.list_inputs() if n not in arrays]
    data = _tensors(said.inputs)
    unknown = [n for n in names if data and n not in data]
    if unknown:
        raise MXNetError(
            f"variables {', '.join(unknown)} have no array in the file of parameters, and"
            f" {DESCRIPTION} does not name them"
        )
    if absent := [n for n in data if n not in names]:
        raise MXNetError(f"{DESCRIPTION}: the graph has no input {absent[0]!r}")
    net = SymbolBlock(graph, [symbol.var(n) for n in names])
    parameters = net.collect_params()
    for name, p in parameters.items():
        x = arrays[name]
        p.shape, p.dtype = x.shape, x._spec.dtype
        p.initialize()
        p.set_data(x)
    outputs = list(_tensors(said.outputs).items())
    made = [
        Tensor(name, *(outputs[i][1][1:] if i < len(outputs) else (None, None)))
        for i, name in enumerate(
            [outputs[i][0] if i < len(outputs) else n for i, n in enumerate(graph.list_outputs())]
        )
    ]
    return Network(net, [data.get(n, Tensor(n, None, None)) for n in names], made, "plait")


def _from_onnx(path: Path, said: Description) -> Network:
    from ...compat import onnx  # here: it is large, and most models are none

    net = onnx.load(str(path))
    data = {}
    for i in net.inputs:
        shape = None if i.shape is None else tuple(
            n if isinstance(n, int) else -1 for n in i.shape
        )  # fmt: skip
        data[i.name] = Tensor(i.name, _datatype(i.dtype or "float32", i.name), shape)
    outputs = {n: Tensor(n, None, None) for n in net._onnx.outputs}
    outputs.update((n, t) for n, t in _tensors(said.outputs).items() if n in outputs)
    return Network(net, list(data.values()), list(outputs.values()), "plait_onnx")


# ---- model.json ----------------------------------------------------------------------------------


def _description(folder: Path) -> Description:
    """What model.json says; nothing where there is none."""
    return describe(folder) if (folder / DESCRIPTION).exists() else Description([], [])


def _tensors(arrays: Sequence[Array]) -> dict[str, Tensor]:
    """By name, in the order of the file."""
    return {
        a.name: Tensor(a.name, _datatype(a.dtype, a.name), a.shape, a.classes, a.resize)
        for a in arrays
    }


def _datatype(dtype: str, name: str) -> str:
    if dtype == "bfloat16":
        return "FP32"
    try:
        return NAMES[np.dtype(dtype)]
    except (KeyError, TypeError):
        raise ValueError(f"{name}: no datatype {dtype!r} in the V2 protocol") from None
