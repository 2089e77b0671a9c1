"""Operators that only move elements, join or split arrays, convert, or write numbers."""

from __future__ import annotations

from math import prod

from ...engine import lib
from .. import cuda
from ..cpu.layout import MAX_DIMS, code, collapse, cost, nbytes
from ..loops import form
from ..native import Native
from ..record import Attrs, Operator, Type, Types
from ..shapes import lines, one_axis
from ..spec import ITEM_BYTES
from ..strided_copies import (
    FIRST,
    IN,
    LIKE,
    NEW,
    OUT,
    STRIDED_COPIES,
    ZEROS,
    StridedCopy,
    contiguous,
    strided_copy,
    strided_slice,
)
from ..traits import Constant, LoopForm
from . import on_cpu, on_cuda

FUNCTIONS = {NEW: "plk_copy_run", ZEROS: "plk_copy_into_zeros", FIRST: "plk_copy_into_base"}

PLACED = {"": lib.PLK_PLACED_FIRMLY, IN: lib.PLK_PLACED_IN, OUT: lib.PLK_PLACED_OUT}


def _along(op, shape, attrs) -> int:
    """The axis along which arrays are joined."""
    return one_axis(op.name, attrs["dim" if "dim" in attrs else "axis"], len(shape))


def _span(op, y, attrs) -> tuple[tuple[int, ...], list[int], int]:
    """(shape, strides, offset) of the elements that a slice assignment writes."""
    return strided_slice(op.name, y, {k: attrs[k] for k in ("begin", "end", "step")})


# ---- CPU -----------------------------------------------------------------------------------------


def copy_native(function: str, found: StridedCopy, y: Type, types: Types) -> Native | None:
    """The kernel of a copy into y. types: of the arrays that are read and written."""
    dims, (a, b) = collapse(found.shape, found.in_strides, found.out_strides)
    if len(dims) > MAX_DIMS:
        return None
    n = prod(found.shape)
    fields = {
        "size": ITEM_BYTES[y.dtype],
        "dtype": code(y.dtype),
        "ndim": len(dims),
        "n": n,
        "shape": dims,
        "in_strides": a,
        "out_strides": b,
        "in_offset": found.in_offset,
        "out_offset": found.out_offset,
        "out_n": prod(y.shape),
        "placed": PLACED[found.placed],
        "lowest": found.span[0],
        "highest": found.span[1],
    }
    steps = 0.0 if not dims or a[-1] == b[-1] == 1 else n
    return Native(function, ("plk_copy", fields), cost(*types, steps=steps))


@on_cpu(*STRIDED_COPIES)
def move_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    found = strided_copy(op, ins, outs, attrs)
    if found is None:
        return None
    y = outs[0]
    function = "plk_copy_like" if op.name in LIKE else FUNCTIONS[found.base]
    return copy_native(function, found, y, (ins[0] if found.base == NEW else y, y))


@on_cpu("MakeLoss", "LinearRegressionOutput", "MAERegressionOutput", "SVMOutput")
def loss_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    """Losses whose forward pass returns its input: only their gradient computes."""
    x = ins[0]
    found = StridedCopy(x.shape, contiguous(x.shape), contiguous(x.shape))
    return copy_native("plk_copy_run" if len(ins) == 1 else "plk_copy_like", found, x, (x, x))


@on_cpu("_slice_assign_scalar")
def slice_assign_scalar_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    y = outs[0]
    shape, strides, offset = _span(op, y, attrs)
    found = StridedCopy(shape, [0] * len(shape), strides, 0, offset, FIRST)
    return copy_native("plk_scalar_into_base", found, y, (y, y))


