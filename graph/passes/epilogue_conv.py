"""What follows a convolution becomes part of it: batch normalisation of inference (folded into
weight and bias, as graph algebra), a sum with another array, and an activation.

The folded weights depend on parameters alone, so they land in a prepack program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from math import prod

from ...kernels.backend import Backend
from ...kernels.loops import adds
from ...kernels.ops.conv import geometry
from ...kernels.ops.conv_fused import activated, parts
from ...kernels.record import HALVES, Operator, lookup
from ...kernels.traits import BatchNorm, Constant, Convolution, SameMemory
from ..graph import Builder, Node, Value, rewrite, topological, typed_node, with_inputs

F = Builder()
TAPS = ("kernel", "stride", "dilate", "pad", "num_group", "layout")


def epilogue_conv(
    outputs: Sequence[Value], stable: Collection[Value], backend: Backend
) -> list[Value]:
    """The graph with convolutions as one `_conv` each, together with what follows it, of the types
    for which the backend has fused kernels.

    stable: variables that seldom change. Weights that depend on others are not worth preparing:
    convolutions with them stay, and with them the row-major layout that their gradients read.
    """
    order = topological(outputs)
    uses = Counter(v for node in order for v in node.inputs)
    uses.update(outputs)
    fused = lookup("_conv")
    seldom = {v.node for v in stable}
    for node in order:
        if node.op is not None and all(v.node in seldom for v in node.inputs):
            seldom.add(node)

    def replace(node: Node, inputs: list[Value]):
        if node.op is None:
            return None
        if node.op.has(Convolution):
            return _alone(node, inputs, backend) if node.inputs[1].node in seldom else None
        # the convolutions among the inputs that nothing else reads, the last one first
        for i in reversed(range(len(inputs))):
            conv = inputs[i].node
            if conv.op is not fused or uses[node.inputs[i]] > 1 or conv.attrs["act"]:
                continue
            made = _followed(node, inputs, i)
            if made is not None and made.type == node.types[0]:
                # no other result of the node is read
                return [made] * len(node.types)
        if node.op.has(BatchNorm) and not any(uses[v] for v in _outputs(node)[1:]):
            found = _affine(node, inputs, backend)
            return found and [found] * len(node.types)
        return None

    def _followed(node, inputs, i):
        if node.op.has(BatchNorm) and i == 0:
            if any(uses[v] for v in _outputs(node)[1:]):
                return None
            return _normalised(node, inputs, backend)
        conv = inputs[i].node
        types = [v.type for v in inputs]
        if not conv.attrs["add"] and len(set(inputs)) == 2:
            if adds(node.op, types, node.types, node.attrs):
                return _with(conv, {"add": True}, [*conv.inputs, inputs[1 - i]])
        if len(inputs) == len(node.types) == 1 and _is_activation(node.op, node.attrs, backend):
            named = activated(node.op, node.attrs)
            return named and _with(conv, named, conv.inputs)
        return None

    return rewrite(outputs, replace)


def epilogue_groups(outputs: Sequence[Value], backend: Backend) -> list[Value]:
    """The graph with fused groups of one array as activations of the convolutions that give it:
    x sigmoid(x), x clip(x + 3, 0, 6) / 6, and whatever else users write. After fuse.py."""
    order = topological(outputs)
    if not any(n.op is lookup("_conv") for n in order):
        return list(outputs)
    uses = Counter(v for node in order for v in node.inputs)
    uses.update(outputs)

    def replace(node: Node, inputs: list[Value]):
        if node.op is not lookup("_fused") or len(inputs) > 1 or not _elementwise(node):
            return None
        views, old, v = [], node.inputs[0], inputs[0]
        while uses[old] == 1 and v.node.op is not None and v.node.op.has(SameMemory):
            views.append(v.node)
            old, v = old.node.inputs[0], v.node.inputs[0]
        conv = v.node
        if uses[old] > 1 or conv.op is not lookup("_conv") or conv.attrs["act"]:
            return None
        named = activated(node.op, node.attrs)
        if named is None or not backend.ends_conv(node.op, node.attrs):
            return None
        attrs = {**conv.attrs, **named}
        made = Value(
            Node(conv.op, attrs, conv.inputs, conv.name, conv.types, conv.extra, conv.source)
        )
        for view in reversed(views):
            made = Value(with_inputs(view, [made, *view.inputs[1:]]))
        same = made.shape == node.types[0].shape
        return [made if same else F.reshape_to(made, shape=node.types[0].shape)]

    return rewrite(outputs, replace)


def _elementwise(node: Node) -> bool:
    """Is a group one result of its one input, float32, element by element?"""
    group, (y, *more), x = node.attrs["group"], node.types, node.inputs[0]
    whole = group.in_shapes == (group.shape,) and prod(y.shape) == prod(group.shape)
    plain = not (group.axes or group.rows or more or any(r.reduce for r in group.results))
    numbers = all(isinstance(s, float) for s in node.attrs["scalars"])
    return whole and plain and numbers and x.dtype == y.dtype == "float32"


def _is_activation(op: Operator, attrs: dict, backend: Backend) -> bool:
    return not op.has(SameMemory) and not op.is_random(attrs) and backend.ends_conv(op, attrs)


def _alone(node: Node, inputs: list[Value], backend: Backend) -> list[Value] | None:
    dtype = node.types[0].dtype
    if dtype not in backend.fused_dtypes or any(v.dtype != dtype for v in inputs):
        return None
    if 0 in node.types[0].shape:
        return None
    attrs = {k: node.attrs[k] for k in TAPS}
    g = geometry("_conv", **attrs)
    filters = node.attrs["num_filter"]
    w = inputs[1]
    if g.channels_last:
        last = len(w.shape) - 1
        w = F.transpose(w, axes=(0, last, *range(1, last)))
    bias = F._zeros(shape=(filters,), dtype=dtype) if node.attrs["no_bias"] else inputs[2]
    w = F.reshape_to(w, shape=parts(g, w.shape)) if g.groups > 1 else w
    full = lookup("_conv").parse({**attrs, "num_filter": filters})
    made = typed_node(lookup("_conv"), full, [inputs[0], w, bias], node.name)
    return [Value(made)]


def _with(conv: Node, attrs: dict, inputs: Sequence[Value]) -> Value:
    return Value(typed_node(conv.operation, {**conv.attrs, **attrs}, inputs, conv.name))


def _outputs(node: Node) -> list[Value]:
    return [Value(node, i) for i in range(len(node.types))]


def _scale_of(node: Node, gamma: Value, var: Value) -> Value | None:
    """What batch normalisation multiplies by; None where it takes the batch's own statistics."""
    if node.attrs["train"] and not node.attrs["use_global_stats"]:
        return None
    scale = F.rsqrt(var + node.attrs["eps"])
    return scale if node.attrs["fix_gamma"] else gamma * scale


