"""Fused row reductions: which results are one number for each row of a fused group, and operators
spelled out as pointwise ones and reductions where a group takes in their neighbours."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

from ...kernels.fused import WIDENED
from ...kernels.loops import form
from ...kernels.row_reductions import REDUCTIONS
from ...kernels.shapes import many_axes, one_axis
from ...kernels.traits import Reduction, RowForm, SameMemory
from ..effects import Effects
from ..graph import Builder, Node, Value, rewrite, topological

F = Builder()
# shorter rows cost calls, longer ones leave the L2 cache
SHORTEST, LONGEST = 16, 32768
SHORTEST_WHOLE = 32  # of operators that have a kernel of their own


def _suits(shape: Sequence[int]) -> bool:
    return len(shape) > 1 and SHORTEST <= shape[-1] <= LONGEST and prod(shape[:-1]) > 1


def served(node: Node, dtypes: Collection[str]) -> bool:
    """Are all arrays of a node row-major and of dtypes in which fused row reductions compute?"""
    values = (*node.types, *(v.type for v in node.inputs))
    return all(t.dtype in dtypes and not t.layout for t in values)


def _is_pointwise(node: Node, dtypes: Collection[str]) -> bool:
    if node.op is None or len(node.types) != 1 or not served(node, dtypes):
        return False
    if node.op.is_random(node.attrs) or node.op.mutates or not node.inputs:
        return False
    return form(node.op, [v.type for v in node.inputs], node.types, node.attrs) is not None


def row_values(
    order: Sequence[Node],
    readers: Mapping[Node, Collection[Node]],
    pinned: Collection[Node],
    dtypes: Collection[str],
) -> dict[Node, tuple[int, ...]]:
    """Nodes whose result is a number for each row of a shape, and read by what has that shape:
    reductions over the last axis and what is computed from these alone. The shape of each."""
    spaces: dict[Node, tuple[int, ...]] = {}
    for node in order:
        reduction = None if node.op is None else node.op.trait(Reduction)
        reduces = reduction is not None and reduction.kind in REDUCTIONS
        if node.op is None or not (reduces or spaces) or node in pinned:
            continue
        if not served(node, dtypes):
            continue
        if reduces:
            shape = node.inputs[0].shape
            axes = many_axes(node.op.name, node.attrs["axis"], len(shape), node.attrs["exclude"])
            if tuple(axes) == (len(shape) - 1,) and _suits(shape):
                spaces[node] = shape
            continue
        found = {spaces[v.node] for v in node.inputs if v.node in spaces}
        if len(found) == len(node.types) == 1 and (
            node.op.has(SameMemory) or _is_pointwise(node, dtypes)
        ):
            (shape,) = found
            sizes = {prod(v.shape) for v in (*node.inputs, Value(node))}
            if sizes <= {1, prod(shape[:-1])} and prod(node.types[0].shape) > 1:
                spaces[node] = shape
    useful: dict[Node, tuple[int, ...]] = {}
    for node, shape in reversed(spaces.items()):
        around = [r for r in readers.get(node, ()) if r in useful or _joins(r, shape, dtypes)]
        if around and all(r in useful or _spreads(r, node, shape) for r in around):
            useful[node] = shape
    return useful


def _joins(reader: Node, shape: tuple[int, ...], dtypes: Collection[str]) -> bool:
    return _is_pointwise(reader, dtypes) and prod(reader.types[0].shape) == prod(shape)


def _spreads(reader: Node, node: Node, shape: tuple[int, ...]) -> bool:
    """Does a node of a row's shape read each number for the whole of its row?"""
    own = (*shape[:-1], 1)
    return reader.types[0].shape == shape and all(
        (1,) * (len(shape) - len(v.shape)) + tuple(v.shape) == own
        for v in reader.inputs
        if v.node is node
    )


# ---- operators spelled out -----------------------------------------------------------------------


def expanded(
    outputs: Sequence[Value], skip: Collection[Node], dtypes: Collection[str]
) -> tuple[list[Value], dict[Node, set[Node]]]:
    """The graph with operators spelled out that have a pointwise neighbour, and what each of them
    became. skip: nodes that stay. dtypes: of fused row reductions."""
    order = topological(outputs)
    if not any(n.op is not None and n.op.has(RowForm) for n in order):
        return list(outputs), {}
    pinned = Effects(order).pinned
    readers: dict[Node, list[Node]] = {}
    for node in order:
        for v in node.inputs:
            readers.setdefault(v.node, []).append(node)
    became: dict[Node, set[Node]] = {}

    def replace(node: Node, inputs: Sequence[Value]):
        row_form = None if node.op is None else node.op.trait(RowForm)
        if row_form is None or node in skip or node in pinned:
            return None
        if not _plain(node, row_form, dtypes) or not _has_neighbour(
            node, readers.get(node, ()), dtypes
        ):
            return None
        wide = [F.cast(v, dtype="float32") if v.dtype in WIDENED else v for v in inputs]
        made = row_form.rule(F, *wide, **node.attrs)
        made = [
            v if v.dtype == t.dtype else F.cast(v, dtype=t.dtype) for v, t in zip(made, node.types)
        ]
        became[node] = _above(made, {v.node for v in inputs})
        return made

    return rewrite(outputs, replace, None, order), became


def _above(values: Sequence[Value], given: set[Node]) -> set[Node]:
    """The nodes of values down to given ones."""
    found: set[Node] = set()
    stack = [v.node for v in values]
    while stack:
        node = stack.pop()
        if node not in found and node not in given:
            found.add(node)
            stack.extend(v.node for v in node.inputs)
    return found


def _plain(node: Node, row_form: RowForm, dtypes: Collection[str]) -> bool:
    """Is it over the last axis, of these dtypes, and is the form for its attributes?"""
    shape, attrs = node.types[0].shape, node.attrs
    if not served(node, dtypes) or not _suits(shape) or shape[-1] < SHORTEST_WHOLE:
        return False
    if prod(shape) < row_form.from_size:
        return False
    if row_form.when is not None and not row_form.when(**attrs):
        return False
    return one_axis(node.operation.name, attrs["axis"], len(shape)) == len(shape) - 1


def _has_neighbour(node: Node, readers: Sequence[Node], dtypes: Collection[str]) -> bool:
    shape = node.types[0].shape
    around = [*readers, *(v.node for v in node.inputs if v.shape == shape)]
    return any(_is_pointwise(n, dtypes) and n.types[0].shape == shape for n in around)
