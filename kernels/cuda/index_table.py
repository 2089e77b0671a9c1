"""Entries of selections by indices, their scatters, and of operators on padded sequences."""

from __future__ import annotations

from math import gcd, prod

from ..record import FLOATS
from ..shapes import lines, one_axis
from ..spec import ITEM_BYTES
from .copy_table import VECTORS
from .launch import (
    Argument,
    Buffer,
    Copy,
    Fill,
    Float64,
    Int32,
    Int64,
    Launch,
    Struct,
    launches,
)
from .layout import (
    THREADS,
    TYPES,
    WORDS,
    blocks_for,
    ceil_div,
    divisor,
    index,
    index_of,
    nbytes,
    vector_of,
)
from .sort_table import Sorting
from .table import native

INDICES = (*FLOATS, "int32", "int64", "int8", "uint8")
MAX_DEPTH = 8
ADDED = (*FLOATS, "int32", "int64", "int8", "uint8")


def _launch(function: str, size: int, arguments, per_block: int = THREADS) -> Launch:
    return Launch("index.cu", function, blocks_for(size, per_block), (THREADS,), arguments)


def _words(inner: int, dtype: str) -> tuple[str, str, int]:
    """(type of the words in which rows of `inner` elements move, of its elements, words of a
    row)"""
    size = ITEM_BYTES[dtype]
    word = gcd(16, inner * size) if inner else size
    return VECTORS[word], WORDS[min(size, word)], inner * size // word


def _usable(indices, mode: str, n: int) -> bool:
    return indices.dtype in INDICES and mode != "raise" and (n > 0 or not prod(indices.shape))


# ---- gathers -------------------------------------------------------------------------------------


def _take(a, indices, axis: int, mode: str, a_at: int, indices_at: int):
    shape = a.shape
    outer, n, inner = lines("take", shape, axis)
    count = prod(indices.shape)
    if not _usable(indices, mode, n):
        return None
    word, element, words = _words(inner, a.dtype)
    size = outer * count * words
    kind = index_of(size, prod(shape))
    arguments: list[Argument] = [
        index(size, kind),
        divisor(max(words, 1), kind),
        divisor(max(count, 1), kind),
        Int64(n),
        Int32(mode == "wrap"),
        Buffer(indices_at),
        Buffer(a_at),
        Buffer(2),
    ]
    name = f"take<{word}, {element}, {TYPES[indices.dtype]}, {kind}>"
    return launches(_launch(name, size, arguments, 2 * THREADS))


@native("take")
def take_entry(op, ins, outs, attrs):
    a, indices = ins
    return _take(a, indices, one_axis(op.name, attrs["axis"], len(a.shape)), attrs["mode"], 0, 1)


@native("Embedding", "_contrib_SparseEmbedding")
def embedding_entry(op, ins, outs, attrs):
    indices, weight = ins
    return _take(weight, indices, 0, "clip", 1, 0) if outs[0].dtype == weight.dtype else None


@native("pick", "batch_take", "_pick_grad")
def pick_entry(op, ins, outs, attrs):
    back = op.name == "_pick_grad"
    whole, part = (outs[0], ins[0]) if back else (ins[0], outs[0])
    outer, n, inner = lines(op.name, whole.shape, attrs.get("axis", 1))
    mode = attrs.get("mode", "clip")
    if not _usable(ins[1], mode, n) or whole.dtype != part.dtype:
        return None
    size = outer * inner
    kind = index_of(prod(whole.shape))
    flag = "true" if back else "false"
    name = f"pick<{WORDS[ITEM_BYTES[whole.dtype]]}, {TYPES[ins[1].dtype]}, {kind}, {flag}>"
    arguments: list[Argument] = [
        index(size, kind),
        divisor(max(inner, 1), kind),
        Int64(n),
        Int32(mode == "wrap"),
        Buffer(1),
        Buffer(2 if back else 0),
        Buffer(0 if back else 2),
    ]
    zeros = [Fill(Buffer(2), nbytes(outs[0]))] if back else []
    return launches(*zeros, _launch(name, size, arguments))


@native("one_hot")
def one_hot_entry(op, ins, outs, attrs):
    x, y = ins[0], outs[0]
    if x.dtype not in INDICES:
        return None
    size, kind = prod(y.shape), index_of(prod(y.shape))
    arguments: list[Argument] = [
        index(size, kind),
        divisor(max(attrs["depth"], 1), kind),
        Buffer(0),
        Buffer(1),
        Float64(attrs["on_value"]),
        Float64(attrs["off_value"]),
    ]
    name = f"one_hot<{TYPES[y.dtype]}, {TYPES[x.dtype]}, {kind}>"
    return launches(_launch(name, size, arguments))


# ---- places of several numbers -------------------------------------------------------------------


def _points(shape, indices) -> Struct | None:
    depth = indices.shape[0]
    if depth > MAX_DEPTH or indices.dtype not in INDICES or 0 in shape[:depth]:
        return None
    sizes = [Int64(n) for n in shape[:depth]] + [Int64(1)] * (MAX_DEPTH - depth)
    return Struct(Int64(prod(indices.shape[1:])), Int64(depth), sizes)


@native("gather_nd")
def gather_nd_entry(op, ins, outs, attrs):
    data, indices = ins
    points = _points(data.shape, indices)
    if points is None:
        return None
    inner = prod(data.shape[indices.shape[0] :])
    word, element, words = _words(inner, data.dtype)
    size = prod(indices.shape[1:]) * words
    kind = index_of(size, prod(data.shape))
    arguments: list[Argument] = [
        index(size, kind),
        divisor(max(words, 1), kind),
        points,
        Buffer(1),
        Buffer(0),
        Buffer(2),
    ]
    name = f"gather_nd<{word}, {element}, {TYPES[indices.dtype]}, {kind}>"
    return launches(_launch(name, size, arguments))


