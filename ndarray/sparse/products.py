"""Sparse kernels of matrix products: dot, FullyConnected, and Embedding of row_sparse weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels.record import lookup
from ..invoke import invoke
from ..ndarray import NDArray
from . import sparse_array as arrays
from .cast import cast
from .rows import added_up
from .storage import DENSE, gradient_of, kernel
from .structure import distinct, gather, index_array, values_of, whole


def csr_dot(x: Any, y: NDArray, transpose: bool = False) -> NDArray:
    """The product of a csr matrix, or its transpose, with a dense matrix; dense."""
    attrs = {"columns": x.shape[1], "transpose": transpose}
    return invoke(lookup("_csr_dot"), (*x._parts, y), attrs)


def csr_dot_rows(x: Any, y: NDArray) -> Any:
    """The transpose of a csr matrix times a dense one: row_sparse, a row for each used column."""
    rows, places = distinct(values_of(x._parts[2]), x.shape[1])
    attrs = {"columns": len(rows), "transpose": True}
    inputs = (*x._parts[:2], index_array(places, y), y)
    values = invoke(lookup("_csr_dot"), inputs, attrs)
    return arrays.row_sparse((x.shape[1], *y.shape[1:]), values, index_array(rows, y))


def _on_stored_rows(x, y):
    """(csr matrix, dense matrix) whose product is that of x with a row_sparse y: columns without a
    row in y are left out."""
    columns, rows = values_of(x._parts[2]), values_of(y._parts[1])
    if not len(rows):
        return None
    if len(rows) == y.shape[0]:
        return x, y._parts[0]
    places = np.minimum(np.searchsorted(rows, columns), len(rows) - 1)
    stored = index_array(rows[places] == columns, y).astype(x._spec.dtype)
    data = invoke(lookup("elemwise_mul"), (x._parts[0], stored), {})
    made = arrays.csr((x.shape[0], len(rows)), data, x._parts[1], index_array(places, y))
    return made, y._parts[0]


def _transposed(x: NDArray) -> NDArray:
    return invoke(lookup("transpose"), (x,), {})


def _dot_rule(stypes, attrs):
    a, b = stypes
    ta, tb, wanted = attrs["transpose_a"], attrs["transpose_b"], attrs["forward_stype"]
    if a == "csr" and b in (DENSE, "row_sparse") and not (tb and (ta or b != DENSE)):
        if ta:
            return wanted if wanted in (DENSE, "row_sparse") else None if wanted else "row_sparse"
        return DENSE if wanted in (None, DENSE) else None
    if a == DENSE and b == "csr" and not ta:
        return wanted if wanted in (DENSE, "csr") else None if wanted else "csr"
    return None


@kernel("dot", rule=_dot_rule)
def _dot(attrs, a, b):
    ta, tb = attrs["transpose_a"], attrs["transpose_b"]
    stype = _dot_rule((a.stype, b.stype), attrs)
    if len(a.shape) != 2 or a.stype == DENSE and len(b.shape) != 2:
        made = invoke(lookup("dot"), (a.tostype(DENSE), b.tostype(DENSE)), attrs)
        return cast(made, stype)
    if a.stype == DENSE:
        return cast(_transposed(csr_dot(b, _transposed(a), transpose=not tb)), stype)
    if b.stype == "row_sparse":
        if ta:
            b = b.tostype(DENSE)
        else:
            found = _on_stored_rows(a, b)
            if found is None:
                attrs = {"shape": (a.shape[0], *b.shape[1:]), "dtype": a._spec.dtype}
                return invoke(lookup("_zeros"), (), attrs, None, a.context)
            a, b = found
    if tb:
        b = _transposed(b)
    return csr_dot_rows(a, b) if stype == "row_sparse" else csr_dot(a, b, ta)


@gradient_of("dot")
def _dot_grad(F, dys, xs, ys, wanted, transpose_a, transpose_b, forward_stype, to_scalar):
    (a, b), dy, da, db = xs, dys[0], None, None
    ta, tb = transpose_a, transpose_b
    matrices = len(a.shape) == len(b.shape) == 2
    if not matrices and (wanted[0] or a.stype != "csr"):
        dense = [x.tostype(DENSE) for x in xs]
        attrs = {
            "transpose_a": ta,
            "transpose_b": tb,
            "forward_stype": forward_stype,
            "to_scalar": to_scalar,
        }
        return lookup("dot").differentiate(F, dys, dense, ys, attrs)
    if wanted[0]:
        b = b.tostype(DENSE)
        da = F.dot(b, dy, tb, True) if ta else F.dot(dy, b, False, not tb)
    if wanted[1]:
        db = F.dot(dy, a, True, ta) if tb else F.dot(a, dy, not ta, False)
    return [da, db]


# ---- FullyConnected ------------------------------------------------------------------------------


def _dense_rule(stypes, attrs):
    return DENSE if "csr" not in stypes[1:] else None


@kernel("FullyConnected", rule=_dense_rule)
def _fully_connected(attrs, x, weight, *bias):
    weight, biases = weight.tostype(DENSE), [b.tostype(DENSE) for b in bias]
    if x.stype != "csr":
        return invoke(lookup("FullyConnected"), (x.tostype(DENSE), weight, *biases), attrs)
    y = csr_dot(x, _transposed(weight))
    return invoke(lookup("broadcast_add"), (y, *biases), {}) if biases else y


@gradient_of("FullyConnected")
def _fully_connected_grad(F, dys, xs, ys, wanted, num_hidden, no_bias, flatten):
    x, weight, dy = xs[0], xs[1], dys[0]
    if x.stype != "csr":
        x = F.reshape_to(x.tostype(DENSE), shape=(dy.size // num_hidden, weight.shape[1]))
        dy = F.reshape_to(dy, shape=(x.shape[0], num_hidden))
    dx = F.reshape_to(F.dot(dy, weight), shape=xs[0].shape) if wanted[0] else None
    dw = None
    if wanted[1]:
        dw = F.transpose(F.dot(x, dy, True)) if x.stype != "csr" else _outer(F, x, dy)
    return [dx, dw] if no_bias else [dx, dw, F.sum(dy, axis=0)]


def _outer(F, x, dy):
    return F.transpose(F.dot(x, dy, True, False, DENSE))


# ---- Embedding -----------------------------------------------------------------------------------


@kernel(
    "Embedding",
    "_contrib_SparseEmbedding",
    rule=lambda stypes, attrs: DENSE if stypes[0] == DENSE else None,
)
def _embedding(attrs, data, weight):
    attrs = {k: attrs[k] for k in ("input_dim", "output_dim", "dtype")}
    rows = values_of(weight._parts[1])
    if weight.stype != "row_sparse" or len(rows) == 0:
        return invoke(lookup("Embedding"), (data, weight.tostype(DENSE)), attrs)
    if len(rows) == weight.shape[0]:
        return invoke(lookup("Embedding"), (data, weight._parts[0]), attrs)
    ids = np.clip(whole(data), 0, weight.shape[0] - 1)
    places = np.minimum(np.searchsorted(rows, ids), len(rows) - 1)
    found = gather(weight._parts[0], places)
    stored = index_array(rows[places] == ids, found).astype(found._spec.dtype)
    column = invoke(lookup("reshape_to"), (stored,), {"shape": (-1, 1)})
    made = invoke(lookup("broadcast_mul"), (found, column), {})
    return invoke(lookup("reshape_to"), (made,), {"shape": (*data.shape, weight.shape[1])})


@gradient_of("Embedding", "_contrib_SparseEmbedding")
def _embedding_grad(F, dys, xs, ys, wanted, **attrs):
    data, weight = xs
    if not wanted[1]:
        return [None, None]
    return [None, arrays.row_sparse(weight.shape, *added_up(weight.shape, [(data, dys[0])]))]
