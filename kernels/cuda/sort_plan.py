"""Sorting as launches (sort.cu)."""

from __future__ import annotations

from ..spec import ITEM_BYTES
from .launch import Argument, Int32, Int64, Launch, Scratch, Struct
from .layout import ceil_div, spread

MAX_TILE, LEAST_TILE = 2048, 64
PLACE_BYTES = 4


class Sorting:
    """Launches that sort lines of n items, of which the first k are wanted.

    steps: the launches; keys, places: where the items then are in scratch memory, n_items for each
    line; end: where what they use of scratch memory ends; it begins at `base`.
    """

    def __init__(
        self,
        source: str,
        source_type: str,
        given: Argument,
        key: str,
        lines: int,
        n: int,
        k: int,
        base: int = 0,
    ):
        self.steps: list[Launch] = []
        self._source, self._key, self._lines = source, key, lines
        self._key_bytes = 8 if key == "uint64_t" else 4
        self.end = base
        self._tiles(source_type, given, n, k)
        while k * 4 <= MAX_TILE and self.n_items > min(k, n) and self._n_tiles > 1:
            items = Struct(self.keys, self.places, Int64(self.n_items))
            self._tiles(f"Items<{key}>", items, self.n_items, k)
        run = self._keep
        while run < self.n_items:
            self._merge(run)
            run *= 2

    def _scratch(self, size: int) -> tuple[Scratch, Scratch]:
        found = []
        for each in (self._key_bytes, PLACE_BYTES):
            found.append(Scratch(self.end))
            self.end += ceil_div(size * each, 256) * 256
        return found[0], found[1]

    def _tiles(self, source_type: str, given: Argument, n: int, k: int) -> None:
        tile = LEAST_TILE
        while tile < min(n, MAX_TILE):
            tile *= 2
        self._n_tiles = ceil_div(n, tile)
        few = k * 4 <= MAX_TILE or self._n_tiles == 1
        self._keep = min(k, tile) if few else tile
        self.n_items = self._n_tiles * self._keep
        self.keys, self.places = self._scratch(self._lines * self.n_items)
        sizes: list[Argument] = [Int64(n), Int64(self._n_tiles), Int32(self._keep)]
        arguments: list[Argument] = [given, *sizes, self.keys, self.places]
        name = f"sort_tiles<{source_type}, {self._key}, {tile}>"
        grid = (self._lines * self._n_tiles,)
        self.steps.append(Launch(self._source, name, grid, (tile // 2,), arguments))

    def _merge(self, run: int) -> None:
        size = self._lines * self.n_items
        keys, places = self._scratch(size)
        sizes = map(Int64, (size, self.n_items, run))
        arguments: list[Argument] = [*sizes, self.keys, self.places, keys, places]
        self.steps.append(spread(self._source, f"merge_runs<{self._key}>", size, arguments))
        self.keys, self.places = keys, places


def key_type(dtype: str) -> str:
    return "uint64_t" if ITEM_BYTES[dtype] == 8 else "uint32_t"
