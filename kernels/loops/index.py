"""Indices of traced arrays: slices are views, index arrays gathers, assignments and scatters write
parts."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..record import NUMERIC
from ..shapes import contiguous
from .arrays import Array
from .functions import FUNCTIONS
from .nodes import (
    Assigned,
    Checked,
    Gather,
    Leaf,
    Map,
    Node,
    Number,
    Scatter,
    Untraceable,
    address_of,
    probe_of,
)
from .recorder import Recorder


class Indexing(Recorder):
    """Reads and writes of parts of arrays."""

    def item(self, x: Array, key: Any) -> Array:
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(i, (Array, np.ndarray, list)) and not _is_whole(i) for i in keys):
            return self._gather(x.node, keys)
        probe = probe_of(x.shape)
        part = probe[key]
        if not isinstance(part, np.ndarray):
            part = probe[(*keys, ...)]
        offset = address_of(part) - address_of(probe)
        node = self.strided(x.node, part.shape, part.strides, offset if part.size else 0)
        return Array(self, node, part_of=(x, key))

    def _gather(self, x: Node, keys) -> Array:
        keys = self._expanded(x, keys)
        arrays, first = self._index_arrays(x, keys)
        broad = np.broadcast_shapes(*(a.shape for a in arrays.values()))
        # slices first: what is left is a gather
        probe = probe_of(x.shape)
        slices = tuple(slice(None) if d in arrays else k for d, k in enumerate(keys))
        part = probe[slices]
        if part.shape != x.shape:
            x = self.strided(x, part.shape, part.strides, address_of(part) - address_of(probe))
        x = self.light(x)
        others = [d for d in range(len(keys)) if d not in arrays]
        shape = [x.shape[d] for d in others]
        shape[first:first] = broad
        spots = [i for i in range(len(shape)) if not first <= i < first + len(broad)]
        place = dict(zip(others, spots))
        found = [self.light(arrays[d]) if d in arrays else place[d] for d in range(len(keys))]
        return Array(self, Gather(x, found, shape, first, len(broad)))

    def _expanded(self, x: Node, keys) -> list:
        """One key an axis. Masks known now are places."""
        found: list = []
        for k in keys:
            if k is None:
                raise Untraceable("a new axis among index arrays")
            if isinstance(k, (list, np.ndarray)):
                k = np.asarray(k)
                found += k.nonzero() if k.dtype == bool else [k]
            elif isinstance(k, Array) and k.dtype == bool:
                raise Untraceable("a mask chooses")
            else:
                found.append(k)
        if any(k is Ellipsis for k in found):
            at = next(i for i, k in enumerate(found) if k is Ellipsis)
            found[at : at + 1] = [slice(None)] * (len(x.shape) - len(found) + 1)
        return found + [slice(None)] * (len(x.shape) - len(found))

    def _index_arrays(self, x: Node, keys) -> tuple[dict[int, Node], int]:
        """(the index arrays by axis, where their dimensions stand in the result)"""
        arrays = {
            d: self.cast(self.node(k), "int64") for d, k in enumerate(keys) if type(k) is not slice
        }
        axes = sorted(arrays)
        together = axes == list(range(axes[0], axes[-1] + 1))
        return arrays, axes[0] if together else 0

    def assigned(self, x: Node, key: Any, value: Any) -> Node:
        """x with other values in a part of it."""
        keys = key if isinstance(key, tuple) else (key,)
        value = self.cast(self.node(value), x.dtype)
        if any(isinstance(i, (Array, np.ndarray, list)) and not _is_whole(i) for i in keys):
            mask = keys[0] if len(keys) == 1 else None
            if isinstance(mask, (Array, np.ndarray)) and mask.dtype == bool:
                if value.shape != () or mask.shape != x.shape[: mask.ndim]:
                    raise Untraceable("a mask chooses")
                m = self.node(mask)
                m = self.strided(
                    m,
                    (*m.shape, *[1] * (len(x.shape) - mask.ndim)),
                    [*contiguous(m.shape), *[0] * (len(x.shape) - mask.ndim)],
                    0,
                )
                return Map("{0} ? {1} : {2}", [m, value, x], x.dtype)
            return self.scatter(x, keys, value, False)
        keys = tuple(None if k is None else k for k in keys if k is not None)
        region, shape = [], []
        for n, k in zip(x.shape, self._expanded(x, keys)):
            if type(k) is slice:
                start, stop, step = k.indices(n)
                if step < 0:
                    raise Untraceable("an assignment backwards")
                count = len(range(start, stop, step))
                region.append((start, step, count))
                shape.append(count)
            else:
                i = int(k)
                if not -n <= i < n:
                    raise IndexError("an index is out of range")
                region.append((i % n, 1, -1))
        while len(value.shape) > len(shape) and value.shape[0] == 1:
            value = self.strided(value, value.shape[1:], contiguous(value.shape)[1:], 0)
        value = self.broadcast(value, shape)
        if shape == list(x.shape):
            return value
        return Assigned(self.light(x), region, self.light(value))

    def add_at(self, ufunc: np.ufunc, target: Any, keys: Any, value: Any) -> None:
        """ufunc.at: what several places name is added in their order."""
        if ufunc.__name__ != "add" or not isinstance(target, Array):
            raise Untraceable(f"{ufunc.__name__}.at")
        keys = keys if isinstance(keys, tuple) else (keys,)
        value = self.cast(self.node(value), target.dtype)
        target.replace(self.scatter(target.node, keys, value, True))

    def scatter(self, x: Node, keys: Any, value: Node, add: bool) -> Node:
        keys = self._expanded(x, keys)
        arrays, first = self._index_arrays(x, keys)
        broad = np.broadcast_shapes(*(a.shape for a in arrays.values()))
        others = [d for d in range(len(keys)) if d not in arrays]
        ranges = {d: np.arange(x.shape[d])[keys[d]] for d in others}
        shape = [len(ranges[d]) for d in others]
        shape[first:first] = broad
        spots = [i for i in range(len(shape)) if not first <= i < first + len(broad)]
        flat: Array | int = 0
        for d, stride in enumerate(contiguous(x.shape)):
            if d in arrays:
                at = Array(self, arrays[d])
                at = FUNCTIONS["where"](self, at < 0, at + x.shape[d], at)
                at = Array(self, Checked(at.node, x.shape[d]))
                tail = len(shape) - first - len(broad)
                at = at.reshape((*at.shape, *[1] * tail))
            else:
                axis = spots[others.index(d)]
                at = ranges[d].reshape([-1 if i == axis else 1 for i in range(len(shape))])
            flat = flat + at * stride
        places = self.stored(self.broadcast(self.node(flat), shape))
        rows = self.stored(self.broadcast(value, shape))
        if rows.stored != x.dtype.name:  # 16 bits
            rows = self.stored(rows, again=True)
        # a scatter adds nothing to what was there
        before = self.broadcast(Number(0, x.dtype), x.shape) if add else x
        made = self.stored(before, again=True)
        n_places, dtype = prod(shape), made.stored
        if dtype not in NUMERIC or n_places >= 1 << 31:
            raise Untraceable(f"a scatter of {dtype}")
        if n_places and prod(x.shape):
            self.add(Scatter(places, rows, made, add))
        made = Leaf(made.place, made.shape, dtype, made.strides)
        return Map("{0} + {1}", [x, made], x.dtype) if add else made


def _is_whole(i) -> bool:
    """Is it an index without dimensions, known now?"""
    return isinstance(i, np.ndarray) and i.shape == () and i.dtype.kind in "iu"