def _affine(node: Node, inputs: list[Value], backend: Backend) -> Value | None:
    """Batch normalisation of inference as data * scale + shift."""
    x, gamma, beta, mean, var = inputs
    computed = _computed_in(inputs, backend) if x.dtype in backend.fused_dtypes else None
    scale = _scale_of(node, gamma, var) if computed else None
    if scale is None or 0 in x.shape:
        return None
    axis = node.attrs["axis"] % len(x.shape)
    shape = tuple(n if a == axis else 1 for a, n in enumerate(x.shape))
    both = (scale, F.broadcast_sub(beta, F.broadcast_mul(mean, scale)))
    y = F._affine(_as(x, computed), *(F.reshape_to(v, shape=shape) for v in both))
    return _as(y, x.dtype)


def _computed_in(inputs: Sequence[Value], backend: Backend) -> str | None:
    """The dtype in which a batch normalisation is computed: that of all its arrays, or float32, if
    data of 16 bits have statistics in float32."""
    dtypes = {v.dtype for v in inputs[1:]}
    if dtypes == {inputs[0].dtype}:
        return inputs[0].dtype
    wide = dtypes == {"float32"} and inputs[0].dtype in HALVES and backend.kernels.widens
    return "float32" if wide else None


def _as(v: Value, dtype: str | None) -> Value:
    return v if v.dtype == dtype else F.Cast(v, dtype=dtype)


def _normalised(node: Node, inputs: list[Value], backend: Backend) -> Value | None:
    """(conv - mean) * scale + beta as a convolution with other weights."""
    conv, attrs = inputs[0].node, node.attrs
    if conv.attrs["add"]:
        return None
    g = geometry("_conv", **{k: conv.attrs[k] for k in TAPS})
    ndim = len(conv.types[0].shape)
    if attrs["axis"] % ndim != (ndim - 1 if g.channels_last else 1):
        return None
    x, w, bias = conv.inputs
    gamma, beta, mean, var = inputs[1:]
    computed = _computed_in(inputs, backend)
    scale = _scale_of(node, gamma, var) if computed else None
    if scale is None:
        return None
    bias = _as(bias, computed)
    filters = w.shape[:2] if g.groups > 1 else w.shape[:1]
    by_filter = F.reshape_to(scale, shape=(*filters, *[1] * (len(w.shape) - len(filters))))
    zeros = None if conv.inputs[2].node.op is None else conv.inputs[2].node.op.trait(Constant)
    is_zero = zeros is not None and zeros.value == 0
    centre = F.negative(mean) if is_zero else bias - mean
    folded = _as(F.broadcast_mul(_as(w, computed), by_filter), w.dtype)
    return _with(conv, {}, [x, folded, centre * scale + beta])
