"""Values that are split over ranks, and what builds the graph of one rank from them. Rules for
operators are in shard.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...engine.error import ShapeError
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


class Sharder:
    """Builds the graph of one rank."""

    def __init__(
        self,
        splits: Mapping[Value, tuple[Value, Split]],
        train: bool,
        rule_of: Callable[[Node], Rule | None],
    ):
        self.F, self._rule_of = Builder(train), rule_of
        self._known = {v: Known(v, here, layout) for v, (here, layout) in splits.items()}
        self._weights = {v: v.node.name for v in splits}  # and what is computed of one alone
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
            rule = self._rule_of(node)
            made = rule(self, node, inputs) if rule is not None else None
            if made is not None:
                if len(inputs) == 1 and inputs[0].whole in self._weights:
                    self._weights[Value(node)] = self._weights[inputs[0].whole]
                self._known[Value(node)] = Known(Value(node), *made)
                for v in values_of(node)[1:]:  # statistics that only this node's gradient reads
                    self._known[v] = Known(v, Value(made[0].node, v.index), made[1])
                return
            for k in inputs:
                if k.layout and k.whole in self._weights:
                    raise ShardError(
                        node.operation.name,
                        f"cannot compute with {self._weights[k.whole]!r}, which is split along axis"
                        f" {k.layout.axis}",
                        fix="shard=None for it; weights of Dense, Embedding and Conv can be split",
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
