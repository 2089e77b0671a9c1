"""Operators that select by indices along one axis (take, pick, Embedding), and their gradients."""

from __future__ import annotations

from math import prod

from ...engine import lib
from .. import cuda
from ..cpu.layout import MAX_DIMS, code, cost, nbytes
from ..native import Native
from ..record import FLOATS, NATIVE, NATIVE_FLOATS, NUMERIC, Attrs, Operator, Types
from ..shapes import Lines, lines, one_axis
from ..spec import ITEM_BYTES
from . import on_cpu, on_cuda

OUTSIDE = {
    "clip": lib.PLK_TAKE_CLIP,
    "wrap": lib.PLK_TAKE_WRAP,
    "index": lib.PLK_TAKE_INDEX,
    "raise": lib.PLK_TAKE_RAISE,
}
MAX_OUTER = 65535  # the limit of a grid's second dimension


def _usable(indices, mode: str, n: int, dtypes) -> bool:
    """Can a kernel use these indices into an axis of n elements without checking them?"""
    return indices.dtype in dtypes and mode != "raise" and (n > 0 or not prod(indices.shape))


def _along(op, whole, attrs) -> Lines:
    return lines(op.name, whole, attrs.get("axis", 1))


# ---- CPU -----------------------------------------------------------------------------------------


def _take(function, along, indices, dtype, mode, types) -> Native | None:
    """A kernel for an array seen as `along`: (outer, n, inner)."""
    checks = function == "plk_take_run"
    if not _usable(indices, "clip" if checks else mode, along.n, NATIVE):
        return None
    count = prod(indices.shape)
    fields = {
        **along._asdict(),
        "n_indices": count,
        "size": ITEM_BYTES[dtype],
        "index_dtype": code(indices.dtype),
        "mode": OUTSIDE[mode],
    }
    can_fail = checks and mode in ("index", "raise")
    return Native(function, ("plk_take", fields), cost(*types, steps=10 * count), can_fail=can_fail)


@on_cpu("take")
def take_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    a, indices = ins
    along, types = _along(op, a.shape, attrs), (*outs, *outs)
    return _take("plk_take_run", along, indices, a.dtype, attrs["mode"], types)


@on_cpu("_places", "_count_nonzero")
def places_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, shape = ins[0], ins[0].shape or (1,)
    if len(shape) > MAX_DIMS:
        return None
    fields = {
        "rows": prod(shape[:-1]),
        "columns": shape[-1],
        "count": attrs.get("count", 0),
        "shape": shape,
        "ndim": len(shape),
        "dtype": code(x.dtype),
    }
    function = "plk_places_run" if op.name == "_places" else "plk_places_count"
    return Native(function, ("plk_places", fields), cost(x, *outs, steps=prod(shape)))


@on_cpu("Embedding", "_contrib_SparseEmbedding")
def embedding_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    indices, weight = ins
    rows, types = lines(op.name, weight.shape, 0), (*outs, *outs)
    return _take("plk_embedding_run", rows, indices, weight.dtype, "clip", types)


@on_cpu("_take_grad")
def take_grad_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    dy, indices = ins
    if dy.dtype not in NATIVE_FLOATS:
        return None
    along, types = _along(op, attrs["shape"], attrs), (dy, dy, *outs)
    return _take("plk_take_backward", along, indices, dy.dtype, attrs["mode"], types)


@on_cpu("pick", "batch_take", "_pick_grad")
def pick_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    backward = op.name == "_pick_grad"
    whole, function = (outs[0], "plk_pick_backward") if backward else (ins[0], "plk_pick_run")
    along, mode = _along(op, whole.shape, attrs), attrs.get("mode", "clip")
    return _take(function, along, ins[1], whole.dtype, mode, outs)


@on_cpu("_pick_log_softmax_grad")
def pick_log_softmax_grad_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    along = _along(op, outs[0].shape, attrs)
    if along.inner != 1 or any(t.dtype != "float32" for t in (ins[0], ins[2])):
        return None
    function, types = "plk_pick_log_softmax_backward", (*ins, *outs)
    return _take(function, along, ins[1], "float32", attrs["mode"], types)


@on_cpu("one_hot")
def one_hot_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, y = ins[0], outs[0]
    if x.dtype not in NATIVE:
        return None
    fields = {
        "n_indices": prod(x.shape),
        "depth": attrs["depth"],
        "size": ITEM_BYTES[y.dtype],
        "index_dtype": code(x.dtype),
        "dtype": code(y.dtype),
        "on": attrs["on_value"],
        "off": attrs["off_value"],
    }
    return Native("plk_one_hot_run", ("plk_one_hot", fields), cost(x, y, steps=prod(y.shape)))


@on_cpu("_take_along_axis", "_put_along_axis")
def along_axis_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    put, (data, indices) = op.name == "_put_along_axis", ins
    along = _along(op, outs[0].shape if put else data.shape, attrs)
    if indices.dtype not in NATIVE or along.n == 0 or put and data.dtype not in NATIVE_FLOATS:
        return None
    fields = {
        **along._asdict(),
        "n_indices": indices.shape[one_axis(op.name, attrs["axis"], len(indices.shape))],
        "size": ITEM_BYTES[data.dtype],
        "index_dtype": code(indices.dtype),
    }
    us = cost(*ins, *outs, steps=2 * prod(indices.shape))
    name = "plk_put_along" if put else "plk_take_along"
    return Native(name, ("plk_take", fields), us, can_fail=True)


