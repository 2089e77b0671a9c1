"""How many threads take a row, and what each of them holds of it (rows.cuh)."""

from __future__ import annotations

from .layout import THREADS, ceil_div

# threads for a row -> elements in a thread's registers, shared by the arrays that are held at once;
# more threads take a longer row
HELD = {8: 4, 32: 32, 128: 16, 256: 16, 512: 16, 1024: 32}


def row_shape(n: int, vector: int, n_arrays: int = 1) -> tuple[int, int, int]:
    """(threads, items, vector) for rows of n elements, of which n_arrays are held at once: each
    thread holds items * vector elements; items is 0 where a row is too long to be held."""
    for threads, held in HELD.items():
        items = ceil_div(n, threads * vector)
        if items * vector <= max(held // n_arrays, vector):
            return threads, items, vector
    return 1024, 0, 1


def row_launch(n_rows: int, threads: int) -> tuple[tuple[int], tuple[int]]:
    """(grid, block)"""
    block = max(threads, THREADS)
    return (ceil_div(n_rows, block // threads),), (block,)
