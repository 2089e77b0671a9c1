"""The entry of non-maximum suppression."""

from __future__ import annotations

from math import prod

from ..record import FLOATS
from .compile import GENERATED, OPTIONS
from .launch import Buffer, Float64, Int32, Launch, Struct, launches
from .layout import TYPES
from .matmul_plan import ScratchSpace
from .table import native

BLOCK = 1024  # nms.cu


@native("_contrib_box_nms")
def nms_entry(op, ins, outs, attrs):
    x = ins[0]
    *batch, n, width = x.shape
    if x.dtype not in FLOATS or attrs["topk"] == 0 or prod(x.shape) >= 1 << 31:
        return None
    places = [attrs["coord_start"], attrs["score_index"], attrs["id_index"]]
    if not (0 <= places[0] <= width - 4 and 0 <= places[1] < width and places[2] < width):
        return None
    scratch = ScratchSpace()
    order, keep = (scratch.take_array("int32", *batch, n) for _ in range(2))
    flags = (attrs["in_format"] == "center", attrs["out_format"] == "center")
    numbers = (n, width, *places, attrs["topk"], *flags, attrs["force_suppress"])
    limits = (attrs["overlap_thresh"], attrs["valid_thresh"], attrs["background_id"])
    given = Struct(*map(Int32, numbers), *map(Float64, limits))
    grid = (prod(batch) if n else 0,)
    arguments = [given, Buffer(0), order, keep, Buffer(1), Buffer(2)]
    options = (*OPTIONS, *GENERATED)
    step = Launch(
        "nms.cu", f"suppress<{TYPES[x.dtype]}>", grid, (BLOCK,), arguments, options=options
    )
    return launches(step, scratch_bytes=scratch.nbytes)
