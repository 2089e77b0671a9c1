"""Symbols and their parameters as ONNX files.

inputs.py   what the caller gives: a network, its parameters, the shapes of its inputs
convert.py  a typed graph as nodes: rules/, decompositions, references (arrays.py, tensors.py)
graph.py    the ONNX graph being written, sizes that vary
write.py    the messages and the file
verify.py   ONNX Runtime's results beside plait's
support.py  which operators are mapped, and how
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np

from ....engine.error import InvalidValue
from ....graph.graph import Value, topological
from ....graph.names import output_names
from ....kernels.spec import DType
from ....symbol import Symbol
from ..types import DEFAULT_OPSET, OPSETS, OnnxError, package
from . import convert, inputs, write
from .graph import Dim, Graph
from .support import get_operator_support
from .tensors import Tensor

__all__ = ["export_model", "get_operator_support"]
PRODUCER_VERSION = "1.9.1"  # of the API


def export_model(
    sym: Symbol | str | PathLike[str],
    params: Any,
    in_shapes: Sequence[Any] | dict[str, Any] | None = None,
    in_types: DType | Sequence[DType] = np.float32,
    onnx_file_path: str | PathLike[str] = "model.onnx",
    verbose: bool = False,
    dynamic: bool = False,
    dynamic_input_shapes: Sequence[Any] | None = None,
    run_shape_inference: bool = False,
    input_type: Any = None,
    input_shape: Any = None,
    *,
    opset_version: int = DEFAULT_OPSET,
    verify: bool = False,
) -> str:
    """Writes a network as it predicts, and returns the file's path.

    sym, params: file names (net-symbol.json, net-0000.params), or a Symbol and a dict of arrays
        (names may begin with arg: or aux:), or [arguments, auxiliary states].
    in_shapes: of each input that is not a parameter, in the Symbol's order, or a dict by name. A
        size may be None or a name ("batch"): it varies. in_types: one dtype, or one for each input.
    dynamic_input_shapes: sizes that are None or a name in it vary; dynamic without it: all vary.
        Sizes of one name are equal, and so are sizes None of one axis that are equal in in_shapes.
    opset_version: 13 to 21. verify: also runs the file in ONNX Runtime, and compares.
    verbose: logs each node. run_shape_inference: accepted: shapes always are in the file.
        input_type, input_shape: old names of in_types and in_shapes.

    The model is valid by onnx.checker, its parameters are initializers and its outputs are in the
    Symbol's order. Raises OnnxError (also a ValueError) with the names of all nodes that have no
    form in ONNX; MissingPackage (an ImportError) without the package onnx; what inference raises.
    """
    package()
    if opset_version not in OPSETS:
        raise InvalidValue(
            f"onnx: opset_version must be from {OPSETS[0]} to {OPSETS[-1]}, got {opset_version!r}"
        )
    network = inputs.network(sym, params)
    given = inputs.declared(
        network,
        in_shapes if in_shapes is not None else input_shape,
        input_type if input_type is not None else in_types,
        dynamic_input_shapes,
        dynamic or dynamic_input_shapes is not None,
    )
    model = _model(network, given, opset_version)
    path = os.fspath(onnx_file_path)
    write.save(model, path)
    if verbose:
        for node in model.graph.node:
            logging.info("%s %s -> %s", node.op_type, list(node.input), list(node.output))
    if verify:
        from .verify import compare

        compare(network, given, path)
    return path


def _model(network: inputs.Network, given: Sequence[inputs.Input], opset: int) -> Any:
    """The ModelProto, with shapes. Where sizes vary, the graph is written for two sizes of each,
    and both must be equal: no node may depend on a size that it was inferred for."""
    g, used, outputs = _written(network, given, opset, False)
    if any(isinstance(n, inputs.Varying) for x in given for n in x.shape):
        _must_equal(g, _written(network, given, opset, True)[0])
    return write.with_shapes(write.model_proto(g, "plait", used, outputs, PRODUCER_VERSION))


def _written(
    network: inputs.Network, given: Sequence[inputs.Input], opset: int, other: bool
) -> tuple[Graph, list[Tensor], list[Tensor]]:
    """The graph, its inputs and outputs, for one choice of sizes."""
    g = Graph(opset)
    typed = [network.typed(given, which) for which in (other, not other)]
    graphs = [convert.expanded(t) for t in typed]
    tensors, sizes = _inputs(g, network, given, other)
    converter = convert.Converter(sizes)
    order = topological(graphs[0])
    try:
        if sizes.named:
            sizes.pair(order, topological(graphs[1]))
    except convert.Unmapped as error:
        raise OnnxError(f"onnx: {error}\n  fix: give fixed sizes in in_shapes") from None
    known = {}
    for node in order:
        if node.op is None:
            is_input = node.name in tensors
            x = tensors[node.name] if is_input else _parameter(g, network, node.name)
            known[Value(node)] = x
    made = converter.run(g, graphs[0], known)
    if converter.failures:
        raise OnnxError(_report(converter.failures))
    outputs = _outputs(g, network, made, set(tensors))
    return g, [tensors[x.name] for x in given], outputs


def _inputs(
    g: Graph, network: inputs.Network, given: Sequence[inputs.Input], other: bool
) -> tuple[dict[str, Tensor], convert.Sizes]:
    """The graph's inputs by name, and the sizes of them that vary."""
    for name in network.variables:
        g.names.new(name)
    dims: dict[str, Dim] = {}
    named, tensors = [], {}
    for x in given:
        t = Tensor(g, (), convert.NUMPY_DTYPES[x.dtype], x.name)
        shape: list[int] = []
        for axis, n in enumerate(x.shape):
            if isinstance(n, inputs.Varying):
                pair = (n.other, n.size) if other else (n.size, n.other)
                if n.name not in dims:
                    make = lambda g, t=t, axis=axis: g.size_of(t, axis)
                    dims[n.name] = Dim(pair[0], make, n.name)
                    named.append((dims[n.name], pair[1]))
                shape.append(dims[n.name])
            else:
                shape.append(n)
        t.shape = tuple(shape)
        tensors[x.name] = t
    return tensors, convert.Sizes(named)


