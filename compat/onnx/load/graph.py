"""An ONNX graph as plain data: nodes in order, constants, names; checked."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ....engine.error import compose, did_you_mean
from ..types import DTYPES, OnnxError, array, attributes, package
from .file import opsets

MAX_SPARSE = 1 << 28  # elements of a sparse tensor, which is made dense
MAX_DEPTH = 64  # graphs in graphs, functions that call functions


class Reference(str):
    """The name of a function's attribute that an attribute of a node in it takes its value from."""


@dataclasses.dataclass(slots=True)
class Node:
    """One operator. attrs: texts, numbers, lists, arrays, Graphs. opset: of its domain.
    last: names that no later node of its graph reads."""

    name: str
    op: str
    domain: str
    opset: int
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any]
    proto: Any
    last: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        kind = f"{self.domain}.{self.op}" if self.domain else self.op
        name = self.name or next((f"output {o}" for o in self.outputs if o), "no name")
        return f"{kind} ({name})"

    def graphs(self) -> Iterator[Graph]:
        for value in self.attrs.values():
            for v in value if isinstance(value, list) else [value]:
                if isinstance(v, Graph):
                    yield v


@dataclasses.dataclass(slots=True)
class Graph:
    """inputs: those that a caller gives. outer: names that it reads from the graphs around it.
    constants: arrays, or Weights
    of run.py. functions: those of the model, by (domain, name)."""

    name: str
    inputs: list[str]
    outputs: list[str]
    nodes: list[Node]
    constants: dict[str, Any]
    outer: set[str]
    functions: Mapping[tuple[str, str], Any]

    def all_nodes(self) -> Iterator[Node]:
        """Its nodes, and those of graphs in them."""
        for node in self.nodes:
            yield node
            for inner in node.graphs():
                yield from inner.all_nodes()


@dataclasses.dataclass(slots=True)
class Declared:
    """An input or output of a model. shape: None for an unknown dimension, a name for a named one;
    None where nothing is known. dtype: None for what is no tensor."""

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: str | None


def declared(info: Any) -> Declared:
    """Of a ValueInfoProto. Raises OnnxError."""
    if not info.type.HasField("tensor_type"):
        return Declared(info.name, None, None)
    t = info.type.tensor_type
    shape = None
    if t.HasField("shape"):
        shape = tuple(
            (d.dim_value if d.dim_value >= 0 else None)  # some files have -1 for unknown
            if d.HasField("dim_value")
            else (d.dim_param or None)
            for d in t.shape.dim
        )
    return Declared(info.name, shape, DTYPES.get(t.elem_type))


def read_graph(model: Any) -> Graph:
    """The main graph of a ModelProto. Raises OnnxError."""
    versions = opsets(model.opset_import)
    functions = {(_domain(f), f.name): f for f in model.functions}
    return _graph(model.graph, versions, functions, set(), 0)


def read_function(
    proto: Any, node: Node, functions: Mapping[tuple[str, str], Any], local: bool
) -> Graph:
    """The graph of a FunctionProto for one call of it: attributes are those of the node."""
    versions = {"": node.opset} if not node.domain else {"": 17}
    versions.update(
        {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}
    )
    if local:
        versions = opsets(proto.opset_import)
    given = {a.name: a for a in proto.attribute_proto}
    if not local:  # of an operator of ONNX: the defaults of its attributes
        found = schema(node.op, node.opset, node.domain)
        given.update(
            (n, a.default_value) for n, a in found.attributes.items() if a.default_value.name
        )
    given.update((a.name, a) for a in node.proto.attribute)
    nodes = [_resolved(n, given) for n in proto.node]
    outputs = list(proto.output)[: len(node.outputs)]  # the others may be computed by no node
    return _built(proto.name, list(proto.input), outputs, nodes, {}, versions, functions, set(), 0)


def _resolved(proto: Any, given: dict[str, Any]) -> Any:
    """A node of a function, with attributes of the call in place of references."""
    if not any(a.ref_attr_name or a.HasField("g") for a in proto.attribute):
        return proto
    made = type(proto)()
    made.CopyFrom(proto)
    del made.attribute[:]
    for a in proto.attribute:
        if a.ref_attr_name:
            if a.ref_attr_name in given:
                made.attribute.add().CopyFrom(given[a.ref_attr_name])
                made.attribute[-1].name = a.name
            continue
        made.attribute.add().CopyFrom(a)
        if a.HasField("g"):
            inner = made.attribute[-1].g
            nodes = [_resolved(n, given) for n in a.g.node]
            del inner.node[:]
            inner.node.extend(nodes)
    return made


def _domain(proto: Any) -> str:
    return "" if proto.domain == "ai.onnx" else proto.domain


def _graph(
    proto: Any,
    versions: Mapping[str, int],
    functions: Mapping[tuple[str, str], Any],
    outer: set[str],
    depth: int,
) -> Graph:
    constants = {}
    for t in proto.initializer:
        constants[t.name] = _array(t)
    for s in proto.sparse_initializer:
        constants[s.values.name] = _dense(s)
    inputs = [i.name for i in proto.input if i.name not in constants]
    outputs = [o.name for o in proto.output]
    return _built(
        proto.name, inputs, outputs, proto.node, constants, versions, functions, outer, depth
    )


