"""Inputs of an operator record's samples as arrays: what `record.sample` describes, drawn."""

import numpy as np


def kind_of(given) -> str:
    """values, ints, uniform or definite as `record` makes them; normal for a bare shape."""
    return given[0] if given and isinstance(given[0], str) else "normal"


def draw(rng, given):
    """(float64 array, the dtype that it must have or None) of one input."""
    kind = kind_of(given)
    if kind == "values":
        return np.asarray(given[1], np.float64), given[2] if given[2] != "float32" else None
    shape = given if kind == "normal" else given[1]
    if kind == "ints":
        return np.asarray(rng.integers(given[2], given[3], shape), np.float64), None
    if kind == "uniform":
        return np.asarray(rng.uniform(given[2], given[3], shape)), None
    x = np.asarray(rng.normal(size=shape))
    if kind == "definite":
        x = x @ np.swapaxes(x, -1, -2) + np.eye(x.shape[-1])
    return x, None
