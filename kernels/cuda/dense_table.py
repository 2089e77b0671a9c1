"""Entries of matrix products: float32 (TF32 where PLAIT_TF32 says so), float64, float16, bfloat16;
the 16-bit types are summed in float32."""

from __future__ import annotations

from math import prod

from ..native import Native
from ..spec import ITEM_BYTES
from .launch import Buffer, Int32, Launch
from .layout import TYPES, ceil_div
from .matmul_plan import FLOATS, ScratchSpace, matmul, steps, total_type
from .table import native


def _same(types) -> bool:
    return types[0].dtype in FLOATS and all(t.dtype == types[0].dtype for t in types)


@native("FullyConnected")
def dense_entry(op, ins, outs, attrs):
    if not _same((*ins, *outs)):
        return None
    n, k = ins[1].shape
    scratch, bias = ScratchSpace(), None if attrs["no_bias"] else Buffer(2)
    m, y = prod(outs[0].shape[:-1]), Buffer(len(ins))
    a, b = Buffer(0), Buffer(1)
    found = matmul(ins[0].dtype, m, n, k, a, b, y, scratch, transpose_b=True, bias=bias)
    return steps(found, scratch)


@native("dot")
def dot_entry(op, ins, outs, attrs):
    (a, b), ta, tb = (t.shape for t in ins), attrs["transpose_a"], attrs["transpose_b"]
    if not _same((*ins, *outs)) or not a or not b:
        return None
    k, m = (a[0], prod(a[1:])) if ta else (a[-1], prod(a[:-1]))
    n, scratch = prod(b[:-1] if tb else b[1:]), ScratchSpace()
    flags = {"transpose_a": ta, "transpose_b": tb}
    return steps(matmul(ins[0].dtype, m, n, k, *map(Buffer, range(3)), scratch, **flags), scratch)


@native("batch_dot", "_linalg_gemm2")
def batch_dot_entry(op, ins, outs, attrs):
    (a, _), ta, tb = (t.shape for t in ins), attrs["transpose_a"], attrs["transpose_b"]
    if not _same((*ins, *outs)) or attrs.get("axis", -2) not in (-2, len(a) - 2):
        return None
    m, n = outs[0].shape[-2:]
    k, scratch = a[-2] if ta else a[-1], ScratchSpace()
    found = matmul(
        ins[0].dtype,
        *(m, n, k),
        *map(Buffer, range(3)),
        scratch,
        n_batch=prod(a[:-2]),
        a_step=m * k,
        b_step=k * n,
        transpose_a=ta,
        transpose_b=tb,
        alpha=attrs.get("alpha", 1.0),
    )
    return steps(found, scratch)


@native("_dense")
def fused_dense_entry(op, ins, outs, attrs):
    if attrs["slope"]:
        return None
    a = ins[0].shape
    if not _same((*ins, *outs)):
        return None
    m, n = outs[0].shape
    k, scratch, at = a[0] if attrs["transpose_a"] else a[1], ScratchSpace(), len(ins)
    found = matmul(
        ins[0].dtype,
        *(m, n, k),
        Buffer(0),
        Buffer(1),
        Buffer(at),
        scratch,
        transpose_a=attrs["transpose_a"],
        transpose_b=attrs["transpose_b"],
        alpha=attrs["scale"],
        act=attrs["act"],
        bias=Buffer(2) if attrs["bias"] else None,
        residual=Buffer(at - 1) if attrs["residual"] else None,
        kept=Buffer(at + 1) if attrs["keep"] else None,
    )
    return steps(found, scratch)


@native("_dot_sum")
def dot_sum_entry(op, ins, outs, attrs):
    (k, m), n = ins[0].shape, outs[0].shape[1]
    if not _same((*ins, *outs)):
        return None
    dtype, scratch = ins[0].dtype, ScratchSpace()
    flags = {"transpose_a": True, "transpose_b": attrs["transpose_b"]}
    found = matmul(dtype, m, n, k, *map(Buffer, range(3)), scratch, **flags)
    if found is None:
        return None
    return steps([*found, column_sums(dtype, Buffer(0), Buffer(3), k, m)], scratch)


# ---- products of attention on interleaved projections --------------------------------------------


def _part(shape: tuple[int, ...], heads: int, parts: int) -> tuple[int, int, int]:
    """(elements of a head, from one head to the next, from one row to the next) of a packed array
    (length, batch, width)."""
    _, batch, width = shape
    size = width // (heads * parts)
    return size, parts * size, batch * width


def _scores(ins, outs, attrs, parts, at, place) -> Native | None:
    """queries . keys^T / sqrt(size). parts: of each operand's array; at: which of them; place: the
    array's number among the inputs."""
    if not _same((*ins, *outs)):
        return None
    heads, item, scratch = attrs["heads"], ITEM_BYTES[ins[0].dtype], ScratchSpace()
    (size, a_step, a_row), (_, b_step, b_row) = (
        _part(ins[i].shape, heads, n) for i, n in zip(place, parts)
    )
    n_batch, m, n = outs[0].shape
    a, b = (Buffer(i, k * size * item) for i, k in zip(place, at))
    found = matmul(
        ins[0].dtype,
        m,
        n,
        size,
        a,
        b,
        Buffer(len(ins)),
        scratch,
        n_batch=n_batch,
        a_step=a_step,
        b_step=b_step,
        rows=(a_row, b_row, n),
        transpose_b=True,
        alpha=size**-0.5,
    )
    return steps(found, scratch)


@native("_contrib_interleaved_matmul_selfatt_qk")
def self_scores_entry(op, ins, outs, attrs):
    return _scores(ins, outs, attrs, (3, 3), (0, 1), (0, 0))


@native("_contrib_interleaved_matmul_encdec_qk")
def pair_scores_entry(op, ins, outs, attrs):
    return _scores(ins, outs, attrs, (1, 2), (0, 0), (0, 1))


@native(
    "_contrib_interleaved_matmul_selfatt_valatt",
    "_contrib_interleaved_matmul_encdec_valatt",
)
def attended_values_entry(op, ins, outs, attrs):
    if not _same((*ins, *outs)):
        return None
    heads, parts = attrs["heads"], 3 if "selfatt" in op.name else 2
    size, step, row = _part(ins[0].shape, heads, parts)
    n_batch, m, k = ins[1].shape
    scratch, values = ScratchSpace(), Buffer(0, (parts - 1) * size * ITEM_BYTES[ins[0].dtype])
    found = matmul(
        ins[0].dtype,
        *(m, size, k),
        *(Buffer(1), values, Buffer(2), scratch),
        n_batch=n_batch,
        a_step=m * k,
        b_step=step,
        y_step=size,
        rows=(k, row, n_batch * size),
    )
    return steps(found, scratch)


def column_sums(dtype: str, a, y, n_rows: int, n_columns: int) -> Launch:
    """The step that adds up the rows of a (n_rows, n_columns)."""
    name = f"column_sums<{TYPES[dtype]}, {total_type(dtype)}>"
    arguments = [a, y, Int32(n_rows), Int32(n_columns)]
    return Launch("gemm.cu", name, (ceil_div(n_columns, 32),), (32, 8), arguments)
