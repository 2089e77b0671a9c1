"""Arithmetic, comparison and logic of two arrays, or of an array and a number.

Each row makes the front of two arrays (`_npi_add`) and those of a number on the right
(`_npi_add_scalar`) and on the left (`_npi_radd_scalar`). Operands of different dtypes meet in the
one that `promoted` gives. A number is of the array's kind, or lifts it: an int is an int64 beside
bools, a float a float32 beside whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...front import DEFAULT, alike, cast, dtype_of, floating, front
from ...record import FLOATS, Array, Param, sample, uniform


class Pair(NamedTuple):
    """An operation on two operands. both, right, left: operators of two arrays, of an array and a
    number, of a number and an array; "": the operands change places."""

    both: str
    right: str
    left: str
    ref: Callable
    kind: str = "number"  # of the result: number, float, or bool
    domain: tuple[float, float] = (0.3, 3)
    bools: str = ""  # the operator that stands for it where both are bool
    only: str = ""  # "whole": floats are refused


PAIRS = {
    "add": Pair("broadcast_add", "_plus_scalar", "_plus_scalar", np.add, bools="_npi_logical_or"),
    "subtract": Pair("broadcast_sub", "_minus_scalar", "_rminus_scalar", np.subtract),
    "multiply": Pair(
        "broadcast_mul", "_mul_scalar", "_mul_scalar", np.multiply, bools="_npi_logical_and"
    ),
    "true_divide": Pair(
        "broadcast_div", "_div_scalar", "_rdiv_scalar", np.true_divide, kind="float"
    ),
    "mod": Pair("broadcast_mod", "_mod_scalar", "_rmod_scalar", np.mod),
    "power": Pair("broadcast_power", "_power_scalar", "_rpower_scalar", np.power),
    "maximum": Pair("broadcast_maximum", "_maximum_scalar", "_maximum_scalar", np.maximum),
    "minimum": Pair("broadcast_minimum", "_minimum_scalar", "_minimum_scalar", np.minimum),
    "hypot": Pair("broadcast_hypot", "_hypot_scalar", "_hypot_scalar", np.hypot, kind="float"),
    **{
        name: Pair(f"broadcast_{of}", f"_{of}_scalar", f"_{mirrored}_scalar", ref, kind="bool")
        for name, of, mirrored, ref in (
            ("equal", "equal", "equal", np.equal),
            ("not_equal", "not_equal", "not_equal", np.not_equal),
            ("greater", "greater", "lesser", np.greater),
            ("greater_equal", "greater_equal", "lesser_equal", np.greater_equal),
            ("less", "lesser", "greater", np.less),
            ("less_equal", "lesser_equal", "greater_equal", np.less_equal),
            ("logical_and", "logical_and", "logical_and", np.logical_and),
            ("logical_or", "logical_or", "logical_or", np.logical_or),
            ("logical_xor", "logical_xor", "logical_xor", np.logical_xor),
        )
    },
}
NUMBER = (Param("scalar", "float", 1.0, dynamic=True), Param("is_int", "bool", True))


def lifted(dtype: str, is_int: bool) -> str:
    """The dtype in which an array meets a number."""
    if is_int:
        return "int64" if dtype == "bool" else dtype
    return floating(dtype)


def _register(name: str, pair: Pair) -> None:
    def finish(F: Any, y: Array) -> Array:
        return cast(F, y, "bool") if pair.kind == "bool" else y

    def rule(F: Any, x1: Array, x2: Array) -> Array:
        dtypes = {dtype_of(x1), dtype_of(x2)}
        if pair.bools and dtypes == {"bool"}:
            return getattr(F, pair.bools)(x1, x2)
        least = DEFAULT if pair.kind == "float" and not dtypes & set(FLOATS) else ""
        return finish(F, getattr(F, pair.both)(*alike(F, x1, x2, least=least)))

    def of_number(operator: str) -> Callable[..., Array]:
        def scalar_rule(F: Any, data: Array, scalar: Any, is_int: bool) -> Array:
            dtype = lifted(dtype_of(data), is_int)
            x = cast(F, data, floating(dtype) if pair.kind == "float" else dtype)
            return finish(F, getattr(F, operator)(x, scalar=scalar, is_int=is_int))

        return scalar_rule

    def number(scalar: float, is_int: bool) -> float:
        return int(scalar) if is_int else scalar

    draw = uniform((2, 3), *pair.domain)
    front(
        f"_npi_{name}",
        rule,
        inputs=("x1", "x2"),
        ref=lambda xp, x1, x2: pair.ref(x1, x2),
        samples=(
            sample(draw, draw),
            sample(uniform((2, 1, 3), *pair.domain), uniform((3,), *pair.domain)),
        ),
        doc=f"{name} of two arrays, which broadcast.",
    )
    front(
        f"_npi_{name}_scalar",
        of_number(pair.right),
        params=NUMBER,
        ref=lambda xp, data, scalar, is_int: pair.ref(data, number(scalar, is_int)),
        samples=(sample(draw, scalar=1.5, is_int=False), sample(draw, scalar=2.0)),
        doc=f"{name} of an array and a number.",
    )
    front(
        f"_npi_r{name}_scalar",
        of_number(pair.left),
        params=NUMBER,
        ref=lambda xp, data, scalar, is_int: pair.ref(number(scalar, is_int), data),
        samples=(sample(draw, scalar=1.5, is_int=False), sample(draw, scalar=2.0)),
        doc=f"{name} of a number and an array.",
    )


for _name, _pair in PAIRS.items():
    _register(_name, _pair)
