"""Scatters by rows (index.cu): places are sorted by row, so that no two threads write one."""

from __future__ import annotations

from .launch import Argument, Int64, Launch
from .layout import THREADS, TYPES, bool_of, ceil_div, index_of, vector_of
from .sort_plan import Sorting


def scatter(
    source_type: str,
    source: Argument,
    n_places: int,
    outer: int,
    n_rows: int,
    inner: int,
    dtype: str,
    add: bool,
    rows: Argument,
    table: Argument,
    base: int = 0,
) -> tuple[list[Launch], int]:
    """Launches that sort places by row and sum (or set) rows; (steps, end of their scratch memory,
    which begins at `base`). rows, table: Buffer or Scratch."""
    sorting = Sorting("index.cu", source_type, source, "uint64_t", 1, n_places, n_places, base)
    vector = vector_of(dtype)
    vector = vector if inner % vector == 0 else 1
    threads = THREADS
    while threads > 32 and threads * vector >= 2 * inner:
        threads //= 2
    column_blocks = ceil_div(inner, threads * vector)
    kind = index_of(n_rows * inner)
    scatter = Launch(
        "index.cu",
        f"scatter_rows<{TYPES[dtype]}, {kind}, {bool_of(add)}, {vector}>",
        (n_places * column_blocks, outer),
        (threads,),
        [
            *map(Int64, (n_places, n_rows, inner, column_blocks)),
            sorting.keys,
            sorting.places,
            rows,
            table,
        ],
    )
    return [*sorting.steps, scatter], sorting.end