def _built(
    name: str,
    inputs: list[str],
    outputs: list[str],
    protos: Iterable[Any],
    constants: dict[str, np.ndarray],
    versions: Mapping[str, int],
    functions: Mapping[tuple[str, str], Any],
    outer: set[str],
    depth: int,
) -> Graph:
    if depth > MAX_DEPTH:
        raise OnnxError(f"onnx: graphs are nested more than {MAX_DEPTH} deep")
    made = {*inputs, *constants}
    protos = list(protos)
    if len(set(inputs)) < len(inputs):
        raise OnnxError(f"onnx: {name}: two inputs have the same name")
    nodes, read_outside = [], set()
    constants = dict(constants)
    for proto in protos:
        known = outer | made
        node = _node(proto, versions, functions, known, depth)
        if node.op == "Constant" and not node.domain and node.outputs[0] not in made:
            constants[node.outputs[0]] = _constant(node)
            made.add(node.outputs[0])
            continue
        needed = [*node.inputs, *(n for g in node.graphs() for n in g.outer)]
        for n in needed:
            if n and n not in known:
                raise OnnxError(_missing(n, node, protos))
            if n and n not in made:
                read_outside.add(n)
        again = [o for o in node.outputs if o in made and o]
        if again:
            raise OnnxError(f"onnx: {again[0]!r} is computed twice, again by {node}")
        made.update(o for o in node.outputs if o)
        nodes.append(node)
    for o in outputs:
        if o not in made:
            if o not in outer:
                near = did_you_mean(o, made)
                raise OnnxError(
                    compose(f"onnx: {name}: nothing computes the output {o!r}", fix=near)
                )
            read_outside.add(o)
    find_last(nodes, set(outputs))
    return Graph(name, inputs, outputs, nodes, constants, read_outside, functions)


def _missing(name: str, node: Node, protos: Sequence[Any]) -> str:
    if any(name in p.output for p in protos):
        rule = f"onnx: {node} reads {name!r}, which is computed only later: nodes are out of order"
        return compose(rule + " or form a cycle")
    return f"onnx: {node} reads {name!r}, which is no input and not computed by any node"


def find_last(nodes: Sequence[Node], outputs: set[str]) -> None:
    """Sets `last` of each node."""
    later = set(outputs)
    for node in reversed(nodes):
        read = {*node.inputs, *node.outputs, *(n for g in node.graphs() for n in g.outer)}
        node.last = [n for n in read - later if n]
        later |= read


def _node(
    proto: Any,
    versions: Mapping[str, int],
    functions: Mapping[tuple[str, str], Any],
    known: set[str],
    depth: int,
) -> Node:
    names = (proto.name, proto.op_type, proto.domain, *proto.input, *proto.output)
    if not all(isinstance(n, str) for n in names):
        raise OnnxError(
            f"onnx: a name is no text: {next(n for n in names if type(n) is not str)!r}"
        )
    domain = _domain(proto)
    node = Node(
        proto.name,
        proto.op_type,
        domain,
        versions.get(domain, 1),
        list(proto.input),
        list(proto.output),
        {},
        proto,
    )
    try:
        attrs = attributes(proto)
    except (ValueError, TypeError, UnicodeDecodeError, OverflowError) as error:
        raise OnnxError(f"onnx: an attribute of {node} is damaged: {error}") from None
    onnx = package()

    def inner(value: Any) -> Any:
        if isinstance(value, onnx.GraphProto):
            return _graph(value, versions, functions, known, depth + 1)
        if isinstance(value, list):
            return [inner(v) for v in value]
        return value

    node.attrs = {key: inner(value) for key, value in attrs.items()}
    return node


def check_attributes(node: Node) -> None:
    """Raises OnnxError for an attribute that is missing or of another type than the operator's."""
    found = schema(node.op, node.opset, node.domain)
    if found is None:
        return
    given = {a.name: a for a in node.proto.attribute}
    for name, wanted in found.attributes.items():
        if name not in given:
            if wanted.required:
                raise OnnxError(f"onnx: {node} needs the attribute {name!r}")
        elif given[name].type != int(wanted.type):
            kind = wanted.type.name.lower()
            raise OnnxError(f"onnx: the attribute {name!r} of {node} must be of type {kind}")


def _array(t: Any) -> np.ndarray:
    if any(n < 0 for n in t.dims):
        raise OnnxError(f"onnx: a dimension must not be negative, {t.name!r} has {list(t.dims)}")
    try:
        return array(t)
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError, RuntimeError) as error:
        raise OnnxError(f"onnx: the tensor {t.name!r} is damaged: {error}") from None


def _constant(node: Node) -> Any:
    """The value of a node Constant. Raises OnnxError."""
    for key, value in node.attrs.items():
        if key == "sparse_value":
            return _dense(value)
        if key == "value":
            return value
        if key in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
        if key in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
        if key in ("value_string", "value_strings"):
            return np.asarray(value, object)
    raise OnnxError(f"onnx: {node} has no value")


def _dense(s: Any) -> np.ndarray:
    name, shape = s.values.name, tuple(s.dims)
    if any(n < 0 for n in shape) or prod(shape) > MAX_SPARSE:
        raise OnnxError(f"onnx: no sparse tensor can have the shape {shape}, as {name!r} has")
    values, at = _array(s.values), _array(s.indices)
    dense = np.zeros(shape, values.dtype)
    try:
        dense[tuple(at.T) if at.ndim == 2 else np.unravel_index(at, shape)] = values
    except (IndexError, ValueError) as error:
        raise OnnxError(f"onnx: the tensor {name!r} is damaged: {error}") from None
    return dense


@functools.cache
def schema(op: str, opset: int, domain: str = "") -> Any:
    """The OpSchema of an operator, None where the package onnx has none."""
    onnx = package()
    try:
        return onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return None
