"""Reductions and scans of traced arrays: one kernel each, of large arrays two."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..shapes import lines
from .launch import Int32, Int64
from .layout import THREADS, TYPES, blocks_for, index_of
from .trace_arrays import Array
from .trace_functions import FUNCTIONS
from .trace_recorder import Recorder
from .trace_source import JOINS, Leaf, Node, Text, Untraceable

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
        if not index and count > MANY and prod(kept) < FEW:
            staged = self._in_stages(method, x, axes, result)
            if staged is not None:
                return FUNCTIONS["reshape"](self, staged, tuple(shape))
        made = self.new(shape, result)
        if prod(shape):
            self._reduce(method, x, axes, kept, made)
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

    def _reduce(self, method, x: Node, axes, kept, made: Leaf) -> None:
        shape = [x.shape[a] for a in axes]
        n, m = prod(kept), prod(shape)
        kind = index_of(prod(x.shape), 1 << 20)
        k = Text(kind, self.module.tables)
        outer = k.split("o", kept)
        n_before = len(k.lines)
        inner = dict(zip(axes, k.split("r", shape)))
        e = k.element(x, tuple(inner.get(a, o) for a, o in enumerate(outer)))
        lines, k.lines = k.lines, []
        index = method.startswith("arg")
        threads = 1 if index or m <= 32 else 32 if m <= 1024 else THREADS
        wide = "double" if x.dtype.kind == "f" and method in ("sum", "prod") else x.kind
        wide = "int" if wide == "bool" else wide
        before = [
            f"const I e = ((I)blockIdx.x * 256 + (I)threadIdx.x) / {threads};",
            f"const int lane = (int)threadIdx.x % {threads};",
            "const I o = e < n ? e : 0;",
            *lines[:n_before],
        ]
        body = lines[n_before:]
        if index:
            order = "<" if method == "argmin" else ">"
            before += [f"{x.kind} best = 0;", "int64_t total = -1;"]
            body += [
                f"if (total < 0 || {e} {order} best || ({e} != {e} && best == best)) {{",
                f"    best = {e};",
                "    total = r;",
                "}",
            ]
        else:
            start, join = JOINS[method]
            if start:
                before.append(f"{wide} total = {start};")
                body.append(f"total = {join.format('total', f'({wide}){e}')};")
            else:
                before += [f"{wide} total = 0;", "bool empty = true;"]
                one = f"({wide}){e}"
                body += [f"total = empty ? {one} : {join.format('total', one)};", "empty = false;"]
        after = [f"for (I r = lane; r < m; r += {threads}) {{"]
        after += [f"    {line}" for line in body] + ["}"]
        if threads > 1:
            # every lane has an element where there is no number to start with: m > threads - 1
            before.insert(0, f"__shared__ One<{wide}> scratch[WARP];")
            joined = JOINS[method][1].format("a.v", "b.v")
            after.append(
                f"total = joined<{threads}>(One<{wide}>{{total}}, scratch, [](One<{wide}> a, "
                f"One<{wide}> b) {{ return One<{wide}>{{({wide})({joined})}}; }}).v;"
            )
        after.append(f"if (e < n && lane == 0) out_0[e] = as<{TYPES[made.stored]}>(total);")
        size = Int32 if kind == "int32_t" else Int64
        members = ["const I n", "const I m", f"{TYPES[made.stored]} *out_0"]
        arguments = [size(n), size(m), made.place, *k.arguments]
        to = [(made.place, made.stored)]
        grid = blocks_for(n, THREADS // threads)
        self._launch(k, members, before, after, grid, arguments, to)

    def scan(self, method: str, x: Node, axis: int) -> Leaf:
        """Cumulative sums or products: a thread for each line."""
        made = self.new(x.shape, x.dtype)
        outer, n, inner = lines("scan", x.shape, axis)
        if not prod(x.shape):
            return made
        kind = index_of(prod(x.shape), 1 << 20)
        k = Text(kind, self.module.tables)
        at = k.split("e", [*x.shape[:axis], *x.shape[axis + 1 :]])
        at.insert(axis, "r")
        e = k.element(x, tuple(at))
        wide = "double" if x.dtype.kind == "f" else x.kind
        start, join = JOINS[method]
        before = [
            "const I e = (I)blockIdx.x * 256 + (I)threadIdx.x;",
            "if (e >= n)",
            "    return;",
            f"{wide} total = {start};",
            "for (I r = 0; r < m; r++) {",
        ]
        after = [
            f"    total = {join.format('total', f'({wide}){e}')};",
            "    const I at = (e / inner * m + r) * inner + e % inner;",
            f"    out_0[at] = as<{TYPES[made.stored]}>(total);",
            "}",
        ]
        size = Int32 if kind == "int32_t" else Int64
        members = ["const I n", "const I m", "const I inner", f"{TYPES[made.stored]} *out_0"]
        sizes = [size(outer * inner), size(n), size(inner)]
        arguments = [*sizes, made.place, *k.arguments]
        to = [(made.place, made.stored)]
        self._launch(k, members, before, after, blocks_for(outer * inner, THREADS), arguments, to)
        return made
