"""Functions of each element. Those of floats give float32 for whole numbers and bools; float16 and
float64 stay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...front import DEFAULT, as_float, cast, dtype_of, front
from ...record import FLOATS, Array, Param, Sample, sample, uniform, values
from .arithmetic import refuse


class Unary(NamedTuple):
    """A function. of: the operator on floats."""

    of: str
    ref: Callable
    # float: whole numbers become float32; number: they stay; whole: they are what they are anyway,
    # for rounding; bool: so is the result
    kind: str = "float"
    domain: tuple[float, float] = (-3, 3)
    aliases: tuple[str, ...] = ()
    bools: str = (
        ""  # of bools: a dtype that they become, "refuse"; "": as the others, "same": they stay
    )


UNARY = {
    "exp": Unary("exp", np.exp),
    "expm1": Unary("expm1", np.expm1),
    "log": Unary("log", np.log, domain=(0.1, 5)),
    "log2": Unary("log2", np.log2, domain=(0.1, 5)),
    "log10": Unary("log10", np.log10, domain=(0.1, 5)),
    "log1p": Unary("log1p", np.log1p, domain=(-0.5, 3)),
    "sqrt": Unary("sqrt", np.sqrt, domain=(0.1, 5)),
    "cbrt": Unary("cbrt", np.cbrt, domain=(0.1, 5)),
    "sin": Unary("sin", np.sin),
    "cos": Unary("cos", np.cos),
    "tan": Unary("tan", np.tan, domain=(-1.2, 1.2)),
    "arcsin": Unary("arcsin", np.arcsin, domain=(-0.9, 0.9), aliases=("asin",)),
    "arccos": Unary("arccos", np.arccos, domain=(-0.9, 0.9), aliases=("acos",)),
    "arctan": Unary("arctan", np.arctan, aliases=("atan",)),
    "sinh": Unary("sinh", np.sinh),
    "cosh": Unary("cosh", np.cosh),
    "tanh": Unary("tanh", np.tanh),
    "arcsinh": Unary("arcsinh", np.arcsinh, aliases=("asinh",)),
    "arccosh": Unary("arccosh", np.arccosh, domain=(1.1, 5), aliases=("acosh",)),
    "arctanh": Unary("arctanh", np.arctanh, domain=(-0.9, 0.9), aliases=("atanh",)),
    "degrees": Unary("degrees", np.degrees, aliases=("rad2deg",)),
    "radians": Unary("radians", np.radians, aliases=("deg2rad",)),
    "fabs": Unary("abs", np.fabs),
    "rint": Unary("_round_even", np.rint),
    "absolute": Unary("abs", np.absolute, "number", aliases=("abs",), bools="same"),
    "negative": Unary("negative", np.negative, "number", bools="refuse"),
    "positive": Unary("_copy", np.positive, "number", bools="refuse"),
    "square": Unary("square", np.square, "number", bools="int8"),
    "sign": Unary("_sign", np.sign, "number", bools="refuse"),
    "floor": Unary("floor", np.floor, "whole"),
    "ceil": Unary("ceil", np.ceil, "whole"),
    "trunc": Unary("trunc", np.trunc, "whole"),
    "fix": Unary("fix", np.fix, "whole"),
    "conjugate": Unary("_copy", np.conjugate, "number", aliases=("conj",), bools="int8"),
    "real": Unary("_copy", np.real, "whole"),
}


# the functions of x alone that are ufuncs, under all their names, and NumPy's for numbers
FUNCTIONS: dict[str, Callable] = {}


def _register(name: str, unary: Unary) -> None:
    FUNCTIONS.update(dict.fromkeys((name, *unary.aliases), unary.ref))

    def rule(F: Any, x: Array) -> Array:
        dtype = dtype_of(x)
        if dtype == "bool" and unary.bools == "refuse":
            refuse(name, "bool", "x must be of numbers", "np.logical_not(x), or x.astype('int32')")
        stays = unary.kind == "whole" and dtype not in FLOATS
        if stays or dtype == "bool" and unary.bools == "same":
            return F._copy(x)
        if dtype == "bool" and unary.bools:
            x = cast(F, x, unary.bools)
        return getattr(F, unary.of)(as_float(F, x) if unary.kind == "float" else x)

    draw = uniform((2, 3), *unary.domain)
    special = (sample(values([-1.5, float("nan"), 0, float("inf")])),) * (unary.kind != "float")
    front(
        f"_npi_{name}",
        rule,
        inputs=("x",),
        ref=lambda xp, x: unary.ref(x),
        samples=(sample(draw), *special),
        aliases=tuple(f"_npi_{a}" for a in unary.aliases),
        doc=f"{name} of each element.",
    )


for _name, _unary in UNARY.items():
    _register(_name, _unary)


def _composed(
    name: str, rule: Callable, ref: Callable, doc: str, *samples: Sample, aliases: tuple = ()
) -> None:
    """A function that is several operators. rule: (F, x) of floats, to which others become."""
    FUNCTIONS[name] = ref
    front(
        f"_npi_{name}",
        lambda F, x: rule(F, as_float(F, x)),
        inputs=("x",),
        ref=lambda xp, x: ref(x),
        samples=samples,
        aliases=aliases,
        doc=doc,
    )


def _sinc(F: Any, x: Array) -> Array:
    # near 0 its series, whose derivatives are right where those of the quotient are 0 / 0
    y = x * math.pi
    small = F._lesser_scalar(F.abs(y), scalar=0.3)
    square = F.square(y)
    series = F.ones_like(y)
    for k in (9, 8, 7, 6, 5, 4, 3, 2, 1):
        series = 1 - square * series / float(2 * k * (2 * k + 1))
    safe = F.where(small, F.ones_like(y), y)
    return F.where(small, series, F.sin(safe) / safe)


def _wide(F: Any, x: Array) -> Array:
    if dtype_of(x) in ("float16", "bfloat16"):
        refuse("spacing", dtype_of(x), "x must be of float32 or float64", "x.astype('float32')")
    return F._spacing(x)


_composed(
    "exp2",
    lambda F, x: F._exp2(x),
    np.exp2,
    "2 to the power of x.",
    sample((2, 3)),
)
_composed(
    "sinc",
    _sinc,
    np.sinc,
    "sin(pi x) / (pi x), and 1 at 0.",
    sample((2, 3)),
    sample(uniform((6,), -0.1, 0.1)),
    sample(values([0, 1.0])),
)
_composed(
    "i0",
    lambda F, x: F._bessel_i(x, order=0),
    np.i0,
    "The modified Bessel function of order 0.",
    sample((2, 3)),
)
_composed("spacing", _wide, np.spacing, "The distance to the next float.", sample((2, 3)))
front(
    "_npi_modf",
    lambda F, x: _modf(F, as_float(F, x)),
    inputs=("x",),
    n_outputs=2,
    ref=lambda xp, x: np.modf(x),
    samples=(sample((2, 3)), sample(values([-1.5, float("inf"), float("nan"), -0.0]))),
    doc="(the fraction, the whole part), both with the sign of x.",
)


def _modf(F: Any, x: Array) -> list[Array]:
    whole = F.trunc(x)
    rest = F.where(F._isinf(x), F.zeros_like(x), x - whole)
    return [F._copysign(rest, F.BlockGrad(x)), whole]


# ---- tests of elements ---------------------------------------------------------------------------
def _asks(name: str, rule: Callable, ref: Callable, doc: str, whole: bool | None = None) -> None:
    """whole: the answer for all whole numbers; None: `rule` is asked."""
    FUNCTIONS[name] = ref

    def full(F: Any, x: Array) -> Array:
        if whole is None or dtype_of(x) in FLOATS:
            return cast(F, rule(F, x), "bool")
        return F._full(shape=tuple(x.shape), dtype="bool", value=float(whole))

    front(
        f"_npi_{name}",
        full,
        inputs=("x",),
        ref=lambda xp, x: ref(x),
        samples=(sample(values([[1, float("nan"), 0], [float("inf"), -float("inf"), -2.5]])),),
        doc=doc,
    )


def _signbit(F: Any, x: Array) -> Array:
    return F._signbit(x) if dtype_of(x) in FLOATS else F._lesser_scalar(x, scalar=0.0)


_asks("isnan", lambda F, x: F._isnan(x), np.isnan, "Where x is NaN.", False)
_asks("isinf", lambda F, x: F._isinf(x), np.isinf, "Where x is infinite.", False)
_asks("isfinite", lambda F, x: F._isfinite(x), np.isfinite, "Where x is a finite number.", True)
_asks(
    "isposinf",
    lambda F, x: F._equal_scalar(x, scalar=math.inf),
    np.isposinf,
    "Where x is inf.",
    False,
)
_asks(
    "isneginf",
    lambda F, x: F._equal_scalar(x, scalar=-math.inf),
    np.isneginf,
    "Where x is -inf.",
    False,
)
_asks("logical_not", lambda F, x: F.logical_not(x), np.logical_not, "Where x is 0.")
_asks("signbit", _signbit, np.signbit, "Where the sign of x is set, also that of -0.0.")
_asks(
    "isreal", lambda F, x: F.ones_like(x), np.isreal, "Where x is a real number: everywhere.", True
)


def _bitwise_not(F: Any, x: Array) -> Array:
    if dtype_of(x) in FLOATS:
        refuse("bitwise_not", dtype_of(x), "x must be of whole numbers or bools")
    return F._npi_logical_not(x) if dtype_of(x) == "bool" else F._bitwise_not(x)


front(
    "_npi_bitwise_not",
    _bitwise_not,
    inputs=("x",),
    aliases=("_npi_invert", "_npi_bitwise_invert"),
    ref=lambda xp, x: np.bitwise_not(x),
    samples=(sample(values([3, 0, -4], "int32")), sample(values([True, False], "bool"))),
    doc="All bits but those of x; of bools the other one.",
)


FUNCTIONS |= dict.fromkeys(("bitwise_not", "invert", "bitwise_invert"), np.bitwise_not)


# ---- with parameters -----------------------------------------------------------------------------
def _reciprocal(F: Any, x: Array) -> Array:
    if dtype_of(x) in FLOATS:
        return F.reciprocal(x)
    return F._rdiv_scalar(cast(F, x, "int8") if dtype_of(x) == "bool" else x, scalar=1.0)


def _reciprocal_ref(x: Array) -> Array:
    x = np.asarray(x)
    x = x.astype(np.int8) if x.dtype == bool else x
    return (
        np.where(x == 0, 0, np.reciprocal(np.where(x == 0, 1, x))) if x.dtype.kind != "f" else 1 / x
    )


FUNCTIONS["reciprocal"] = _reciprocal_ref
front(
    "_npi_reciprocal",
    _reciprocal,
    inputs=("x",),
    ref=lambda xp, x: _reciprocal_ref(x),
    samples=(sample(uniform((2, 3), 0.3, 3)),),
    doc="1 / x; of whole numbers towards 0, and 0 of 0.",
)


def _around(F: Any, x: Array, decimals: int) -> Array:
    dtype = dtype_of(x)
    if dtype == "bool":
        x, dtype = cast(F, x, DEFAULT), DEFAULT
    if dtype not in FLOATS:
        if decimals >= 0:
            return F._copy(x)
        x = cast(F, x, "float64")
    if decimals == 0:
        return F._round_even(x)
    # a power of ten is exact where it is positive
    factor = 10.0 ** abs(decimals)
    y = F._round_even(x * factor) / factor if decimals > 0 else F._round_even(x / factor) * factor
    return cast(F, y, dtype)


front(
    "_npi_around",
    _around,
    inputs=("x",),
    params=(Param("decimals", "int", 0),),
    aliases=("_npi_round", "_npi_round_"),
    ref=lambda xp, x, decimals: np.around(x.astype("f4") if x.dtype == bool else x, decimals),
    samples=(
        sample((2, 3)),
        sample(values([0.5, 1.5, -2.5])),
        sample((2, 3), decimals=2),
        sample(values([15, 25, -37.0]), decimals=-1),
    ),
    doc="The nearest number of so many decimals, halves to the even one.",
)


def _clip(F: Any, a: Array, a_min: Any, a_max: Any) -> Array:
    dtype = dtype_of(a)
    bounds = [b for b in (a_min, a_max) if b is not None]
    if dtype not in FLOATS and not all([float(b).is_integer() or math.isinf(b) for b in bounds]):
        dtype = DEFAULT
    x = cast(F, a, "int64" if dtype == "bool" else dtype)
    if len(bounds) == 2:
        return F.clip(x, a_min=a_min, a_max=a_max)
    if a_min is not None:
        x = F._maximum_scalar(x, scalar=a_min)
    return x if a_max is None else F._minimum_scalar(x, scalar=a_max)


def _clip_ref(xp: Any, a: Array, a_min: Any, a_max: Any) -> Array:
    whole = [b if b is None or not float(b).is_integer() else int(b) for b in (a_min, a_max)]
    return np.clip(a, *(whole if a.dtype.kind != "f" else (a_min, a_max)))


BOUND = ("float?", None)
front(
    "_npi_clip",
    _clip,
    inputs=("a",),
    params=(Param("a_min", *BOUND, dynamic=True), Param("a_max", *BOUND, dynamic=True)),
    ref=_clip_ref,
    samples=(
        sample((3, 4), a_min=-0.5, a_max=0.7),
        sample((5,), a_min=0.0),
        sample((5,), a_max=1.0),
        sample(values([3, 8, -1], "int32"), a_min=0.0, a_max=5.0),
    ),
    doc="a, or the nearer of a_min and a_max outside of them; None: no bound.",
)


def _nan_to_num(
    F: Any, x: Array, copy: bool, nan: float, posinf: float | None, neginf: float | None
) -> Array:
    dtype = dtype_of(x)
    if dtype not in FLOATS:
        return F._copy(x)
    largest = float(np.finfo(dtype).max) if dtype != "bfloat16" else 3.3895313892515355e38
    high = largest if posinf is None else posinf
    low = -largest if neginf is None else neginf
    return F._with_numbers(x, nan=nan, high=high, low=low)


front(
    "_npi_nan_to_num",
    _nan_to_num,
    inputs=("x",),
    params=(
        Param("copy", "bool", True),
        Param("nan", "float", 0.0),
        Param("posinf", "float?", None),
        Param("neginf", "float?", None),
    ),
    ref=lambda xp, x, copy, nan, posinf, neginf: np.nan_to_num(
        x, nan=nan, posinf=posinf, neginf=neginf
    ),
    samples=(
        sample(values([1, float("nan"), 0.5]), nan=3.0),
        sample((2, 3), posinf=9.0),
        sample(values([float("inf"), 1, -float("inf"), float("nan")]), posinf=7.0, neginf=-8.0),
    ),
    doc="x with other numbers for NaN and infinities: default 0 and the dtype's ends.",
)
