"""Layers with what follows them as one node each, before a graph is quantized, and what is left
around them taken in afterwards: what `get_backend_symbol("MKLDNN_QUANTIZE")` does. Untyped graphs.

    fuse_layers   Convolution [+ BatchNorm] [+ sum] [+ activation], FullyConnected [+ activation]
    fold_ranges   a calibrated requantize into the range of its layer, a dequantize into its result
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...kernels.record import lookup
from ...kernels.traits import BatchNorm
from ..fused_layers import CONV, DENSE, fused_layer
from ..graph import Node, Value, rewrite, topological, variable
from ..names import output_name

CONVOLUTION, FULLY_CONNECTED = lookup("Convolution"), lookup("FullyConnected")
REQUANTIZE, DEQUANTIZE = lookup("_contrib_requantize"), lookup("_contrib_dequantize")
# what oneDNN computes after a layer, by the operator's name: values of its first parameter
AFTER_DENSE = {
    "Activation": ("relu", "sigmoid", "softrelu", "tanh"),
    "LeakyReLU": ("gelu",),
    **dict.fromkeys(("relu", "sigmoid", "abs", "square", "sqrt", "exp", "clip"), ()),
}
AFTER_CONV = {
    "Activation": ("relu", "sigmoid", "softrelu", "tanh"),
    "LeakyReLU": ("leaky", "gelu"),
    **dict.fromkeys(("relu", "sigmoid"), ()),
}


def _may_follow(node: Node, table: dict[str, tuple[str, ...]]) -> bool:
    assert node.op is not None
    if node.op.name == "clip" and table is AFTER_CONV:
        return node.attrs["a_min"] == 0
    kinds = table.get(node.op.name)
    return kinds is not None and (not kinds or node.attrs["act_type"] in kinds)


def _chain(node: Node, readers: dict[Value, list[Node]], taken: set[Node]) -> list[Node]:
    """A layer and what can be computed with it."""
    chain = [node]

    def following() -> Node | None:
        last = chain[-1]
        read = [readers.get(Value(last, i), []) for i in range(last.n_outputs)]
        if len(read[0]) != 1 or any(read[1:]):
            return None
        found = read[0][0]
        return None if found in taken or found.op is None else found

    def takes(after: Node | None) -> bool:
        return after is not None and after.inputs[0] == Value(chain[-1])

    after = following()
    if node.op is CONVOLUTION:
        normalises = after is not None and after.operation.has(BatchNorm) and takes(after)
        if normalises and after is not None and after.attrs["axis"] == 1:
            chain.append(after)
            after = following()
        if after is not None and after.operation.name == "elemwise_add":
            chain.append(after)
            after = following()
    table = AFTER_CONV if node.op is CONVOLUTION else AFTER_DENSE
    if after is not None and len(after.inputs) == 1 and takes(after) and _may_follow(after, table):
        chain.append(after)
    return chain


def fuse_layers(outputs: Sequence[Value]) -> list[Value]:
    """The graph with layers, and what follows them, as one node each."""
    order = topological(outputs)
    readers: dict[Value, list[Node]] = {}
    for node in order:
        for v in node.inputs:
            readers.setdefault(v, []).append(node)
    for v in outputs:
        readers.setdefault(v, []).append(Node(None, {}, (), "result"))
    chains: dict[Node, list[Node]] = {}  # by the last node
    taken: set[Node] = set()
    for node in order:
        is_conv = node.op is CONVOLUTION and not (node.attrs["layout"] or "").endswith("C")
        if is_conv or node.op is FULLY_CONNECTED:
            chain = _chain(node, readers, taken)
            taken.update(chain)
            chains[chain[-1]] = chain
    counts: Counter[str] = Counter()
    made: dict[Value, Value] = {}

    def replace(node: Node, inputs: list[Value]):
        chain = chains.get(node)
        if chain is None:
            return None
        return [Value(_as_one(chain, made, counts))]

    def rebuilt(node: Node, inputs: list[Value]):
        found = replace(node, inputs)
        values = found or [
            Value(_copy(node, inputs), i) for i in range(1 if node.op is None else node.n_outputs)
        ]
        if found is None and node.op is not None:
            one = values[0].node
            values = [Value(one, i) for i in range(node.n_outputs)]
        for i, v in enumerate(values):
            made[Value(node, i)] = v
        return values

    return rewrite(outputs, rebuilt, order=order)


def _copy(node: Node, inputs: Sequence[Value]) -> Node:
    if node.op is None:
        return node
    return Node(node.op, node.attrs, inputs, node.name, None, node.extra, node.source)


def _as_one(chain: list[Node], made: dict[Value, Value], counts: Counter[str]) -> Node:
    """The node of a chain; made: the new graph's value of each of the old one."""
    inside, given = set(chain), []
    bodies: dict[Value, Value] = {}
    for node in chain:
        values = list(node.inputs)
        if node.op is not CONVOLUTION and len(values) == 2 and values[0].node not in inside:
            if values[1].node in inside:
                values.reverse()  # the sum's other operand comes last
        inputs = []
        for v in values:
            if v.node in inside:
                inputs.append(bodies[v])
            else:
                given.append(v)
                inputs.append(variable(f"{output_name(v)}{len(given)}"))
        copy = Node(node.op, node.attrs, inputs, node.name, None, node.extra, node.source)
        bodies.update((Value(node, i), Value(copy, i)) for i in range(node.n_outputs))
    is_conv = chain[0].op is CONVOLUTION
    kinds = [_kind(node) for node in chain[1:]]
    name = CONV if is_conv else DENSE
    flags: dict[str, str] = {}
    for i, kind in enumerate(kinds):
        postsum = kind == "act" and "add" in kinds[:i]
        flag = {"bn": "with_bn", "add": "with_sum", "act": "with_act"}[kind]
        flags["with_postsum_act" if postsum else flag if is_conv else "with_eltwise"] = "true"
    parts = kinds if is_conv else ["eltwise"] * len(kinds)
    kind = "_".join([name[1:], *parts])
    number = counts[name]
    counts[name] += 1
    op = fused_layer(name, flags, [[bodies[Value(chain[-1])]]])
    return Node(op, op.parse(flags), [made[v] for v in given], f"{kind}_{number}", None, flags)


