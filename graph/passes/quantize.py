"""Float layers as layers on bytes: the pass behind mx.contrib.quantization, on untyped graphs.

    quantize    which nodes are quantized; quantize_v2 before them, requantize behind products,
                dequantize where a float reader takes bytes; parameters become variables of bytes
    calibrate   ranges found on data, by the names of the float graph's values, as attributes

Names are MXNet's: `<value>_quantize`, `quantized_<node>`, `requantize_<node>`, `<node>_dequantize`,
and `<parameter>_quantize`, `..._min`, `..._max`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ...kernels.record import lookup
from ...kernels.traits import Subgraphs
from ..fused_layers import CONV, DENSE
from ..graph import Node, Value, rewrite, topological
from ..names import output_name
from .fuse_layers import shortest, with_attrs

QUANTIZE, REQUANTIZE = lookup("_contrib_quantize_v2"), lookup("_contrib_requantize")
DEQUANTIZE, ASYMMETRIC = lookup("_contrib_dequantize"), lookup("_contrib_quantize_asym")
CALIBRATED = (QUANTIZE, REQUANTIZE, ASYMMETRIC, lookup("_contrib_quantized_batch_norm"))

RANGE_KEPT = ("Pooling", "Flatten", "Reshape", "Activation", "relu", "Dropout")  # or made smaller


class Form(NamedTuple):
    """An operator on bytes. inputs: those that become bytes; None: all. must: a region begins with
    it; else it is quantized between such ("smart"). sums: its result is int32."""

    op: str
    inputs: tuple[int, ...] | None = None
    must: bool = False
    sums: bool = False


FORMS = {
    "Convolution": Form("_contrib_quantized_conv", must=True, sums=True),
    "FullyConnected": Form("_contrib_quantized_fully_connected", must=True, sums=True),
    "Pooling": Form("_contrib_quantized_pooling"),
    "Activation": Form("_contrib_quantized_act"),
    "Flatten": Form("_contrib_quantized_flatten"),
    "Concat": Form("_contrib_quantized_concat"),
    "elemwise_add": Form("_contrib_quantized_elemwise_add", sums=True),
    "elemwise_mul": Form("_contrib_quantized_elemwise_mul", sums=True),
    "BatchNorm": Form("_contrib_quantized_batch_norm", (0,)),
    "Embedding": Form("_contrib_quantized_embedding", (1,)),
    "RNN": Form("_contrib_quantized_rnn", (0,), must=True),
    CONV: Form(CONV, must=True, sums=True),
    DENSE: Form(DENSE, must=True, sums=True),
}


def form_of(node: Node) -> Form | None:
    """How a node is computed on bytes; None: as floats."""
    if node.op is None or node.op.name not in FORMS:
        return None
    a, name = node.attrs, node.op.name
    if name == "Convolution" and (a["layout"] or "").endswith("C"):
        return None
    if name == "Pooling" and a["pool_type"] not in ("max", "avg"):
        return None
    if name == "Activation" and a["act_type"] != "relu":
        return None
    if name == "Concat" and a["dim"] == 0:
        return None
    if name == "RNN" and (a["mode"] != "lstm" or a["projection_size"] or a["use_sequence_length"]):
        return None
    if name in (CONV, DENSE) and a["quantized"]:
        return None
    if name == "BatchNorm" and a["output_mean_var"]:
        return None
    return FORMS[name]


def _inner(node: Node) -> list[Node]:
    """The nodes inside a fused layer, and the node itself."""
    found = node.operation.trait(Subgraphs)
    graphs = () if found is None else found.graphs
    return [node, *(n for g in graphs for n in topological(g) if n.op is not None)]


def selected(
    outputs: Sequence[Value],
    names: Collection[str] = (),
    operators: Collection[str] = (),
    mode: str = "full",
) -> dict[Node, Form]:
    """The nodes that are quantized. names, operators: excluded. mode: "full": all that may be;
    "smart": products, and what lies between them."""
    order = topological(outputs)
    found: dict[Node, Form] = {}
    for node in order:
        form = form_of(node)
        if form is None:
            continue
        inside = _inner(node)
        if any(n.name in names or n.operation.name in operators for n in inside):
            continue
        found[node] = form
    if mode == "full":
        return found
    after: set[Node] = set()  # a product lies below, all between are quantized
    for node in order:
        if node in found and (found[node].must or any(v.node in after for v in node.inputs)):
            after.add(node)
    before: set[Node] = set()
    for node in reversed(order):
        if node in found and (found[node].must or node in before):
            before.add(node)
            before.update(v.node for v in node.inputs if v.node in found)
    return {n: f for n, f in found.items() if f.must or n in after and n in before}


class _Bytes(NamedTuple):
    """A value as bytes, with its range."""

    data: Value
    low: Value
    high: Value


class _Rewriter:
    """One run of `quantize`."""

    def __init__(self, chosen: Mapping[Node, Form], parameters: Collection[str], dtype: str,
                 by_channel: bool):  # fmt: skip
        self.chosen, self.parameters, self.dtype = chosen, parameters, dtype
        self.by_channel = by_channel
        self.bytes: dict[Value, _Bytes] = {}  # of the old graph's values
        self.floats: dict[Value, Value] = {}
        self.names: list[str] = []  # of the float graph's values whose ranges are needed

    def as_float(self, v: Value) -> Value:
        made = self.floats.get(v)
        if made is None:
            found = self.bytes[v]
            name = f"{v.node.name}_dequantize"
            made = self.floats[v] = Value(_node(DEQUANTIZE, {}, list(found), name))
        return made

    def as_bytes(self, v: Value, is_parameter: bool) -> _Bytes:
        made = self.bytes.get(v)
        if made is None:
            made = self.bytes[v] = self._quantized(v, is_parameter)
        return made

    def _quantized(self, v: Value, is_parameter: bool) -> _Bytes:
        name = f"{output_name(v)}_quantize"
        if is_parameter and v.node.op is None and v.node.name in self.parameters:
            return _Bytes(*(Value(Node(None, {}, (), name + end)) for end in ("", "_min", "_max")))
        # as uint8 negative numbers are 0: but for data, where the caller says so, only by ranges
        signed = self.dtype == "uint8" and v.node.op is not None
        attrs = {"out_type": "int8" if is_parameter else "auto" if signed else self.dtype}
        made = _node(QUANTIZE, attrs, [self.floats[v]], name)
        if not is_parameter:
            self.names.append(output_name(v))
        return _Bytes(*(Value(made, i) for i in range(3)))

    def replace(self, node: Node, inputs: list[Value]) -> list[Value]:
        form = self.chosen.get(node)
        if form is None:
            made = node
            if node.op is not None:
                given = [self.as_float(v) for v in node.inputs]
                made = Node(node.op, node.attrs, given, node.name, None, node.extra, node.source)
            values = [Value(made, i) for i in range(node.n_outputs)]
            self.floats.update((Value(node, i), v) for i, v in enumerate(values))
            return values
        if form.op == "_contrib_quantized_rnn":
            return self._recurrent(node, form)
        return self._layer(node, form)

    def _which(self, node: Node, form: Form) -> tuple[list[int], set[int]]:
        """(numbers of the inputs that become bytes, those of them that are parameters)."""
        name = node.operation.name
        if name in ("Convolution", "FullyConnected"):
            return list(range(len(node.inputs))), set(range(1, len(node.inputs)))
        if name == "Embedding":
            return [1], {1}
        if name in (CONV, DENSE):
            roles = node.operation.names_in(node.attrs, len(node.inputs))
            small = ["data", "sum"]
            if name == DENSE and not self.by_channel:
                small += ["weight", "bias"]
            which = [i for i, r in enumerate(roles) if r in small]
            return which, {i for i in which if roles[i] in ("weight", "bias")}
        return list(range(len(node.inputs)) if form.inputs is None else form.inputs), set()

    def _layer(self, node: Node, form: Form):
        which, parameters = self._which(node, form)
        given, ranges = [], []
        for i, v in enumerate(node.inputs):
            if i in which:
                found = self.as_bytes(v, i in parameters)
                given.append(found.data)
                ranges += [found.low, found.high]
            else:
                given.append(self.as_float(v))
        inputs, name = [*given, *ranges], f"quantized_{node.name}"
        if form.op in (CONV, DENSE):
            flags = {"quantized": "true"}
            if form.op == DENSE and self.by_channel:
                flags["channel_wise_quantize"] = "true"
            plain = Node(node.op, node.attrs, inputs, name, None, node.extra, node.source)
            made = with_attrs(plain, flags)
        else:
            known = lookup(form.op).param_index
            attrs = {k: v for k, v in node.attrs.items() if k in known and k != "train"}
            extra = {k: v for k, v in (node.extra or {}).items() if k in known}
            made = Node(lookup(form.op), attrs, inputs, name, None, extra)
            if "min_calib_range" in known and form.sums:
                made = _node(lookup(form.op), extra, inputs, name)
        if form.sums or form.op == "_contrib_quantized_batch_norm":
            self.names.append(f"{node.name}_output")
        values = [Value(made, i) for i in range(3)]
        if form.sums:
            # sums have either sign: uint8 where their range says that they do not
            signed = {"out_type": "auto" if self.dtype == "uint8" else self.dtype}
            made = _node(REQUANTIZE, signed, values, f"requantize_{node.name}")
            values = [Value(made, i) for i in range(3)]
        self.bytes[Value(node)] = _Bytes(*values)
        return [values[0]] * node.n_outputs

    def _recurrent(self, node: Node, form: Form):
        v = node.inputs[0]
        source = _node(ASYMMETRIC, {}, [self.as_float(v)], f"{output_name(v)}_quantize")
        self.names.append(output_name(v))
        data, scale, shift = (Value(source, i) for i in range(3))
        inputs = [data, *(self.as_float(x) for x in node.inputs[1:]), scale, shift]
        made = Node(lookup(form.op), node.attrs, inputs, f"quantized_{node.name}", None, node.extra)
        values = [Value(made, i) for i in range(made.n_outputs)]
        self.floats.update((Value(node, i), x) for i, x in enumerate(values))
        return [values[min(i, len(values) - 1)] for i in range(node.n_outputs)]


def _node(op, text: dict[str, str], inputs: Sequence[Value], name: str) -> Node:
    return Node(op, op.parse(text), inputs, name, None, text)


def quantize(
    outputs: Sequence[Value],
    chosen: Mapping[Node, Form],
    parameters: Collection[str],
    dtype: str,
    by_channel: bool = False,
) -> tuple[list[Value], list[str]]:
    """(the graph with these nodes on bytes, names of the float graph's values whose ranges are
    wanted). parameters: names of variables that are quantized beforehand. dtype: of other values:
    int8, uint8, or auto, by their ranges. by_channel: weights of dense layers stay floats in files,
    so that each row has a range of its own."""
    run = _Rewriter(chosen, parameters, dtype, by_channel)
    rewrite(outputs, run.replace)
    return [run.as_float(v) for v in outputs], list(dict.fromkeys(run.names))


def calibrate(outputs: Sequence[Value], ranges: Mapping[str, tuple[float, float]]) -> list[Value]:
    """The quantized graph with ranges, by the names of the float graph's values."""

    def replace(node: Node, inputs: list[Value]):
        name = _measured(node)
        if name is None or name not in ranges:
            return None
        low, high = ranges[name]
        text = {"min_calib_range": shortest(low), "max_calib_range": shortest(high)}
        if low < 0 and node.attrs.get("out_type") == "uint8":
            text["out_type"] = "int8"  # negative numbers would become 0
        plain = Node(node.op, node.attrs, inputs, node.name, None, node.extra, node.source)
        made = with_attrs(plain, text)
        return [Value(made, i) for i in range(made.n_outputs)]

    return rewrite(outputs, replace)


def _measured(node: Node) -> str | None:
    """The name of the float value whose range a node takes."""
    if node.op not in CALIBRATED:
        return None
    if node.op is REQUANTIZE:
        return node.name.removeprefix("requantize_") + "_output"
    if node.op in (QUANTIZE, ASYMMETRIC):
        return node.name.removesuffix("_quantize")
    return node.name.removeprefix("quantized_") + "_output"


def wanted_names(outputs: Iterable[Value]) -> list[str]:
    """Names of the float graph's values without whose ranges layers cannot give bytes. A fused
    layer that only floats follow gives floats."""
    order = topological(outputs)
    as_bytes = {v.node for n in order if n.op is not DEQUANTIZE for v in n.inputs}
    found = []
    for node in order:
        if node.op is REQUANTIZE and node not in as_bytes:
            layer = node.inputs[0].node
            if layer.operation.name in (CONV, DENSE):
                continue
        if node.op not in (QUANTIZE, ASYMMETRIC):
            found.append(_measured(node))
    return [name for name in found if name is not None]
