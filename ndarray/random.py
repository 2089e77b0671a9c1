"""nd.random, mx.random: arrays of random numbers.

Parameters are all numbers, or all NDArrays: then `shape` samples are drawn for each element of the
parameters. The stream depends on the seed alone, not on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine import Context, current_context, lib
from ..engine._core import ffi
from ..engine.error import InvalidValue, compose
from ..kernels.namespaces import derive
from ..kernels.record import dtype_name, lookup
from ..kernels.spec import DType
from .invoke import invoke
from .launch import Plans, run
from .ndarray import NDArray

__all__ = [
    "exponential",
    "gamma",
    "generalized_negative_binomial",
    "multinomial",
    "negative_binomial",
    "normal",
    "poisson",
    "randint",
    "randn",
    "seed",
    "shuffle",
    "uniform",
]


_plans = Plans()  # by distribution, parameters, shape, dtype and device


def _draw(name: str, params: dict, shape, dtype, ctx, out, kwargs) -> NDArray:
    """Samples of a distribution: the operator `_random_<name>` for numbers, `_sample_<name>` for
    NDArrays."""
    key = (name, *params.values(), shape, dtype, ctx or current_context())
    try:
        plan = None if kwargs or out is not None else _plans[key]
    except TypeError:  # a list
        plan = None
    if plan is not None:
        return run(plan, (), ())
    attrs = {k: v for k, v in kwargs.items() if v is not None}
    if shape is not None:
        attrs["shape"] = shape
    if dtype is not None:
        attrs["dtype"] = dtype if dtype == "None" else dtype_name(dtype)
    arrays = [v for v in params.values() if isinstance(v, NDArray)]
    if not arrays:
        for k, value in params.items():
            try:
                attrs[k] = float(value)
            except TypeError:
                raise InvalidValue(
                    f"{name}: {k} must be a number or an NDArray, got {type(value).__name__}"
                ) from None
        if shape is None and out is None:
            attrs["shape"] = (1,)
        elif shape is None:
            attrs["shape"] = out.shape
        if dtype is None and out is not None:
            attrs["dtype"] = out._spec.dtype
        op = lookup(f"_random_{name}")
        known = (
            out is None
            and not kwargs
            and not op.has_dynamic
            and type(shape) is tuple
            and all([type(n) is int for n in shape])
            and all([type(v) in (int, float) for v in params.values()])
        )
        return invoke(op, (), attrs, out, ctx, _plans if known else None, key)
    if len(arrays) < len(params):
        kinds = ", ".join(f"{k} {type(v).__name__}" for k, v in params.items())
        raise InvalidValue(
            compose(
                f"{name}: parameters must be all NDArrays or all numbers, got {kinds}",
                fix="nd.full(shape, x) makes an array of a number",
            )
        )
    return invoke(lookup(f"_sample_{name}"), arrays, attrs, out)


def uniform(
    low: Any = 0,
    high: Any = 1,
    shape: int | Sequence[int] | None = None,
    dtype: DType | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """Uniform on [low, high)."""
    return _draw("uniform", {"low": low, "high": high}, shape, dtype, ctx, out, kwargs)


def normal(
    loc: Any = 0,
    scale: Any = 1,
    shape: int | Sequence[int] | None = None,
    dtype: DType | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """Normal with mean loc and standard deviation scale > 0."""
    names = ("loc", "scale") if not isinstance(loc, NDArray) else ("mu", "sigma")
    return _draw("normal", dict(zip(names, (loc, scale))), shape, dtype, ctx, out, kwargs)


def randn(
    *shape: Any,
    loc: Any = 0,
    scale: Any = 1,
    dtype: DType | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """Normal numbers of the shape given by the positional arguments."""
    return normal(loc, scale, shape or None, dtype, ctx, out, **kwargs)


def randint(
    low: Any,
    high: Any,
    shape: int | Sequence[int] | None = None,
    dtype: DType | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """Whole numbers, uniform on [low, high); dtype int32 or int64."""
    return _draw("randint", {"low": low, "high": high}, shape, dtype, ctx, out, kwargs)


def exponential(
    scale: Any = 1,
    shape: int | Sequence[int] | None = None,
    dtype: DType | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """Exponential with mean scale."""
    rate = scale**-1.0
    return _draw("exponential", {"lam": rate}, shape, dtype, ctx, out, kwargs)


def gamma(
    alpha: Any = 1,
    beta: Any = 1,
    shape: int | Sequence[int] | None = None,
    dtype: DType | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """Gamma with shape alpha and scale beta (mean alpha * beta)."""
    return _draw("gamma", {"alpha": alpha, "beta": beta}, shape, dtype, ctx, out, kwargs)


def poisson(
    lam: Any = 1,
    shape: int | Sequence[int] | None = None,
    dtype: DType | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """Poisson with mean lam."""
    return _draw("poisson", {"lam": lam}, shape, dtype, ctx, out, kwargs)


def negative_binomial(
    k: Any = 1,
    p: Any = 1,
    shape: int | Sequence[int] | None = None,
    dtype: DType | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """Number of failures before k successes of probability p."""
    return _draw("negative_binomial", {"k": k, "p": p}, shape, dtype, ctx, out, kwargs)


def generalized_negative_binomial(
    mu: Any = 1,
    alpha: Any = 1,
    shape: int | Sequence[int] | None = None,
    dtype: DType | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """Poisson whose mean is Gamma distributed: mean mu, dispersion alpha."""
    return _draw(
        "generalized_negative_binomial", {"mu": mu, "alpha": alpha}, shape, dtype, ctx, out, kwargs
    )


def multinomial(
    data: Any,
    shape: int | Sequence[int] | None = None,
    get_prob: bool = False,
    out: NDArray | None = None,
    dtype: DType = "int32",
    **kwargs: Any,
) -> Any:
    """Indices drawn with the probabilities of data's last axis; with their log likelihoods if
    get_prob."""
    attrs = {"get_prob": get_prob, "dtype": dtype_name(dtype), **kwargs}
    if shape is not None:
        attrs["shape"] = shape
    return invoke(lookup("_sample_multinomial"), (data,), attrs, out)


def shuffle(data: Any, out: NDArray | None = None, **kwargs: Any) -> NDArray:
    """The slices of data along its first axis in random order."""
    return invoke(lookup("_shuffle"), (data,), kwargs, out)


def seed(seed_state: int, ctx: Context | str = "all") -> None:
    """Restarts the random streams. ctx: ignored; all devices share one stream."""
    try:
        state = seed_state.__index__()
    except AttributeError:
        raise InvalidValue(
            f"seed: seed_state must be an int, got {type(seed_state).__name__}"
        ) from None
    lib.pl_seed(state % 2**53)  # the seed is passed to kernels as a double


def get_state() -> dict:
    """The state of the random streams of plait, NumPy (np.random) and Python (random), as numbers
    and NumPy arrays. set_state restores it."""
    import random

    numbers = ffi.new("uint64_t[2]")
    lib.pl_random_get(numbers, numbers + 1)
    version, words, gauss = random.getstate()
    return {
        "plait": [int(n) for n in numbers],
        "numpy": np.random.get_state(legacy=False),
        "python": [version, np.array(words, np.uint32), gauss],
    }


def set_state(state: dict) -> None:
    """Restores all random streams to a state from get_state.

    >>> state = mx.random.get_state()
    >>> a = mx.random.uniform(shape=3)
    >>> mx.random.set_state(state)
    >>> bool((mx.random.uniform(shape=3) == a).asnumpy().all())
    True
    """
    import random

    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    np.random.set_state(state["numpy"])
    lib.pl_random_set(*state["plait"])


def seed_all(n: int) -> None:
    """Seeds plait, Python's `random` and NumPy with one number."""
    import random

    seed(n)
    random.seed(n)
    np.random.seed(n % 2**32)


def _function_of(full: str, name: str) -> Any:
    from . import functions

    return functions.function_of(full, name)


if TYPE_CHECKING:
    from ._random_operators import *
else:  # `uniform_like` ...: as many samples as an array has elements
    __getattr__, __dir__ = derive(__name__, _function_of, "_random_", shown="nd.random")
