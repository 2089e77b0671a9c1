"""sym.np.random and sym.npx.random: numbers that each run of a graph draws anew."""

from __future__ import annotations

from typing import Any

from ...engine import current_context, missing  # noqa: F401 - MXNet shows the first
from ...engine.error import InvalidType
from ...kernels.record import lookup
from ...ndarray.numpy import random as eager
from ..symbol import Symbol, apply


class Random(eager.Random):
    """The functions, for Symbols. A sequence or a NumPy array cannot be a parameter."""

    def call(self, name: str, inputs: Any, attrs: dict, ctx: Any = None, out: Any = None) -> Any:
        if out is not None:
            raise InvalidType(f"{name}: Symbols have no `out`")
        given = {k: v for k, v in attrs.items() if v is not None}
        hint = name.removeprefix("_npi_").removeprefix("random_")
        return apply(lookup(name), hint, list(inputs), given).as_np_ndarray()

    def given(self, x: Any) -> Any:
        if not isinstance(x, Symbol):
            raise InvalidType(
                f"sym.np.random: parameters must be numbers or Symbols, got {type(x).__name__}\n"
                "  fix: sym.var(name) and the array when the graph runs"
            )
        return x

    def draw(self, name: str, values: tuple, size: Any, dtype: Any, ctx: Any, out: Any) -> Any:
        names = [p.name for p in eager.DISTRIBUTIONS[name].parameters]
        attrs, inputs = self.split(name, dict(zip(names, values)))
        attrs |= {"size": size, "dtype": None if dtype is None else eager.dtype_name(dtype)}
        return self.call(eager.operator_of(name), inputs, attrs, ctx, out)

    def permutation(self, x: Any, ctx: Any = None) -> Any:
        """range(x) in random order; of a Symbol its slices along the first axis."""
        if isinstance(x, Symbol):
            return self.shuffle(x)
        return super().permutation(x, ctx)

    def shuffle(self, x: Any) -> Any:
        """The slices along the first axis in random order: not in place, as Symbols have none."""
        return self.call("_shuffle", [self.given(x)], {})


_random = Random()
globals().update(eager.functions(_random, __name__))
OF_NPX = eager.OF_NPX


def __getattr__(name: str) -> Any:
    raise missing.attribute("sym.np.random", name)
