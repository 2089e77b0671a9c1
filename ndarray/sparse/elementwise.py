"""Sparse kernels of element-wise operators: unary, with a number, binary, and of several arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...kernels.record import lookup
from ..invoke import invoke
from ..ndarray import NDArray
from . import sparse_array as arrays
from .storage import DENSE, kernel
from .structure import (
    gather,
    index_array,
    keys_of,
    place,
    pointers,
    rows_of,
    sorted_keys,
    values_of,
)


def with_values(x: Any, values: NDArray) -> Any:
    """The elements of x with other values."""
    if x.stype == "csr":
        return arrays.csr(x.shape, values, *x._parts[1:])
    return arrays.row_sparse(x.shape, values, x._parts[1])


def from_keys(stype: str, shape: Sequence[int], keys: np.ndarray, values: NDArray) -> Any:
    """A sparse array of ascending keys; see structure."""
    if stype == "row_sparse":
        return arrays.row_sparse(shape, values, index_array(keys, values))
    n = max(shape[1], 1)
    places = (pointers(keys // n, shape[0]), keys % n)
    return arrays.csr(shape, values, *(index_array(p, values) for p in places))


def without_zeros(x: Any) -> Any:
    """A csr array without stored zeros; waits for its values."""
    values = values_of(x._parts[0])
    if values.dtype.names or values.all():
        return x
    keep = np.flatnonzero(values)
    return from_keys("csr", x.shape, keys_of(x)[keep], gather(x._parts[0], keep))


# ---- one array -----------------------------------------------------------------------------------


def same_storage(stypes: Any, attrs: Any) -> str | None:
    """The output has the input's storage type."""
    return stypes[0]


def on_values(name: str) -> Callable:
    """The kernel that applies an operator to the stored values."""
    op = lookup(name)

    def run(attrs, x, *others):
        return with_values(x, invoke(op, (x._parts[0],), attrs))

    return run


# f(0) = 0
UNARY = (
    "BlockGrad abs arcsin arcsinh arctan arctanh cbrt ceil degrees expm1 fix floor _copy log1p"
    " make_loss negative radians relu rint round sign sin sinh sqrt square tan tanh trunc"
    " _copyto"
)
for _name in UNARY.split():
    kernel(_name, rule=same_storage)(on_values(_name))


def _clip_rule(stypes, attrs):
    return stypes[0] if attrs["a_min"] <= 0 <= attrs["a_max"] else None


kernel("clip", rule=_clip_rule)(on_values("clip"))


@kernel("zeros_like", rule=same_storage)
def _zeros_like(attrs, x):
    from .creation import zeros

    return zeros(x.stype, x.shape, x.context, x.dtype)


@kernel("reshape_to", rule=same_storage)
def _reshape_to(attrs, x):
    """Gradients reshape arrays to the shape they already have."""
    if attrs["shape"] == x.shape:
        return x
    return invoke(lookup("reshape_to"), (x.tostype(DENSE),), attrs)


# ---- an array and a number -----------------------------------------------------------------------

# the condition on the number for f(0, number) = 0
SCALAR = {
    "_mul_scalar": lambda s: True,
    "_div_scalar": lambda s: True,
    "_plus_scalar": lambda s: s == 0,
    "_minus_scalar": lambda s: s == 0,
    "_equal_scalar": lambda s: s != 0,
    "_not_equal_scalar": lambda s: s == 0,
    "_greater_scalar": lambda s: s >= 0,
    "_greater_equal_scalar": lambda s: s > 0,
    "_lesser_scalar": lambda s: s <= 0,
    "_lesser_equal_scalar": lambda s: s < 0,
    "_scatter_plus_scalar": lambda s: True,
    "_scatter_minus_scalar": lambda s: True,
}


def _scalar_rule(keeps):
    return lambda stypes, attrs: stypes[0] if keeps(float(attrs["scalar"])) else None


for _name, _keeps in SCALAR.items():
    kernel(_name, rule=_scalar_rule(_keeps))(on_values(_name))


# ---- two arrays ----------------------------------------------------------------------------------


def _both_or_dense(stypes, attrs):
    """Two arrays of one sparse storage type keep it; with a dense array the result is dense."""
    if stypes[0] == stypes[1]:
        return stypes[0]
    return DENSE if DENSE in stypes else None


def _both_only(stypes, attrs):
    return stypes[0] if stypes[0] == stypes[1] else None


def _product_rule(stypes, attrs):
    if stypes[0] == stypes[1]:
        return stypes[0]
    return next(s for s in stypes if s != DENSE) if DENSE in stypes else None


def index_pairs(a: Any, b: Any) -> Any:
    """Pairs of the index arrays of two arrays of one storage type."""
    return list(zip(a._parts[1:], b._parts[1:]))


def united(op: Any, a: Any, b: Any) -> Any:
    """op of two arrays of one storage type, on all positions that either stores."""
    if all(p is q or np.array_equal(values_of(p), values_of(q)) for p, q in index_pairs(a, b)):
        return with_values(a, invoke(op, (a._parts[0], b._parts[0]), {}))
    (ka, va), (kb, vb) = sorted_keys(a), sorted_keys(b)
    keys = np.union1d(ka, kb)
    va, vb = (place(v, np.searchsorted(keys, k), len(keys)) for k, v in ((ka, va), (kb, vb)))
    return from_keys(a.stype, a.shape, keys, invoke(op, (va, vb), {}))


