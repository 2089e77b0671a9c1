"""How many threads take a row, and what each of them holds of it (rows.cuh)."""

from __future__ import annotations

from .layout import THREADS, ceil_div

MAX_HELD = 32  # elements in a thread's registers, of each array


def row_shape(n: int, vector: int, n_arrays: int = 1) -> tuple[int, int, int]:
    """(threads, items, vector) for rows of n elements, of which n_arrays are held at once; items is
    0 where a row is too long to be held."""
    most = max(1, MAX_HELD // (vector * max(1, n_arrays // 2)))
    for threads in (8, 32, 128, 256, 512, 1024):
        # a warp takes up to 1024 elements; more threads where a row needs more than 16 in each
        items = ceil_div(n, threads * vector)
        few = 4 if threads == 8 else 32 if threads == 32 else 16
        if items * vector <= max(few, vector) and items <= most or threads == 1024:
            power = 1 << max(items - 1, 0).bit_length()
            return (threads, power, vector) if power <= most else (1024, 0, 1)
    raise AssertionError


def row_launch(n_rows: int, threads: int) -> tuple[tuple[int], tuple[int]]:
    """(grid, block)"""
    block = max(threads, THREADS)
    return (ceil_div(n_rows, block // threads),), (block,)
