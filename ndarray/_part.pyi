"""The part of an array's memory that a basic key selects, as a type checker sees it."""

from typing import Any, NamedTuple

class Part(NamedTuple):
    """The elements that a basic key selects: offsets at + sum(i * step) in the array's memory, with
    shape `sizes`. contiguous: are they so in memory, in row-major order?"""

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    at: int
    size: int
    contiguous: bool

def part_of(key: Any, shape: tuple[int, ...], element: tuple[int, ...]) -> Part | None:
    """The Part of a key of ints, slices, None and ..., None for other keys and for invalid ones.
    element: the shape of one element, all 1."""
