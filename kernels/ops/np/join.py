"""Joining and splitting as NumPy has them: of mixed dtypes, of numbers too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ....engine.error import ShapeError
from ...front import alike, front, reshaped
from ...record import COUNT, Array, Param, Sample, sample
from ...shapes import one_axis

COUNTED = Param("num_args", "int")


def _joiner(
    name: str,
    rule: Callable[..., Array],
    ref: Callable[..., Any],
    params: Sequence[Param],
    samples: Sequence[Sample],
    doc: str,
) -> None:
    """Registers a front that joins any number of arrays, in their common dtype."""

    def join(F: Any, *data: Array, num_args: int, **attrs: Any) -> Array:
        if not data:
            raise ShapeError(name, "needs at least one array")
        return rule(F, alike(F, *data), **attrs)

    front(
        name,
        join,
        ref=lambda xp, *data, num_args, **attrs: ref(data, **attrs),
        inputs=("*data",),
        variadic_key="num_args",
        params=(COUNTED, *params),
        samples=tuple(samples),
        doc=doc,
    )


def joined(F: Any, data: Sequence[Array], axis: int | None) -> Array:
    """np.concatenate of arrays of one dtype."""
    if axis is None:
        data, axis = [reshaped(F, x, (prod(x.shape),)) for x in data], 0
    if any(not x.shape for x in data):
        shapes = ", ".join(str(tuple(x.shape)) for x in data)
        raise ShapeError(
            "np.concatenate", f"0-d arrays cannot be joined, got {shapes}\n  fix: np.stack"
        )
    one_axis("np.concatenate", axis, len(data[0].shape))
    return F.Concat(*data, dim=axis) if len(data) > 1 else F._copy(data[0])


def at_least_1d(F: Any, x: Array) -> Array:
    return x if x.shape else F.reshape_to(x, shape=(1,))


def _hstack(F: Any, data: Sequence[Array], dim: int = 1) -> Array:
    data = [at_least_1d(F, x) for x in data]
    return joined(F, data, 0 if len(data[0].shape) == 1 else 1)


def _vstack(F: Any, data: Sequence[Array]) -> Array:
    return joined(
        F, [x if len(x.shape) > 1 else reshaped(F, x, (1, prod(x.shape))) for x in data], 0
    )


def _dstack(F: Any, data: Sequence[Array], dim: int = 1) -> Array:
    def deep(x: Array) -> Array:
        shape = tuple(x.shape)
        return (
            x
            if len(shape) > 2
            else reshaped(F, x, ((1, *shape) if len(shape) == 1 else shape or (1, 1)) + (1,))
        )

    return joined(F, [deep(x) for x in data], 2)


def _column_stack(F: Any, data: Sequence[Array]) -> Array:
    columns = [x if len(x.shape) > 1 else reshaped(F, x, (prod(x.shape), 1)) for x in data]
    return joined(F, columns, 1)


def _stack(F: Any, data: Sequence[Array], axis: int) -> Array:
    one_axis("np.stack", axis, len(data[0].shape) + 1)
    return F.stack(*data, axis=axis)


DIM = Param("dim", "int", 1)  # of files; the function decides by itself
_joiner(
    "_npi_concatenate",
    joined,
    lambda data, axis: np.concatenate(data, axis=axis),
    (Param("axis", "int?", 0),),
    (
        sample((2, 3), (1, 3), num_args=2),
        sample((2, 3), (2, 1), num_args=2, axis=-1),
        sample((2, 3), (2,), num_args=2, axis=None),
    ),
    "Arrays joined along an axis; None: flat.",
)
_joiner(
    "_npi_stack",
    _stack,
    lambda data, axis: np.stack(data, axis=axis),
    (Param("axis", "int", 0),),
    (
        sample((2, 3), (2, 3), num_args=2),
        sample((2, 3), (2, 3), (2, 3), num_args=3, axis=-1),
        sample((), (), num_args=2),
    ),
    "Arrays of one shape joined along a new axis.",
)
_joiner(
    "_npi_vstack",
    _vstack,
    lambda data: np.vstack(data),
    (),
    (sample((3,), (2, 3), num_args=2), sample((), (), num_args=2)),
    "Arrays joined along axis 0; of vectors the rows.",
)
_joiner(
    "_npi_hstack",
    _hstack,
    lambda data, dim: np.hstack(data),
    (DIM,),
    (sample((3,), (2,), num_args=2), sample((2, 1), (2, 2), num_args=2)),
    "Arrays joined along axis 1; vectors along their only one.",
)
_joiner(
    "_npi_dstack",
    _dstack,
    lambda data, dim: np.dstack(data),
    (DIM,),
    (
        sample((3,), (3,), num_args=2),
        sample((2, 3), (2, 3), num_args=2),
        sample((2, 1, 1), (2, 1, 2), num_args=2),
    ),
    "Arrays joined along axis 2.",
)
_joiner(
    "_npi_column_stack",
    _column_stack,
    lambda data: np.column_stack(data),
    (),
    (sample((3,), (3, 2), num_args=2),),
    "Arrays joined along axis 1; vectors are columns.",
)


# ---- splits --------------------------------------------------------------------------------------


def _split(
    name: str, axis_of: Callable[[Sequence[int]], int], ref: Callable, inner: Sample
) -> None:
    """The fronts of files for hsplit and dsplit: they hold `axis`, which the array decides."""

    def rule(F: Any, data: Array, axis: int, sections: int, **attrs: Any) -> Any:
        axis = one_axis(name, axis_of(data.shape), len(data.shape))
        if sections > 0 and data.shape[axis] % sections:
            rule = f"axis {axis} must be divisible into {sections} equal parts"
            raise ShapeError(name, f"{rule}, got data {tuple(data.shape)}")
        return F._split_v2(data, axis=axis, sections=sections, **attrs)

    def numpy(xp: Any, data: Any, indices: Any, sections: int, **attrs: Any) -> Any:
        return tuple(ref(data, sections if sections > 0 else indices[1:]))

    front(
        name,
        rule,
        ref=numpy,
        n_outputs=lambda indices, sections, **_: sections if sections > 0 else len(indices),
        params=(
            Param("indices", "shape", ()),
            Param("axis", "int", 1),
            Param("squeeze_axis", "bool", False),
            Param("sections", "int", 0, limits=COUNT),
        ),
        samples=(inner,),
        doc=f"The parts of np.{name.removeprefix('_npi_')}.",
    )


_split(
    "_npi_hsplit", lambda shape: 1 if len(shape) > 1 else 0, np.hsplit, sample((2, 4), sections=2)
)
_split("_npi_dsplit", lambda shape: 2, np.dsplit, sample((2, 1, 4), indices=(0, 1)))
