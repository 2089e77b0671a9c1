"""sort, argsort and topk."""

from __future__ import annotations

from math import log2, prod

from ...engine import lib
from .. import cuda
from ..cpu.layout import code, cost, nbytes
from ..native import Native
from ..record import HALVES, NATIVE, NUMERIC, Attrs, Operator, Types
from ..shapes import Lines, lines
from ..spec import ITEM_BYTES
from ..strided_copies import StridedCopy
from . import on_cpu, on_cuda

INDEX_DTYPES = ("float32", "float64", "int32", "int64", "uint8")
# ret_typ -> whether it returns values, indices, a mask
GIVE = {"value": (1, 0, 0), "indices": (0, 1, 0), "both": (1, 1, 0), "mask": (0, 0, 1)}
# of lines that are sorted side by side: their elements at most, their number at least. FEW: sort.c
LONGEST, LEAST, FEW = 2048, 8, 64
SHORT = 64  # lines of more elements of 4 or 8 bytes are long
ALIGNMENT = 256
BITS = (lib.PLK_SORT_VALUES, lib.PLK_SORT_INDICES, lib.PLK_SORT_MASK)


def _wanted(op, attrs) -> tuple[tuple[int, int, int], str]:
    """(what is returned, the dtype of indices)"""
    give = attrs.get("ret_typ", {"sort": "value", "argsort": "indices"}.get(op.name))
    return GIVE[give], attrs.get("dtype", "int64")


def _side_by_side(dtype: str, along: Lines, k: int, give: tuple[int, int, int]) -> bool:
    """Are there enough lines for one in each lane, short enough for a network of comparisons?"""
    _, indices, mask = give
    serves = ITEM_BYTES[dtype] <= 4 if indices else ITEM_BYTES[dtype] >= 4
    few = k <= FEW and 4 * k < along.n  # found in one pass
    longest = LONGEST // 2 if indices or ITEM_BYTES[dtype] == 8 else LONGEST
    many = along.outer * along.inner if along.inner == 1 else along.inner
    return serves and not mask and not few and along.n <= longest and many >= LEAST


def _is_long(dtype: str, along: Lines, k: int, give: tuple[int, int, int]) -> bool:
    few = k <= FEW and 4 * k < along.n
    return give == GIVE["value"] and ITEM_BYTES[dtype] >= 4 and along.n > SHORT and not few


@on_cpu("_ranked")
def ranked_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    """Without sorting all of a line; short ones are sorted side by side instead."""
    x, ranks = ins[0], attrs["ranks"]
    along = lines(op.name, x.shape, attrs["axis"])
    give = GIVE["value"]
    is_long = x.dtype in NATIVE and _is_long(x.dtype, along, along.n, give)
    if len(ranks) > lib.PLK_MAX_RANKS or not is_long:
        return None
    if _side_by_side(x.dtype, along, along.n, give):
        return None
    fields = {
        **along._asdict(),
        "k": along.n,
        "dtype": code(x.dtype),
        "ascend": 1,
        "give": lib.PLK_SORT_VALUES,
        "n_ranks": len(ranks),
        "ranks": list(ranks),
    }
    us = cost(x, *outs, steps=2 * prod(x.shape))
    return Native("plk_sort_long", ("plk_sort", fields), us)


@on_cpu("sort", "argsort", "topk")
def sort_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, (give, index_dtype) = ins[0], _wanted(op, attrs)
    if x.dtype not in (*NATIVE, "bool") or give[1] and index_dtype not in INDEX_DTYPES:
        return None
    along = lines(op.name, x.shape, attrs["axis"])
    fields = {
        **along._asdict(),
        "k": attrs["k"] if attrs.get("k", 0) > 0 else along.n,
        "dtype": code(x.dtype),
        "index_dtype": code(index_dtype) if index_dtype in INDEX_DTYPES else 0,
        "ascend": attrs["is_ascend"],
        "give": sum(bit for bit, is_given in zip(BITS, give) if is_given),
    }
    function, steps = "plk_sort_run", prod(x.shape) * 2 * log2(along.n + 2)
    if _side_by_side(x.dtype, along, fields["k"], give):
        function, steps = "plk_sort_lines", steps / 8
    elif _is_long(x.dtype, along, fields["k"], give):
        function, steps = "plk_sort_long", steps / 8
    return Native(function, ("plk_sort", fields), cost(x, *outs, steps=steps))


