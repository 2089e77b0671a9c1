"""Weights of a 3 x 3 convolution as Winograd's minimal filtering wants them.

Lavin and Gray 2015, arXiv:1509.09308: y = A^T [(G w G^T) * (B^T x B)] A on tiles of tile x tile
outputs. G has full rank, so that the weights follow from the transformed ones again.
"""

from __future__ import annotations

from ...engine.error import ShapeError
from ..record import Param, Type, operator, sample

FILTERS = {2: ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))}  # G of each tile


def _panels(n_filters, panel):
    return -(-n_filters // panel)


def _infer(ins, tile, panel):
    shape = ins[0].shape
    if len(shape) != 4 or shape[2:] != (3, 3) or tile not in FILTERS or panel < 1:
        raise ShapeError(
            "_winograd_weights",
            "weight must be (filters, channels, 3, 3), tile one of "
            f"{list(FILTERS)} and panel positive, got {shape}, tile {tile}, panel {panel}",
        )
    filters, channels = shape[:2]
    points = (tile + 2) ** 2
    return [Type((points, _panels(filters, panel), channels, panel), ins[0].dtype)]


def _ref(xp, w, *, tile, panel):
    g = xp.asarray(FILTERS[tile], w.dtype)
    filters, channels = w.shape[:2]
    u = xp.einsum("ia,fcab,jb->ijcf", g, w, g)
    u = xp.pad(u, ((0, 0), (0, 0), (0, 0), (0, -filters % panel)))
    u = u.reshape((tile + 2) ** 2, channels, _panels(filters, panel), panel)
    return xp.swapaxes(u, 1, 2)


def untransformed(xp, u, tile, filters):
    """The weights (filters, channels, 3, 3) of transformed ones."""
    back = xp.linalg.pinv(xp.asarray(FILTERS[tile], xp.float64))
    points, panels, channels, panel = u.shape
    u = xp.swapaxes(u, 1, 2).reshape(tile + 2, tile + 2, channels, panels * panel)
    return xp.einsum("ai,ijcf,bj->fcab", back, u, back)[:filters].astype(u.dtype)


operator(
    "_winograd_weights",
    inputs=("weight",),
    params=(Param("tile", "int", 2), Param("panel", "int", 16)),
    infer=_infer,
    ref=_ref,
    samples=(sample((20, 3, 3, 3)), sample((16, 8, 3, 3), panel=32)),
    doc=(
        "weight (filters, channels, 3, 3) -> G w G^T, ((tile + 2)^2, ceil(filters / panel),"
        " channels, panel). Source: Lavin and Gray 2015, arXiv:1509.09308."
    ),
)