def _parameter(g: Graph, network: inputs.Network, name: str) -> Tensor:
    if name in network.labels:  # of a loss, which prediction does not read
        return Tensor(g, (), np.dtype("float32"), name)
    x = network.params[name].asnumpy()
    return Tensor(g, x.shape, x.dtype, name, x, parameter=True)


def _outputs(
    g: Graph, network: inputs.Network, made: Sequence[Tensor], taken: set[str]
) -> list[Tensor]:
    """The outputs in the Symbol's order, named as its nodes are: fc1, and fc1_output0 where a node
    has several."""
    g.origin = ""
    found: list[Tensor] = []
    written = {e: n for n in g.nodes for e in n.outputs}
    wanted = [re.sub(r"_output(\d*)$", r"\1", n) for n in output_names(network.outputs)]
    for x, name in zip(made, wanted):
        if (
            x.edge not in written
            or any(x.edge is y.edge for y in found)
            or x.name in wanted[: len(found)]
        ):
            shape = x.shape
            x = g.Identity(x)
            x.shape = shape
        if x.name != name:
            x.edge.name = name if name not in g.names.taken else g.names.new(name)
            g.names.taken.setdefault(name, 1)
        found.append(x)
    return found


def _report(failures: Sequence[tuple[Any, str]]) -> str:
    lines = [f"  {node.name or '(unnamed)'} ({node.op.name}): {why}" for node, why in failures]
    return f"onnx: {len(lines)} nodes have no form in ONNX:\n" + "\n".join(dict.fromkeys(lines))


def _must_equal(a: Graph, b: Graph) -> None:
    """Raises OnnxError, with the names of plait's nodes, where two graphs have other nodes,
    attributes or constants."""
    mine, other = _by_origin(a), _by_origin(b)
    wrong = [name for name in mine if mine[name] != other.get(name)]
    if wrong:
        raise OnnxError(
            f"onnx: nodes that need fixed sizes: {', '.join(wrong)}\n"
            "  fix: give fixed sizes in in_shapes"
        )


def _by_origin(g: Graph) -> dict[str, list]:
    """What was written for each node of plait, without the names of values."""
    found: dict[str, list] = {}
    for n in g.nodes:
        values = [x.value.tobytes() if x and x.value is not None and not x.parameter else None
                  for x in n.inputs]  # fmt: skip
        attrs = {k: _by_origin(v.graph) if callable(v) else v for k, v in n.attrs.items()}
        found.setdefault(n.origin, []).append((n.kind, values, attrs))
    return found
