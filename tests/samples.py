"""Inputs of an operator record's samples as arrays: what `record.sample` describes, drawn."""

import numpy as np
from plait.kernels.traits import LossLayer

# their gradient is another function, by design
NO_DERIVATIVE = {
    "_contrib_round_ste",
    "_contrib_sign_ste",
    "_contrib_gradientmultiplier",
    "IdentityAttachKLSparseReg",
}


def is_public(op) -> bool:
    """Do users call it? Others are called by gradients and optimizers only, with shapes that are
    right by construction."""
    return op.pointwise or any(
        "_update" not in n and (not n.startswith("_") or n.startswith(("_contrib_", "_image_")))
        for n in (op.name, *op.aliases)
    )


def is_differentiable(op) -> bool:
    """Is its gradient the derivative?"""
    return (
        op.grad is not None
        and not op.has(LossLayer)
        and not op.random
        and is_public(op)
        and op.name not in NO_DERIVATIVE
    )


def usual_dtype(op) -> str:
    """Of inputs, where a test needs one dtype only."""
    return "int32" if op.pointwise and op.pointwise.dtypes == "whole" else "float32"


def kind_of(given) -> str:
    """values, ints, uniform or definite as `record` makes them; normal for a bare shape."""
    return given[0] if given and isinstance(given[0], str) else "normal"


def shape_of(given) -> tuple[int, ...]:
    kind = kind_of(given)
    return (
        tuple(given) if kind == "normal" else np.shape(given[1]) if kind == "values" else given[1]
    )


def draw(rng, given, shape=None):
    """(float64 array, the dtype that it must have or None) of one input. shape: another than the
    sample's, for which a draw may be impossible (ValueError)."""
    kind, shape = kind_of(given), shape_of(given) if shape is None else shape
    if kind == "values":
        x = np.asarray(given[1], np.float64)
        if x.shape != shape:
            x = rng.choice(x.reshape(-1), shape) if x.size else np.zeros(shape)
        return x, given[2] if given[2] != "float32" else None
    if kind == "ints":
        return np.asarray(rng.integers(given[2], given[3], shape), np.float64), None
    if kind == "uniform":
        return np.asarray(rng.uniform(given[2], given[3], shape)), None
    x = np.asarray(rng.normal(size=shape))
    if kind == "definite" and len(shape) > 1 and shape[-1] == shape[-2]:
        x = x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])
    return x, None
