"""nd.contrib's updates by AdamW and LAMB, whose scale of the gradient may be an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import functions
from .ndarray import NDArray


def _scale(rescale_grad, like: NDArray) -> NDArray:
    """rescale_grad as an array of one number, which the operators take. 0, inf and nan skip the
    update."""
    if isinstance(rescale_grad, NDArray):
        return rescale_grad.as_in_context(like.context)
    return functions.full((1,), rescale_grad, like.context)


def adamw_update(
    weight: NDArray,
    grad: NDArray,
    mean: NDArray,
    var: NDArray,
    rescale_grad: float | NDArray,
    lr: float,
    eta: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    wd: float = 0,
    clip_gradient: float = -1,
    out: NDArray | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> Any:
    """One step of AdamW on a weight; mean and var are written. rescale_grad: number or NDArray.

    Source: Loshchilov and Hutter 2019, arXiv:1711.05101.
    """
    return functions._adamw_update(
        weight,
        grad,
        mean,
        var,
        _scale(rescale_grad, weight),
        lr=lr,
        eta=eta,
        beta1=beta1,
        beta2=beta2,
        epsilon=epsilon,
        wd=wd,
        clip_gradient=clip_gradient,
        out=out,
        **kwargs,
    )


def mp_adamw_update(
    weight: NDArray,
    grad: NDArray,
    mean: NDArray,
    var: NDArray,
    weight32: NDArray,
    rescale_grad: float | NDArray,
    lr: float,
    eta: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    wd: float = 0,
    clip_gradient: float = -1,
    out: NDArray | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> Any:
    """adamw_update of a 16-bit weight with its float32 original weight32, which is written too."""
    return functions._mp_adamw_update(
        weight,
        grad,
        mean,
        var,
        weight32,
        _scale(rescale_grad, weight32),
        lr=lr,
        eta=eta,
        beta1=beta1,
        beta2=beta2,
        epsilon=epsilon,
        wd=wd,
        clip_gradient=clip_gradient,
        out=out,
        **kwargs,
    )


def _together(*lists: Sequence[NDArray]) -> list[NDArray]:
    """weight 0, gradient 0, ..., weight 1, gradient 1, ...: the order of operators on many
    weights."""
    return [a for group in zip(*lists, strict=True) for a in group]


def multi_adamw_update(
    weights: Sequence[NDArray],
    grads: Sequence[NDArray],
    mean: Sequence[NDArray],
    var: Sequence[NDArray],
    rescale_grad: float | NDArray,
    lrs: Sequence[float],
    wds: Sequence[float],
    etas: Sequence[float],
    out: Sequence[NDArray] | None = None,
    name: str | None = None,
    size: int = 0,
    **kwargs: Any,
) -> Any:
    """adamw_update of many weights in one call: lists of arrays, and a number for each."""
    arrays = [*_together(weights, grads, mean, var), _scale(rescale_grad, weights[0])]
    numbers: dict[str, Any] = {
        "lrs": lrs,
        "wds": wds,
        "etas": etas,
        "num_weights": size or len(weights),
    }
    return functions._multi_adamw_update(*arrays, out=out, **numbers, **kwargs)


def multi_mp_adamw_update(
    weights: Sequence[NDArray],
    grads: Sequence[NDArray],
    mean: Sequence[NDArray],
    var: Sequence[NDArray],
    weights32: Sequence[NDArray],
    rescale_grad: float | NDArray,
    lrs: Sequence[float],
    wds: Sequence[float],
    etas: Sequence[float],
    out: Sequence[NDArray] | None = None,
    name: str | None = None,
    size: int = 0,
    **kwargs: Any,
) -> Any:
    """mp_adamw_update of many weights in one call: lists of arrays, and a number for each."""
    arrays = _together(weights, grads, mean, var, weights32)
    arrays.append(_scale(rescale_grad, weights32[0]))
    numbers: dict[str, Any] = {
        "lrs": lrs,
        "wds": wds,
        "etas": etas,
        "num_weights": size or len(weights),
    }
    return functions._multi_mp_adamw_update(*arrays, out=out, **numbers, **kwargs)


def multi_lamb_update(
    weights: Sequence[NDArray],
    grads: Sequence[NDArray],
    mean: Sequence[NDArray],
    var: Sequence[NDArray],
    step_count: Sequence[float],
    lrs: Sequence[float],
    wds: Sequence[float],
    out: Sequence[NDArray] | None = None,
    num_tensors: int = 0,
    **kwargs: Any,
) -> Any:
    """One step of LAMB on many weights: lists of arrays, and for each the number of its step, its
    rate and its decay. Source: You et al. 2020, arXiv:1904.00962."""
    return functions._multi_lamb_update(
        *_together(weights, grads, mean, var),
        out=out,
        num_tensors=num_tensors or len(weights),
        step_count=step_count,
        learning_rates=lrs,
        wds=wds,
        **kwargs,
    )


def multi_mp_lamb_update(
    weights: Sequence[NDArray],
    grads: Sequence[NDArray],
    mean: Sequence[NDArray],
    var: Sequence[NDArray],
    weights32: Sequence[NDArray],
    step_count: Sequence[float],
    lrs: Sequence[float],
    wds: Sequence[float],
    out: Sequence[NDArray] | None = None,
    num_tensors: int = 0,
    **kwargs: Any,
) -> Any:
    """multi_lamb_update of 16-bit weights with their float32 originals."""
    return functions._multi_mp_lamb_update(
        *_together(weights, grads, mean, var, weights32),
        out=out,
        num_tensors=num_tensors or len(weights),
        step_count=step_count,
        learning_rates=lrs,
        wds=wds,
        **kwargs,
    )
