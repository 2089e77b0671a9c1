"""The graph of one rank: from a graph typed with whole shapes, of which some variables are split
over ranks. Each value is whole on all ranks, or split; collectives go where an operator needs
another layout of an input. The gradient of a whole value is whole, that of a split one its part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...kernels.record import mutated_inputs
from ...kernels.traits import Permutation, SameMemory
from ..fronts import expanded
from ..graph import Node, Value
from .shard_layouts import Known, Made, Rule, Sharder, Split


def split_graph(
    outputs: Sequence[Value], splits: Mapping[Value, tuple[Value, Split]], train: bool
) -> list[Value]:
    """The graph of this rank, whose outputs are whole. splits: variables -> those that stand for
    them on this rank. Raises ShardError."""
    return Sharder(splits, train, _rule).graph(expanded(outputs))


# ---- rules: (sharder, node, inputs) -> (output 0, its layout), or None ---------------------------


def _dense(g: Sharder, node: Node, inputs: list[Known]) -> Made | None:
    x, w, *bias = inputs
    flatten, ndim = node.attrs["flatten"], len(x.whole.shape)
    n_out = len(Value(node).shape)
    s = w.layout
    if s is None:
        s = x.layout
        if s is None or s.axis == ndim - 1 or (flatten and s.axis):
            return None
        near = [g.each_its_own(k, s) for k in (w, *bias)]
        return g.apply(node, [x.here, *near]), s
    if s.axis == 0:  # outputs
        own_bias = [g.part(b, s._replace(axis=0)) for b in bias]
        here = g.apply(node, [g.each_its_own(x, s), w.here, *own_bias], num_hidden=w.here.shape[0])
        return here, s._replace(axis=n_out - 1)
    if any(b.layout for b in bias):
        return None
    if flatten and ndim > 2 and not (x.layout and x.layout[:2] == (1, 1)):
        shape = (x.whole.shape[0], w.whole.shape[1])
        flat = g.F.reshape(g.whole(x), shape=shape)
        x = Known(flat, flat, None)
        ndim = 2
    own = g.part(x, s._replace(axis=1 if flatten else ndim - 1))
    made = g.F.FullyConnected(
        own, w.here, num_hidden=node.attrs["num_hidden"], no_bias=True, flatten=flatten
    )
    made = g.F._all_reduce(made, **s.group, alike=True)
    return g.F.broadcast_add(made, bias[0].here) if bias else made, None


def _embedding(g: Sharder, node: Node, inputs: list[Known]) -> Made | None:
    rows, w = inputs
    s, F = w.layout, g.F
    if s is None or node.attrs.get("sparse_grad"):
        return None
    if s.axis == 1:
        here = g.apply(node, [g.whole(rows), w.here], output_dim=w.here.shape[1])
        return here, s._replace(axis=len(rows.whole.shape))
    n = w.here.shape[0]
    index = F.clip(g.whole(rows), a_min=0, a_max=w.whole.shape[0] - 1) - s.rank * n
    here = g.apply(node, [F.clip(index, a_min=0, a_max=n - 1), w.here], input_dim=n)
    inside = F.broadcast_logical_and(index >= 0, index < n)
    mask = F.expand_dims(F.Cast(inside, dtype=w.here.dtype), axis=len(rows.whole.shape))
    return F._all_reduce(F.broadcast_mul(here, mask), **s.group, alike=True), None


def _element_by_element(g: Sharder, node: Node, inputs: list[Known]) -> Made | None:
    shape = Value(node).shape
    wanted: Split | None = None
    for k in inputs:
        s = k.layout
        if s is not None:
            wanted = s._replace(axis=s.axis + len(shape) - len(k.whole.shape))
            break
    assert wanted is not None
    near = []
    for k in inputs:
        axis = wanted.axis - len(shape) + len(k.whole.shape)
        if axis < 0 or k.whole.shape[axis] != shape[wanted.axis]:
            near.append(g.each_its_own(k, wanted))
        else:
            near.append(g.part(k, wanted._replace(axis=axis)))
    return g.apply(node, near), wanted


def _along_another_axis(g: Sharder, node: Node, inputs: list[Known]) -> Made | None:
    """Softmax, LayerNorm: the first input is split, along an axis that stays apart."""
    first, *rest = inputs
    s = first.layout
    if s is None or node.attrs["axis"] % len(first.whole.shape) == s.axis:
        return None
    return g.apply(node, [first.here, *[g.each_its_own(k, s) for k in rest]]), s


def _same_bytes(g: Sharder, node: Node, inputs: list[Known]) -> Made | None:
    (x,) = inputs
    s = x.layout
    assert s is not None
    shape, n, before = Value(node).shape, len(s.ranks), 1
    blocks = math.prod(x.whole.shape[: s.axis]) * s.outer
    for axis, size in enumerate(shape):
        outer, left = divmod(blocks, before)
        if left == 0 and size % (outer * n) == 0:
            made = s._replace(axis=axis, outer=outer)
            return g.F.reshape(x.here, shape=made.local(shape)), made
        before *= size
    return None


def _other_order(g: Sharder, node: Node, inputs: list[Known]) -> Made | None:
    (x,) = inputs
    s, trait = x.layout, node.operation.trait(Permutation)
    assert s is not None and trait is not None
    axes = list(trait.axes(len(x.whole.shape), **node.attrs))
    return g.apply(node, [x.here]), s._replace(axis=axes.index(s.axis))


def _products(g: Sharder, node: Node, inputs: list[Known]) -> Made | None:
    """Of stacks of matrices, split along the stack."""
    a, b = inputs
    s = a.layout or b.layout
    assert s is not None
    if s.axis >= len(a.whole.shape) - 2:
        return None
    return g.apply(node, [g.part(a, s), g.part(b, s)]), s


def _channels(node: Node) -> int:
    """The axis of channels, of the input, the output, and of a weight those of the input."""
    return len(node.inputs[0].shape) - 1 if (node.attrs["layout"] or "").endswith("C") else 1


def _convolution(g: Sharder, node: Node, inputs: list[Known]) -> Made | None:
    x, w, *bias = inputs
    s, groups, axis = w.layout, node.attrs["num_group"], _channels(node)
    if s is None:
        s = x.layout
        if s is None or s.axis:
            return None
        return g.apply(node, [x.here, *[g.each_its_own(k, s) for k in (w, *bias)]]), s
    out = s._replace(axis=axis)
    if s.axis == 0 and groups % len(s.ranks) == 0:
        groups //= len(s.ranks)
        near = g.part(x, out)
    elif s.axis == 0 and groups == 1:
        near = g.each_its_own(x, s)
    elif s.axis == axis and groups == 1 and not any(b.layout for b in bias):
        made = g.apply(node, [g.part(x, out), w.here], no_bias=True)
        made = g.F._all_reduce(made, **s.group, alike=True)
        if bias:
            shape = [-1 if i == axis else 1 for i in range(len(x.whole.shape))]
            made = g.F.broadcast_add(made, g.F.reshape(bias[0].here, shape=shape))
        return made, None
    else:
        return None
    own_bias = [g.part(b, s) for b in bias]
    changed = {"num_filter": w.here.shape[0], "num_group": groups}
    return g.apply(node, [near, w.here, *own_bias], **changed), out


def _pooling(g: Sharder, node: Node, inputs: list[Known]) -> Made | None:
    (x,) = inputs
    s = x.layout
    if s is None or s.axis not in (0, _channels(node)):
        return None
    return g.apply(node, [x.here]), s


def _batch_norm(g: Sharder, node: Node, inputs: list[Known]) -> Made | None:
    """Each rank has its channels, and writes their running means."""
    x, *of_channels = inputs
    s = of_channels[0].layout
    if s is None or node.n_visible > 1 or any(k.layout != s for k in of_channels):
        return None
    out = s._replace(axis=node.attrs["axis"] % len(x.whole.shape))
    return g.apply(node, [g.part(x, out), *[k.here for k in of_channels]]), out


RULES: dict[str, Rule] = {
    "Activation": _element_by_element,
    "Cast": _element_by_element,
    "Convolution": _convolution,
    "Embedding": _embedding,
    "FullyConnected": _dense,
    "LayerNorm": _along_another_axis,
    "Pooling": _pooling,
    "amp_cast": _element_by_element,
    "batch_dot": _products,
    "log_softmax": _along_another_axis,
    "softmax": _along_another_axis,
}


def _rule(node: Node) -> Rule | None:
    op = node.operation
    if op.name == "BatchNorm":
        return _batch_norm
    if op.is_random(node.attrs) or mutated_inputs(op, node.attrs, len(node.inputs)):
        return None
    if op.has(SameMemory):
        return _same_bytes
    if op.has(Permutation):
        return _other_order
    act = node.attrs.get("act_type")
    if op.name == "LeakyReLU" and act in ("leaky", "elu", "gelu", "selu"):
        return _element_by_element
    return RULES.get(op.name) or (_element_by_element if op.pointwise is not None else None)