# ---- scatters ------------------------------------------------------------------------------------


def scatter(source_type, source, n_places, outer, n_rows, inner, dtype, add, rows, table, base=0):
    """Launches that sort places by row and sum (or set) rows; (steps, end of their scratch memory,
    which begins at `base`). rows, table: Buffer or Scratch."""
    sorting = Sorting("index.cu", source_type, source, "uint64_t", 1, n_places, n_places, base)
    vector = vector_of(dtype)
    vector = vector if inner % vector == 0 else 1
    threads = THREADS
    while threads > 32 and threads * vector >= 2 * inner:
        threads //= 2
    column_blocks = ceil_div(inner, threads * vector)
    flag, kind = "true" if add else "false", index_of(n_rows * inner)
    scatter = Launch(
        "index.cu",
        f"scatter_rows<{TYPES[dtype]}, {kind}, {flag}, {vector}>",
        (n_places * column_blocks, outer),
        (threads,),
        [
            *map(Int64, (n_places, n_rows, inner, column_blocks)),
            sorting.keys,
            sorting.places,
            rows,
            table,
        ],
    )
    return [*sorting.steps, scatter], sorting.end


MAX_OUTER = 65535  # of a grid's second dimension


@native("_take_grad")
def take_grad_entry(op, ins, outs, attrs):
    dy, indices = ins
    shape, dx = attrs["shape"], outs[0]
    outer, n, inner = lines(op.name, shape, attrs["axis"])
    count = prod(indices.shape)
    if dy.dtype not in ADDED or dx.dtype != dy.dtype or outer > MAX_OUTER or count >= 1 << 31:
        return None
    if not _usable(indices, attrs["mode"], n):
        return None
    steps, scratch = [Fill(Buffer(2), nbytes(dx))], 0
    if prod(dy.shape):
        given = Struct(Buffer(1), Int64(n), Int32(attrs["mode"] == "wrap"))
        source = f"TakenRows<{TYPES[indices.dtype]}>"
        more, scratch = scatter(
            source, given, count, outer, n, inner, dy.dtype, True, Buffer(0), Buffer(2)
        )
        steps += more
    return launches(*steps, scratch_bytes=scratch)


@native("scatter_nd", "_backward_gather_nd", "_scatter_set_nd")
def scatter_nd_entry(op, ins, outs, attrs):
    add, given = op.name == "_backward_gather_nd", op.name == "_scatter_set_nd"
    y, indices, rows = outs[0], ins[-1], ins[-2]
    if given:
        _, rows, indices = ins
    points = _points(y.shape, indices)
    if points is None or rows.dtype != y.dtype or add and y.dtype not in ADDED:
        return None
    depth, count = indices.shape[0], prod(indices.shape[1:])
    n_rows, inner = prod(y.shape[:depth]), prod(y.shape[depth:])
    to = len(ins)
    first = Copy(Buffer(to), Buffer(0), nbytes(y)) if given else Fill(Buffer(to), nbytes(y))
    if not count * inner:
        return launches(first)
    # what is only stored moves as words
    dtype = y.dtype if add else f"uint{8 * ITEM_BYTES[y.dtype]}"
    source, at = f"PointRows<{TYPES[indices.dtype]}>", Struct(Buffer(1 + given), points)
    ends = Buffer(int(given)), Buffer(to)
    steps, scratch = scatter(source, at, count, 1, n_rows, inner, dtype, add, *ends)
    return launches(first, *steps, scratch_bytes=scratch)


# ---- sequences -----------------------------------------------------------------------------------


@native("SequenceMask")
def sequence_mask_entry(op, ins, outs, attrs):
    x = ins[0]
    if not attrs["use_sequence_length"] or ins[1].dtype not in INDICES:
        return None
    size, kind, inner = prod(x.shape), index_of(prod(x.shape)), prod(x.shape[2:])
    arguments: list[Argument] = [
        index(size, kind),
        divisor(max(inner, 1), kind),
        divisor(max(x.shape[1], 1), kind),
        Int32(attrs["axis"] == 1),
        *map(Buffer, range(3)),
        Float64(attrs["value"]),
    ]
    name = f"sequence_mask<{TYPES[x.dtype]}, {TYPES[ins[1].dtype]}, {kind}>"
    return launches(_launch(name, size, arguments))


@native("SequenceReverse", "SequenceLast")
def sequence_entry(op, ins, outs, attrs):
    x, y = ins[0], outs[0]
    if not attrs["use_sequence_length"] or ins[1].dtype not in INDICES:
        return None
    size, kind, inner = prod(y.shape), index_of(prod(x.shape)), prod(x.shape[2:])
    word, axis = WORDS[ITEM_BYTES[x.dtype]], attrs.get("axis", 0)
    steps, batch = x.shape[axis], x.shape[1 - axis]
    last = op.name == "SequenceLast"
    sizes = (
        [index(steps, kind), index(batch, kind), Int32(axis == 1)]
        if last
        else [divisor(max(batch, 1), kind), index(steps, kind)]
    )
    arguments: list[Argument] = [
        index(size, kind),
        divisor(max(inner, 1), kind),
        *sizes,
        *map(Buffer, range(3)),
    ]
    function = "sequence_last" if last else "sequence_reverse"
    name = f"{function}<{word}, {TYPES[ins[1].dtype]}, {kind}>"
    return launches(_launch(name, size, arguments))
