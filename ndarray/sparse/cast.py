"""cast_storage: conversion between dense, row_sparse and csr; and operators on selected rows or
elements: retain, slice, take, concat, getnnz, edge_id."""

from __future__ import annotations

import numpy as np

from ...engine.error import IndexOutOfRange, InvalidType, InvalidValue
from ...kernels.record import lookup
from ...kernels.spec import from_bfloat16
from ..invoke import invoke
from ..ndarray import NDArray
from . import sparse_array as arrays
from .storage import DENSE, kernel
from .structure import (
    counts_of,
    gather,
    index_array,
    keys_of,
    place,
    places_of,
    pointers,
    rows_of,
    sorted_keys,
    values_of,
    whole,
)


def _nonzero(x: NDArray) -> np.ndarray:
    """Which elements are not zero; waits for the values."""
    values = values_of(x)
    return (from_bfloat16(values) if x._spec.dtype == "bfloat16" else values) != 0


def to_row_sparse(x: NDArray) -> arrays.RowSparseNDArray:
    """The rows of a dense array that are not zero."""
    found = _nonzero(x)
    rows = np.flatnonzero(found.reshape(x.shape[0], -1).any(axis=1)) if found.size else ()
    return arrays.row_sparse(x.shape, gather(x, rows), index_array(rows, x))


def to_csr(x: NDArray) -> arrays.CSRNDArray:
    """The elements of a dense matrix that are not zero."""
    rows, columns = np.nonzero(_nonzero(x))
    flat = invoke(lookup("reshape_to"), (x,), {"shape": (x.shape[0] * x.shape[1],)})
    values = gather(flat, rows * x.shape[1] + columns)
    places = (pointers(rows, x.shape[0]), columns)
    return arrays.csr(x.shape, values, *(index_array(p, x) for p in places))


def to_dense(x) -> NDArray:
    """All elements of a sparse array."""
    values, at = x._parts[0], keys_of(x)
    if x.stype == "row_sparse" and len(at) == x.shape[0]:
        return values.copy()
    if x.stype == "row_sparse":
        return place(values, at, x.shape[0])
    n = x.shape[0] * x.shape[1]
    return invoke(lookup("reshape_to"), (place(values, at, n),), {"shape": x.shape})


def cast(x: NDArray, stype: str) -> NDArray:
    """x, or its elements in another storage type."""
    if x.stype == stype:
        return x
    if x.stype != DENSE:
        x = to_dense(x)
    return {"csr": to_csr, "row_sparse": to_row_sparse, DENSE: lambda x: x}[stype](x)


@kernel("cast_storage", rule=lambda stypes, attrs: attrs["stype"])
def _cast_storage(attrs, x):
    stype = attrs["stype"]
    if {x.stype, stype} == {"csr", "row_sparse"}:
        raise InvalidValue(f"cast_storage from {x.stype} to {stype} is not supported")
    return x.copy() if x.stype == stype else cast(x, stype)


# ---- rows ----------------------------------------------------------------------------------------


@kernel("_sparse_retain", rule=lambda stypes, attrs: "row_sparse")
def _retain(attrs, x, indices):
    if x.stype == "csr":
        raise InvalidType("retain: data must be row_sparse, got csr")
    wanted = np.unique(whole(indices))
    if wanted.size and not 0 <= wanted[0] <= wanted[-1] < x.shape[0]:
        raise IndexOutOfRange(
            f"retain: indices must be in [0, {x.shape[0]}), got {wanted[0]} to {wanted[-1]}"
        )
    if x.stype == DENSE:
        return arrays.row_sparse(x.shape, gather(x, wanted), index_array(wanted, x))
    return of_rows(x, wanted)


def of_rows(x, wanted: np.ndarray) -> arrays.RowSparseNDArray:
    """The rows (ascending numbers) of a row_sparse array, zeros where it has none."""
    stored, values = sorted_keys(x)
    if not len(stored) or not len(wanted):
        found = place(values, stored[:0], len(wanted)) if not len(stored) else gather(values, ())
        return arrays.row_sparse(x.shape, found, index_array(wanted, x))
    places = np.minimum(np.searchsorted(stored, wanted), len(stored) - 1)
    present = stored[places] == wanted
    found = gather(values, places[present])
    if not present.all():
        found = place(found, np.flatnonzero(present), len(wanted))
    return arrays.row_sparse(x.shape, found, index_array(wanted, x))


# ---- selections of csr matrices ------------------------------------------------------------------


def _elements(x, keep: np.ndarray, rows: np.ndarray, columns: np.ndarray, shape):
    """A csr array of some elements of x at new positions (rows ascending)."""
    places = (pointers(rows, shape[0]), columns)
    return arrays.csr(shape, gather(x._parts[0], keep), *(index_array(p, x) for p in places))


