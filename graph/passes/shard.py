"""The graph of one rank: from a graph typed with whole shapes, of which some variables are split
over ranks. Each value is whole on all ranks, or split; collectives go where an operator needs
another layout of an input. The gradient of a whole value is whole, that of a split one its part."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...engine.error import ShapeError
from ...kernels.record import mutated_inputs
from ...kernels.traits import Permutation, SameMemory
from ..graph import Builder, Node, Value, topological, typed_node, values_of, with_inputs


class ShardError(ShapeError):
    """A split weight where no rule says how to compute with it."""


class Split(NamedTuple):
    """An axis of the whole is `outer` blocks, each split evenly over ranks; rank: the position of
    this process."""

    axis: int
    outer: int
    ranks: tuple[int, ...]
    rank: int

    @property
    def group(self) -> dict[str, Any]:
        """As attributes of a collective."""
        return {"ranks": self.ranks, "rank": self.rank}

    def local(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a part."""
        n = shape[self.axis] // len(self.ranks)
        return (*shape[: self.axis], n, *shape[self.axis + 1 :])


class Known(NamedTuple):
    """A value of the whole graph, and what stands for it on this rank. layout: None: the whole."""

    whole: Value
    here: Value
    layout: Split | None


Made = tuple[Value, "Split | None"]  # of output 0
Rule = Callable[["Sharder", Node, "list[Known]"], "Made | None"]


def split_graph(
    outputs: Sequence[Value], splits: Mapping[Value, tuple[Value, Split]], train: bool
) -> list[Value]:
    """The graph of this rank, whose outputs are whole. splits: variables -> those that stand for
    them on this rank. Raises ShardError."""
    return Sharder(splits, train).graph(outputs)


class Sharder:
    """Builds the graph of one rank."""

    def __init__(self, splits: Mapping[Value, tuple[Value, Split]], train: bool):
        self.F = Builder(train)
        self._known = {v: Known(v, here, layout) for v, (here, layout) in splits.items()}
        self._gathered: dict[Value, Value] = {}
        self._shared: dict[tuple[Value, tuple[int, ...]], Value] = {}

    def graph(self, outputs: Sequence[Value]) -> list[Value]:
        for node in topological(outputs):
            if node.op is not None:
                self._add(node)
        return [self.whole(self._of(v)) for v in outputs]

    def _of(self, v: Value) -> Known:
        return self._known.get(v) or Known(v, v, None)

    def _add(self, node: Node) -> None:
        inputs = [self._of(v) for v in node.inputs]
        if any(k.layout for k in inputs):
            rule = _rule(node)
            made = rule(self, node, inputs) if rule is not None else None
            if made is not None:
                self._known[Value(node)] = Known(Value(node), *made)
                for v in values_of(node)[1:]:  # statistics that only this node's gradient reads
                    self._known[v] = Known(v, Value(made[0].node, v.index), made[1])
                return
            for k in inputs:
                if k.layout and k.whole.node.op is None:
                    raise ShardError(
                        node.operation.name,
                        f"cannot compute with {k.whole.node.name!r}, which is split along axis"
                        f" {k.layout.axis}",
                        fix="shard=None for it; weights of Dense and Embedding can be split",
                    )
        near = [self.whole(k) for k in inputs]
        if near != list(node.inputs):
            made_node = with_inputs(node, near)
            self._known.update(
                (v, Known(v, w, None)) for v, w in zip(values_of(node), values_of(made_node))
            )

    # ---- layouts ---------------------------------------------------------------------------------

    def whole(self, k: Known) -> Value:
        """All of a value, on all ranks."""
        s = k.layout
        if s is None:
            return k.here
        if k.here not in self._gathered:
            x, turned = self._in_front(k.here, s)
            x = self.F._all_gather(x, **s.group, alike=True)
            self._gathered[k.here] = self._back(x, turned, k.whole.shape)
        return self._gathered[k.here]

    def part(self, k: Known, s: Split) -> Value:
        """A part of a value, split as s says."""
        if k.layout == s:
            return k.here
        x = self.whole(k)
        n = len(s.ranks)
        if x.shape[s.axis] % (s.outer * n):
            rule = f"axis {s.axis} of {x.shape} must be divisible by the {n} ranks"
            raise ShardError("shard", rule)
        x, turned = self._in_front(x, s)
        return self._back(self.F._own_part(x, **s.group), turned, s.local(k.whole.shape))

    def each_its_own(self, k: Known, s: Split) -> Value:
        """A whole value with which each rank computes something else."""
        x = self.whole(k)
        key = (x, s.ranks)
        if key not in self._shared:
            self._shared[key] = self.F._shared(x, **s.group)
        return self._shared[key]

    def _in_front(self, x: Value, s: Split) -> tuple[Value, int]:
        """x with the split axis first: (the array, the number of blocks that were before it)."""
        blocks = math.prod(x.shape[: s.axis]) * s.outer
        if blocks == 1:
            return self.F.reshape(x, shape=(x.shape[s.axis], -1)), 1
        x = self.F.reshape(x, shape=(blocks, x.shape[s.axis] // s.outer, -1))
        return self.F.transpose(x, axes=(1, 0, 2)), blocks

    def _back(self, x: Value, blocks: int, shape: tuple[int, ...]) -> Value:
        if blocks > 1:
            x = self.F.transpose(x, axes=(1, 0, 2))
        return self.F.reshape(x, shape=shape)

    def apply(self, node: Node, inputs: Sequence[Value], **changed: Any) -> Value:
        """The node on other inputs, with other attributes."""
        op = node.operation
        attrs = op.shared({**node.attrs, **changed})
        return Value(typed_node(op, attrs, inputs, node.name, node.source))


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


RULES: dict[str, Rule] = {
    "Activation": _element_by_element,
    "Cast": _element_by_element,
    "Embedding": _embedding,
    "FullyConnected": _dense,
    "LayerNorm": _along_another_axis,
    "amp_cast": _element_by_element,
    "batch_dot": _products,
    "log_softmax": _along_another_axis,
    "softmax": _along_another_axis,
}


def _rule(node: Node) -> Rule | None:
    op = node.operation
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
