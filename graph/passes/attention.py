"""Attention: batch_dot, scale, mask, softmax, batch_dot with the moves around them become one
operator that reads queries, keys and values where they lie.

It runs on graphs whose gradient has not been taken (`_attention` has one of its own): what a
gradient needs to keep is then y and one number for each query, with dropout a bit of each
probability. Scores or probabilities that anything else reads stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod

from ...kernels.backend import Backend
from ...kernels.ops.attention import LONGEST, apart
from ...kernels.traits import (
    Broadcast,
    Constant,
    Decomposition,
    Dropout,
    Heads,
    Matmul,
    SameMemory,
    Scale,
    Select,
    Softmax,
    Sum,
)
from ..effects import Effects
from ..graph import Builder, Node, Value, rewrite, topological
from .replace_uses import replace_uses
from .views import Run, View, joined, moved, regrouped, view_of, whole

F = Builder()
MAX_MOVES = 4  # after the second product, before the heads are back in place


def attention(outputs: Sequence[Value], backend: Backend) -> list[Value]:
    """The graph with every attention in it that a kernel of the backend takes as one operator."""
    order = topological(outputs)
    if not any(n.op is not None and n.op.has(Softmax) for n in order):
        return list(outputs)
    n_packed = sum(n.op is not None and n.op.has(Heads) for n in order)
    if n_packed:
        # two operators for each attention; where one is not found, all stay as they are
        made, n_found = _joined(rewrite(outputs, _composed), backend)
        if 2 * n_found >= n_packed:
            return made
    return _joined(outputs, backend)[0]


def _composed(node: Node, inputs: Sequence[Value]):
    """An interleaved product as the stacked products of its parts."""
    if node.op is None or not node.op.has(Heads):
        return None
    return node.op.kinds[Decomposition].rule(F, *inputs, **node.attrs)


def _joined(outputs: Sequence[Value], backend: Backend) -> tuple[list[Value], int]:
    """(the graph with attentions as one operator each, how many)."""
    order = topological(outputs)
    users: dict[Value, list[Node | None]] = {v: [None] for v in outputs}
    for node in order:
        for v in node.inputs:
            users.setdefault(v, []).append(node)
    pinned = Effects(order).pinned
    instead: dict[Value, Value] = {}
    for node in order:
        if node.op is None or not _is_stacked(node) or node in pinned:
            continue
        if node.types[0].dtype in backend.fused_dtypes:
            found = _Match(users, pinned)
            if found.match(node):
                old, new = found.build()
                instead[old] = new
    return replace_uses(outputs, instead) if instead else list(outputs), len(instead)


def _constant(v: Value) -> float | None:
    """The number that a value holds everywhere; None where it may hold others."""
    node = v.node
    if node.op is None:
        return None
    constant = node.op.trait(Constant)
    if constant is not None and constant.value is not None:
        return constant.value
    if constant is not None and not node.has_open_scalars:
        return node.attrs["value"]
    if _multiplies(node) and not node.has_open_scalars:
        below = _constant(node.inputs[0])
        return None if below is None else below * node.attrs["scalar"]
    if node.op.has(SameMemory) or node.op.has(Broadcast):
        return _constant(node.inputs[0])
    return None


def _is_stacked(node: Node) -> bool:
    """Is a node products of stacked matrices?"""
    matmul = None if node.op is None else node.op.trait(Matmul)
    return matmul is not None and matmul.stacked


def _multiplies(node: Node) -> bool:
    """Is a node its input times a number?"""
    scale = None if node.op is None else node.op.trait(Scale)
    return scale is not None and not scale.divides


def _transposes(node: Node) -> tuple[bool, bool]:
    return node.operation.kinds[Matmul].transposes(**node.attrs)


def _plain(v: Value, dtype: str) -> bool:
    return v.dtype == dtype and not v.type.layout


class _Match:
    """One attention, found from its second product downwards."""

    def __init__(self, users: dict, pinned: set[Node]):
        self.users, self.pinned = users, pinned
        self.dropped = 0.0  # probability
        self.scale, self.dtype = 1.0, ""
        self.kind: str | None = None
        self.mask: View | None = None
        self.mask_value = 0.0

    def match(self, node: Node) -> bool:
        p, v = node.inputs
        dtype = self.dtype = node.types[0].dtype
        if _transposes(node)[0] or not _plain(p, dtype) or not _plain(v, dtype):
            return False
        rows = p.shape[-2:]
        scaled = softened = False
        while True:
            below, op = p.node, p.node.op
            readers = [n for n in self.users[p] if n is None or not n.op.has(Constant)]
            if op is None or below in self.pinned or len(readers) != 1 or not _plain(p, dtype):
                return False
            if _is_stacked(below):
                break
            scale = op.trait(Scale)
            if op.has(SameMemory) and below.inputs[0].shape[-2:] == rows:
                p = below.inputs[0]
            elif op.has(Dropout) and not softened and self._drops(below):
                p = below.inputs[0]
            elif op.has(Softmax) and not softened and self._softmax(below):
                softened, p = True, below.inputs[0]
            elif scale is not None and softened and not below.has_open_scalars:
                factor = scale.factor(below.attrs)
                if factor is None:
                    return False
                self.scale *= factor
                scaled, p = True, below.inputs[0]
            elif op.has(Sum) and softened and not scaled and self.kind is None:
                scores = self._addition(below)
                if scores is None or scores.shape != below.types[0].shape:
                    return False
                p = scores
            elif op.has(Select) and softened and not scaled and self.kind is None:
                scores = self._where(below)
                if scores is None:
                    return False
                p = scores
            else:
                return False
        return softened and self._operands(p.node, node)

    def _drops(self, node: Node) -> bool:
        """Takes in a dropout of the probabilities, of each by itself."""
        if not node.operation.is_random(node.attrs):
            return True
        if self.dropped or node.attrs["axes"] or self.users.get(Value(node, 1)):
            return False
        self.dropped = node.attrs["p"]
        return True

    def _softmax(self, node: Node) -> bool:
        x, attrs = node.inputs[0], node.attrs
        axis, temperature = attrs["axis"], attrs["temperature"]
        if axis % len(x.shape) != len(x.shape) - 1 or temperature not in (None, 1.0):
            return False
        if attrs["use_length"]:
            self.kind, self.mask = "length", view_of(node.inputs[1])
            return node.inputs[1].dtype in ("int32", "int64")
        return True

    def _addition(self, node: Node) -> Value | None:
        """The operand that is scores; the other becomes the mask."""
        if len(node.inputs) != 2:
            return None
        for scores, mask in (node.inputs, node.inputs[::-1]):
            v = scores
            while v.node.op is not None and (v.node.op.has(SameMemory) or v.node.op.has(Scale)):
                v = v.node.inputs[0]
            if not _is_stacked(v.node) or not _plain(mask, self.dtype):
                continue
            shape, view = node.types[0].shape, view_of(mask)
            if mask.shape[-1:] == (0,) or len(mask.shape) > len(shape):
                return None
            missing = len(shape) - len(mask.shape)
            axes = [()] * missing + list(view.axes)
            sizes = [1] * missing + list(mask.shape)
            spread = [a if n == m else ((m, 0),) for a, n, m in zip(axes, sizes, shape)]
            self.kind, self.mask = "add", view._replace(axes=tuple(spread))
            return scores
        return None

    def _where(self, node: Node) -> Value | None:
        """The scores among the inputs of a selection; its condition becomes the mask."""
        condition, scores, other = node.inputs
        value, shape = _constant(other), node.types[0].shape
        if value is None or not scores.shape == condition.shape == shape:
            return None
        view = view_of(condition)
        base = view.base
        if base.dtype != self.dtype:
            base = F.cast(F._not_equal_scalar(base, scalar=0.0), dtype=self.dtype)
        self.kind, self.mask, self.mask_value = "where", view._replace(base=base), value
        return scores

    def _operands(self, first: Node, second: Node) -> bool:
        """Brings all operands to (batch, head, row, element)."""
        (q, k), v = first.inputs, second.inputs[1]
        while _multiplies(q.node) and not q.node.has_open_scalars:
            self.scale *= q.node.attrs["scalar"]
            q = q.node.inputs[0]
        if not _plain(q, self.dtype) or not _plain(k, self.dtype) or first in self.pinned:
            return False
        if 0 in (*q.shape, *k.shape):
            return False
        of_q, of_k = _transposes(first)
        turned = of_q, not of_k, _transposes(second)[1]
        rows = [_rows(x, t) for x, t in zip((q, k, v), turned)]
        views = [x for x in rows if x is not None]
        if len(views) < 3 or 0 in v.shape:
            return False
        (self.n_q, self.dim), self.n_k = _sizes(views[0])[-2:], _sizes(views[1])[-2]
        self.dim_v = _sizes(views[2])[-1]
        batches = [joined([r for axis in x.axes[:-2] for r in axis]) for x in views]
        sizes = tuple(n for n, _ in max(batches, key=len))
        if len(sizes) > 2 or max(self.dim, self.dim_v) > LONGEST:
            return False
        # one size may be that of batches or of heads
        leads = [sizes] if len(sizes) == 2 else [(*sizes, 1, 1)[:2], (1, 1, *sizes)[-2:]]
        found = [(*self._moves_after(second, lead), lead) for lead in leads]
        self.moves, self.replaced, self.lead = max(found, key=lambda x: x[0])
        placed = [self._placed(x, 2) for x in views]
        self.views = [x for x in placed if x is not None]
        if self.mask is not None:
            self.mask = self._placed(self.mask, 1 if self.kind == "length" else 2)
        return len(self.views) == 3 and (self.kind is None or self.mask is not None)

    def _placed(self, view: View, n_last: int) -> View | None:
        """The view with its leading axes as (batch, head), every axis of one run."""
        lead = regrouped([r for axis in view.axes[:-n_last] for r in axis], self.lead)
        if lead is None:
            return None
        axes = (*lead, *(tuple(joined(axis)) for axis in view.axes[-n_last:]))
        return None if any(len(axis) > 1 for axis in axes) else view._replace(axes=axes)

    def build(self) -> tuple[Value, Value]:
        """(the value that is replaced, what it is now)."""
        sources: list[Value] = []
        placed: list[tuple[int, View]] = []
        for view in self.views:
            for number in [i for i, s in enumerate(sources) if s == view.base] + [len(sources)]:
                if _apart([x for n, x in placed if n == number] + [view]):
                    break
            if number == len(sources):
                sources.append(view.base)
            placed.append((number, view))
        old = self.replaced
        mask = [] if self.mask is None else [self.mask.base]
        make = F._attention
        if self.dropped:
            make = functools.partial(F._attention_dropout, p=self.dropped)
        y = make(
            *sources,
            *mask,
            sizes=(*self.lead, self.n_q, self.n_k, self.dim, self.dim_v),
            **{name: (n, x.at, *_steps(x)[:3]) for name, (n, x) in zip("qkv", placed)},
            n_sources=len(sources),
            heads_first=not self.moves,
            scale=self.scale,
            mask=self.kind,
            mask_value=self.mask_value,
            mask_view=(0,) * 5
            if self.mask is None
            else (self.mask.at, *(*_steps(self.mask), 0)[:4]),
        )
        return old, F.reshape_to(y, shape=old.shape)

    def _moves_after(self, node: Node, lead: tuple[int, ...]) -> tuple[int, Value]:
        """The last value that moves make of (batch, query, head, element) in row-major order, and
        after how many; 0 where there is none."""
        v = Value(node)
        last = 0, v
        batch, heads = lead
        across = heads * self.dim_v
        runs: list[Run] = [(batch, self.n_q * across), (heads, self.dim_v)]
        axes = regrouped([*runs, (self.n_q, across), (self.dim_v, 1)], v.shape)
        view = None if axes is None else View(v, 0, axes)
        for n_moves in range(1, MAX_MOVES + 1):
            readers = self.users.get(v, [])
            if view is None or len(readers) != 1 or readers[0] is None or readers[0] in self.pinned:
                break
            v = Value(readers[0])
            view = moved(view, v)
            if view is not None and view.is_plain():
                last = n_moves, v
        return last


def _sizes(view: View) -> list[int]:
    return [prod(n for n, _ in axis) for axis in view.axes]


def _steps(view: View) -> list[int]:
    return [axis[0][1] if axis else 0 for axis in view.axes]


def _rows(v: Value, turned: bool) -> View | None:
    """The view (..., rows, elements) of an operand whose elements lie side by side."""
    for view in (view_of(v), whole(v)):
        axes = view.axes
        if turned:
            axes = (*axes[:-2], axes[-1], axes[-2])
        if all(len(joined(axis)) < 2 for axis in axes[-2:]) and axes[-1] in (
            (),
            ((_last(axes), 1),),
        ):
            if _apart([view]):
                return view._replace(axes=axes)
    return None


def _last(axes) -> int:
    return prod(n for n, _ in axes[-1])


def _apart(views: Sequence[View]) -> bool:
    """Do views of one array share no element? (Their gradients are written side by side.)"""
    parts = []
    for view in views:
        runs = [r for axis in view.axes[:-1] for r in axis]
        sizes, steps = [n for n, _ in runs], [step for _, step in runs]
        parts.append((view.at, [*sizes, _last(view.axes)], [*steps, 1]))
    return apart(parts)
