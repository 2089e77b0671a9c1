"""Optimizer updates with row_sparse gradients: lazy updates, as in MXNet, change only the rows in
the gradient (states have the weight's storage type), others change all rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.error import InvalidType
from ...kernels.record import lookup, mutated_inputs
from ..invoke import invoke
from ..launch import copy_into
from ..ndarray import NDArray
from . import sparse_array as arrays
from .storage import DENSE, kernel
from .structure import gather, index_array, place, values_of


def _dense_part(x, rows: np.ndarray):
    """(the dense array that holds the rows of x, their positions in it); missing rows are added to
    a row_sparse x."""
    if x.stype == DENSE:
        return x, rows
    values, stored = x._parts[0], values_of(x._parts[1])
    if not len(stored):
        found = rows
        x._take(
            arrays.row_sparse(x.shape, place(values, rows[:0], len(rows)), index_array(rows, x))
        )
    elif len(stored) != x.shape[0] and not np.isin(rows, stored, assume_unique=True).all():
        found = np.union1d(stored, rows)
        values = place(values, np.searchsorted(found, stored), len(found))
        x._take(arrays.row_sparse(x.shape, values, index_array(found, x)))
    else:
        found = stored
    return x._parts[0], rows if len(found) == x.shape[0] else np.searchsorted(found, rows)


def on_rows(name: str, attrs: dict, weight: NDArray, grad: Any, *states: NDArray) -> NDArray:
    """Runs a dense update operator on the rows of a row_sparse gradient; weight and states are
    written in place. Returns weight."""
    op, rows = lookup(name), values_of(grad._parts[1])
    if not len(rows):
        return weight
    held = [_dense_part(x, rows) for x in (weight, *states)]
    every = len(rows) == weight.shape[0]
    if every:
        parts = [h for h, _ in held]
    else:
        parts = [gather(h, at) for h, at in held]
    inputs = [parts[0], grad._parts[0], *parts[1:]]
    made = invoke(op, inputs, attrs, parts[0] if every else None)
    if every:
        return weight
    written = {0: made, **{i - 1: inputs[i] for i in mutated_inputs(op, attrs, len(inputs))}}
    for i, part in written.items():
        whole, at = held[i]
        invoke(lookup("_assign_rows"), (whole, part, index_array(at, whole)), {}, whole)
    return weight


def on_all(name: str, attrs: dict, weight: NDArray, grad: Any, *states: NDArray) -> NDArray:
    """Runs a dense update operator with the gradient made dense."""
    inputs = [x.tostype(DENSE) for x in (weight, grad, *states)]
    made = invoke(lookup(name), inputs, attrs)
    given = (weight, grad, *states)
    for i in mutated_inputs(lookup(name), attrs, len(inputs)):
        if inputs[i] is not given[i]:
            copy_into(inputs[i], given[i])
    copy_into(made, weight)
    return weight


def _rule(stypes, attrs):
    if stypes[1] == "csr":
        return None
    return stypes[0]


def update(*names: str) -> None:
    """Registers update operators that are lazy where lazy_update says so, or always."""

    def make(name):
        def run(attrs, weight, grad, *states):
            if grad.stype == "csr" or weight.stype == "csr":
                raise InvalidType(f"{name}: weight and gradient must not be csr")
            lazy = (
                attrs.get("lazy_update", True)
                and grad.stype == "row_sparse"
                and all(s.stype == weight.stype for s in states)
                and (name != "ftrl_update" or weight.stype == "row_sparse")
            )
            return (on_rows if lazy else on_all)(name, attrs, weight, grad, *states)

        return run

    for name in names:
        kernel(name, rule=_rule)(make(name))


update(
    "sgd_update",
    "sgd_mom_update",
    "adam_update",
    "ftrl_update",
    "_sparse_adagrad_update",
    "_contrib_group_adagrad_update",
)