# ---- CUDA ----------------------------------------------------------------------------------------


def _gather(op, a, indices, axis: int, mode: str, a_at: int, indices_at: int) -> Native | None:
    outer, n, inner = lines(op.name, a.shape, axis)
    count = prod(indices.shape)
    if not _usable(indices, mode, n, NUMERIC):
        return None
    word, element, words = cuda.copy_plan.words(inner, a.dtype)
    size = outer * count * words
    kind = cuda.index_of(size, prod(a.shape))
    arguments = [
        cuda.index(size, kind),
        cuda.divisor(max(words, 1), kind),
        cuda.divisor(max(count, 1), kind),
        cuda.Int64(n),
        cuda.Int32(mode != "clip"),
        *map(cuda.Buffer, (indices_at, a_at, 2)),
    ]
    name = f"take<{word}, {element}, {cuda.TYPES[indices.dtype]}, {kind}>"
    return cuda.launches(cuda.spread("index.cu", name, size, arguments, 2))


@on_cuda("take")
def take_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    a, indices = ins
    return _gather(op, a, indices, attrs["axis"], attrs["mode"], 0, 1)


@on_cuda("Embedding", "_contrib_SparseEmbedding")
def embedding_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    indices, weight = ins
    same = outs[0].dtype == weight.dtype
    return _gather(op, weight, indices, 0, "clip", 1, 0) if same else None


@on_cuda("_take_grad")
def take_grad_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    (dy, indices), dx = ins, outs[0]
    outer, n, inner = _along(op, attrs["shape"], attrs)
    count = prod(indices.shape)
    if dy.dtype not in NUMERIC or dx.dtype != dy.dtype or outer > MAX_OUTER or count >= 1 << 31:
        return None
    if not _usable(indices, attrs["mode"], n, NUMERIC):
        return None
    steps: list[cuda.Fill | cuda.Launch] = [cuda.Fill(cuda.Buffer(2), nbytes(dx))]
    scratch = 0
    if prod(dy.shape):
        wrap = cuda.Int32(attrs["mode"] != "clip")
        places = f"TakenRows<{cuda.TYPES[indices.dtype]}>"
        given = cuda.Struct(cuda.Buffer(1), cuda.Int64(n), wrap)
        call = (places, given, count, outer, n, inner, dy.dtype, True)
        more, scratch = cuda.scatter_plan.scatter(*call, cuda.Buffer(0), cuda.Buffer(2))
        steps += more
    return cuda.launches(*steps, scratch_bytes=scratch)


@on_cuda("pick", "batch_take", "_pick_grad")
def pick_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    back = op.name == "_pick_grad"
    whole, part = (outs[0], ins[0]) if back else (ins[0], outs[0])
    outer, n, inner = _along(op, whole.shape, attrs)
    mode = attrs.get("mode", "clip")
    if not _usable(ins[1], mode, n, NUMERIC) or whole.dtype != part.dtype:
        return None
    kind = cuda.index_of(prod(whole.shape))
    types = f"{cuda.WORDS[ITEM_BYTES[whole.dtype]]}, {cuda.TYPES[ins[1].dtype]}, {kind}"
    arguments = [
        cuda.index(outer * inner, kind),
        cuda.divisor(max(inner, 1), kind),
        cuda.Int64(n),
        cuda.Int32(mode != "clip"),
        *map(cuda.Buffer, (1, 2, 0) if back else (1, 0, 2)),
    ]
    name = f"pick<{types}, {cuda.bool_of(back)}>"
    zeros = [cuda.Fill(cuda.Buffer(2), nbytes(outs[0]))] if back else []
    return cuda.launches(*zeros, cuda.spread("index.cu", name, outer * inner, arguments))


@on_cuda("_pick_log_softmax_grad")
def pick_log_softmax_grad_cuda(
    op: Operator, ins: Types, outs: Types, attrs: Attrs
) -> Native | None:
    (dy, places, y), t = ins, outs[0].dtype
    along = _along(op, outs[0].shape, attrs)
    same = dy.dtype == y.dtype == t and t in FLOATS
    if along.inner != 1 or along.n == 0 or not same or places.dtype not in NATIVE:
        return None
    if attrs["mode"] == "raise":
        return None
    size = prod(outs[0].shape)
    kind = cuda.index_of(size)
    name = f"pick_log_softmax_backward<{cuda.TYPES[t]}, {cuda.TYPES[places.dtype]}, {kind}>"
    arguments = [
        cuda.index(size, kind),
        cuda.divisor(along.n, kind),
        *map(cuda.Buffer, range(4)),
        cuda.Int32(attrs["mode"] != "clip"),
    ]
    return cuda.launches(cuda.spread("softmax.cu", name, size, arguments))


@on_cuda("one_hot")
def one_hot_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, y = ins[0], outs[0]
    if x.dtype not in NUMERIC:
        return None
    size, kind = prod(y.shape), cuda.index_of(prod(y.shape))
    arguments = [
        cuda.index(size, kind),
        cuda.divisor(max(attrs["depth"], 1), kind),
        *map(cuda.Buffer, range(2)),
        *map(cuda.Float64, (attrs["on_value"], attrs["off_value"])),
    ]
    name = f"one_hot<{cuda.TYPES[y.dtype]}, {cuda.TYPES[x.dtype]}, {kind}>"
    return cuda.launches(cuda.spread("index.cu", name, size, arguments))
