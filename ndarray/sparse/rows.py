"""row_sparse gradients from what a dense backward program returns: row numbers, and rows to add
up."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels.record import lookup
from ..invoke import invoke
from . import sparse_array as arrays
from .structure import distinct, index_array, keys_of, scatter, values_of, whole


def added_up(shape, pairs) -> Any:
    """A row_sparse array of a shape: the sum of rows. pairs: (row numbers of any shape and dtype,
    clipped; rows), or row_sparse arrays."""
    numbers, rows = [], []
    for pair in pairs:
        if isinstance(pair, tuple):
            numbers.append(np.clip(whole(pair[0]), 0, shape[0] - 1))
            flat = {"shape": (numbers[-1].size, *shape[1:])}
            rows.append(invoke(lookup("reshape_to"), (pair[1],), flat))
        else:
            numbers.append(keys_of(pair))
            rows.append(pair._parts[0])
    keys, places = distinct(np.concatenate(numbers), shape[0])
    values = rows[0]
    if len(rows) > 1:
        values = invoke(lookup("Concat"), rows, {"dim": 0, "num_args": len(rows)})
    if len(keys) == len(places) and bool((np.diff(places) == 1).all()):
        return arrays.row_sparse(shape, values, index_array(keys, values))
    return arrays.row_sparse(shape, scatter(values, places, len(keys)), index_array(keys, values))


def total(grad, pairs, add: bool) -> Any:
    """The sum of pairs, and of `grad` if add; see RowSparseNDArray._add_up."""
    dense = [p for p in pairs if not isinstance(p, tuple)]
    found = [p for p in pairs if isinstance(p, tuple)]
    if add and len(values_of(grad._parts[1])):
        found.append(grad)
    if not dense:
        return added_up(grad.shape, found) if found else None
    made = dense[0] if len(dense) == 1 else invoke(lookup("add_n"), dense, {})
    return made + added_up(grad.shape, found) if found else made