def _join(function, parts, whole, axis, types):
    if len(parts) > lib.PLK_MAX_PARTS:
        return None
    item = ITEM_BYTES[whole.dtype]
    outer = prod(whole.shape[:axis])
    sizes = [prod(t.shape) // outer * item if outer else 0 for t in parts]
    fields = {"outer": outer, "total": sum(sizes), "bytes": sizes, "n_parts": len(parts)}
    return Native(function, ("plk_join", fields), cost(*types, steps=2 * outer * len(parts)))


@on_cpu("Concat", "stack", "_rnn_param_concat")
def concat_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    y = outs[0]
    return _join("plk_join_run", ins, y, _along(op, y.shape, attrs), (*ins, y))


@on_cpu("SliceChannel", "_split_v2")
def split_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x = ins[0]
    return _join("plk_join_split", outs, x, _along(op, x.shape, attrs), (x, *outs))


@on_cpu("_rolled")
def rolled_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x = ins[0]
    along = lines(op.name, x.shape, attrs["axis"])
    row = along.inner * ITEM_BYTES[x.dtype]
    fields = {"n": nbytes(x), "width": along.n * row, "head": attrs["shift"] * row}
    return Native("plk_roll_run", ("plk_roll", fields), cost(x, x))


@on_cpu("_zeros", "_ones", "_full")
def fill_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    y, constant = outs[0], op.trait(Constant)
    assert constant is not None
    fields = {
        "n": prod(y.shape),
        "dtype": code(y.dtype),
        "dynamic": constant.value is None,
        "value": constant.value or 0.0,
    }
    return Native("plk_fill_run", ("plk_fill", fields), cost(y))


@on_cpu("Cast", "amp_cast")
def cast_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    n = prod(ins[0].shape)
    return Native(
        "plk_cast_run",
        ("plk_cast", {"n": n, "from": code(ins[0].dtype), "to": code(outs[0].dtype)}),
        cost(*ins, *outs, steps=n / 2),
    )


# ---- CUDA ----------------------------------------------------------------------------------------


@on_cuda(*STRIDED_COPIES)
def move_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if op.has(LoopForm) and form(op, ins, outs, attrs) is not None:
        return None  # a repeated array is a pointwise kernel: it stores whole vectors
    found = strided_copy(op, ins, outs, attrs)
    if found is None:
        return None
    y, to = outs[0], cuda.Buffer(len(ins))
    steps: list[cuda.Fill | cuda.Copy | cuda.Launch] = []
    if found.base == ZEROS:
        steps.append(cuda.Fill(to, nbytes(y)))
    elif found.base == FIRST:
        steps.append(cuda.Copy(to, cuda.Buffer(0), nbytes(y)))
    if prod(found.shape):
        source = cuda.Buffer(found.source)
        steps.append(cuda.copy_plan.copy_launch(found, ITEM_BYTES[y.dtype], source, to))
    return cuda.launches(*steps)


@on_cuda("_slice_assign_scalar")
def slice_assign_scalar_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, to = ins[0], cuda.Buffer(1)
    shape, steps, offset = _span(op, x, attrs)
    fill = cuda.copy_plan.fill(shape, steps, offset, x, to, cuda.Scalar(0, "float64"))
    return cuda.launches(cuda.Copy(to, cuda.Buffer(0), nbytes(x)), fill)


def _launch_join(*call) -> Native | None:
    steps = cuda.copy_plan.join(*call)
    return None if steps is None else cuda.launches(*steps)


@on_cuda("Concat", "stack", "_rnn_param_concat")
def concat_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    y = outs[0]
    if any(t.dtype != y.dtype for t in ins):
        return None
    return _launch_join(ins, y, _along(op, y.shape, attrs), 0, len(ins), False)


@on_cuda("SliceChannel", "_split_v2")
def split_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x = ins[0]
    return _launch_join(outs, x, _along(op, x.shape, attrs), 1, 0, True)


@on_cuda("Cast", "amp_cast", "amp_multicast")
def cast_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    n, cast = len(ins), cuda.copy_plan.cast
    arrays = enumerate(zip(ins, outs))
    return cuda.launches(*(cast(x, y, cuda.Buffer(i), cuda.Buffer(n + i)) for i, (x, y) in arrays))


@on_cuda("_zeros", "_zeros_without_dtype", "zeros_like", "reset_arrays")
def zeros_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    at, written = (len(ins), outs) if outs else (0, ins)
    return cuda.launches(
        *(cuda.Fill(cuda.Buffer(at + i), nbytes(t)) for i, t in enumerate(written))
    )
