"""plait.stream: applies a function chunk by chunk to arrays larger than a device's memory,
overlapping copies with computation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ..engine import Context, cpu, cpu_pinned, current_context, lib
from ..engine.error import InvalidType, InvalidValue, ShapeError
from .creation import array, empty
from .ndarray import NDArray

CHUNK_BYTES = 32 << 20
AHEAD = 3  # chunks in flight: one copied in, one computed, one copied out


def stream(
    function: Callable,
    *arrays: Any,
    ctx: Context | None = None,
    rows: int | None = None,
    out: Any = None,
) -> Any:
    """Applies function to chunks of arrays along axis 0 on a device, and concatenates the results
    on the host.

    While one chunk is computed the next one is copied to the device and the last one's result back,
    each on its own lane; at most three chunks are in flight.

    Args:
        function: gets one NDArray on ctx for each array, of equal length; returns an NDArray, or a
            list, with a row for each of theirs.
        arrays: NDArrays on the host or NumPy arrays, of the same length along axis 0. Arrays in
            `cpu_pinned()` are copied directly.
        ctx: the device; default: the current one.
        rows: rows per chunk; default: as many as fit into 32 MB.
        out: NDArray(s) on the host to write into, of the whole shape; default: new ones.
    Returns: an NDArray on the host, or a list, as function does.
    Raises: InvalidType, InvalidValue; ShapeError for results that do not have the chunk's rows;
        what function raises.

    >>> x = nd.arange(10).reshape((5, 2))
    >>> plait.stream(lambda part: part * 2, x, rows=2).asnumpy().tolist()[4]
    [16.0, 18.0]
    """
    ctx = current_context() if ctx is None else ctx
    ctx.check()
    host = cpu() if ctx.memory == lib.PL_MEMORY_HOST else cpu_pinned()
    n = _length(arrays)
    rows = _rows(arrays, n) if rows is None else rows
    if not isinstance(rows, int) or rows < 1:
        raise InvalidValue(f"stream: rows must be a number above 0, got {rows!r}")
    joined = None if out is None else list(out) if isinstance(out, (list, tuple)) else [out]
    in_flight: deque[list[NDArray]] = deque()
    several = False
    for start in range(0, max(n, 1), rows):
        end = min(start + rows, n)
        given = [_part(a, start, end, host).as_in_context(ctx) for a in arrays]
        made = function(*given)
        several = isinstance(made, (list, tuple))
        results = list(made) if several else [made]
        _check(results, end - start)
        if joined is None:
            joined = [empty((n, *r.shape[1:]), host, r._spec.dtype) for r in results]
        parts = [_whole(whole, r, n)[start:end] for whole, r in zip(joined, results, strict=True)]
        for part, r in zip(parts, results):
            r.copyto(part)
        in_flight.append(parts)
        if len(in_flight) == AHEAD:
            for part in in_flight.popleft():
                part.wait_to_read()
    for parts in in_flight:
        for part in parts:
            part.wait_to_read()
    assert joined is not None  # at least one chunk, which may be empty
    return out if out is not None else joined if several else joined[0]


def _length(arrays) -> int:
    if not arrays:
        raise InvalidValue("stream: at least one array must be given")
    for a in arrays:
        if not isinstance(a, (NDArray, np.ndarray)):
            raise InvalidType(
                f"stream: arrays must be NDArrays or NumPy arrays, got {type(a).__name__}"
            )
    lengths = {a.shape[0] for a in arrays if a.ndim}
    if len(lengths) != 1 or not all(a.ndim for a in arrays):
        raise ShapeError(
            "stream",
            f"arrays must be equally long, got shapes {', '.join(str(a.shape) for a in arrays)}",
        )
    return lengths.pop()


def _rows(arrays, n: int) -> int:
    row_bytes = sum(int(np.prod(a.shape[1:])) * np.dtype(a.dtype).itemsize for a in arrays)
    return max(1, min(n, CHUNK_BYTES // max(1, row_bytes)))


def _part(a, start: int, end: int, host: Context) -> NDArray:
    part = a[start:end]
    return part if isinstance(part, NDArray) else array(part, host, part.dtype)


def _check(results, n_rows: int) -> None:
    for r in results:
        if not isinstance(r, NDArray):
            raise InvalidType(f"stream: function must return NDArrays, got {type(r).__name__}")
        if r.ndim == 0 or r.shape[0] != n_rows:
            raise ShapeError(
                "stream",
                f"function must return a row for each of the chunk's {n_rows}, got shape {r.shape}",
            )


def _whole(whole, result: NDArray, n: int) -> NDArray:
    shape = (n, *result.shape[1:])
    if not isinstance(whole, NDArray) or whole.shape != shape or whole.dtype != result.dtype:
        raise ShapeError("stream", f"out must have shape {shape} and dtype {result._spec.dtype}")
    return whole
