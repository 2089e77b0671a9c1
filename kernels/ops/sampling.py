"""Bilinear sampling at given places, which spatial, ROI and deformable operators share; and the
derivative of second order that they do not have.

A sampler reads P places of planes (B, C, H, W): place p lies in planes[batch[p]] at (y[p], x[p]),
in pixels. What it gives is linear in the planes; `Corners` holds its weights and their derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...engine.error import OperatorError
from ..record import Array, Grad, Param, Shape, operator, same_type, sample


class Corners(NamedTuple):
    """The four pixels around each place: four arrays (P,) in each field. Weights are 0 where a
    pixel does not count."""

    at: list  # pixel y * W + x
    weight: list
    along_y: list  # derivative of the weight
    along_x: list


def corners(
    xp: Any,
    y: Array,
    x: Array,
    height: int,
    width: int,
    inside: Array | None = None,
    clamp: bool = False,
) -> Corners:
    """inside: places that count, (P,) bool; others are 0. clamp: places beyond a border are moved
    to it; otherwise pixels outside are 0."""
    inside = xp.isfinite(y) & xp.isfinite(x) if inside is None else inside
    y, x = xp.where(inside, y, 0), xp.where(inside, x, 0)
    if clamp:
        free_y, free_x = (y >= 0) & (y < height - 1), (x >= 0) & (x < width - 1)
        y, x = xp.clip(y, 0, max(height - 1, 0)), xp.clip(x, 0, max(width - 1, 0))
    else:
        free_y = free_x = xp.ones(y.shape, bool)
        y, x = xp.clip(y, -2, height + 1), xp.clip(x, -2, width + 1)
    top, left = xp.floor(y).astype("int64"), xp.floor(x).astype("int64")
    fy, fx = y - top, x - left
    fields: tuple[list, list, list, list] = ([], [], [], [])
    for down in (0, 1):
        for right in (0, 1):
            row, column = top + down, left + right
            here = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)
            wy, wx = (fy if down else 1 - fy), (fx if right else 1 - fx)
            at = xp.clip(row, 0, max(height - 1, 0)) * width + xp.clip(column, 0, max(width - 1, 0))
            fields[0].append(at)
            fields[1].append(xp.where(here, wy * wx, 0))
            fields[2].append(xp.where(here & free_y, wx if down else -wx, 0))
            fields[3].append(xp.where(here & free_x, wy if right else -wy, 0))
    return Corners(*fields)


def _rows(xp, planes):
    """(B, C, H, W) as one row of channels for each pixel: (B H W, C)."""
    return xp.moveaxis(planes, 1, -1).reshape(-1, planes.shape[1])


def gather(
    xp: Any, planes: Array, batch: Array, c: Corners, weights: Sequence[Array] | None = None
) -> Array:
    """(P, C): the planes at the places, with the weights of `c` or others."""
    rows, area = _rows(xp, planes), planes.shape[2] * planes.shape[3]
    out = xp.zeros((batch.size, planes.shape[1]), planes.dtype)
    for at, weight in zip(c.at, c.weight if weights is None else weights):
        out += rows[batch * area + at] * weight[:, None].astype(planes.dtype)
    return out


def scatter(xp: Any, dy: Array, shape: Shape, batch: Array, c: Corners) -> Array:
    """The transpose of gather: dy (P, C) back on planes of this shape."""
    n, channels, height, width = shape
    rows = xp.zeros((n * height * width, channels), dy.dtype)
    for at, weight in zip(c.at, c.weight):
        xp.add.at(rows, batch * (height * width) + at, dy * weight[:, None].astype(dy.dtype))
    return xp.moveaxis(rows.reshape(n, height, width, channels), -1, 1)


def slopes(xp: Any, dy: Array, planes: Array, batch: Array, c: Corners) -> tuple[Array, ...]:
    """(dy/dy, dy/dx), both (P,): derivatives of sum(dy * gather) by the places."""
    return tuple((dy * gather(xp, planes, batch, c, w)).sum(axis=1) for w in (c.along_y, c.along_x))


def first_order(name: str) -> Grad:
    """The gradient of a backward operator that has none: computing it raises OperatorError, writing
    it down does not, so that gradients with create_graph work unless one takes their
    derivative."""

    def grad(F, dys, xs, ys, **attrs):
        return [F._no_second_order(x, operator=name) if "float" in x.dtype else None for x in xs]

    return grad


def _refuse(xp, x, operator):
    if x.size:
        raise OperatorError(operator, "no derivative of second order is defined here, as in MXNet")
    return x


operator(
    "_no_second_order",
    params=(Param("operator", "str"),),
    infer=same_type,
    ref=_refuse,
    samples=(sample((0,), operator="Correlation"),),
    doc="Stands for a derivative that does not exist; computing it is an error.",
)
