"""Reductions and scans of traced arrays."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .arrays import Array
from .functions import FUNCTIONS
from .nodes import Leaf, Node, Number, Reduce, Scan, Untraceable
from .recorder import Recorder

MANY, FEW = 1 << 15, 1 << 10  # reduced elements, results: from there on in two stages
PARTS = (1024, 512, 256, 128, 64, 32, 1000, 500, 250, 125, 81, 49)  # of a whole array


class Reductions(Recorder):
    """Sums, products, extremes and their places along axes; cumulative sums and products."""

    def reduce(
        self,
        method: str,
        x: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = False,
        **more: Any,
    ) -> Array:
        """sum, prod, max, min, any, all, argmax, argmin along axes."""
        if out is not None or any(v is not None and v is not np._NoValue for v in more.values()):
            raise Untraceable(f"{method} with {sorted(more)}")
        keepdims = False if keepdims is np._NoValue else bool(keepdims)
        x = self.node(x)
        n_dims = len(x.shape)
        axes = range(n_dims) if axis is None else (axis,) if hasattr(axis, "__index__") else axis
        axes = sorted({a % n_dims for a in axes}) if n_dims else []
        index = method.startswith("arg")
        like = getattr(np, method)(np.ones((1,) * max(n_dims, 1), x.dtype), axis=0)
        result = np.dtype(dtype or like.dtype)
        if method in ("any", "all"):
            x = self.cast(x, bool)
        elif not index:
            x = self.cast(x, result)
        count = prod(x.shape[a] for a in axes)
        kept = [1 if a in axes else n for a, n in enumerate(x.shape)]
        shape = kept if keepdims else [n for a, n in enumerate(x.shape) if a not in axes]
        if count == 0 and method not in ("sum", "prod", "any", "all"):
            raise ValueError("nothing to reduce")
        if axis is None and index and n_dims > 1:
            x, axes = FUNCTIONS["reshape"](self, Array(self, x), -1).node, [0]
            kept = [1]
        if not self.for_cpu and not index and count > MANY and prod(kept) < FEW:
            staged = self._in_stages(method, x, axes, result)
            if staged is not None:
                return FUNCTIONS["reshape"](self, staged, tuple(shape))
        if count == 0:
            start = int(method in ("prod", "all"))
            return Array(self, self.broadcast(Number(start, result), shape))
        made = self.new(shape, result)
        if prod(shape):
            self.add(Reduce(method, x, axes, kept, made))
        return Array(self, made)

    def _in_stages(self, method: str, x: Node, axes: list[int], result) -> Array | None:
        """A reduction of much to little, part by part: one block for each result is too slow."""
        more = {"dtype": result} if method in ("sum", "prod") else {}
        if len(axes) == len(x.shape):
            n = prod(x.shape)
            parts = next((d for d in PARTS if n % d == 0), None)
            if parts is None:
                return None
            rows = self.strided(self.flat(x), (parts, n // parts), (n // parts, 1), 0)
            parted = self.reduce(method, Array(self, rows), 1, **more)
            return self.reduce(method, parted, 0, **more)
        if len(axes) == 1:
            return None
        parted = self.reduce(method, Array(self, x), axes[-1], keepdims=True, **more)
        return self.reduce(method, parted, tuple(axes), **more)

    def scan(self, method: str, x: Node, axis: int) -> Leaf:
        """Cumulative sums or products."""
        made = self.new(x.shape, x.dtype)
        if prod(x.shape):
            self.add(Scan(method, x, axis, made))
        return made
