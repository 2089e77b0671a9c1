"""Basic indexing of arrays of known shape, as for NDArrays: the slice to take, and the resulting
shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine.error import InvalidIndex, InvalidType


def slice_of(
    shape: Sequence[int], key: Any, element: tuple[int, ...] = (1,)
) -> tuple[dict | None, tuple[int, ...]]:
    """(attributes of `slice`, or None if everything is taken; shape of the result) of x[key].

    key: ints, slices, None and ..., or a tuple of them. element: the shape of a result without
    axes.
    Raises TypeError for other keys, IndexError for indices out of range.
    """
    keys: list[Any] = list(key) if isinstance(key, tuple) else [key]
    if any(
        not (k is None or k is Ellipsis or isinstance(k, slice) or hasattr(k, "__index__"))
        for k in keys
    ):
        raise InvalidType(
            f"a traced array is indexed by ints, slices, None and ..., got {key!r}\n"
            "  fix: take, gather_nd or pick"
        )
    n_axes = sum(k is not None and k is not Ellipsis for k in keys)
    if n_axes > len(shape):
        raise InvalidIndex(f"too many indices: the array has {len(shape)} dimensions, got {n_axes}")
    at = next((i for i, k in enumerate(keys) if k is Ellipsis), len(keys))
    keys[at : at + 1] = [slice(None)] * (len(shape) - n_axes)
    spans: list[tuple[int, int | None, int]] = []
    result: list[int] = []
    axes = iter(shape)
    for k in keys:
        if k is None:
            result.append(1)
            continue
        n = next(axes)
        if isinstance(k, slice):
            begin, end, step = k.indices(n)
            result.append(len(range(begin, end, step)))
            spans.append((begin, end if end >= 0 else None, step))
        else:
            i = k.__index__()
            if not -n <= i < n:
                raise InvalidIndex(f"index {i} is out of bounds for an axis of size {n}")
            spans.append((i % n, i % n + 1, 1))
    if all(span == (0, n, 1) for span, n in zip(spans, shape)):
        return None, tuple(result) or element
    named = dict(zip(("begin", "end", "step"), zip(*spans)))
    return named, tuple(result) or element
