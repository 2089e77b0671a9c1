"""A Graph as ONNX's messages, and as a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....engine import files
from ..types import CODES, OnnxError, package, tensor
from .graph import Dim, Graph
from .tensors import Edge, Tensor

LARGE = (1 << 31) - (1 << 20)  # bytes; a protobuf message has less than 2 GiB
PRODUCER = "plait"


def code_of(dtype: np.dtype) -> int:
    return CODES["bfloat16" if dtype.names else dtype.name]


def value_info(x: Tensor, inner: bool = False) -> Any:
    """Name, dtype and shape of an input or output; a size that varies has a name or none. inner: of
    a body, without its shape, which follows from what the body is given."""
    if inner and x.ndim:
        return package().helper.make_tensor_value_info(x.name, code_of(x.dtype), None)
    sizes = [(n.name or "") if isinstance(n, Dim) else int(n) for n in x.shape]
    named = [None if n == "" else n for n in sizes]
    return package().helper.make_tensor_value_info(x.name, code_of(x.dtype), named)


def graph_proto(g: Graph, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Any:
    """The GraphProto of a graph. A body of control flow has no constants of its own: they are the
    model's."""
    helper = package().helper
    nodes = []
    for i, n in enumerate(needed(g, outputs)):
        attrs = {k: v(f"{n.origin}/{k}") if callable(v) else v for k, v in n.attrs.items()}
        made = helper.make_node(
            n.kind,
            ["" if x is None else x.name for x in n.inputs],
            [x.name for x in n.outputs],
            name=f"{n.origin}/{n.kind}_{i}" if n.origin else f"{n.kind}_{i}",
            **attrs,
        )
        nodes.append(made)
    initializers = (
        []
        if g.outer
        else [tensor(e.name, e.value) for e in constants(g, outputs) if e.value is not None]
    )
    inner = g.outer is not None
    shown = [[value_info(x, inner) for x in xs] for xs in (inputs, outputs)]
    return helper.make_graph(nodes, name, *shown, initializers)


def needed(g: Graph, outputs: Sequence[Tensor]) -> list:
    """The nodes that the outputs depend on, in order."""
    wanted = {x.edge for x in outputs}
    found = []
    for n in reversed(g.nodes):
        if any(x in wanted for x in n.outputs):
            wanted |= {x for x in n.inputs if x is not None} | inner_reads(n)
            found.append(n)
    return found[::-1]


def inner_reads(node: Any) -> set[Edge]:
    """What the bodies of a node read from the graphs around it, and what they define: a superset
    is enough."""
    found: set[Edge] = set()
    for body in node.attrs.values():
        if callable(body):
            g, outputs = body.graph, body.outputs
            for n in needed(g, outputs):
                found |= {x for x in n.inputs if x is not None} | inner_reads(n)
            found |= {x.edge for x in outputs}
    return found


def constants(g: Graph, outputs: Sequence[Tensor]) -> list[Edge]:
    """Parameters and constants in use, each once, in the order of their use."""
    found: dict[Edge, None] = {}
    for n in needed(g, outputs):
        for x in [*n.inputs, *inner_reads(n)]:
            if x is not None and x.value is not None:
                found[x] = None
    found.update((x.edge, None) for x in outputs if x.value is not None)
    return list(found)


class Body:
    """A body of control flow as an attribute of its node, a GraphProto once names are final."""

    def __init__(self, graph: Graph, inputs: Sequence[Tensor], outputs: Sequence[Tensor]):
        self.graph, self.inputs, self.outputs = graph, list(inputs), list(outputs)

    def __call__(self, name: str) -> Any:
        return graph_proto(self.graph, name, self.inputs, self.outputs)


def model_proto(
    g: Graph, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], version: str
) -> Any:
    """The ModelProto."""
    helper = package().helper
    opset = helper.make_opsetid("", g.opset)
    made = helper.make_model(
        graph_proto(g, name, inputs, outputs),
        opset_imports=[opset],
        producer_name=PRODUCER,
        producer_version=version,
    )
    made.ir_version = helper.find_min_ir_version_for([opset])
    return made


def with_shapes(model: Any) -> Any:
    """The model with shapes of all values, as ONNX infers them."""
    return package().shape_inference.infer_shapes(
        model, check_type=True, strict_mode=True, data_prop=True
    )


def save(model: Any, path: str) -> None:
    """Writes the file, and its data beside it (path.data) where it is too large for one. The file
    appears when it is complete. Raises OnnxError where ONNX's checker refuses it, OSError."""
    onnx = package()
    large = model.ByteSize() >= LARGE
    try:
        if not large:
            onnx.checker.check_model(model, full_check=True)
            files.write(path, model.SerializeToString())
            return
        beside = os.path.basename(path) + ".data"
        onnx.save_model(
            model, path, save_as_external_data=True, location=beside, all_tensors_to_one_file=True
        )
        onnx.checker.check_model(path)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise OnnxError(f"onnx: ONNX's checker refuses the model: {error}") from None
