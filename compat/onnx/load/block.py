"""OnnxBlock: an ONNX graph as a block, and what makes one of a file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from ....engine import Context, current_context
from ....engine.error import compose
from ....gluon.hybrid import HybridBlock
from ....gluon.symbol_block import SymbolBlock
from ....gluon.trace import StructureError
from ....kernels.spec import NUMPY_DTYPES
from ....ndarray import numpy as mx_np
from ....ndarray.ndarray import NDArray
from ....training import initializer
from ..types import OnnxError
from . import rules  # noqa: F401  (fills the table)
from .file import read
from .graph import Declared, Graph, declared, read_graph
from .products import join_products
from .run import Run, dtype_of
from .weights import check_supported, fold, take_weights


class OnnxBlock(SymbolBlock):
    """An ONNX graph as a block. Its floating-point constants are parameters, by their names in the
    file; a call gives the outputs in the graph's order, a list where there are several.

    Unlike other SymbolBlocks it makes its graph for each signature of inputs, as shapes in ONNX are
    computed by nodes. Networks whose shapes depend on values run node by node.
    """

    _onnx: Graph

    def __init__(self, graph: Graph, inputs: Sequence[Declared], ctx: Any = None):
        HybridBlock.__init__(self, prefix="", params=None)
        self.__dict__["_onnx"], self.inputs = graph, list(inputs)
        self._data_names = [i.name for i in inputs]
        ctx = ctx or current_context()
        weights, moments = take_weights(graph)
        for name, x in weights.items():
            p = self.params.get(
                name,
                shape=x.shape,
                dtype=dtype_of(x),
                grad_req="null" if name in moments else "write",
                init=initializer.Zero(),
            )
            p.initialize(ctx=ctx)
            p.set_data(mx_np.array(x, dtype=dtype_of(x)))
            self._reg_params[name] = p
        self.hybridize()

    def __repr__(self):
        names = ", ".join(self._data_names)
        return f"OnnxBlock({self._onnx.name!r}: {names} -> {', '.join(self._onnx.outputs)})"

    # a graph for each signature, as HybridBlock makes them
    _run = HybridBlock._run
    _clear_traces = HybridBlock._clear_traces
    _graphs = HybridBlock._graphs
    _traced_symbol = HybridBlock._traced_symbol
    infer_shape = HybridBlock.infer_shape
    export = HybridBlock.export

    def forward(self, *args: Any) -> Any:
        """Runs the graph on arrays, or composes it with Symbols."""
        if len(args) == 1 and isinstance(args[0], (list, tuple)):
            args = tuple(args[0])
        if len(args) != len(self.inputs):
            raise StructureError(
                f"onnx: {self._onnx.name} needs {len(self.inputs)} inputs"
                f" ({', '.join(self._data_names)}), got {len(args)}"
            )
        for given, i in zip(args, self.inputs):
            if i.shape is not None and isinstance(given, NDArray):
                _check_shape(given.shape, i)
        if not args:
            return self.hybrid_forward(None, **{n: p.data() for n, p in self._reg_params.items()})
        return HybridBlock.forward(self, *args)

    def hybrid_forward(  # type: ignore[override]  # a weight may be called F
        self, F: Any, /, *args: Any, **weights: Any
    ) -> Any:
        """The outputs for arrays or Symbols."""
        traced = bool(args) and not isinstance(args[0], NDArray)
        as_nd = bool(args) and _is_classic(args[0])
        weights = {name: w.as_np_ndarray() for name, w in weights.items()}
        run = Run(
            weights,
            self._constant if traced else None,
            args[0].context if args and not traced else None,
        )
        given = []
        for x, i in zip(args, self.inputs):
            x = x.as_np_ndarray()
            given.append(x.astype(i.dtype) if i.dtype and dtype_of(x) != i.dtype else x)
        found = [run.lift(x) for x in run.graph(self._onnx, given)]
        if as_nd:
            found = [x.as_nd_ndarray() for x in found]
        return found[0] if len(found) == 1 else found

    def _constant(self, x: np.ndarray) -> Any:
        """The Symbol of a known array in a trace: a parameter that is never trained, one for equal
        arrays."""
        from ....symbol import numpy as symbol_np

        dtype = dtype_of(x)
        if x.size <= 1 and dtype != "bfloat16":
            return symbol_np.full(x.shape, x.item() if x.size else 0, dtype=dtype)
        digest = hashlib.sha256(np.ascontiguousarray(x).tobytes())
        digest.update(f"{dtype}{x.shape}".encode())
        name = f"constant_{digest.hexdigest()[:16]}"
        known = name in self.params
        p = self.params.get_constant(name, None if known else mx_np.array(x, dtype=dtype))
        if not known:
            p.initialize(ctx=self._contexts())
        return p.var().as_np_ndarray()

    def _contexts(self) -> list[Context]:
        found = dict.fromkeys(c for p in self._reg_params.values() for c in p.list_ctx())
        return list(found) or [current_context()]

    def _warn_of_unused(self, trace: Any) -> None:
        """Branches that are not taken leave parameters unused: nobody can change that."""


def _check_shape(shape: Sequence[int], i: Declared) -> None:
    assert i.shape is not None
    if len(shape) != len(i.shape) and len(i.shape) > 0:
        rule = f"onnx: input {i.name!r} must have {len(i.shape)} axes {i.shape}, got {tuple(shape)}"
        raise StructureError(rule)


def _is_classic(x: Any) -> bool:
    """Is an array or Symbol one of mx.nd or mx.sym, not of mx.np?"""
    from ....symbol.symbol import Symbol

    return type(x) in (NDArray, Symbol)


def load(
    path: str | PathLike[str] | Any,
    ctx: Context | Sequence[Context] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> OnnxBlock:
    """An ONNX file as a block that predicts and can be trained further.

    path: a file, or a ModelProto. ctx: the device of the parameters. constants: values of inputs
        that are then no inputs of the block, such as a length or a shape.
    Raises OnnxError: a damaged file, or operators that are not supported, all of them at once;
        OSError; MissingPackage.
    """
    model = path if hasattr(path, "graph") else read(path)
    graph = read_graph(model)
    known = {i.name: declared(i) for i in model.graph.input}
    for name, x in (constants or {}).items():
        if name not in graph.inputs:
            names = ", ".join(graph.inputs)
            raise OnnxError(
                compose(f"onnx: constants: {name!r} is no input", fix=f"one of {names}")
            )
        x = np.asarray(x)
        dtype = known[name].dtype
        graph.constants[name] = x if dtype is None else x.astype(NUMPY_DTYPES[dtype])
        graph.inputs.remove(name)
    inputs = [known[n] for n in graph.inputs]
    odd = [i.name for i in inputs if i.dtype is None]
    if odd:
        raise OnnxError(f"onnx: inputs must be tensors of numbers, {', '.join(odd)} are not")
    check_supported(graph)
    fold(graph, but=("DequantizeLinear",))
    join_products(graph)
    fold(graph)
    return OnnxBlock(graph, inputs, ctx)
