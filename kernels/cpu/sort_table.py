"""Entries of sort, argsort and topk."""

from __future__ import annotations

from math import log2, prod

from ...engine import lib
from ..native import Native
from ..record import NATIVE
from ..shapes import lines
from .layout import code, cost
from .table import native

DTYPES = NATIVE
INDEX_DTYPES = ("float32", "float64", "int32", "int64", "uint8")
GIVE = {
    "value": lib.PLK_SORT_VALUES,
    "indices": lib.PLK_SORT_INDICES,
    "both": lib.PLK_SORT_VALUES | lib.PLK_SORT_INDICES,
    "mask": lib.PLK_SORT_MASK,
}


@native("sort", "argsort", "topk")
def sort_entry(op, ins, outs, attrs):
    x, give = ins[0], attrs.get("ret_typ", {"sort": "value", "argsort": "indices"}.get(op.name))
    index_dtype = attrs.get("dtype", "int64")
    if x.dtype not in DTYPES or (give in ("indices", "both") and index_dtype not in INDEX_DTYPES):
        return None
    along = lines(op.name, x.shape, attrs["axis"])
    fields = {
        **along._asdict(),
        "k": attrs["k"] if attrs.get("k", 0) > 0 else along.n,
        "dtype": code(x.dtype),
        "index_dtype": code(index_dtype) if index_dtype in INDEX_DTYPES else 0,
        "ascend": attrs["is_ascend"],
        "give": GIVE[give],
    }
    us = cost(x, *outs, steps=prod(x.shape) * 2 * log2(along.n + 2))
    return Native("plk_sort_run", ("plk_sort", fields), us)
