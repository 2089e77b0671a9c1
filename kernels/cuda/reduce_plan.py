"""The launches of every kernel that reduces (reduce.cu, batch_norm.cu, generated ones)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..cpu.layout import reduced_dims
from .launch import Argument, Int32, Int64, Launch, Scratch, Struct
from .layout import BLOCKS, THREADS, blocks_for, ceil_div, index, index_of, places

WARP, COLUMNS, COLUMN_ROWS = 32, 32, 8  # reduce.cuh, map_reduce.cuh
WARP_WORK = 1024  # reduced elements up to which a warp takes a result
LEAST_WORK = 4096  # reduced elements that are worth a block of their own


class Plan:
    """How elements of a row-major `shape` are reduced over `axes`, and which launches do it."""

    def __init__(self, shape: Sequence[int], axes: Sequence[int], vector: int, sums_bytes: int):
        dims = reduced_dims(shape, axes)
        self._kept = [d for d in dims if not d[2]]
        self._reduced = [d for d in dims if d[2]]
        self.by_rows = not dims or dims[-1][2]
        self._sums_bytes = sums_bytes
        self.n_out = prod(d[0] for d in self._kept)
        self.n_reduced = prod(d[0] for d in self._reduced)
        self.index = index_of(prod(shape))
        run = dims[-1][0] if dims else 1
        self.vector = vector if self.by_rows and run % vector == 0 else 1
        self._split()

    def _split(self) -> None:
        """How many blocks share a result."""
        if self.by_rows:
            self._threads = WARP if self.n_reduced <= WARP_WORK else THREADS
            blocks = ceil_div(self.n_out, THREADS // self._threads)
        else:
            blocks = ceil_div(self.n_out, COLUMNS)
        least = LEAST_WORK if self.by_rows else 8 * COLUMN_ROWS
        wanted = min(ceil_div(BLOCKS, max(blocks, 1)), self.n_reduced // least)
        self.n_split = max(1, wanted if blocks < BLOCKS // 2 else 1)
        unit = 8 * THREADS if self.by_rows else COLUMN_ROWS
        self._chunk = ceil_div(ceil_div(max(self.n_reduced, 1), self.n_split), unit) * unit
        self.n_split = max(1, ceil_div(self.n_reduced, self._chunk))

    @property
    def scratch_bytes(self) -> int:
        return self.n_out * self.n_split * self._sums_bytes if self.n_split > 1 else 0

    def launches(self, source: str, map_type: str, given: Argument) -> list[Launch]:
        """map_type: a Map of map_reduce.cuh, with the index type I as {I}; given: its struct."""
        kept, reduced = max(len(self._kept), 1), max(len(self._reduced), 1)
        kind, partial = self.index, Scratch(0)
        map_type = map_type.format(I=kind)
        space = Struct(
            *(
                places([d[0] for d in dims], [[d[1] for d in dims]], kind)
                for dims in (self._kept, self._reduced)
            ),
            index(self.n_out, kind),
            index(self.n_reduced, kind),
            index(self._chunk, kind),
            Int32(self.n_split),
        )
        if self.by_rows:
            numbers = f"{kept}, {reduced}, {self._threads}, {self.vector}"
            name = f"reduce_rows<{map_type}, {kind}, {numbers}>"
            grid: tuple[int, ...] = blocks_for(self.n_out * self.n_split, THREADS // self._threads)
            block: tuple[int, ...] = (THREADS,)
        else:
            name = f"reduce_columns<{map_type}, {kind}, {kept}, {reduced}>"
            grid, block = (ceil_div(self.n_out, COLUMNS), self.n_split), (COLUMNS, COLUMN_ROWS)
        steps = [Launch(source, name, grid, block, [given, space, partial])]
        if self.n_split > 1:
            arguments: list[Argument] = [given, Int64(self.n_out), Int32(self.n_split), partial]
            grid = blocks_for(self.n_out, THREADS // WARP)
            steps.append(
                Launch(source, f"reduce_partials<{map_type}>", grid, (THREADS,), arguments)
            )
        return steps
