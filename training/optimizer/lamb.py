"""LAMB's multi-weight update functions, under the names that scripts import from MXNet."""

from __future__ import annotations

import itertools
from typing import Any

from ...ndarray import functions


def _update(name: str, groups, out, num_tensors: int, step_count, lrs, wds, kwargs):
    arrays = list(itertools.chain.from_iterable(groups))
    return getattr(functions, name)(
        *arrays,
        out=out,
        num_tensors=num_tensors or len(lrs),
        step_count=step_count,
        learning_rates=lrs,
        wds=wds,
        **kwargs,
    )


def multi_lamb_update(
    weights: Any,
    grads: Any,
    mean: Any,
    var: Any,
    step_count: Any,
    lrs: Any,
    wds: Any,
    out: Any = None,
    num_tensors: int = 0,
    **kwargs: Any,
) -> Any:
    """One step of LAMB for lists of weights, gradients and moments; moments are written in place.

    Args:
        step_count, lrs, wds: the number of the step, the rate and the decay of each weight.
        out: list of arrays for the new weights. kwargs: beta1, beta2, epsilon and so on.
    """
    groups = zip(weights, grads, mean, var)
    return _update("_multi_lamb_update", groups, out, num_tensors, step_count, lrs, wds, kwargs)


def multi_mp_lamb_update(
    weights: Any,
    grads: Any,
    mean: Any,
    var: Any,
    weights32: Any,
    step_count: Any,
    lrs: Any,
    wds: Any,
    out: Any = None,
    num_tensors: int = 0,
    **kwargs: Any,
) -> Any:
    """multi_lamb_update on float32 copies of 16-bit weights, which are updated from the copies."""
    groups = zip(weights, grads, mean, var, weights32)
    return _update("_multi_mp_lamb_update", groups, out, num_tensors, step_count, lrs, wds, kwargs)
