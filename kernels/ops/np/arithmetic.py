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

from ....engine.error import DTypeError, OperatorError
from ...front import DEFAULT, alike, cast, dtype_of, floating, front, promoted
from ...record import FLOATS, Array, Param, Sample, sample, uniform, values


class Pair(NamedTuple):
    """An operation on two operands. both, right, left: operators of two arrays, of an array and a
    number, of a number and an array. right, left "": the number becomes an array."""

    both: str
    right: str
    left: str
    ref: Callable
    kind: str = "number"  # float: whole numbers become float32; bool: so is the result; whole
    domain: tuple[float, float] = (0.3, 3)
    # for two bools: a dtype they become, an operator, or "refuse"; "": they stay
    bools: str = ""
    aliases: tuple[str, ...] = ()
    wide: bool = False  # float16 is refused: its neighbours are not float32's


def _bitwise(name: str, bools: str, ref: Callable) -> Pair:
    return Pair(f"_bitwise_{name}", "", "", ref, kind="whole", bools=bools)


def _float(of: str, ref: Callable, **fields: Any) -> Pair:
    return Pair(of, "", "", ref, kind="float", **fields)


PAIRS = {
    "add": Pair("broadcast_add", "_plus_scalar", "_plus_scalar", np.add, bools="_npi_logical_or"),
    "subtract": Pair(
        "broadcast_sub", "_minus_scalar", "_rminus_scalar", np.subtract, bools="refuse"
    ),
    "multiply": Pair(
        "broadcast_mul", "_mul_scalar", "_mul_scalar", np.multiply, bools="_npi_logical_and"
    ),
    "true_divide": Pair(
        *("broadcast_div", "_div_scalar", "_rdiv_scalar", np.true_divide),
        kind="float",
        aliases=("divide",),
    ),
    "floor_divide": Pair(
        *("_floor_divide", "_floor_divide_scalar", "_rfloor_divide_scalar", np.floor_divide),
        bools="int8",
        domain=(1.3, 1.9),
    ),
    "mod": Pair(
        *("_remainder", "_remainder_scalar", "_rremainder_scalar", np.mod),
        bools="int8",
        aliases=("remainder",),
        domain=(1.6, 1.9),
    ),
    "fmod": Pair("_fmod", "", "", np.fmod, bools="int8", domain=(1.6, 1.9)),
    "power": Pair(
        *("broadcast_power", "_power_scalar", "_rpower_scalar", np.power),
        bools="int8",
        aliases=("pow",),
    ),
    "float_power": Pair(
        *("broadcast_power", "_power_scalar", "_rpower_scalar", np.float_power), kind="float"
    ),
    "maximum": Pair(
        *("broadcast_maximum", "_maximum_scalar", "_maximum_scalar", np.maximum),
        bools="_npi_logical_or",
    ),
    "minimum": Pair(
        *("broadcast_minimum", "_minimum_scalar", "_minimum_scalar", np.minimum),
        bools="_npi_logical_and",
    ),
    "fmax": Pair("_fmax", "", "", np.fmax, bools="_npi_logical_or"),
    "fmin": Pair("_fmin", "", "", np.fmin, bools="_npi_logical_and"),
    "hypot": Pair("broadcast_hypot", "_hypot_scalar", "_hypot_scalar", np.hypot, kind="float"),
    "arctan2": _float("_arctan2", np.arctan2, domain=(-3, 3), aliases=("atan2",)),
    "copysign": _float("_copysign", np.copysign, domain=(-3, 3)),
    "nextafter": _float("_nextafter", np.nextafter, wide=True),
    "heaviside": _float("_heaviside", np.heaviside),
    "logaddexp": _float("_logaddexp", np.logaddexp),
    "ldexp": _float("_ldexp", lambda a, b: a * 2.0**b),
    "bitwise_and": _bitwise("and", "_npi_logical_and", np.bitwise_and),
    "bitwise_or": _bitwise("or", "_npi_logical_or", np.bitwise_or),
    "bitwise_xor": _bitwise("xor", "_npi_logical_xor", np.bitwise_xor),
    "left_shift": Pair(
        *("_left_shift", "", "", np.left_shift, "whole"),
        bools="int8",
        aliases=("bitwise_left_shift",),
    ),
    "right_shift": Pair(
        *("_right_shift", "", "", np.right_shift, "whole"),
        bools="int8",
        aliases=("bitwise_right_shift",),
    ),
    "gcd": Pair("_gcd", "", "", np.gcd, "whole", bools="refuse"),
    "lcm": Pair("_lcm", "", "", np.lcm, "whole", bools="refuse"),
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


def refuse(name: str, dtype: str, rule: str, fix: str = "x.astype('int32')") -> None:
    raise DTypeError(f"np.{name}", f"{rule}, got {dtype}", fix=fix)


def _check(name: str, pair: Pair, dtype: str) -> None:
    """Raises DTypeError where an operation has no meaning for operands of a dtype."""
    if pair.kind == "whole" and dtype in FLOATS:
        refuse(name, dtype, "operands must be whole numbers or bools")
    if pair.wide and dtype in ("float16", "bfloat16"):
        refuse(name, dtype, "operands must be of float32 or float64", "x.astype('float32')")


def _register(name: str, pair: Pair) -> None:
    def finish(F: Any, y: Array) -> Array:
        return cast(F, y, "bool") if pair.kind == "bool" else y

    def rule(F: Any, x1: Array, x2: Array) -> Array:
        dtypes = {dtype_of(x1), dtype_of(x2)}
        least = ""
        if dtypes == {"bool"} and pair.bools:
            if pair.bools == "refuse":
                refuse(name, "bool", "operands must be numbers", "np.logical_xor(x1, x2)")
            if pair.bools.startswith("_"):
                return getattr(F, pair.bools)(x1, x2)
            least = pair.bools
        elif pair.kind == "float" and not dtypes & set(FLOATS):
            least = DEFAULT
        xs = alike(F, x1, x2, least=least)
        _check(name, pair, dtype_of(xs[0]))
        return finish(F, getattr(F, pair.both)(*xs))

    def of_number(operator: str, left: bool) -> Callable[..., Array]:
        def scalar_rule(F: Any, data: Array, scalar: Any, is_int: bool) -> Array:
            dtype = lifted(dtype_of(data), is_int)
            dtype = floating(dtype) if pair.kind == "float" else dtype
            x = cast(F, data, dtype)
            _check(name, pair, dtype)
            if name == "power" and not left and dtype not in FLOATS and not scalar >= 0:
                raise OperatorError(
                    "np.power",
                    f"of whole numbers: the exponent must not be negative, got {scalar:g} for "
                    f"{dtype}",
                    fix="x.astype('float32') ** n",
                )
            if operator:
                return finish(F, getattr(F, operator)(x, scalar=scalar, is_int=is_int))
            number = F._full(shape=(), value=scalar, dtype=dtype)
            return finish(F, getattr(F, pair.both)(*((number, x) if left else (x, number))))

        return scalar_rule

    def number(scalar: float, is_int: bool) -> float:
        return int(scalar) if is_int else scalar

    pairs, scalars = _samples(pair)
    front(
        f"_npi_{name}",
        rule,
        inputs=("x1", "x2"),
        ref=lambda xp, x1, x2: pair.ref(x1, x2),
        samples=pairs,
        aliases=tuple(f"_npi_{a}" for a in pair.aliases),
        doc=f"{name} of two arrays, which broadcast.",
    )
    front(
        f"_npi_{name}_scalar",
        of_number(pair.right, left=False),
        params=NUMBER,
        ref=lambda xp, data, scalar, is_int: pair.ref(data, number(scalar, is_int)),
        samples=scalars,
        aliases=tuple(f"_npi_{a}_scalar" for a in pair.aliases),
        doc=f"{name} of an array and a number.",
    )
    front(
        f"_npi_r{name}_scalar",
        of_number(pair.left, left=True),
        params=NUMBER,
        ref=lambda xp, data, scalar, is_int: pair.ref(number(scalar, is_int), data),
        samples=scalars,
        aliases=tuple(f"_npi_r{a}_scalar" for a in pair.aliases),
        doc=f"{name} of a number and an array.",
    )


def _samples(pair: Pair) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """(of two arrays, of an array and a number)."""
    if pair.kind == "whole":
        whole = values([[3, 1, 4], [1, 5, 9]], "int32")
        pairs: tuple[Sample, ...] = (sample(whole, values([1, 2, 3], "int64")),)
        if pair.bools != "refuse":
            pairs += (sample(values([True, False], "bool"), values([True], "bool")),)
        return pairs, (sample(whole, scalar=2.0), sample(values([[7], [1]], "uint8"), scalar=3.0))
    draw, low, high = uniform((2, 3), *pair.domain), *pair.domain
    other = uniform((2, 3), low + 1e-3, high + 1e-3)
    pairs = sample(draw, other), sample(uniform((2, 1, 3), low, high), uniform((3,), low, high))
    whole = values([[3, 1, 4], [1, 5, 9]], "int32")
    return (*pairs, sample(whole, values([2, 7, 1], "int64"))), (
        sample(draw, scalar=1.5, is_int=False),
        sample(draw, scalar=2.0),
        sample(whole, scalar=2.0),
    )


for _name, _pair in PAIRS.items():
    _register(_name, _pair)


# ---- pairs whose rules are made of other fronts --------------------------------------------------
LN2 = float(np.log(2))


def _logaddexp2(F: Any, x1: Array, x2: Array) -> Array:
    a, b = alike(F, x1, x2, least="" if {dtype_of(x1), dtype_of(x2)} & set(FLOATS) else DEFAULT)
    return F._logaddexp(a * LN2, b * LN2) / LN2


front(
    "_npi_logaddexp2",
    _logaddexp2,
    inputs=("x1", "x2"),
    ref=lambda xp, x1, x2: np.logaddexp2(x1, x2),
    samples=(sample((2, 3), (2, 3)), sample((2, 1), (3,))),
    doc="log2(2^x1 + 2^x2), without overflow.",
)


def _divmod(F: Any, x1: Array, x2: Array) -> list[Array]:
    return [F._npi_floor_divide(x1, x2), F._npi_mod(x1, x2)]


front(
    "_npi_divmod",
    _divmod,
    inputs=("x1", "x2"),
    n_outputs=2,
    ref=lambda xp, x1, x2: np.divmod(x1, x2),
    samples=(sample(uniform((2, 3), 1.6, 1.9), uniform((2, 3), 1.6, 1.9)),),
    doc="(x1 // x2, x1 % x2).",
)


def _isclose(F: Any, a: Array, b: Array, rtol: float, atol: float, equal_nan: bool) -> Array:
    dtype = promoted(floating(dtype_of(a)), floating(dtype_of(b)))
    a, b = cast(F, a, dtype), cast(F, b, dtype)
    near = F.broadcast_lesser_equal(
        F.abs(F.broadcast_sub(a, b)), F.abs(b) * float(rtol) + float(atol)
    )
    # of infinities the difference is no number
    close = F.broadcast_add(F.broadcast_mul(near, F._isfinite(b)), F.broadcast_equal(a, b))
    if equal_nan:
        both = F.broadcast_mul(F.broadcast_not_equal(a, a), F.broadcast_not_equal(b, b))
        close = F.broadcast_add(close, both)
    return cast(F, close, "bool")


front(
    "_npi_isclose",
    _isclose,
    inputs=("a", "b"),
    params=(
        Param("rtol", "float", 1e-5),
        Param("atol", "float", 1e-8),
        Param("equal_nan", "bool", False),
    ),
    ref=lambda xp, a, b, **how: np.isclose(a, b, **how),
    samples=(
        sample(
            values([1, 2, float("inf"), float("nan"), 0]),
            values([1.000001, 2.1, float("inf"), float("nan"), 1e-9]),
        ),
        sample(
            values([1, float("nan")]), values([[1.2], [float("nan")]]), atol=0.3, equal_nan=True
        ),
    ),
    doc="Where elements are equal within atol + rtol * |b|.",
)
