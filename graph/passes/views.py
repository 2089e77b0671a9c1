"""Where the elements of a value lie in the array that it was made from by moving elements alone.

A View follows reshapes, transposes, slices, splits and broadcasts down to their source, so that a
kernel which reads with steps needs none of the copies in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from ...kernels.traits import Broadcast, Identity, Permutation, SameMemory, Section, Strided
from ..graph import Node, Value

Run = tuple[int, int]  # (how many, step in elements)


class View(NamedTuple):
    """at: the first element in `base`. axes: for each axis of the value the runs that it is made
    of, outermost first."""

    base: Value
    at: int
    axes: tuple[tuple[Run, ...], ...]

    @property
    def runs(self) -> list[Run]:
        return [run for axis in self.axes for run in axis]

    def is_plain(self) -> bool:
        """Is this all of the base, row-major?"""
        return self.at == 0 and joined(self.runs) == joined(whole(self.base).runs)


def whole(v: Value) -> View:
    """A value seen as itself."""
    axes: list[tuple[Run, ...]] = []
    step = 1
    for n in reversed(v.shape):
        axes.append(((n, step),) if n != 1 else ())
        step *= n
    return View(v, 0, tuple(reversed(axes)))


def joined(runs: Sequence[Run]) -> list[Run]:
    """The same elements in the fewest runs."""
    out: list[Run] = []
    for n, step in runs:
        if n == 1:
            continue
        if out and out[-1][1] == n * step:
            out[-1] = (out[-1][0] * n, step)
        else:
            out.append((n, step))
    return out


def regrouped(runs: Sequence[Run], shape: Sequence[int]) -> tuple[tuple[Run, ...], ...] | None:
    """The runs cut into axes of the given sizes; None where a run would have to be cut unevenly."""
    rest, axes = joined(runs)[::-1], []
    if prod(n for n, _ in rest) != prod(shape) or 0 in shape:
        return None
    for size in shape:
        axis = []
        while size > 1:
            n, step = rest.pop()
            if n > size:
                if n % size:
                    return None
                rest.append((size_left := n // size, step))
                axis.append((size, step * size_left))
                size = 1
            elif size % n:
                return None
            else:
                axis.append((n, step))
                size //= n
        axes.append(tuple(axis))
    return tuple(axes)


def view_of(v: Value) -> View:
    """The view of the furthest source that v's elements can be read from."""
    chain = []
    while v.node.op is not None and _rule(v.node) is not None and not v.type.layout:
        chain.append(v)
        v = v.node.inputs[0]
    view = whole(v)
    for v in reversed(chain):
        view = moved(view, v) or whole(v)
    return view


def moved(view: View, v: Value) -> View | None:
    """The view of an operator's output from that of its first input; None where there is none."""
    rule = _rule(v.node) if v.node.op is not None else None
    found = rule(v.node, v.index, view) if rule is not None else None
    return None if found is None else View(view.base, *found)


def _rule(node: Node) -> Callable | None:
    return next((rule for kind, rule in RULES.items() if node.operation.has(kind)), None)


def _reshape(node, index, view):
    axes = regrouped(view.runs, node.types[0].shape)
    return None if axes is None else (view.at, axes)


def _permuted(node, index, view):
    order = node.operation.kinds[Permutation].axes(len(view.axes), **node.attrs)
    return view.at, tuple(view.axes[a] for a in order)


def _part(view, axis, begin, size):
    runs = joined(view.axes[axis])
    if len(runs) > 1:
        return None
    step = runs[0][1] if runs else 0
    axes = list(view.axes)
    axes[axis] = ((size, step),) if size != 1 else ()
    return view.at + begin * step, tuple(axes)


def _section(node, index, view):
    of = node.operation.kinds[Section].of
    axis, first, size, dropped = of(node.inputs[0].shape, index, **node.attrs)
    found = _part(view, axis, first, size)
    if found is None or not dropped:
        return found
    return found[0], (*found[1][:axis], *found[1][axis + 1 :])


def _broadcast(node, index, view):
    shape = node.types[0].shape
    if len(shape) != len(view.axes):
        return None
    old = node.inputs[0].shape
    return view.at, tuple(
        axis if n == m else ((m, 0),) for axis, n, m in zip(view.axes, old, shape, strict=True)
    )


def _strided(node, index, view):
    if not view.is_plain() or node.has_open_scalars:
        return None
    sizes, steps = node.attrs["sizes"], node.attrs["steps"]
    return int(node.attrs["at"]), tuple(((n, k),) if n != 1 else () for n, k in zip(sizes, steps))


def _same(node, index, view):
    identity = node.operation.kinds[Identity]
    is_same = not index and node.types[0] == node.inputs[0].type and identity.holds(node.attrs)
    return (view.at, view.axes) if is_same and identity.passes else None


# a rule for each kind of trait: (node, number of its output, view of its first input) -> at, axes
RULES: dict[type, Callable] = {
    SameMemory: _reshape,
    Permutation: _permuted,
    Section: _section,
    Strided: _strided,
    Broadcast: _broadcast,
    Identity: _same,
}
