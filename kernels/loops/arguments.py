"""What a kernel is called with: places in memory and numbers."""

from __future__ import annotations

from typing import NamedTuple


class Buffer(NamedTuple):
    """The address of an array of the call: inputs, then outputs."""

    index: int  # type: ignore[assignment]  # tuples have a method of that name
    offset_bytes: int = 0


class Scratch(NamedTuple):
    """An address in the stream's workspace, of which the launches ask `scratch_bytes`. Its contents
    hold from one launch of the call to the next, no longer."""

    offset_bytes: int = 0


class Scalar(NamedTuple):
    """Dynamic parameter number `index`, in the order of plan.scalars_of; in plans of operators that
    draw random numbers the seed and the call counter follow, as uint64."""

    index: int  # type: ignore[assignment]
    dtype: str = "float32"


class Int32(NamedTuple):
    value: int


class Int64(NamedTuple):
    value: int


class Float32(NamedTuple):
    value: float


class Float64(NamedTuple):
    value: float


class Copy(NamedTuple):
    """Copies `nbytes` bytes within the device."""

    to: Buffer | Scratch
    source: Buffer | Scratch
    nbytes: int
