"""Entries of the softmax family."""

from __future__ import annotations

from math import prod

from ..record import FLOATS, NATIVE, Type
from ..shapes import lines, one_axis
from .launch import Argument, Buffer, Float64, Int32, Int64, Launch, Scratch, launches
from .layout import THREADS, TYPES, blocks_for, ceil_div, divisor, index, index_of, vector_of
from .row_shape import row_launch, row_shape
from .table import native

COLUMNS, COLUMN_ROWS = 32, 8
INDICES = NATIVE


def bool_of(value) -> str:
    return "true" if value else "false"


def _forward(x: Type, y: Type, axis: int, log: bool, scale=1.0, lengths: str | None = None, to=1):
    """softmax of input 0 into buffer `to`; lengths: dtype of input 1."""
    shape = x.shape
    if x.dtype not in FLOATS or y.dtype not in FLOATS or 0 in shape:
        return None
    outer, n, inner = lines("softmax", shape, axis)
    types = f"{TYPES[x.dtype]}, {TYPES[y.dtype]}, {TYPES[lengths or 'int32']}, {bool_of(log)}"
    arrays: list[Argument] = [
        Buffer(0),
        Buffer(1),
        Buffer(to),
        Float64(scale),
        Int32(bool(lengths)),
    ]
    if inner == 1:
        threads, items, vector = row_shape(n, vector_of(x.dtype, y.dtype))
        grid, block = row_launch(outer, threads)
        name = f"softmax_rows<{types}, {threads}, {items}, {vector}>"
        return launches(Launch("softmax.cu", name, grid, block, [Int64(outer), Int32(n), *arrays]))
    grid = (outer * ceil_div(inner, COLUMNS),)
    arguments: list[Argument] = [Int64(n), Int64(inner), *arrays]
    return launches(
        Launch("softmax.cu", f"softmax_columns<{types}>", grid, (COLUMNS, COLUMN_ROWS), arguments)
    )


@native("softmax", "softmin", "log_softmax")
def softmax_entry(op, ins, outs, attrs):
    x, t = ins[0], attrs["temperature"]
    limited = bool(attrs["use_length"]) and len(ins) > 1
    if t == 0 or not x.shape or limited and ins[1].dtype not in ("int32", "int64"):
        return None
    scale = (1.0 if t is None else 1.0 / t) * (-1 if op.name == "softmin" else 1)
    axis = one_axis(op.name, attrs["axis"], len(x.shape))
    lengths = ins[1].dtype if limited else None
    log = op.name == "log_softmax"
    return _forward(x, outs[0], axis, log, scale, lengths, 2 if limited else 1)


@native("SoftmaxActivation")
def softmax_activation_entry(op, ins, outs, attrs):
    axis = 1 if attrs["mode"] == "channel" else len(ins[0].shape) - 1
    return _forward(ins[0], outs[0], axis, False)


@native("SoftmaxOutput")
def softmax_output_entry(op, ins, outs, attrs):
    x = ins[0]
    if not (attrs["multi_output"] or attrs["preserve_shape"]):
        x = x._replace(shape=(x.shape[0], prod(x.shape[1:])))
    axis = 1 if attrs["multi_output"] else len(x.shape) - 1
    return _forward(x, outs[0], axis, False, to=2)


@native("_softmax_grad", "_log_softmax_grad")
def softmax_grad_entry(op, ins, outs, attrs):
    dy, dx = ins[0], outs[0]
    shape = dy.shape
    if dy.dtype not in FLOATS or ins[1] != dy or dx.dtype not in FLOATS or not shape or 0 in shape:
        return None
    outer, n, inner = lines(op.name, shape, attrs["axis"])
    log = bool_of(op.name == "_log_softmax_grad")
    types, arrays = f"{TYPES[dy.dtype]}, {TYPES[dx.dtype]}, {log}", [*map(Buffer, range(3))]
    if inner == 1:
        threads, items, vector = row_shape(n, vector_of(dy.dtype, dx.dtype), 2)
        grid, block = row_launch(outer, threads)
        name = f"softmax_rows_backward<{types}, {threads}, {items}, {vector}>"
        return launches(Launch("softmax.cu", name, grid, block, [Int64(outer), Int32(n), *arrays]))
    name, grid = f"softmax_columns_backward<{types}>", (outer * ceil_div(inner, COLUMNS),)
    arguments: list[Argument] = [Int64(n), Int64(inner), *arrays]
    return launches(Launch("softmax.cu", name, grid, (COLUMNS, COLUMN_ROWS), arguments))


@native("_pick_log_softmax_grad")
def pick_log_softmax_grad_entry(op, ins, outs, attrs):
    dy, places, y = ins
    shape, t = outs[0].shape, outs[0].dtype
    last = one_axis(op.name, attrs["axis"], len(shape)) == len(shape) - 1
    same = dy.dtype == y.dtype == t and t in FLOATS
    if not last or not same or places.dtype not in INDICES or attrs["mode"] == "raise":
        return None
    if shape[-1] == 0:
        return None
    size, kind = prod(shape), index_of(prod(shape))
    name = f"pick_log_softmax_backward<{TYPES[t]}, {TYPES[places.dtype]}, {kind}>"
    arguments: list[Argument] = [
        index(size, kind),
        divisor(shape[-1], kind),
        *map(Buffer, range(4)),
        Int32(attrs["mode"] == "wrap"),
    ]
    return launches(Launch("softmax.cu", name, blocks_for(size, THREADS), (THREADS,), arguments))


@native("_softmax_output_grad")
def softmax_output_grad_entry(op, ins, outs, attrs):
    y, label = ins
    shape, multi = y.shape, attrs["multi_output"]
    if y.dtype not in FLOATS or label.dtype not in INDICES or label.shape == shape or 0 in shape:
        return None
    if multi:
        n, classes, positions = shape[0], shape[1], prod(shape[2:])
    elif attrs["preserve_shape"]:
        n, classes, positions = prod(shape[:-1]), shape[-1], 1
    else:
        n, classes, positions = shape[0], prod(shape[1:]), 1
    smooth = 0.0 if multi else attrs["smooth_alpha"]
    counted, scale = attrs["normalization"] == "valid", attrs["grad_scale"]
    if not counted:
        scale /= (positions if multi else 1) * (n if attrs["normalization"] == "batch" else 1)
    size, kind, ignored = prod(shape), index_of(prod(shape)), Int64(int(attrs["ignore_label"]))
    steps = []
    if counted:
        arguments: list[Argument] = [Int64(n * positions), Buffer(1), ignored, Scratch(0)]
        name = f"count_valid<{TYPES[label.dtype]}>"
        steps.append(Launch("softmax.cu", name, (1,), (1024,), arguments))
    arguments = [
        index(size, kind),
        divisor(positions, kind),
        divisor(classes, kind),
        *map(Buffer, range(3)),
        Float64(1 - smooth),
        Float64(smooth / max(classes - 1, 1)),
        Float64(scale),
        Int32(attrs["use_ignore"]),
        ignored,
        Scratch(0),
        Int32(counted),
    ]
    name = f"softmax_output_backward<{TYPES[y.dtype]}, {TYPES[label.dtype]}, {kind}>"
    steps.append(Launch("softmax.cu", name, blocks_for(size, THREADS), (THREADS,), arguments))
    return launches(*steps, scratch_bytes=256 if counted else 0)
