"""Launches of generated kernels: a loop over elements and how its inputs broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..cpu.layout import broadcast_strides, collapse
from ..fused import COMPUTED_IN, converted
from ..loops import Form
from ..record import Type
from ..statements import Loop, Name, statement
from .launch import Argument, Buffer, Float32, Float64, Launch, Scalar
from .layout import (
    THREADS,
    blocks_for,
    index,
    index_of,
    places,
    vector_of,
)
from .pointwise_source import FULL, FUNCTION, INNER, ONE, OUTER, Pattern, elementwise

SMALL = 1 << 16  # elements; below it more threads count for more than bytes per thread
MANY_ARRAYS = 6  # from so many on one vector of each fills a thread's registers


def kinds_of(
    in_shapes: Sequence[Sequence[int]], shape: Sequence[int]
) -> tuple[list[str], list[int], list[list[int]]]:
    """(how inputs broadcast to `shape`, the collapsed shape, strides of those that have any)."""
    dims, strides = collapse(shape, *(broadcast_strides(s, shape) for s in in_shapes))
    full = [1] * len(dims)
    for d in range(len(dims) - 1, 0, -1):
        full[d - 1] = full[d] * dims[d]
    kinds = [
        ONE if not any(s) else FULL if s == full else OUTER if s[-1] else INNER for s in strides
    ]
    return kinds, dims, [s for s, k in zip(strides, kinds) if k in (OUTER, INNER)]


def pattern_of(
    ins: Sequence[Type],
    out_dtypes: Sequence[str],
    in_shapes: Sequence[Sequence[int]],
    shape: Sequence[int],
) -> tuple[Pattern, list]:
    """The pattern of a loop over `shape`, and what finds its strided inputs: [] or [a Struct]."""
    kinds, dims, strides = kinds_of(in_shapes, shape)
    kind = index_of(prod(shape), *(prod(s) for s in in_shapes))
    vector = vector_of(*(t.dtype for t in ins), *out_dtypes)
    if strides and dims[-1] % vector:
        vector = 1
    unroll = 1 if len(ins) + len(out_dtypes) >= MANY_ARRAYS else 2
    pattern = Pattern(
        tuple(t.dtype for t in ins),
        tuple(out_dtypes),
        tuple(kinds),
        len(dims) if strides else 0,
        kind,
        vector,
        unroll,
    )
    return pattern, [places(dims, strides, kind)] if strides else []


def scalar_arguments(scalars: Sequence[Name], constants: Sequence[float] | None) -> list:
    """The scalars of a loop as arguments: constants, or the call's dynamic parameters."""
    wide = ["float32" if s.dtype == "float32" else "float64" for s in scalars]
    if constants is None:
        return [Scalar(i, d) for i, d in enumerate(wide)]
    return [Float32(v) if d == "float32" else Float64(v) for v, d in zip(constants, wide)]


def elementwise_launch(
    loop: Loop, pattern: Pattern, n: int, scalars: Sequence, at: Sequence
) -> Launch:
    """The launch of a loop over n elements."""
    size = THREADS * (1 if n < SMALL else pattern.vector * pattern.unroll)
    arrays = map(Buffer, range(len(loop.inputs) + len(loop.results)))
    sizes = (index(n, pattern.index_type), index(size, pattern.index_type))
    arguments: list[Argument] = [*sizes, *arrays, *scalars, *at]
    return Launch(elementwise(loop, pattern), FUNCTION, blocks_for(n, size), (THREADS,), arguments)


def pointwise_launch(found: Form, ins: Sequence[Type], y: Type) -> Launch:
    """The generated kernel of a call that is an expression."""
    e = found.expression
    computed = COMPUTED_IN.get(y.dtype, y.dtype)
    inputs = [Name(f"v_{v}", COMPUTED_IN.get(t.dtype, t.dtype)) for v, t in zip(e.variables, ins)]
    scalars = [Name(f"s_{s}", computed) for s in e.scalars]
    made = statement("y", e, computed, [v.name for v in inputs], [s.name for s in scalars])
    made = made._replace(text=converted(made.text, {t.dtype for t in ins}, y.dtype))
    loop = Loop("", inputs, scalars, [made], ["y"])
    pattern, at = pattern_of(ins, [y.dtype], found.shapes or [t.shape for t in ins], y.shape)
    given = scalar_arguments(scalars, found.constants)
    return elementwise_launch(loop, pattern, prod(y.shape), given, at)
