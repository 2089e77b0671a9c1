"""row_sparse gradients from the outputs of a dense backward program: row numbers, and rows to be
summed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...kernels.record import lookup
from ..invoke import invoke
from ..ndarray import NDArray
from .structure import distinct, index_array, keys_of, scatter, whole


def added_up(shape: Sequence[int], pairs: Any) -> tuple[NDArray, NDArray]:
    """The sum of rows: values and indices of a row_sparse array of this shape.

    pairs: (row numbers of any shape and dtype, clipped; rows), or row_sparse arrays.
    """
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
        return values, index_array(keys, values)
    return scatter(values, places, len(keys)), index_array(keys, values)
