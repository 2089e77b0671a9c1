"""sym.random: samplers whose parameters are numbers (one distribution) or Symbols (one for each
element)."""

from __future__ import annotations

from numbers import Number
from typing import TYPE_CHECKING, Any

from ..engine.error import MXNetError
from ..kernels.namespaces import derive
from ..kernels.record import dtype_name, lookup
from ..kernels.spec import DType
from .symbol import Symbol, apply, function_of


def _sampler(kind: str, params: dict, shape, dtype, kwargs) -> Symbol:
    """_random_<kind> for numbers, _sample_<kind> for Symbols. Raises MXNetError for a mixture."""
    given = dict(kwargs)
    name, attr = given.pop("name", None), given.pop("attr", None)
    given.pop("ctx", None)
    if shape is not None and shape != ():
        given["shape"] = shape
    if dtype not in (None, "None"):
        given["dtype"] = dtype_name(dtype)
    arrays = [p for p in params.values() if isinstance(p, Symbol)]
    if not arrays:
        if wrong := [k for k, p in params.items() if not isinstance(p, Number)]:
            raise MXNetError(
                f"random.{kind}: {wrong[0]} must be a number or a Symbol, got {params[wrong[0]]!r}"
            )
        return apply(
            lookup(f"_random_{kind}"), f"_random_{kind}", [], {**params, **given}, name, attr
        )
    if len(arrays) != len(params):
        raise MXNetError(
            f"random.{kind}: {' and '.join(params)} must all be Symbols or all be numbers"
        )
    return apply(lookup(f"_sample_{kind}"), f"_sample_{kind}", arrays, given, name, attr)


def uniform(
    low: Any = 0, high: Any = 1, shape: Any = None, dtype: DType | None = None, **kwargs: Any
) -> Symbol:
    """Floats in [low, high)."""
    return _sampler("uniform", {"low": low, "high": high}, shape, dtype, kwargs)


def normal(
    loc: Any = 0, scale: Any = 1, shape: Any = None, dtype: DType | None = None, **kwargs: Any
) -> Symbol:
    """Normal floats of mean loc and standard deviation scale."""
    params = {"loc": loc, "scale": scale}
    if any(isinstance(p, Symbol) for p in params.values()):
        params = {"mu": loc, "sigma": scale}
    return _sampler("normal", params, shape, dtype, kwargs)


def randn(*shape: Any, **kwargs: Any) -> Symbol:
    """Normal floats of a shape: randn(2, 3)."""
    return normal(
        kwargs.pop("loc", 0), kwargs.pop("scale", 1), shape, kwargs.pop("dtype", None), **kwargs
    )


def poisson(lam: Any = 1, shape: Any = None, dtype: DType | None = None, **kwargs: Any) -> Symbol:
    """Poisson counts of rate lam."""
    return _sampler("poisson", {"lam": lam}, shape, dtype, kwargs)


def exponential(
    scale: Any = 1, shape: Any = None, dtype: DType | None = None, **kwargs: Any
) -> Symbol:
    """Exponential floats of mean scale."""
    return _sampler("exponential", {"lam": 1.0 / scale}, shape, dtype, kwargs)


def gamma(
    alpha: Any = 1, beta: Any = 1, shape: Any = None, dtype: DType | None = None, **kwargs: Any
) -> Symbol:
    """Gamma floats of shape alpha and scale beta."""
    return _sampler("gamma", {"alpha": alpha, "beta": beta}, shape, dtype, kwargs)


def negative_binomial(
    k: Any = 1, p: Any = 1, shape: Any = None, dtype: DType | None = None, **kwargs: Any
) -> Symbol:
    """Failures before k successes of probability p."""
    return _sampler("negative_binomial", {"k": k, "p": p}, shape, dtype, kwargs)


def generalized_negative_binomial(
    mu: Any = 1, alpha: Any = 1, shape: Any = None, dtype: DType | None = None, **kwargs: Any
) -> Symbol:
    """Negative binomial counts of mean mu and dispersion alpha."""
    return _sampler(
        "generalized_negative_binomial", {"mu": mu, "alpha": alpha}, shape, dtype, kwargs
    )


def multinomial(
    data: Any, shape: Any = None, get_prob: bool = True, dtype: DType = "int32", **kwargs: Any
) -> Symbol:
    """Indices drawn with the probabilities in data's last axis; get_prob: their log probabilities
    too."""
    given = {"get_prob": get_prob, "dtype": dtype, **kwargs} | (
        {} if shape in (None, ()) else {"shape": shape}
    )
    name, attr = given.pop("name", None), given.pop("attr", None)
    return apply(lookup("_sample_multinomial"), "_sample_multinomial", [data], given, name, attr)


def shuffle(data: Any, **kwargs: Any) -> Symbol:
    """data with its first axis in random order."""
    name, attr = kwargs.pop("name", None), kwargs.pop("attr", None)
    return apply(lookup("_shuffle"), "_shuffle", [data], kwargs, name, attr)


def randint(
    low: Any, high: Any, shape: Any = None, dtype: DType | None = None, **kwargs: Any
) -> Symbol:
    """Whole numbers in [low, high)."""
    return _sampler("randint", {"low": low, "high": high}, shape, dtype, kwargs)


if TYPE_CHECKING:
    from ._random_operators import *
else:  # `uniform_like` ...: as many samples as an array has elements
    _make = lambda full, name: function_of(full, full)
    __getattr__, __dir__ = derive(__name__, _make, "_random_", shown="sym.random")
