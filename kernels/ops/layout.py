"""The operator that changes an array's memory layout inside a Program."""

from __future__ import annotations

from ..record import Param, Type, operator, sample

operator(
    "_reorder",
    infer=lambda ins, layout: [Type(ins[0].shape, ins[0].dtype, layout)],
    ref=lambda xp, x, layout: x,
    grad=lambda F, dys, xs, ys, layout: [dys[0]],
    params=(Param("layout", "str", ""),),
    samples=(sample((2, 3), layout=""),),
    doc="data in another memory layout (a tag of layouts.py); only the layout pass makes it.",
)
