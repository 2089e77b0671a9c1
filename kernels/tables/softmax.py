"""The softmax family."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from .. import cuda
from ..cpu.layout import code, cost
from ..native import Native
from ..record import FLOATS, HALVES, NATIVE, Attrs, Operator, Type, Types
from ..shapes import Lines, lines
from . import on_cpu, on_cuda

LENGTH_BYTES = {"int32": 4, "int64": 8}
STEPS = 1.5  # time per element: an exponential and three passes
COLUMNS, COLUMN_ROWS = 32, 8  # of softmax.cu: threads of a block that computes columns


class Call(NamedTuple):
    """One softmax. lengths: the dtype of input 1 if it holds the lengths of lines."""

    along: Lines
    log: bool = False
    scale: float = 1.0
    lengths: str | None = None


def _call(op, ins, attrs) -> Call | None:
    x, t = ins[0], attrs["temperature"]
    lengths = ins[1].dtype if attrs["use_length"] and len(ins) > 1 else None
    if t == 0 or not x.shape or lengths not in (None, *LENGTH_BYTES):
        return None
    scale = (1.0 if t is None else 1.0 / t) * (-1 if op.name == "softmin" else 1)
    return Call(lines(op.name, x.shape, attrs["axis"]), op.name == "log_softmax", scale, lengths)


def _activation_call(op, x, attrs) -> Call:
    return Call(lines(op.name, x.shape, 1 if attrs["mode"] == "channel" else -1))


def _classes(op, shape, attrs) -> Lines:
    """The axes of one softmax in SoftmaxOutput: axis 1, the last one, or all but the first."""
    if attrs["multi_output"]:
        return lines(op.name, shape, 1)
    return lines(op.name, shape, -1) if attrs["preserve_shape"] else _rows(shape)


def _rows(shape) -> Lines:
    return Lines(shape[0], prod(shape[1:]), 1)


# ---- CPU: float32 --------------------------------------------------------------------------------


def _on_cpu(function: str, call: Call | None, ins, outs) -> Native | None:
    x = ins[0]
    if call is None or any(t.dtype != x.dtype for t in (*ins[: 1 if call.lengths else 2], *outs)):
        return None
    if x.dtype != "float32" and (x.dtype not in HALVES or call.along.inner != 1):
        return None
    length_bytes = LENGTH_BYTES[call.lengths] if call.lengths else 0
    fields = {**call.along._asdict(), "log": call.log, "scale": call.scale}
    fields |= {"length_bytes": length_bytes, "dtype": code(x.dtype)}
    us = cost(*ins, *outs, steps=STEPS * prod(x.shape))
    return Native(function, ("plk_softmax", fields), us)


@on_cpu("softmax", "softmin", "log_softmax")
def softmax_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _on_cpu("plk_softmax_run", _call(op, ins, attrs), ins, outs)


@on_cpu("SoftmaxActivation")
def softmax_activation_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _on_cpu("plk_softmax_run", _activation_call(op, ins[0], attrs), ins, outs)


@on_cpu("SoftmaxOutput")
def softmax_output_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call = Call(_classes(op, ins[0].shape, attrs))
    whole = attrs["multi_output"] or attrs["preserve_shape"]
    return _on_cpu("plk_softmax_output", call, ins if whole else ins[:1], outs)


@on_cpu("_softmax_grad", "_log_softmax_grad")
def softmax_grad_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if not ins[0].shape:
        return None
    call = Call(lines(op.name, ins[0].shape, attrs["axis"]), op.name == "_log_softmax_grad")
    return _on_cpu("plk_softmax_backward", call, ins, outs)


# ---- CUDA ----------------------------------------------------------------------------------------


def _launch_lines(function: str, types: str, along: Lines, held: tuple, arrays, n_arrays=1):
    """Launches a function's `_rows` or `_columns`. held: dtypes of the values in registers."""
    outer, n, inner = along
    if inner == 1:
        threads, items, vector = cuda.row_shape(n, cuda.vector_of(*held), n_arrays)
        name = f"{function.format('rows')}<{types}, {threads}, {items}, {vector}>"
        arguments = [cuda.Int64(outer), cuda.Int32(n), *arrays]
        launch = cuda.Launch("softmax.cu", name, *cuda.row_launch(outer, threads), arguments)
    else:
        name, grid = f"{function.format('columns')}<{types}>", outer * cuda.ceil_div(inner, COLUMNS)
        arguments = [cuda.Int64(n), cuda.Int64(inner), *arrays]
        launch = cuda.Launch("softmax.cu", name, (grid,), (COLUMNS, COLUMN_ROWS), arguments)
    return cuda.launches(launch)