def pairwise(name: str) -> Callable:
    """The kernel of an operator of two arrays with f(0, 0) = 0."""
    op = lookup(name)

    def run(attrs, a, b):
        if a.stype != b.stype or a.shape != b.shape:
            return invoke(op, (a.tostype(DENSE), b.tostype(DENSE)), {})
        made = united(op, a, b)
        return without_zeros(made) if a.stype == "csr" else made

    return run


for _name in ("elemwise_add", "elemwise_sub"):
    kernel(_name, rule=_both_or_dense)(pairwise(_name))
kernel("_grad_add", rule=_both_or_dense)(pairwise("_grad_add"))
for _name in ("_maximum", "_minimum", "_hypot"):
    kernel(_name, rule=_both_only)(pairwise(_name))


def stored_of(dense: NDArray, x: Any) -> NDArray:
    """The elements (rows) of a dense array at the positions that x stores."""
    if x.stype == "row_sparse":
        return gather(dense, values_of(x._parts[1]))
    return gather(invoke(lookup("reshape_to"), (dense,), {"shape": (-1,)}), keys_of(x))


@kernel("elemwise_mul", rule=_product_rule)
def _multiply(attrs, a, b):
    op = lookup("elemwise_mul")
    if a.shape != b.shape:
        return invoke(op, (a.tostype(DENSE), b.tostype(DENSE)), {})
    if a.stype == b.stype:
        made = united(op, a, b)
        return without_zeros(made) if a.stype == "csr" else made
    if a.stype == DENSE:
        return with_values(b, invoke(op, (stored_of(a, b), b._parts[0]), {}))
    return with_values(a, invoke(op, (a._parts[0], stored_of(b, a)), {}))


@kernel("elemwise_div", rule=lambda stypes, attrs: DENSE)
def _divide(attrs, a, b):
    return invoke(lookup("elemwise_div"), (a.tostype(DENSE), b.tostype(DENSE)), {})


def _scatter_rule(stypes, attrs):
    return "row_sparse" if stypes[0] == "row_sparse" and stypes[1] != "csr" else None


@kernel("_scatter_elemwise_div", rule=_scatter_rule)
def _scatter_divide(attrs, a, b):
    found = stored_of(b.tostype(DENSE), a)
    return with_values(a, invoke(lookup("elemwise_div"), (a._parts[0], found), {}))


# ---- broadcasting --------------------------------------------------------------------------------


def _broadcast_rule(stypes, attrs):
    return DENSE if DENSE in stypes and "row_sparse" not in stypes else None


def _csr_with_dense(stypes, attrs):
    return "csr" if stypes == ("csr", DENSE) else None


def dense_pair(name: str) -> Callable:
    """The kernel that makes both arrays dense."""
    op = lookup(name)
    return lambda attrs, a, b: invoke(op, (a.tostype(DENSE), b.tostype(DENSE)), {})


for _name in ("broadcast_add", "broadcast_sub"):
    kernel(_name, rule=_broadcast_rule)(dense_pair(_name))


def broadcast_values(name: str) -> Callable:
    """The kernel of csr (op) dense that keeps the csr's elements."""
    op = lookup(name)

    def run(attrs, x, y):
        shape = (1,) * (2 - len(y.shape)) + y.shape
        if y.stype != DENSE or len(shape) != 2:
            return invoke(op, (x.tostype(DENSE), y.tostype(DENSE)), {})
        flat = invoke(lookup("reshape_to"), (y,), {"shape": (-1,)})
        if shape == (1, 1):
            at = np.zeros(x._parts[0].shape[0], np.int64)
        elif shape[0] == 1:
            at = values_of(x._parts[2])
        elif shape[1] == 1:
            at = rows_of(x)
        else:
            at = keys_of(x)
        return with_values(x, invoke(op, (x._parts[0], gather(flat, at)), {}))

    return run


for _name in ("broadcast_mul", "broadcast_div"):
    kernel(_name, rule=_csr_with_dense)(broadcast_values(_name))


# ---- several arrays ------------------------------------------------------------------------------


def _add_n_rule(stypes, attrs):
    return "row_sparse" if set(stypes) == {"row_sparse"} else DENSE


@kernel("add_n", rule=_add_n_rule)
def _add_n(attrs, *xs):
    if _add_n_rule([x.stype for x in xs], attrs) == DENSE:
        dense = [x.tostype(DENSE) for x in xs]
        return invoke(lookup("add_n"), dense, {"num_args": len(dense)})
    keys = np.unique(np.concatenate([keys_of(x) for x in xs]))
    parts = [place(x._parts[0], np.searchsorted(keys, keys_of(x)), len(keys)) for x in xs]
    total = invoke(lookup("add_n"), parts, {"num_args": len(parts)})
    return from_keys("row_sparse", xs[0].shape, keys, total)
