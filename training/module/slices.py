"""How a batch is divided among devices."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.error import InvalidValue


def split_batch(batch_size: int, work_load_list: Sequence[int]) -> list[slice]:
    """Slices of a batch, in proportion to the work loads; the last device takes what rounding
    leaves.

    Raises InvalidValue (ValueError) where a device would get nothing.
    """
    total = sum(work_load_list)
    sizes = [round(load * batch_size / total) for load in work_load_list]
    if sum(sizes) < batch_size:
        sizes[-1] += batch_size - sum(sizes)
    slices, end = [], 0
    for size in sizes:
        begin, end = min(end, batch_size), min(end + size, batch_size)
        if begin >= end:
            raise InvalidValue(
                "Too many slices. Some splits are empty: a batch of"
                f" {batch_size} for work loads {list(work_load_list)}"
            )
        slices.append(slice(begin, end))
    return slices