def _on_cuda(call: Call | None, x: Type, y: Type, to: int = 1) -> Native | None:
    """The softmax of input 0, written to buffer `to`."""
    if call is None or x.dtype not in FLOATS or y.dtype not in FLOATS or 0 in x.shape:
        return None
    dtypes = (x.dtype, y.dtype, call.lengths or "int32")
    types = ", ".join([*(cuda.TYPES[d] for d in dtypes), cuda.bool_of(call.log)])
    arrays = [*map(cuda.Buffer, (0, 1, to)), cuda.Float64(call.scale)]
    arrays.append(cuda.Int32(bool(call.lengths)))
    return _launch_lines("softmax_{}", types, call.along, (x.dtype, y.dtype), arrays)


@on_cuda("softmax", "softmin", "log_softmax")
def softmax_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call = _call(op, ins, attrs)
    return _on_cuda(call, ins[0], outs[0], 2 if call and call.lengths else 1)


@on_cuda("SoftmaxActivation")
def softmax_activation_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _on_cuda(_activation_call(op, ins[0], attrs), ins[0], outs[0])


@on_cuda("SoftmaxOutput")
def softmax_output_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _on_cuda(Call(_classes(op, ins[0].shape, attrs)), ins[0], outs[0], 2)


@on_cuda("_softmax_grad", "_log_softmax_grad")
def softmax_grad_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    dy, dx = ins[0], outs[0]
    shape = dy.shape
    if dy.dtype not in FLOATS or ins[1] != dy or dx.dtype not in FLOATS or not shape or 0 in shape:
        return None
    log, dtypes = cuda.bool_of(op.name == "_log_softmax_grad"), (dy.dtype, dx.dtype)
    types = f"{cuda.TYPES[dy.dtype]}, {cuda.TYPES[dx.dtype]}, {log}"
    along, arrays = lines(op.name, shape, attrs["axis"]), map(cuda.Buffer, range(3))
    return _launch_lines("softmax_{}_backward", types, along, dtypes, arrays, 2)


@on_cuda("_softmax_output_grad")
def softmax_output_grad_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    y, label = ins
    if y.dtype not in FLOATS or label.dtype not in NATIVE or label.shape == y.shape or 0 in y.shape:
        return None
    multi, (n, classes, positions) = attrs["multi_output"], _classes(op, y.shape, attrs)
    smooth = 0.0 if multi else attrs["smooth_alpha"]
    counted, scale = attrs["normalization"] == "valid", attrs["grad_scale"]
    if not counted:
        scale /= (positions if multi else 1) * (n if attrs["normalization"] == "batch" else 1)
    size, ignored = prod(y.shape), cuda.Int64(int(attrs["ignore_label"]))
    kind, steps = cuda.index_of(size), []
    if counted:
        given = [cuda.Int64(n * positions), cuda.Buffer(1), ignored, cuda.Scratch(0)]
        name = f"count_valid<{cuda.TYPES[label.dtype]}>"
        steps.append(cuda.Launch("softmax.cu", name, (1,), (1024,), given))
    arguments: list[cuda.Argument] = [
        cuda.index(size, kind),
        cuda.divisor(positions, kind),
        cuda.divisor(classes, kind),
        *map(cuda.Buffer, range(3)),
        *map(cuda.Float64, (1 - smooth, smooth / max(classes - 1, 1), scale)),
        cuda.Int32(attrs["use_ignore"]),
        ignored,
        cuda.Scratch(0),
        cuda.Int32(counted),
    ]
    name = f"softmax_output_backward<{cuda.TYPES[y.dtype]}, {cuda.TYPES[label.dtype]}, {kind}>"
    steps.append(cuda.spread("softmax.cu", name, size, arguments))
    return cuda.launches(*steps, scratch_bytes=256 if counted else 0)
