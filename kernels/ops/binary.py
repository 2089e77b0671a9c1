"""Arithmetic, comparison and logic between two arrays or an array and a number.

Each row of the tables makes the record of the equal-shape form (`elemwise_add`, `_equal`), of the
broadcasting form (`broadcast_add`) and of the forms with a number (`_plus_scalar`). In plait all of
them broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..pointwise import pointwise
from ..record import (
    Param,
    elementwise,
    sample,
    uniform,
    values,
)
from ..scalar import log
from ..traits import Neutral, Scale, Sum

NUMBER = (Param("scalar", "float", 1.0, dynamic=True), Param("is_int", "bool", True))


# ---- references ----------------------------------------------------------------------------------
def _number(xp, x, scalar):
    """The number as x's arithmetic sees it: integers get it truncated and, where int64 holds it,
    wrapped into their range; else the end of their range; of NaN 0."""
    if x.dtype.kind == "f":
        return scalar
    if not -(2.0**63) <= scalar < 2.0**63:
        info = xp.iinfo(x.dtype)
        return xp.asarray(info.max if scalar > 0 else info.min if scalar < 0 else 0, dtype=x.dtype)
    bits = 8 * x.dtype.itemsize
    whole = int(scalar) % (1 << bits)
    return xp.asarray(
        whole - (1 << bits) if x.dtype.kind == "i" and whole >> (bits - 1) else whole, dtype=x.dtype
    )


def _on_arrays(fn):
    def ref(xp, a, b):
        return (
            fn(xp, a.astype(xp.uint8), b.astype(xp.uint8)) if a.dtype.kind == "b" else fn(xp, a, b)
        )

    return ref


def _on_number(fn, swapped=False):
    def ref(xp, x, scalar, is_int=True):
        x = x.astype(xp.int64) if x.dtype.kind == "b" else x
        number = _number(xp, x, scalar)
        return fn(xp, number, x) if swapped else fn(xp, x, number)

    return ref


def _is_float(x):
    return getattr(x, "dtype", None) is None or x.dtype.kind == "f"


def _add(xp, a, b):
    return a + b


def _sub(xp, a, b):
    return a - b


def _mul(xp, a, b):
    return a * b


def _div(xp, a, b):
    if _is_float(a) and _is_float(b):
        return xp.divide(a, b)
    divisor = xp.where(b == 0, 1, b).astype(b.dtype)
    quotient = a // divisor
    quotient = quotient + ((a - quotient * divisor != 0) & ((a < 0) != (divisor < 0))).astype(
        quotient.dtype
    )
    return xp.where(b == 0, 0, quotient)


def _mod(xp, a, b):
    if not (_is_float(a) and _is_float(b)):
        return xp.where(b == 0, 0, xp.remainder(a, xp.where(b == 0, 1, b).astype(b.dtype)))
    return xp.where(xp.equal(b, 0), 0.0, xp.remainder(a, b))


def _power(xp, a, b):
    if _is_float(a) and _is_float(b):
        # to the power of 0.5 NumPy takes a square root, of -inf NaN
        return xp.where(xp.isinf(a) & xp.equal(b, 0.5), xp.abs(a), xp.power(a, b))
    a, b = xp.asarray(a).astype(xp.int64), xp.asarray(b).astype(xp.int64)
    inverse = xp.where(a == 1, 1, xp.where(a == -1, 1 - 2 * (b % 2), 0))
    return xp.where(b < 0, inverse, xp.power(a, xp.maximum(b, 0)))


def _hypot(xp, a, b):
    return (
        xp.hypot(a, b)
        if _is_float(a) and _is_float(b)
        else xp.hypot(a.astype(xp.float64), b.astype(xp.float64))
    )


def _maximum(xp, a, b):
    return xp.maximum(a, b)


def _minimum(xp, a, b):
    return xp.minimum(a, b)


# ---- arithmetic ----------------------------------------------------------------------------------
class Arithmetic(NamedTuple):
    """One operation on (a, b). `pair` and `broadcast` are the names, with aliases, of its two array
    forms."""

    pair: tuple[str, ...]
    broadcast: tuple[str, ...]
    text: str
    ref: Callable
    grad: Callable  # (F, dy, a, b, y) -> (da, db)
    doc: str
    dtypes: str = "all"
    domain: tuple[float, float] = (-3, 3)
    traits: tuple = ()


def _maximum_grad(F, dy, a, b, y):
    return dy * (a >= b), dy * (a < b)


def _minimum_grad(F, dy, a, b, y):
    return dy * (a <= b), dy * (a > b)


ARITHMETIC = (
    Arithmetic(
        ("elemwise_add", "_Plus", "_add", "_plus", "_sparse_elemwise_add"),
        ("broadcast_add", "_sparse_broadcast_add", "_sparse_broadcast_plus", "broadcast_plus"),
        "a + b",
        _add,
        lambda F, dy, a, b, y: (dy, dy),
        "lhs + rhs.",
        traits=(Sum(),),
    ),
    Arithmetic(
        ("_grad_add",),
        (),
        "a + b",
        _add,
        lambda F, dy, a, b, y: (dy, dy),
        "lhs + rhs: a sum of two gradients.",
        traits=(Sum(),),
    ),
    Arithmetic(
        ("elemwise_sub", "_Minus", "_minus", "_sparse_elemwise_sub", "_sub"),
        ("broadcast_sub", "_sparse_broadcast_minus", "_sparse_broadcast_sub", "broadcast_minus"),
        "a - b",
        _sub,
        lambda F, dy, a, b, y: (dy, -dy),
        "lhs - rhs.",
        traits=(Neutral(0.0),),
    ),
    Arithmetic(
        ("elemwise_mul", "_Mul", "_mul", "_sparse_elemwise_mul"),
        ("broadcast_mul", "_sparse_broadcast_mul"),
        "a * b",
        _mul,
        lambda F, dy, a, b, y: (dy * b, dy * a),
        "lhs * rhs.",
        traits=(Neutral(1.0, left=1.0),),
    ),
    Arithmetic(
        ("elemwise_div", "_Div", "_div", "_sparse_elemwise_div"),
        ("broadcast_div", "_sparse_broadcast_div"),
        "div(a, b)",
        _div,
        lambda F, dy, a, b, y: (dy / b, -(dy * a / (b * b))),
        traits=(Neutral(1.0),),
        domain=(0.3, 3),
        doc="lhs / rhs; of integers towards 0, and 0 where rhs is 0.",
    ),
    Arithmetic(
        ("_scatter_elemwise_div",),
        (),
        "div(a, b)",
        _div,
        lambda F, dy, a, b, y: (dy / b, -(dy * a / (b * b))),
        domain=(0.3, 3),
        doc="lhs / rhs; of a sparse lhs only the stored elements.",
    ),
    Arithmetic(
        ("_mod", "_Mod"),
        ("broadcast_mod",),
        "mod(a, b)",
        _mod,
        lambda F, dy, a, b, y: (dy, -(dy * F.floor(a / b))),
        domain=(0.3, 3),
        doc="The rest of lhs / rhs, with the sign of rhs; 0 where rhs is 0.",
    ),
    Arithmetic(
        ("_power", "_Power"),
        ("broadcast_power",),
        "pow(a, b)",
        _power,
        lambda F, dy, a, b, y: (dy * b * F._power(a, b - 1), dy * y * F.log(a)),
        domain=(0.3, 3),
        doc="lhs to the power of rhs; of integers towards 0.",
    ),
    Arithmetic(
        ("_maximum", "_Maximum"),
        ("broadcast_maximum",),
        "a > b || a != a ? a : b",
        _maximum,
        _maximum_grad,
        "The larger of lhs and rhs; NaN if one is. Where equal, lhs takes the gradient.",
    ),
    Arithmetic(
        ("_minimum", "_Minimum"),
        ("broadcast_minimum",),
        "a < b || a != a ? a : b",
        _minimum,
        _minimum_grad,
        "The smaller of lhs and rhs; NaN if one is. Where equal, lhs takes the gradient.",
    ),
    Arithmetic(
        ("_hypot", "_Hypot"),
        ("broadcast_hypot",),
        "hypot(a, b)",
        _hypot,
        lambda F, dy, a, b, y: (dy * a / y, dy * b / y),
        "sqrt(lhs^2 + rhs^2).",
        dtypes="float",
    ),
)

for row in ARITHMETIC:
    for names in (row.pair, row.broadcast):
        if names:
            pointwise(
                names[0],
                row.text,
                inputs=("lhs", "rhs"),
                aliases=names[1:],
                ref=_on_arrays(row.ref),
                native=True,
                fill=elementwise if names is row.pair else None,
                grad=row.grad,
                dtypes=row.dtypes,
                domain=row.domain,
                traits=row.traits,
                doc=row.doc,
            )


# ---- comparison and logic: 0 or 1 in the operands' dtype, no gradient ----------------------------
LOGIC = {  # name: (C, reference)
    "equal": ("{} == {}", lambda xp, a, b: a == b),
    "not_equal": ("{} != {}", lambda xp, a, b: a != b),
    "greater": ("{} > {}", lambda xp, a, b: a > b),
    "greater_equal": ("{} >= {}", lambda xp, a, b: a >= b),
    "lesser": ("{} < {}", lambda xp, a, b: a < b),
    "lesser_equal": ("{} <= {}", lambda xp, a, b: a <= b),
    "logical_and": ("({} != 0) && ({} != 0)", lambda xp, a, b: (a != 0) & (b != 0)),
    "logical_or": ("({} != 0) || ({} != 0)", lambda xp, a, b: (a != 0) | (b != 0)),
    "logical_xor": ("({} != 0) != ({} != 0)", lambda xp, a, b: (a != 0) != (b != 0)),
}


def _scalar_dtype(dtype, **_):
    return "int64" if dtype == "bool" else dtype


def _scalar_samples(domain, scalar=1.5):
    return (
        sample(uniform((3, 4), *domain), scalar=scalar),
        sample(uniform((2, 1, 5), *domain), scalar=scalar),
    )


for key, (text, ref) in LOGIC.items():
    capitalized = "_".join(word.capitalize() for word in key.split("_"))
    draws = tuple(
        sample(values([[0, 1, -2], [0.5, 1, 0]]), values(rhs))
        for rhs in ([[0, 1, 2], [1, 0.5, 3]], [[1, 0, -2]], [[1], [0]])
    )
    for name, alias in ((f"_{key}", (f"_{capitalized}",)), (f"broadcast_{key}", ())):
        pointwise(
            name,
            text.format("a", "b"),
            inputs=("lhs", "rhs"),
            aliases=alias,
            ref=_on_arrays(ref),
            native=True,
            fill=None if name.startswith("broadcast") else elementwise,
            dtypes="all",
            truth=True,
            samples=draws,
            doc=f"1 where ({text.format('lhs', 'rhs')}), else 0, in the operands' dtype.",
        )
    pointwise(
        f"_{key}_scalar",
        text.format("x", "scalar"),
        params=NUMBER,
        ref=_on_number(ref),
        native=True,
        aliases=(f"_{capitalized.replace('_', '')}Scalar",),
        dtypes="all",
        truth=True,
        out_dtype=_scalar_dtype,
        samples=tuple(sample(values([[0, 1, -2], [0.5, 1, 2]]), scalar=s) for s in (1.0, 0.0)),
        doc=f"1 where ({text.format('data', 'scalar')}), else 0, in data's dtype.",
    )


# ---- an array and a number -----------------------------------------------------------------------
class Scalar(NamedTuple):
    """One operation on (x, scalar), or (scalar, x) where `swapped`."""

    names: tuple[str, ...]
    text: str
    ref: Callable
    grad: Callable  # (F, dy, x, y, scalar) -> dx
    doc: str
    dtypes: str = "all"
    domain: tuple[float, float] = (-3, 3)
    swapped: bool = False
    traits: tuple = ()


SCALAR = (
    Scalar(
        ("_plus_scalar", "_PlusScalar"),
        "x + scalar",
        _add,
        lambda F, dy, x, y, scalar: dy,
        "data + scalar.",
        traits=(Neutral(-0.0),),
    ),
    Scalar(
        ("_scatter_plus_scalar",),
        "x + scalar",
        _add,
        lambda F, dy, x, y, scalar: dy,
        "data + scalar; of sparse data only the stored elements.",
    ),
    Scalar(
        ("_minus_scalar", "_MinusScalar"),
        "x - scalar",
        _sub,
        lambda F, dy, x, y, scalar: dy,
        "data - scalar.",
        traits=(Neutral(0.0),),
    ),
    Scalar(
        ("_scatter_minus_scalar",),
        "x - scalar",
        _sub,
        lambda F, dy, x, y, scalar: dy,
        "data - scalar; of sparse data only the stored elements.",
    ),
    Scalar(
        ("_rminus_scalar", "_RMinusScalar"),
        "scalar - x",
        _sub,
        lambda F, dy, x, y, scalar: -dy,
        "scalar - data.",
        swapped=True,
    ),
    Scalar(
        ("_mul_scalar", "_MulScalar"),
        "x * scalar",
        _mul,
        lambda F, dy, x, y, scalar: dy * scalar,
        "data * scalar.",
        traits=(Neutral(1.0), Scale()),
    ),
    Scalar(
        ("_div_scalar", "_DivScalar"),
        "div(x, scalar)",
        _div,
        lambda F, dy, x, y, scalar: dy / scalar,
        "data / scalar; of integers towards 0.",
        traits=(Neutral(1.0), Scale(divides=True)),
    ),
    Scalar(
        ("_rdiv_scalar", "_RDivScalar"),
        "div(scalar, x)",
        _div,
        lambda F, dy, x, y, scalar: dy * -scalar / (x * x),
        "scalar / data; of integers towards 0.",
        domain=(0.3, 3),
        swapped=True,
    ),
    Scalar(
        ("_mod_scalar", "_ModScalar"),
        "mod(x, scalar)",
        _mod,
        lambda F, dy, x, y, scalar: dy,
        "The rest of data / scalar, with the sign of scalar.",
        domain=(1.6, 2.9),
    ),
    Scalar(
        ("_rmod_scalar", "_RModScalar"),
        "mod(scalar, x)",
        _mod,
        lambda F, dy, x, y, scalar: -(dy * F.floor(F._rdiv_scalar(x, scalar=scalar))),
        "The rest of scalar / data, with the sign of data.",
        domain=(0.8, 1.4),
        swapped=True,
    ),
    Scalar(
        ("_power_scalar", "_PowerScalar"),
        "pow(x, scalar)",
        _power,
        lambda F, dy, x, y, scalar: dy * F._scaled_power(x, factor=scalar, scalar=scalar - 1),
        "data to the power of scalar.",
        domain=(0.3, 3),
    ),
    Scalar(
        ("_rpower_scalar", "_RPowerScalar"),
        "pow(scalar, x)",
        _power,
        lambda F, dy, x, y, scalar: dy * y * log(scalar),
        "scalar to the power of data.",
        swapped=True,
    ),
    Scalar(
        ("_maximum_scalar", "_MaximumScalar"),
        "x > scalar || x != x ? x : scalar",
        _maximum,
        lambda F, dy, x, y, scalar: dy * (x >= scalar),
        "The larger of data and scalar; NaN stays NaN.",
    ),
    Scalar(
        ("_minimum_scalar", "_MinimumScalar"),
        "x < scalar || x != x ? x : scalar",
        _minimum,
        lambda F, dy, x, y, scalar: dy * (x <= scalar),
        "The smaller of data and scalar; NaN stays NaN.",
    ),
    Scalar(
        ("_hypot_scalar", "_HypotScalar"),
        "hypot(x, scalar)",
        _hypot,
        lambda F, dy, x, y, scalar: dy * x / y,
        "sqrt(data^2 + scalar^2).",
        dtypes="float",
    ),
)

for scalar in SCALAR:
    pointwise(
        scalar.names[0],
        scalar.text,
        params=NUMBER,
        aliases=scalar.names[1:],
        ref=_on_number(scalar.ref, scalar.swapped),
        native=True,
        dtypes=scalar.dtypes,
        out_dtype=_scalar_dtype,
        traits=scalar.traits,
        samples=_scalar_samples(scalar.domain),
        doc=scalar.doc,
        grad=lambda F, dy, x, y, scalar, is_int, _grad=scalar.grad: _grad(F, dy, x, y, scalar),
    )


# a power's derivatives of every order; 0 (not 0 * inf) at x = 0 once the factor has vanished
pointwise(
    "_scaled_power",
    "factor == 0 ? 0 : factor * pow(x, scalar)",
    params={"factor": 1.0, "scalar": 1.0},
    ref=lambda xp, x, factor, scalar: (
        factor * _power(xp, x, xp.asarray(scalar, dtype=x.dtype)) if factor else xp.zeros_like(x)
    ),
    grad=lambda F, dy, x, y, factor, scalar: (
        dy * F._scaled_power(x, factor=factor * scalar, scalar=scalar - 1)
    ),
    domain=(0.3, 3),
    samples=(
        sample(uniform((3, 4), 0.3, 3), factor=2.0, scalar=1.5),
        sample((3,), factor=2.0),
        sample((3,), factor=0.0, scalar=-1.0),
    ),
    doc="factor * data ^ scalar, and 0 where factor is 0.",
)