def _slice_rule(stypes, attrs):
    steps = attrs["step"] or ()
    return "csr" if stypes[0] == "csr" and all(s in (None, 1) for s in steps) else None


@kernel("slice", rule=_slice_rule)
def _slice(attrs, x):
    ends = [slice(None)] * 2
    for i, (b, e) in enumerate(zip(attrs["begin"], attrs["end"])):
        ends[i] = slice(b, e)
    (r0, r1, _), (c0, c1, _) = (s.indices(n) for s, n in zip(ends, x.shape))
    indptr, columns = (values_of(p) for p in x._parts[1:])
    first, last = indptr[r0], indptr[max(r0, r1)]
    shape = max(r1 - r0, 0), max(c1 - c0, 0)
    counts_of(indptr[r0 : r0 + shape[0] + 1])
    if shape[1] == x.shape[1]:
        data = x._parts[0][int(first) : int(last)]
        places = (indptr[r0 : r0 + shape[0] + 1] - first, columns[first:last])
        return arrays.csr(shape, data.copy(), *(index_array(p, x) for p in places))
    rows, columns = rows_of(x)[first:last] - r0, columns[first:last]
    inside = (columns >= c0) & (columns < c1)
    keep = np.flatnonzero(inside)
    return _elements(x, keep + first, rows[inside], columns[inside] - c0, shape)


def _take_rule(stypes, attrs):
    by_rows = attrs["axis"] == 0 and attrs["mode"] in ("clip", "wrap")
    return "csr" if stypes == ("csr", DENSE) and by_rows else None


@kernel("take", rule=_take_rule)
def _take(attrs, x, indices):
    n = x.shape[0]
    if len(indices.shape) != 1:
        return invoke(lookup("take"), (to_dense(x), indices), attrs)
    rows = whole(indices)
    rows = rows % n if attrs["mode"] == "wrap" else np.clip(rows, 0, n - 1)
    indptr, columns = (values_of(p) for p in x._parts[1:])
    counts = counts_of(indptr)[rows]
    to = np.repeat(np.arange(len(rows)), counts)
    offsets = np.arange(len(to)) - np.repeat(np.cumsum(counts) - counts, counts)
    keep = np.repeat(indptr[rows], counts) + offsets
    return _elements(x, keep, to, columns[keep], (len(rows), x.shape[1]))


def _concat_rule(stypes, attrs):
    return "csr" if set(stypes) == {"csr"} and attrs["dim"] == 0 else None


@kernel("Concat", rule=_concat_rule)
def _concat(attrs, *xs):
    data = [x._parts[0] for x in xs]
    starts = np.cumsum([0, *(d.shape[0] for d in data)])
    indptr = np.concatenate([[0], *(values_of(x._parts[1])[1:] + s for x, s in zip(xs, starts))])
    columns = np.concatenate([values_of(x._parts[2]) for x in xs])
    joined = invoke(lookup("Concat"), data, {"dim": 0, "num_args": len(data)})
    shape = sum(x.shape[0] for x in xs), xs[0].shape[1]
    return arrays.csr(shape, joined, *(index_array(p, xs[0]) for p in (indptr, columns)))


@kernel("_contrib_getnnz", rule=lambda stypes, attrs: DENSE if stypes[0] == "csr" else None)
def _getnnz(attrs, x):
    axis, indptr = attrs["axis"], values_of(x._parts[1])
    if axis is None:
        return index_array([indptr[-1]], x)
    if axis == 1:
        return index_array(np.diff(indptr), x)
    return index_array(np.bincount(places_of(x), minlength=x.shape[1]), x)


@kernel("_contrib_edge_id", rule=lambda stypes, attrs: DENSE if stypes[0] == "csr" else None)
def _edge_id(attrs, x, u, v):
    u, v = whole(u), whole(v)
    for name, places, n in (("u", u, x.shape[0]), ("v", v, x.shape[1])):
        if places.size and not 0 <= places.min() <= places.max() < n:
            raise IndexOutOfRange(f"edge_id: {name} must be in [0, {n})")
    keys, wanted = keys_of(x), u * x.shape[1] + v
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], wanted), max(len(keys) - 1, 0))
    values = np.append(x._parts[0].asnumpy(), 0)
    found = np.append(order, len(keys))[at] if len(keys) else np.zeros(len(wanted), np.int64)
    present = keys[found] == wanted if len(keys) else np.zeros(len(wanted), bool)
    result = np.where(present, values[found], -1)
    from ..ndarray import from_memory

    return from_memory(result, x.context, x._spec.dtype)
