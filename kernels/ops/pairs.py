"""Arithmetic of two arrays that NumPy has and nd has not: quotients rounded down, remainders, bits
of whole numbers, pairs of floats. Users reach them as mx.np's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..pointwise import pointwise
from ..record import Array, Param, Sample, ints, sample, uniform, values
from .binary import NUMBER, _on_number

LN2 = 0.6931471805599453


def _floor_divide(xp: Any, a: Array, b: Array) -> Array:
    a, b = xp.asarray(a), xp.asarray(b)
    if a.dtype.kind == "f":
        return xp.floor_divide(a, b)
    return xp.where(b == 0, 0, xp.floor_divide(a, xp.where(b == 0, 1, b).astype(b.dtype)))


def _remainder(xp: Any, a: Array, b: Array) -> Array:
    a, b = xp.asarray(a), xp.asarray(b)
    if a.dtype.kind == "f":
        return xp.remainder(a, b)
    return xp.where(b == 0, 0, xp.remainder(a, xp.where(b == 0, 1, b).astype(b.dtype)))


def _fmod(xp: Any, a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return xp.fmod(a, b)
    return xp.where(b == 0, 0, xp.fmod(a, xp.where(b == 0, 1, b).astype(b.dtype)))


def _sign_of(F: Any, x: Array) -> Array:
    """1 or -1, of zeros too."""
    return F._copysign(F.ones_like(x), x)


def _first_is_larger(a: Array, b: Array) -> Array:
    return (a >= b) + (b != b)


def _first_is_smaller(a: Array, b: Array) -> Array:
    return (a <= b) + (b != b)


class Pair(NamedTuple):
    """One operation on (a, b)."""

    text: str
    ref: Callable[..., Array]
    doc: str
    grad: Callable | None = None  # (F, dy, a, b, y) -> (da, db)
    dtypes: str = "float"
    samples: tuple[Sample, ...] = ()
    domain: tuple[float, float] = (0.3, 3)


WHOLE = (
    sample(ints((3, 4), -9, 9), ints((3, 4), -9, 9)),
    sample(ints((2, 1, 3), 0, 99), ints((4, 1), 1, 9)),
)
SHIFTS = (
    sample(ints((3, 4), 0, 99), ints((3, 4), 0, 3)),
    sample(ints((2, 1), -9, 9), values([1, 70], "int32")),
)
PAIRS = {
    "_floor_divide": Pair(
        "floordiv(a, b)",
        _floor_divide,
        "The largest whole number not above lhs / rhs; whole numbers over 0 are 0.",
        dtypes="all",
    ),
    "_remainder": Pair(
        "b == 0 ? div(b, b) : mod(a, b)",
        _remainder,
        "What _floor_divide leaves, with the sign of rhs; over 0 NaN, of whole numbers 0.",
        lambda F, dy, a, b, y: (dy, -(dy * F._floor_divide(a, b))),
        dtypes="all",
    ),
    "_fmod": Pair(
        "fmod(a, b)",
        _fmod,
        "The rest of lhs / rhs with the sign of lhs; over 0 NaN, of whole numbers 0.",
        lambda F, dy, a, b, y: (dy, -(dy * F.trunc(a / b))),
        dtypes="all",
    ),
    "_fmax": Pair(
        "a >= b || b != b ? a : b",
        lambda xp, a, b: xp.fmax(a, b),
        "The larger of lhs and rhs, of a number and NaN the number. Ties: lhs has the gradient.",
        lambda F, dy, a, b, y: (dy * _first_is_larger(a, b), dy * (1 - _first_is_larger(a, b))),
        dtypes="all",
    ),
    "_fmin": Pair(
        "a <= b || b != b ? a : b",
        lambda xp, a, b: xp.fmin(a, b),
        "The smaller of lhs and rhs, of a number and NaN the number. Ties: lhs has the gradient.",
        lambda F, dy, a, b, y: (dy * _first_is_smaller(a, b), dy * (1 - _first_is_smaller(a, b))),
        dtypes="all",
    ),
    "_arctan2": Pair(
        "atan2(a, b)",
        lambda xp, a, b: xp.arctan2(a, b),
        "The angle of the point (rhs, lhs), in radians.",
        lambda F, dy, a, b, y: (dy * b / (a * a + b * b), -(dy * a / (a * a + b * b))),
        domain=(-3, 3),
    ),
    "_copysign": Pair(
        "copysign(a, b)",
        lambda xp, a, b: xp.copysign(a, b),
        "lhs with the sign of rhs.",
        lambda F, dy, a, b, y: (dy * _sign_of(F, a) * _sign_of(F, b), None),
        domain=(-3, 3),
    ),
    "_nextafter": Pair(
        "nextafter(a, b)",
        lambda xp, a, b: xp.nextafter(a, b),
        "The float beside lhs, towards rhs.",
        lambda F, dy, a, b, y: (dy, None),
    ),
    "_heaviside": Pair(
        "a == 0 ? b : a < 0 ? 0 : a > 0 ? 1 : a",
        lambda xp, a, b: xp.heaviside(a, b),
        "0 where lhs is below 0, 1 where it is above, rhs where it is 0.",
        lambda F, dy, a, b, y: (None, dy * F._equal_scalar(a, scalar=0.0)),
        samples=(sample(values([-1.5, 0, 2]), uniform((3,), 0, 1)),),
    ),
    "_ldexp": Pair(
        "a * exp2(floor(b * 0.5)) * exp2(b - floor(b * 0.5))",
        lambda xp, a, b: a * 2.0 ** xp.floor(b / 2) * 2.0 ** (b - xp.floor(b / 2)),
        "lhs * 2^rhs, in two steps: 2^rhs alone may be too large.",
        lambda F, dy, a, b, y: (dy * F._ldexp(F.ones_like(a), b), dy * y * LN2),
    ),
    "_logaddexp": Pair(
        "a == b ? a + 0.6931471805599453 : (a > b ? a : b) + log1p(exp(-fabs(a - b)))",
        lambda xp, a, b: xp.logaddexp(a, b),
        "log(exp(lhs) + exp(rhs)), without overflow.",
        lambda F, dy, a, b, y: (dy * F.sigmoid(a - b), dy * F.sigmoid(b - a)),
    ),
    "_bitwise_and": Pair(
        "a & b", lambda xp, a, b: a & b, "The bits of both.", None, "whole", WHOLE
    ),
    "_bitwise_or": Pair(
        "a | b", lambda xp, a, b: a | b, "The bits of either.", None, "whole", WHOLE
    ),
    "_bitwise_xor": Pair(
        "a ^ b", lambda xp, a, b: a ^ b, "The bits of one alone.", None, "whole", WHOLE
    ),
    "_left_shift": Pair(
        "shl(a, b)",
        lambda xp, a, b: xp.left_shift(a, b),
        "lhs * 2^rhs of whole numbers.",
        None,
        "whole",
        SHIFTS,
    ),
    "_right_shift": Pair(
        "shr(a, b)",
        lambda xp, a, b: xp.right_shift(a, b),
        "lhs / 2^rhs of whole numbers, rounded down.",
        None,
        "whole",
        SHIFTS,
    ),
    "_gcd": Pair(
        "gcd(a, b)",
        lambda xp, a, b: xp.gcd(a, b),
        "The greatest common divisor.",
        None,
        "whole",
        WHOLE,
    ),
    "_lcm": Pair(
        "abs(div(a, gcd(a, b)) * b)",
        lambda xp, a, b: xp.lcm(a, b),
        "The least common multiple.",
        None,
        "whole",
        WHOLE,
    ),
}


def _of_bools_as(dtype: str, ref: Callable) -> Callable:
    def call(xp: Any, a: Array, b: Array) -> Array:
        return ref(xp, *(x.astype(dtype) if x.dtype.kind == "b" else x for x in (a, b)))

    return call


for _name, _pair in PAIRS.items():
    pointwise(
        _name,
        _pair.text,
        inputs=("lhs", "rhs"),
        native=_pair.dtypes != "float",
        ref=_pair.ref if _pair.dtypes == "float" else _of_bools_as("uint8", _pair.ref),
        fill=None,
        grad=_pair.grad,
        dtypes=_pair.dtypes,
        doc=_pair.doc,
        **({"samples": _pair.samples} if _pair.samples else {"domain": _pair.domain}),
    )


# ---- with a number, where that is common ---------------------------------------------------------
class Scalar(NamedTuple):
    """One operation on (x, scalar), or (scalar, x) where `swapped`."""

    text: str
    ref: Callable[..., Array]
    grad: Callable | None  # (F, dy, x, scalar) -> dx
    doc: str
    swapped: bool = False


SCALARS = {
    "_floor_divide_scalar": Scalar(
        "floordiv(x, scalar)", _floor_divide, None, "As _floor_divide, of data and a number."
    ),
    "_rfloor_divide_scalar": Scalar(
        "floordiv(scalar, x)", _floor_divide, None, "As _floor_divide, of a number and data.", True
    ),
    "_remainder_scalar": Scalar(
        "scalar == 0 ? div(scalar, scalar) : mod(x, scalar)",
        _remainder,
        lambda F, dy, x, scalar: dy,
        "As _remainder, of data and a number.",
    ),
    "_rremainder_scalar": Scalar(
        "x == 0 ? div(x, x) : mod(scalar, x)",
        _remainder,
        lambda F, dy, x, scalar: -(dy * F._rfloor_divide_scalar(x, scalar=scalar)),
        "As _remainder, of a number and data.",
        True,
    ),
}
for _name, _scalar in SCALARS.items():
    pointwise(
        _name,
        _scalar.text,
        params=NUMBER,
        ref=_on_number(_scalar.ref, _scalar.swapped),
        native=True,
        dtypes="all",
        out_dtype=lambda dtype, **_: "int64" if dtype == "bool" else dtype,
        grad=None
        if _scalar.grad is None
        else lambda F, dy, x, y, scalar, is_int, _grad=_scalar.grad: _grad(F, dy, x, scalar),
        samples=(
            sample(uniform((3, 4), 1.6, 2.9), scalar=1.5),
            sample(uniform((2, 3), 0.8, 1.4), scalar=3.2),
        ),
        doc=_scalar.doc,
    )

# ---- of one array --------------------------------------------------------------------------------
pointwise(
    "_bitwise_not",
    "~x",
    ref=lambda xp, x: ~(x.astype(xp.uint8) if x.dtype.kind == "b" else x),
    native=True,
    dtypes="whole",
    samples=(sample(ints((3, 4), -9, 9)),),
    doc="All bits but those of data.",
)
pointwise(
    "_round_even",
    "rint(x)",
    ref=lambda xp, x: xp.rint(x),
    domain=(-9, 9),
    samples=(sample((3, 4)), sample(values([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]))),
    doc="The nearest whole number, halves to the even one.",
)
pointwise(
    "_spacing",
    "nextafter(x, copysign(INFINITY, x)) - x",
    ref=lambda xp, x: xp.spacing(x),
    doc="The distance to the next float away from 0.",
)
pointwise(
    "_sign",
    "x != x ? x : (x > 0) - (x < 0)",
    ref=lambda xp, x: xp.sign(x),
    dtypes="all",
    samples=(sample((3, 4)), sample(values([0, 2, float("nan"), -1]))),
    doc="1, 0 or -1 by the sign of data; NaN stays.",
)
pointwise(
    "_isnan",
    "x != x",
    truth=True,
    ref=lambda xp, x: xp.isnan(x),
    samples=(sample(values([1, float("inf"), float("nan"), 0])),),
    doc="1 where data is NaN, else 0.",
)
pointwise(
    "_signbit",
    "copysign(1, x) < 0",
    truth=True,
    ref=lambda xp, x: xp.signbit(x),
    samples=(sample(values([1, -float("inf"), -0.0, 0])),),
    doc="1 where the sign of data is set, also that of -0.0, else 0.",
)
pointwise(
    "_isfinite",
    "x - x == 0",
    truth=True,
    ref=lambda xp, x: xp.isfinite(x),
    samples=(sample(values([1, float("inf"), float("nan"), -float("inf"), 0])),),
    doc="1 where data is neither infinite nor NaN, else 0.",
)
pointwise(
    "_isinf",
    "x == INFINITY || x == -INFINITY",
    truth=True,
    ref=lambda xp, x: xp.isinf(x),
    samples=(sample(values([1, float("inf"), float("nan"), -float("inf"), 0])),),
    doc="1 where data is infinite, else 0.",
)
pointwise(
    "_with_numbers",
    "x - x == 0 ? x : x != x ? nan : x > 0 ? high : low",
    params=tuple([Param(name, "float", dynamic=True) for name in ("nan", "high", "low")]),
    ref=lambda xp, x, nan, high, low: xp.nan_to_num(x, nan=nan, posinf=high, neginf=low),
    grad=lambda F, dy, x, y, **_: F.where(F._isfinite(x), dy, F.zeros_like(dy)),
    samples=(
        sample((3, 4), nan=0.5, high=9.0, low=-9.0),
        sample(values([1, float("inf"), float("nan"), -float("inf")]), nan=0.5, high=9.0, low=-9.0),
    ),
    doc="data with other numbers for NaN, inf and -inf.",
)