def _kind(node: Node) -> str:
    return "bn" if node.operation.has(BatchNorm) else "add" if len(node.inputs) == 2 else "act"


def fold_ranges(outputs: Sequence[Value]) -> list[Value]:
    """The quantized graph whose fused layers give calibrated bytes, or floats, themselves."""
    order = topological(outputs)
    uses = Counter(v.node for node in order for v in node.inputs[:1])
    for node in order:
        if node.op is not REQUANTIZE and node.op is not DEQUANTIZE:
            uses.update(v.node for v in node.inputs)
    uses.update(v.node for v in outputs)

    def replace(node: Node, inputs: list[Value]):
        if node.op is not REQUANTIZE and node.op is not DEQUANTIZE:
            return None
        layer = inputs[0].node
        if not (layer.op is not None and layer.op.name in (CONV, DENSE)):
            return None
        attrs = layer.attrs
        if not attrs["quantized"] or attrs["min_calib_range"] is not None:
            return None
        if attrs["enable_float_output"] or uses[node.inputs[0].node] > 1:
            return None
        if node.op is DEQUANTIZE:
            return [Value(with_attrs(layer, {"enable_float_output": "true"}))]
        ranges = {k: node.attrs[k] for k in ("min_calib_range", "max_calib_range")}
        if None in ranges.values():
            return None
        made = with_attrs(layer, {k: shortest(v) for k, v in ranges.items()})
        return [Value(made, i) for i in range(3)]

    return rewrite(_floats(outputs), replace)


def _floats(outputs: Sequence[Value]) -> list[Value]:
    """The graph without bytes between a fused layer and a dequantize that is their only reader."""
    order = topological(outputs)
    readers = Counter(v for node in order for v in node.inputs)
    readers.update(outputs)

    def replace(node: Node, inputs: list[Value]):
        if node.op is not DEQUANTIZE or inputs[0].node.op is not REQUANTIZE:
            return None
        between = inputs[0].node
        layer = between.inputs[0].node
        fused = layer.op is not None and layer.op.name in (CONV, DENSE)
        if not fused or readers[node.inputs[0]] > 1:
            return None
        made = Node(node.op, node.attrs, between.inputs, node.name, None, node.extra)
        return [Value(made)]

    return rewrite(outputs, replace)


def with_attrs(node: Node, text: dict[str, str]) -> Node:
    """The node with other attributes, given as text."""
    extra = {**(node.extra or {}), **text}
    op = node.operation
    attrs = op.parse({k: v for k, v in extra.items() if k in op.param_index})
    return Node(op, attrs, node.inputs, node.name, None, extra, node.source)


def shortest(value: float) -> str:
    """A number as text that reads back as the same float32."""
    return f"{float(value):.9g}"
