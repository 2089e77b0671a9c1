"""What npx adds to operators of nd: whole numbers where those are for floats, other reshape codes,
masks, and elements replaced at indices. All else of npx is an operator of nd under another name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ....engine.error import InvalidValue, ShapeError
from ... import special
from ...front import as_float, cast, dtype_of, front, reshaped
from ...record import Array, Param, Type, operator, sample, uniform, values

# ---- functions of each element -------------------------------------------------------------------


def _of_floats(name: str, of: str, ref: Callable[..., Any], low: float, high: float) -> None:
    front(
        f"_npx_{name}",
        lambda F, data: getattr(F, of)(as_float(F, data)),
        inputs=("data",),
        ref=lambda xp, data: ref(xp, _floats(data)),
        samples=(sample(uniform((2, 3), low, high)),),
        doc=f"{of} of each element; of whole numbers a float32.",
    )


def _floats(x: Any) -> Any:
    return x if x.dtype.kind == "f" else x.astype("float32")


_of_floats("sigmoid", "sigmoid", lambda xp, x: 1 / (1 + np.exp(-x)), -2, 2)
_of_floats("erf", "erf", special.erf, -2, 2)
_of_floats("erfinv", "erfinv", special.erfinv, -0.9, 0.9)
_of_floats("gamma", "gamma", special.gamma, 0.5, 4)
_of_floats("gammaln", "gammaln", special.gammaln, 0.5, 4)
front(
    "_npx_relu",
    lambda F, data: F.relu(cast(F, data, "int64") if dtype_of(data) == "bool" else data),
    inputs=("data",),
    ref=lambda xp, data: np.maximum(data.astype("int64") if data.dtype == bool else data, 0),
    samples=(sample(uniform((2, 3), 0.1, 2)), sample(uniform((4,), -2, -0.1))),
    doc="max(x, 0) of each element; bools as int64.",
)
front(
    "_npx_smooth_l1",
    lambda F, data, scalar: F.smooth_l1(as_float(F, data), scalar=scalar),
    inputs=("data",),
    params=(Param("scalar", "float", 1.0, dynamic=True),),
    ref=lambda xp, data, scalar: np.where(
        np.abs(_floats(data)) * scalar**2 > 1,
        np.abs(_floats(data)) - 0.5 / scalar**2,
        0.5 * scalar**2 * _floats(data) ** 2,
    ),
    samples=(sample(uniform((2, 3), -0.9, 0.9)), sample(uniform((4,), 1, 2), scalar=2.0)),
    doc="0.5 (s x)^2 where |x| < 1 / s^2, else |x| - 0.5 / s^2, s = scalar.",
)

# ---- masks ---------------------------------------------------------------------------------------

LOWEST = {"float16": -65504.0, "float64": -1e300}  # of a logit that has no share


def _filled(F: Any, x: Array, value: float) -> Array:
    return F._plus_scalar(F.zeros_like(x), scalar=value) if value else F.zeros_like(x)


def _masked(name: str, of: str, hidden: float) -> None:
    """hidden: what the result has where the mask is 0."""

    def rule(
        F: Any, data: Array, mask: Array, axis: int, temperature: float, normalize: bool
    ) -> Array:
        x = as_float(F, data)
        least = LOWEST.get(dtype_of(x), -3e38)
        seen = cast(F, mask, dtype_of(x)) if dtype_of(mask) == "bool" else mask
        seen = F.broadcast_to(seen, shape=tuple(x.shape))
        kept = F.where(seen, F._div_scalar(x, scalar=temperature), _filled(F, x, least))
        y = getattr(F, of)(kept, axis=axis)
        return F.where(seen, y, _filled(F, y, hidden))

    def ref(xp: Any, data: Any, mask: Any, axis: int, temperature: float, normalize: bool) -> Any:
        x = _floats(data) / temperature
        seen = np.broadcast_to(mask, x.shape) != 0
        e = np.where(seen, np.exp(np.where(seen, x, 0)), 0)
        with np.errstate(all="ignore"):
            share = np.where(seen, e / e.sum(axis, keepdims=True), 0).astype(x.dtype)
            return share if hidden == 0 else np.where(seen, np.log(share), hidden)

    # -inf has no differences that tests could take
    rows = [[1, 0, 1], [1, 1, 0]] if hidden == 0 else [[1, 1, 1], [1, 1, 1]]
    front(
        f"_npx_{name}",
        rule,
        inputs=("data", "mask"),
        params=(
            Param("axis", "int", -1),
            Param("temperature", "float", 1.0),
            Param("normalize", "bool", True),
        ),
        ref=ref,
        samples=(
            sample((2, 3), values(rows)),
            sample((2, 3), values([[1], [1]]), axis=0, temperature=2.0),
        ),
        doc=(
            f"{of} of data / temperature along an axis, over the elements where mask, which"
            f" broadcasts, is not 0; {hidden:g} elsewhere. normalize: accepted."
        ),
    )


_masked("masked_softmax", "softmax", 0.0)
_masked("masked_log_softmax", "log_softmax", -np.inf)

# ---- shapes --------------------------------------------------------------------------------------


def reshape_shape(shape: Sequence[int], target: Sequence[int], reverse: bool) -> tuple[int, ...]:
    """The shape that npx.reshape's codes mean. Raises ShapeError."""

    def wrong(why: str) -> ShapeError:
        return ShapeError(
            "npx.reshape", f"{why}, got data {tuple(shape)} and newshape {tuple(target)}"
        )

    codes = list(target)[::-1] if reverse else list(target)
    source = list(shape)[::-1] if reverse else list(shape)
    out: list[int] = []
    at = i = 0

    def take(code: int, n: int) -> list[int]:
        nonlocal at
        if at + n > len(source):
            raise wrong(f"code {code} needs an axis that data has not")
        at += n
        return source[at - n : at]

    while i < len(codes):
        code = codes[i]
        i += 1
        if code == -2:
            out += take(-2, 1)
        elif code == -3:
            if take(-3, 1) != [1]:
                raise wrong("code -3 must drop an axis of size 1")
        elif code == -4:
            out += take(-4, len(source) - at)
        elif code == -5:
            out.append(prod(take(-5, 2)))
        elif code == -6:
            whole, pair = take(-6, 1)[0], codes[i : i + 2]
            i += 2
            if len(pair) == 2 and pair.count(-1) == 1 and max(pair) > 0:
                pair = [whole // max(pair) if n == -1 else n for n in pair]
            if len(pair) < 2 or min(pair) < 0 or prod(pair) != whole:
                raise wrong(f"code -6 must split an axis of size {whole} by two sizes")
            out += pair
        elif code >= -1:
            out.append(code)
            at += 1
        else:
            raise wrong("codes are -1 to -6")
    if out.count(-1) > 1:
        raise wrong("at most one size may be -1")
    known = prod([n for n in out if n != -1])
    if -1 in out and known:
        out = [prod(shape) // known if n == -1 else n for n in out]
    if -1 in out or prod(out) != prod(shape):
        raise wrong(f"the number of elements must stay {prod(shape)}")
    return tuple(out[::-1] if reverse else out)


def _reshape(F: Any, a: Array, newshape: Any, reverse: bool, order: str) -> Array:
    return reshaped(F, a, reshape_shape(a.shape, newshape, reverse))


front(
    "_npx_reshape",
    _reshape,
    inputs=("a",),
    params=(
        Param("newshape", "shape"),
        Param("reverse", "bool", False),
        Param("order", ("C",), "C"),
    ),
    ref=lambda xp, a, newshape, reverse, order: a.reshape(
        reshape_shape(a.shape, newshape, reverse)
    ),
    samples=(
        sample((2, 3, 4), newshape=(-5, -4)),
        sample((8, 3, 3, 4), newshape=(-6, 2, -1, -4)),
        sample((2, 1, 3), newshape=(-2, -3, -2)),
        sample((8, 3, 3, 4, 4), newshape=(-4, -5), reverse=True),
    ),
    doc=(
        "a in another shape. -1: infer; -2: copy an axis; -3: drop an axis of size 1; -4: copy all"
        " that are left; -5: merge two; -6: split one by the two sizes after it. reverse: from the"
        " last axis on."
    ),
)

# ---- elements at indices -------------------------------------------------------------------------


def _at(name: str, replace: bool) -> None:
    def rule(F: Any, data: Array, val: Array, indices: Array) -> Array:
        shape = tuple(data.shape)
        if not indices.shape or indices.shape[0] > len(shape):
            raise ShapeError(
                f"npx.{name}",
                "indices must have a row for each of the first axes of data, got data"
                f" {shape} and indices {tuple(indices.shape)}",
            )
        n, places = indices.shape[0], tuple(indices.shape[1:])
        new = F.broadcast_to(cast(F, val, dtype_of(data)), shape=places + shape[n:])
        if replace:
            return F._scatter_set_nd(data, new, indices, shape=shape)
        return F.broadcast_add(data, F._backward_gather_nd(new, indices, shape=shape))

    def ref(xp: Any, data: Any, val: Any, indices: Any) -> Any:
        out, at = data.copy(), tuple(indices.astype("int64"))
        if replace:
            out[at] = val.astype(data.dtype)
        else:
            np.add.at(out, at, val.astype(data.dtype))
        return out

    front(
        f"_npx_{name}",
        rule,
        inputs=("data", "val", "indices"),
        ref=ref,
        samples=(
            sample((3, 4), (3,), values([[0, 2, 1], [1, 0, 2]])),
            sample((3, 4), (), values([[0, 2]])),
        ),
        doc=(
            f"data with val {'in place of' if replace else 'added to'} the elements at indices[0],"
            " indices[1], ...; val broadcasts."
        ),
    )


_at("index_update", replace=True)
_at("index_add", replace=False)

# ---- checks --------------------------------------------------------------------------------------


def _check(xp: Any, x: Any, msg: str) -> Any:
    if not xp.all(x):
        raise InvalidValue(msg)
    return xp.asarray(True)


operator(
    "_npx_constraint_check",
    inputs=("x",),
    params=(Param("msg", "str", "Constraint violated!"),),
    infer=lambda ins, msg: [Type((), "bool")],
    ref=_check,
    samples=(sample(values([True, True])),),
    doc="True where all of x is; else ValueError(msg), when the result is read.",
)
