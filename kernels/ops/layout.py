"""The operators that change an array's memory layout, or look past it, inside a Program."""

from __future__ import annotations

from ..layouts import physical_shape, to_physical, to_plain
from ..record import Param, Type, operator, sample
from ..traits import SameMemory

operator(
    "_reorder",
    infer=lambda ins, layout: [Type(ins[0].shape, ins[0].dtype, layout)],
    ref=lambda xp, x, layout: x,
    grad=lambda F, dys, xs, ys, layout: [dys[0]],
    params=(Param("layout", "str", ""),),
    samples=(sample((2, 3), layout=""),),
    doc="data in another memory layout (a tag of layouts.py); only the layout pass makes it.",
)

operator(
    "_memory",
    infer=lambda ins, layout: [Type(physical_shape(ins[0].shape, layout), ins[0].dtype)],
    ref=lambda xp, x, layout: to_physical(x, layout),
    params=(Param("layout", "str"),),
    traits=(SameMemory(),),
    samples=(sample((2, 3), layout=""),),
    doc="What lies in the memory of data, which is stored in this layout, as a row-major array.",
)
operator(
    "_from_memory",
    infer=lambda ins, shape, layout: [Type(shape, ins[0].dtype, layout)],
    ref=lambda xp, x, shape, layout: to_plain(x, shape, layout).reshape(shape),
    params=(Param("shape", "shape"), Param("layout", "str")),
    traits=(SameMemory(),),
    samples=(sample((2, 3), shape=(2, 3), layout=""),),
    doc="The array of this shape and layout whose memory holds data.",
)
