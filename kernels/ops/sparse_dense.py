"""Dense layers with pruned weights, for inference: only what is not zero is stored and
multiplied."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...engine.error import DTypeError, OperatorError, ShapeError
from ..record import Param, Type, Types, operator, sample, values
from .int8_dense import rows_of

NAME = "_contrib_sparse_dense"
HEIGHTS = (1, 16)


def _infer(ins: Types, num_hidden: int, no_bias: bool, flatten: bool, height: int) -> list[Type]:
    x, w, columns, starts, *bias = ins
    rows, _ = rows_of(x, flatten)
    if height not in HEIGHTS:
        raise OperatorError(NAME, f"height must be one of {HEIGHTS}, got {height}")
    groups = -(-num_hidden // height)
    if len(columns.shape) != 1 or w.shape != (columns.shape[0], height):
        raise ShapeError(
            NAME,
            f"values must have shape (entries, height) = (len(columns), {height}), got values"
            f" {w.shape} and columns {columns.shape}",
        )
    if starts.shape != (groups + 1,):
        raise ShapeError(
            NAME,
            f"starts must have one number for each group of {height} rows, and one more:"
            f" ({groups + 1},), got {starts.shape}",
        )
    if bias and bias[0].shape != (num_hidden,):
        raise ShapeError(NAME, f"bias must have shape ({num_hidden},), got {bias[0].shape}")
    if any(t.dtype != "float32" for t in (x, w, *bias)):
        raise DTypeError(NAME, f"data, values and bias must be float32, got {x.dtype}, {w.dtype}")
    if any(t.dtype != "int32" for t in (columns, starts)):
        raise DTypeError(
            NAME, f"columns and starts must be int32, got {columns.dtype} and {starts.dtype}"
        )
    return [Type((*rows, num_hidden), "float32")]


def _ref(xp, x, w, columns, starts, bias=None, *, num_hidden, no_bias, flatten, height):
    x = x.reshape(x.shape[0], prod(x.shape[1:])) if flatten else x
    k, entries = x.shape[-1], len(columns)
    if entries and not (0 <= int(columns.min()) and int(columns.max()) < k):
        raise OperatorError(NAME, "a column of a sparse weight lies outside it")
    if (starts[1:] < starts[:-1]).any() or int(starts[0]) < 0 or int(starts[-1]) > entries:
        raise OperatorError(NAME, "the rows of a sparse weight are not in order")
    dense = xp.zeros((len(starts) - 1, height, k), x.dtype)
    for group, (a, b) in enumerate(zip(starts[:-1], starts[1:])):
        for e in range(int(a), int(b)):
            dense[group, :, int(columns[e])] += w[e]
    y = x @ dense.reshape(-1, k)[:num_hidden].T
    return y if no_bias else y + bias


def stored(weight: np.ndarray, height: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(values, columns, starts) of a weight (n, k): of each group of `height` rows the columns that
    are not all zeros."""
    n, k = weight.shape
    padded = np.pad(weight, ((0, -n % height), (0, 0))).reshape(-1, height, k)
    filled = (padded != 0).any(axis=1)
    group, columns = np.nonzero(filled)
    starts = np.concatenate([[0], np.cumsum(filled.sum(axis=1))])
    return padded[group, :, columns], columns.astype("int32"), starts.astype("int32")


_ONE = values([[1.0], [-2.0], [3.0]]), values([0, 2, 1], "int32"), values([0, 2, 2, 3], "int32")
_TALL = (
    values([[float(i - 5) for i in range(16)], [0.5] * 16]),
    values([3, 0], "int32"),
    values([0, 1, 2], "int32"),
)

operator(
    NAME,
    inputs=("data", "values", "columns", "starts", "bias"),
    input_names=lambda no_bias, **_: (
        *("data", "values", "columns", "starts"),
        *(() if no_bias else ("bias",)),
    ),
    params=(
        Param("num_hidden", "int"),
        Param("no_bias", "bool", False),
        Param("flatten", "bool", True),
        Param("height", "int", 1),
    ),
    infer=_infer,
    ref=_ref,
    samples=(
        sample((2, 3), *_ONE, (3,), num_hidden=3),
        sample((21, 3), *_ONE, num_hidden=3, no_bias=True),
        sample((2, 2, 4), *_TALL, (20,), num_hidden=20, height=16, flatten=False),
        sample((13, 4), *_TALL, num_hidden=20, height=16, no_bias=True),
    ),
    doc=(
        "data . weight^T + bias of a pruned weight. Its rows are cut into groups of `height`; entry"
        " e has the group's values (height,) of column columns[e], and group g has the entries from"
        " starts[g] to starts[g + 1]. compress.sparsify makes it of Dense layers."
    ),
)


def fields_of(ins: Types, attrs: dict[str, Any]) -> dict[str, Any]:
    """The call as its kernels see it."""
    rows, k = rows_of(ins[0], attrs["flatten"])
    return {
        "m": prod(rows),
        "n": attrs["num_hidden"],
        "k": k,
        "entries": ins[2].shape[0],
        "height": attrs["height"],
        "bias": not attrs["no_bias"],
    }
