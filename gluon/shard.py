"""Parameters that are split over ranks: which part a rank has, how values are cut and gathered, who
writes files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakSet

from ..dist import Group, broadcast, current_mesh
from ..dist.mesh import Part, one_writes, sharing
from ..engine import cpu
from ..ndarray import NDArray
from ..training.kvstore.choose import ranks_of
from ..training.kvstore.dist_async import AsyncStore

_split: WeakSet = WeakSet()  # the parameters that were split


def misuse(parameter: Any, axes: tuple[str | None, ...] | None) -> str | None:
    """What is wrong with setting `shard` to these axes of the mesh, if anything."""
    dense = parameter._stype == parameter._grad_stype == "default"
    n_named = sum(a is not None for a in axes or ())
    if n_named > 1 or (n_named and not dense):
        return f"shard must name one axis, of a dense parameter, got {axes}"
    if parameter._trainer is not None:
        return "shard is set after a Trainer took it\n  fix: shard first"
    return None


def part_of(axes: Sequence[str | None] | None) -> Part | None:
    """This rank's part of an array that is split along the named axis; None: the whole."""
    for i, name in enumerate(axes or ()):
        if name is not None:
            mesh = current_mesh()
            group = mesh.group(name)
            return Part(i, group, mesh) if group.size > 1 else None
    return None


def misfit(parameter: Any, shape: tuple[int, ...]) -> str | None:
    """Why an array of this shape cannot be cut, if it cannot."""
    part, axes = parameter._part, parameter._shard
    if len(axes) == len(shape) and shape[part.axis] % part.group.size == 0:
        return None
    return (
        f"shard={axes} does not fit shape {shape}: an entry for each axis, and axis {part.axis}"
        f" must be divisible by the {part.group.size} ranks of {axes[part.axis]!r}"
    )


def split(parameter: Any, axes: tuple[str | None, ...] | None) -> None:
    """Notes how a parameter is split from now on."""
    parameter._shard, parameter._part = axes, part_of(axes)
    if parameter._part is not None:
        _split.add(parameter)


def parts(arrays: Iterable[NDArray]) -> list[Part | None]:
    """How each array is split, if it is the data or the gradient of a parameter that is."""
    known = {id(a): p._part for p in _split for a in (*(p._data or ()), *(p._grad or ()))}
    return [known.get(id(a)) for a in arrays]


def same_everywhere(parameter: Any, data: NDArray) -> None:
    """Gives a first value to all ranks that have parts of it, or copies of parts."""
    part = parameter._part
    broadcast(data, group=part.group, name=parameter.name)
    if "data" in part.mesh.axes:
        broadcast(data, group=part.mesh.group("data"), name=parameter.name)


def whole(parameter: Any, array: NDArray) -> NDArray:
    """The whole of an array of the parameter's local shape, on cpu. All ranks of its group call
    this."""
    part = parameter._part
    return array if part is None else part.whole(array).copyto(cpu())


def groups(parameters: Iterable[Any]) -> list[Group]:
    """The groups over which parameters are split. The others are the same on all ranks of these."""
    return list(dict.fromkeys(p._part.group for p in parameters if p._part is not None))


def mixed(parameters: Iterable[Any], store: Any) -> str | None:
    """Why a store cannot have the parameters: it would sum different parts."""
    ranks = ranks_of(store)
    for p in parameters:
        if p._part is None or ranks is None:
            continue
        if isinstance(store, AsyncStore) or len({*ranks.ranks} & {*p._part.group.ranks}) > 1:
            return (
                f"kvstore={store.type!r} sums gradients over ranks that have different parts of"
                f" {p.name}\n  fix: kvstore='dist_sync', which sums along the mesh's axis 'data'"
            )
    return None


def needs_whole(parameters: Iterable[Any], optimizer: Any) -> str | None:
    """Why an optimizer cannot update parts of weights: it may take norms of whole ones."""
    split = [p.name for p in parameters if p._part is not None]
    if not split or optimizer.elementwise:
        return None
    name = type(optimizer).__name__
    return (
        f"{name} needs whole weights, but {split[0]} is split over ranks\n  fix: an elementwise"
        f" optimizer such as adam; or {name}.elementwise = True if it is one"
    )


def is_split(parameters: Iterable[Any]) -> bool:
    """Are some of them split over ranks? Then all ranks must gather what a file holds."""
    return any(p._part is not None for p in parameters)


def write(parameters: Iterable[Any], write: Callable[[], None]) -> None:
    """Writes a file of parameters: on this rank, or, where some are split and all ranks have
    gathered them, on the first."""
    one_writes(sharing([p._part for p in parameters]), write)
