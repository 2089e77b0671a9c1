"""Meshes: the ranks of a job along named axes, and the parts of arrays that are split over one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..engine.error import InvalidValue, MXNetError, compose
from ..ndarray import NDArray
from ..ndarray.autograd import pause
from .buckets import sum_together
from .collectives import all_gather, barrier
from .group import Group
from .world import init, own_group

_current: list[Mesh] = []  # the mesh in use


class Mesh:
    """The ranks of a job along named axes. axes: their sizes by name. Neighbours along the last
    axis have consecutive ranks."""

    def __init__(self, axes: dict[str, int]):
        world = init()
        sizes = list(axes.values())
        if not axes or any(n < 1 for n in sizes) or math.prod(sizes) != world.size:
            given = " x ".join(f"{name}={n}" for name, n in axes.items()) or "no axes"
            rule = f"mesh: the sizes must multiply to the number of ranks, got {given}"
            fix = "mesh(data=-1, ...) takes what the others leave; or launch -n"
            raise InvalidValue(compose(f"{rule} for {world.size}", fix=fix))
        self.axes = dict(axes)
        self._groups: dict[str, Group] = {}
        self._coordinates: dict[str, int] = {}
        stride = world.size
        for name, n in axes.items():
            stride //= n
            at = self._coordinates[name] = world.rank // stride % n
            first = world.rank - at * stride
            self._groups[name] = own_group(range(first, first + n * stride, stride))

    def __repr__(self):
        return f"<Mesh {', '.join(f'{name}={n}' for name, n in self.axes.items())}>"

    def group(self, axis: str) -> Group:
        """The ranks that differ from this one along one axis only."""
        return self._groups[self._known(axis)]

    def coordinate(self, axis: str) -> int:
        """The position of this rank along an axis."""
        return self._coordinates[self._known(axis)]

    def _known(self, axis: str) -> str:
        if axis not in self.axes:
            raise InvalidValue(f"mesh: no axis {axis!r}, the axes are {', '.join(self.axes)}")
        return axis


def mesh(**axes: int) -> Mesh:
    """Arranges all ranks along named axes: mesh(data=2, model=2). All ranks call it. One size may
    be -1: what the others leave. Parameters with `shard` use the mesh that was made last."""
    free = [name for name, n in axes.items() if n == -1]
    if len(free) == 1:
        rest = math.prod(n for n in axes.values() if n != -1)
        axes = {**axes, free[0]: init().size // max(1, rest)}
    made = Mesh(axes)
    _current[:] = [made]
    return made


def current_mesh() -> Mesh:
    """The mesh that was made last. Raises MXNetError where there is none."""
    if not _current:
        rule = "a parameter is sharded, but there is no mesh"
        raise MXNetError(compose(rule, fix="mx.dist.mesh(data=..., model=...) first"))
    return _current[0]


def data_group(what: str = "mx.dist.data_group()") -> Group:
    """The ranks that have different parts of a batch, over which gradients are summed: those along
    the axis "data" of the mesh that was made last; without a mesh all ranks.

    Raises InvalidValue for a mesh without this axis. what: who asks.
    """
    if not _current:
        return init()
    (made,) = _current
    if "data" not in made.axes:
        axes = ", ".join(made.axes)
        rule = f"{what} needs the axis 'data' of the mesh, whose axes are {axes}"
        raise InvalidValue(compose(rule, fix="mx.dist.mesh(data=1, ...), or group="))
    return made.group("data")


class Part:
    """How an array is split: axis `axis` of it over a group. mesh: that of the group."""

    def __init__(self, axis: int, group: Group, mesh: Mesh):
        self.axis, self.group, self.mesh = axis, group, mesh

    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a part."""
        n = whole[self.axis] // self.group.size
        return (*whole[: self.axis], n, *whole[self.axis + 1 :])

    def of(self, whole: NDArray) -> NDArray:
        """This rank's part."""
        n = whole.shape[self.axis] // self.group.size
        begin = self.group.rank * n
        with pause():
            return whole.slice_axis(axis=self.axis, begin=begin, end=begin + n)

    def whole(self, part: NDArray) -> NDArray:
        """The whole array, on all ranks of the group; all of them must call this."""
        with pause():
            gathered = all_gather(part.swapaxes(0, self.axis), group=self.group)
            return gathered.swapaxes(0, self.axis)


def sharing(parts: Collection[Part | None]) -> list[Group]:
    """The groups over which arrays with these parts lie, of a network that is split: copies along
    the axis "data", then parts. Empty where none is split."""
    meshes = dict.fromkeys(part.mesh for part in parts if part is not None)
    copies = [mesh.group("data") for mesh in meshes if "data" in mesh.axes]
    return list(dict.fromkeys([*copies, *(part.group for part in parts if part is not None)]))


def one_writes(groups: Sequence[Group], write: Callable[[], None]) -> None:
    """The first rank of all these groups writes a file, and the others wait for it. All ranks call
    it. Without groups this rank writes."""
    if all(group.rank == 0 for group in groups):
        write()
    for group in groups:
        barrier(group, name="a file")


def shard(net: Any, rules: dict[str, tuple[str | None, ...]]) -> list[str]:
    """Splits parameters of a block, or of a dictionary of them, over the current mesh.

    rules: a regular expression, which must match the end of a parameter's name, -> for each axis of
        the parameter an axis of the mesh or None: {"query_weight": ("model", None)}.
    Returns: the names of the parameters. Raises InvalidValue for a rule that matches none.
    """
    parameters = net.collect_params() if hasattr(net, "collect_params") else net
    found = []
    for pattern, axes in rules.items():
        matching = [p for p in parameters.values() if re.search(f"(?:{pattern})$", p.name)]
        if not matching:
            names = ", ".join(list(parameters.keys())[:8])
            raise InvalidValue(f"shard: {pattern!r} matches no parameter, there are {names}")
        for p in matching:
            p.shard = axes
            found.append(p.name)
    if hasattr(net, "_clear_cached_op"):
        net._clear_cached_op()  # graphs of whole parameters
    return found


def sum_gradients(net: Any, group: Group | None = None, op: str = "sum") -> None:
    """Sums the gradients of a block's parameters over a group, in place; by default over all ranks
    that have different data. Small ones travel together. No call waits."""
    parameters = net.collect_params() if hasattr(net, "collect_params") else net
    group = group or data_group("sum_gradients")
    trained = [p for p in parameters.values() if p.grad_req != "null"]
    wanted = [(p, (op, i)) for p in trained for i in range(len(p.list_grad()))]

    def number(some: list[int]) -> int:
        """The id of the bucket that begins with this gradient."""
        p, use = wanted[some[0]]
        ids = group.kept.setdefault(p, {})
        if use not in ids:
            ids[use] = group.new_id()
        return ids[use]

    grads = [g for p in trained for g in p.list_grad()]
    names = [p.name for p, _ in wanted]
    sum_together(grads, group, op, names=names, number=number, in_place=True)