@on_cuda("sort", "argsort", "topk")
def sort_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, ((values, indices, mask), index_dtype) = ins[0], _wanted(op, attrs)
    if x.dtype not in NUMERIC or indices and index_dtype not in (*INDEX_DTYPES, *HALVES):
        return None
    outer, n, inner = lines(op.name, x.shape, attrs["axis"])
    k = attrs["k"] if attrs.get("k", 0) > 0 else n
    if n >= 1 << 31 or k > n:
        return None
    if outer * inner * n == 0:
        return cuda.launches()
    ascend = cuda.Int32(attrs["is_ascend"])
    given = cuda.Struct(cuda.Buffer(0), cuda.Int64(n), cuda.Int64(inner), ascend)
    source, key = f"Elements<{cuda.TYPES[x.dtype]}>", cuda.sort_plan.key_type(x.dtype)
    sorting = cuda.sort_plan.Sorting("sort.cu", source, given, key, outer * inner, n, k)
    size = outer * k * inner
    types = f"{cuda.TYPES[x.dtype]}, {cuda.TYPES[index_dtype if indices else 'int32']}"
    arguments = [
        *map(cuda.Int64, (size, n, inner, k, sorting.n_items)),
        sorting.places,
        *map(cuda.Buffer, (0, 1, 1 + values if indices else 0)),
        *map(cuda.Int32, (values, indices, mask)),
    ]
    finish = cuda.spread("sort.cu", f"sort_finish<{types}>", size, arguments)
    first = [cuda.Fill(cuda.Buffer(1), nbytes(outs[0]))] if mask else []
    return cuda.launches(*first, *sorting.steps, finish, scratch_bytes=sorting.end)


@on_cuda("_ranked")
def ranked_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    """Lines sorted in scratch memory, then a copy of each rank's elements."""
    x, ranks = ins[0], attrs["ranks"]
    outer, n, inner = lines(op.name, x.shape, attrs["axis"])
    if x.dtype not in NUMERIC or n >= 1 << 31:
        return None
    if outer * inner == 0:
        return cuda.launches()
    source, key = f"Elements<{cuda.TYPES[x.dtype]}>", cuda.sort_plan.key_type(x.dtype)
    given = cuda.Struct(cuda.Buffer(0), cuda.Int64(n), cuda.Int64(inner), cuda.Int32(1))
    sorting = cuda.sort_plan.Sorting("sort.cu", source, given, key, outer * inner, n, n)
    whole = cuda.Scratch(-(-sorting.end // ALIGNMENT) * ALIGNMENT)
    arguments = [
        *map(cuda.Int64, (outer * n * inner, n, inner, n, sorting.n_items)),
        sorting.places,
        *(cuda.Buffer(0), whole, cuda.Buffer(0)),
        *map(cuda.Int32, (1, 0, 0)),
    ]
    types = f"{cuda.TYPES[x.dtype]}, {cuda.TYPES['int32']}"
    finish = cuda.spread("sort.cu", f"sort_finish<{types}>", outer * n * inner, arguments)
    copies = []
    for place, rank in enumerate(ranks):
        steps = (n * inner, 1), (len(ranks) * inner, 1)
        found = StridedCopy((outer, inner), *steps, rank * inner, place * inner)
        copies.append(cuda.copy_plan.copy_launch(found, ITEM_BYTES[x.dtype], whole, cuda.Buffer(1)))
    end = whole.offset_bytes + nbytes(x)
    return cuda.launches(*sorting.steps, finish, *copies, scratch_bytes=end)
