"""np.random and npx.random: numbers of one stream with mx.random, seeded by the same `seed`.

Parameters are numbers or arrays, which broadcast; `size` is the shape of the whole result, as in
NumPy. Gradients go through the parameters, where a distribution has them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as onp

from ...engine import Context, current_context, missing
from ...engine.error import InvalidType, InvalidValue, OperatorError
from ...kernels.ops.np.random import DISTRIBUTIONS, operator_of
from ...kernels.ops.variates import probabilities
from ...kernels.plan import Plan
from ...kernels.record import dtype_name, lookup
from ...kernels.spec import DType
from ..invoke import invoke
from ..launch import Plans, copy_into, run
from ..ndarray import NDArray
from ..random import get_state, set_state
from ..random import seed as _seed
from ..tape import refuse_recorded
from .array import array, fresh, ndarray

Size = int | Sequence[int] | None
NUMBERS = (float, int)
TEMPLATE = """def {name}({signature}):
    return _draw(({values}), size, dtype, ctx, out)
"""
# in MXNet these have no dtype, and ctx and out after size
WITHOUT_DTYPE = {"exponential", "gumbel", "logistic", "pareto", "rayleigh", "weibull"}


def seed(seed: int, ctx: Context | str = "all") -> None:
    """Restarts the random streams of mx.random, np.random and npx.random, which are one. ctx:
    ignored."""
    _seed(seed)


def sampler(name: str, draw: Callable[..., Any], module: str) -> Callable[..., Any]:
    """np.random.normal and its kin, with real signatures. draw: (distribution, parameters, size,
    dtype, ctx, out) -> numbers."""
    found = DISTRIBUTIONS[name]
    own = [p.name if p.default is None else f"{p.name}={p.default}" for p in found.parameters]
    last = ["ctx=None", "out=None"]
    last = [*last, "dtype=None"] if name in WITHOUT_DTYPE else ["dtype=None", *last]
    source = TEMPLATE.format(
        name=name,
        signature=", ".join([*own, "size=None", *last]),
        values="".join(f"{p.name}, " for p in found.parameters),
    )
    scope: dict[str, Any] = {"_draw": lambda *given: draw(name, *given), "__name__": module}
    exec(compile(source, f"<plait np.random.{name}>", "exec"), scope)
    function = scope[name]
    function.__doc__ = f"{found.doc} Parameters are numbers or arrays, which broadcast to size."
    return function


class Random:
    """The functions, for arrays; symbol/numpy/random.py makes Symbols."""

    Array: type = ndarray

    def __init__(self) -> None:
        self._plans = Plans()

    # ---- what arrays and Symbols do differently --------------------------------------------------

    def call(self, name: str, inputs: Any, attrs: dict, ctx: Any = None, out: Any = None) -> Any:
        """Applies an operator, to inputs that `given` made."""
        made = invoke(lookup(name), inputs, attrs, out, ctx)
        return made if out is not None else fresh(made)

    def given(self, x: Any) -> Any:
        """A parameter that is no number, as an input."""
        return x if isinstance(x, NDArray) else array(x)

    # ---- distributions ---------------------------------------------------------------------------

    def draw(
        self, name: str, values: tuple, size: Size, dtype: DType | None, ctx: Any, out: Any
    ) -> Any:
        """Numbers of a distribution of the table."""
        key = None
        if out is None and all([v.__class__ in NUMBERS for v in values]):
            key = (name, values, size, dtype, ctx or current_context())
            try:
                plan = self._plans[key]
            except TypeError:  # a list
                key = plan = None
            if plan is not None:
                is_one = plan.__class__ is Plan
                return fresh(run(plan, (), ()) if is_one else plan.call((), (), None))
        elif isinstance(out, NDArray):
            size = out.shape if size is None else size
            dtype = out.dtype if dtype is None else dtype
        names = [p.name for p in DISTRIBUTIONS[name].parameters]
        attrs, inputs = self.split(name, dict(zip(names, values)))
        attrs |= {"size": size, "dtype": None if dtype is None else dtype_name(dtype)}
        if key is None:
            return self.call(operator_of(name), inputs, attrs, ctx, out)
        return fresh(invoke(lookup(operator_of(name)), (), attrs, None, ctx, self._plans, key))

    def split(self, name: str, parameters: dict[str, Any]) -> tuple[dict[str, Any], list]:
        """Numbers, by name, and inputs."""
        attrs: dict[str, Any] = {}
        inputs = []
        for k, v in parameters.items():
            if v.__class__ in NUMBERS or isinstance(v, (bool, onp.generic)):
                attrs[k] = float(v)
            elif v is None or isinstance(v, str):
                raise InvalidType(f"random.{name}: {k} must be a number or an array, got {v!r}")
            else:
                inputs.append(self.given(v))
        return attrs, inputs

    def _batched(self, name: str, low: Any, high: Any, batch: Size, dtype: Any, ctx: Any) -> Any:
        names = [p.name for p in DISTRIBUTIONS[name].parameters]
        attrs, inputs = self.split(name, dict(zip(names, (low, high))))
        attrs |= {"size": batch, "dtype": None if dtype is None else dtype_name(dtype)}
        return self.call(f"{operator_of(name)}_n", inputs, attrs, ctx)

    def normal_n(
        self,
        loc: Any = 0.0,
        scale: Any = 1.0,
        batch_shape: Size = None,
        dtype: DType | None = None,
        ctx: Context | None = None,
    ) -> Any:
        """Normal numbers of shape batch_shape + that of the parameters."""
        return self._batched("normal", loc, scale, batch_shape, dtype, ctx)

    def uniform_n(
        self,
        low: Any = 0.0,
        high: Any = 1.0,
        batch_shape: Size = None,
        dtype: DType | None = None,
        ctx: Context | None = None,
    ) -> Any:
        """Uniform numbers of shape batch_shape + that of the parameters."""
        return self._batched("uniform", low, high, batch_shape, dtype, ctx)

    def bernoulli(
        self,
        prob: Any = None,
        logit: Any = None,
        size: Size = None,
        dtype: DType | None = None,
        ctx: Context | None = None,
        out: Any = None,
    ) -> Any:
        """1 with probability prob, or sigmoid(logit), else 0. Raises ValueError unless one of the
        two is given."""
        if (prob is None) == (logit is None):
            raise InvalidValue("random.bernoulli: either prob or logit must be given")
        name = "logit" if prob is None else "prob"
        attrs, inputs = self.split("bernoulli", {name: logit if prob is None else prob})
        attrs |= {"size": _size(size, out), "is_logit": prob is None}
        attrs["dtype"] = None if dtype is None else dtype_name(dtype)
        return self.call("_npi_bernoulli", inputs, attrs, ctx, out)

    def rand(self, *size: int, **kwargs: Any) -> Any:
        """Uniform numbers in [0, 1) of the shape that the arguments give."""
        return self.draw("uniform", (0.0, 1.0), size, *_options("rand", kwargs))

    def randn(self, *size: int, **kwargs: Any) -> Any:
        """Normal numbers of mean 0 and deviation 1 of the shape that the arguments give."""
        return self.draw("normal", (0.0, 1.0), size, *_options("randn", kwargs))

    def random_sample(
        self,
        size: Size = None,
        dtype: DType | None = None,
        ctx: Context | None = None,
        out: Any = None,
    ) -> Any:
        """Uniform numbers in [0, 1)."""
        return self.draw("uniform", (0.0, 1.0), size, dtype, ctx, out)

    def standard_normal(
        self,
        size: Size = None,
        dtype: DType | None = None,
        ctx: Context | None = None,
        out: Any = None,
    ) -> Any:
        """Normal numbers of mean 0 and deviation 1."""
        return self.draw("normal", (0.0, 1.0), size, dtype, ctx, out)

    def standard_exponential(
        self,
        size: Size = None,
        dtype: DType | None = None,
        ctx: Context | None = None,
        out: Any = None,
    ) -> Any:
        """Exponential numbers of mean 1."""
        return self.draw("exponential", (1.0,), size, dtype, ctx, out)

    def standard_gamma(
        self,
        shape: Any,
        size: Size = None,
        dtype: DType | None = None,
        ctx: Context | None = None,
        out: Any = None,
    ) -> Any:
        """Gamma numbers of scale 1."""
        return self.draw("gamma", (shape, 1.0), size, dtype, ctx, out)

    # ---- whole numbers, choices, orders ----------------------------------------------------------

    def randint(
        self,
        low: Any,
        high: Any = None,
        size: Size = None,
        dtype: DType | None = None,
        ctx: Context | None = None,
        out: Any = None,
    ) -> Any:
        """Whole numbers in [low, high), or [0, low); int64 unless dtype says otherwise. Raises
        ValueError where the interval is empty or leaves the dtype."""
        low, high = (0, low) if high is None else (low, high)
        wanted = out if dtype is None else dtype
        name, size = "int64" if wanted is None else dtype_name(wanted), _size(size, out)
        try:
            bounds = operator.index(low), operator.index(high)
        except TypeError:
            inputs = [self.given(x) for x in (low, high)]
            return self.call("_npi_random_between", inputs, {"size": size, "dtype": name}, ctx, out)
        if not name.lstrip("u").startswith("int"):
            raise InvalidType(f"random.randint: dtype must be one of whole numbers, got {name}")
        info = onp.iinfo(name)
        if not (info.min <= bounds[0] and bounds[1] - 1 <= min(info.max, 2**63 - 2)):
            raise OperatorError("random.randint", f"[{low}, {high}) must be within {name}")
        kind = name if name in ("int32", "int64") else "int64"
        attrs = {"low": bounds[0], "high": bounds[1], "shape": size or (), "dtype": kind}
        made = self.call("_random_randint", (), attrs, ctx, out if kind == name else None)
        if kind != name:
            made = made.astype(name)
            if out is not None:
                copy_into(made, out)
        return made if out is None else out

    def choice(
        self,
        a: Any,
        size: Size = None,
        replace: bool = True,
        p: Any = None,
        ctx: Context | None = None,
        out: Any = None,
    ) -> Any:
        """Elements of the first axis of an array, or of range(a).

        p: their probabilities; default alike. Raises ValueError for more elements than there are
        without replacement, and for probabilities that have not sum 1.
        """
        attrs: dict[str, Any] = {"size": _size(size, out), "replace": bool(replace)}
        inputs = []
        try:
            attrs["a"] = operator.index(a)
        except TypeError:
            inputs.append(self.given(a))
            if isinstance(a, NDArray) and not a.shape:
                raise InvalidValue(
                    "random.choice: a must be a whole number or have an axis"
                ) from None
        if p is not None:
            attrs["weighted"] = True
            inputs.append(self._probabilities(p))
        return self.call("_npi_choice", inputs, attrs, ctx, out)

    def _probabilities(self, p: Any) -> Any:
        """Probabilities as an input; known values are checked at once."""
        if isinstance(p, (list, tuple, onp.ndarray)) and not any(isinstance(v, NDArray) for v in p):
            p = probabilities(onp, onp.asarray(p, "float64"))
        return self.given(p)

    def permutation(self, x: Any, ctx: Context | None = None) -> Any:
        """range(x), or the slices of an array along its first axis, in random order."""
        size = x.shape[0] if isinstance(x, NDArray) else None
        if size is None:
            try:
                size = operator.index(x)
            except TypeError:
                x = self.given(x)
                size = x.shape[0]
        return self.choice(x, size, replace=False, ctx=ctx)

    def shuffle(self, x: Any) -> Any:
        """Puts the slices of an array along its first axis in random order, in place. Raises
        MXNetError for a recorded array."""
        refuse_recorded(x)
        copy_into(invoke(lookup("_shuffle"), (x,), {}), x)

    # ---- several numbers at once -----------------------------------------------------------------

    def multinomial(self, n: int, pvals: Any, size: Size = None) -> Any:
        """How often each class occurs in n draws with probabilities pvals (last axis): int64 of
        shape size + pvals.shape."""
        attrs = {"n": n, "size": size}
        return self.call("_npi_multinomial", [self._probabilities(pvals)], attrs)

    def dirichlet(
        self,
        alpha: Any,
        size: Size = None,
        dtype: DType | None = None,
        ctx: Context | None = None,
        out: Any = None,
    ) -> Any:
        """Probabilities of a Dirichlet distribution, of shape size + alpha.shape."""
        attrs = {"size": size, "dtype": None if dtype is None else dtype_name(dtype)}
        return self.call("_npi_random_dirichlet", [self.given(alpha)], attrs, ctx, out)

    def multivariate_normal(
        self, mean: Any, cov: Any, size: Size = None, check_valid: Any = None, tol: Any = None
    ) -> Any:
        """Normal vectors of a mean (..., n) and a positive definite covariance (..., n, n), of
        shape size + (..., n). check_valid, tol: ignored, as in MXNet."""
        inputs = [self.given(mean), self.given(cov)]
        return self.call("_npi_random_multivariate_normal", inputs, {"size": size})


def _size(size: Size, out: Any) -> Any:
    return out.shape if size is None and out is not None else size


def _options(name: str, given: dict[str, Any]) -> list:
    """dtype, ctx and out. Raises TypeError for others."""
    found = [given.pop(k, None) for k in ("dtype", "ctx", "out")]
    if given:
        raise InvalidType(f"random.{name}: has no argument {next(iter(given))!r}")
    return found


OF_NP = (
    *("choice", "dirichlet", "multinomial", "multivariate_normal", "permutation", "rand"),
    *("randint", "randn", "random_sample", "shuffle", "standard_exponential"),
    *("standard_gamma", "standard_normal"),
)
OF_NPX = ("bernoulli", "normal_n", "uniform_n")
SAME = ("random", "ranf", "sample")  # other names of random_sample


def functions(of: Random, module: str) -> dict[str, Callable[..., Any]]:
    """The functions of a namespace `random` of np, by name."""
    found = {name: sampler(name, of.draw, module) for name in DISTRIBUTIONS}
    found |= {name: getattr(of, name) for name in OF_NP}
    return found | {name: of.random_sample for name in SAME}


_random = Random()
globals().update(functions(_random, __name__))


def __getattr__(name: str) -> Any:
    raise missing.attribute("np.random", name)


__all__ = ["get_state", "seed", "set_state", *DISTRIBUTIONS, *OF_NP, *SAME]  # noqa: PLE0604
