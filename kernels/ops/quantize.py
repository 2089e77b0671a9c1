"""Numbers as bytes: quantize, dequantize, requantize, and the thresholds of calibration.

A quantized array travels with two arrays of one element, the least and the largest number that it
stands for; r = max(|min|, |max|). MXNet has two constants: `quantize_v2`, `dequantize` and fused
layers divide the range by LEVELS, `quantize`, `requantize` and ranges of products by WHOLE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...engine.error import DTypeError, OperatorError, ShapeError
from ..pointwise import pointwise, sum_to
from ..record import (
    Operator,
    Param,
    Type,
    Types,
    dtype_name,
    lookup,
    operator,
    sample,
    uniform,
    values,
)
from ..shapes import broadcast_shapes, float_dtype, same_dtype
from ..traits import Decomposition

LEVELS = {"int8": 127.5, "uint8": 255.5, "int32": 2.0**31 - 1}
WHOLE = {"int8": 127.0, "uint8": 255.0, "int32": 2.0**31 - 1}
# what a float32 may be cast to the dtype from; the largest int32 is no float32
LIMITS = {"int8": (-128.0, 127.0), "uint8": (0.0, 255.0), "int32": (-(2.0**31), 2.0**31 - 128)}
LEAST = 1e-30  # of a range that is divided by: an array of zeros has none
BYTES = ("int8", "uint8")
RANGE = Type((1,), "float32")

pointwise(
    "_to_levels",
    "a * b > low ? rint(a * b < high ? a * b : high) : low",
    inputs=("data", "scale"),
    params=(
        Param("low", "float", -128.0, dynamic=True),
        Param("high", "float", 127.0, dynamic=True),
    ),
    domain=(-20, 20),
    ref=lambda xp, x, scale, low, high: xp.where(
        x * scale > low, xp.rint(xp.minimum(x * scale, high)), low
    ),
    doc="data * scale, at least `low` and at most `high`, rounded to nearest even; NaN: `low`.",
)


class References:
    """`F` for references: F.relu(x) runs the operator's reference on arrays of `xp`. So a
    decomposition is also the reference of its operator."""

    def __init__(self, xp: Any):
        self._xp = xp

    def __getattr__(self, name: str) -> Callable:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *xs, **attrs: self.apply(lookup(name), xs, attrs)

    def apply(self, op: Operator, inputs: Sequence, attrs: dict[str, Any]) -> Any:
        xs = [self._xp.asarray(x) for x in inputs]
        if op.variadic_key:
            attrs = {op.variadic_key: len(xs), **attrs}
        full = op.parse(attrs)
        n_visible = op.visible(full)
        if op.train_aware:
            full["train"] = False
        if op.random:
            full["rng"] = (
                self._xp.random
            )  # read in training only; loops do not trace such operators
        types = op.infer([Type(tuple(x.shape), dtype_name(x.dtype)) for x in xs], **full)
        made = op.ref(self._xp, *xs, **full)
        made = made if isinstance(made, (tuple, list)) else [made]
        ys = [
            self._xp.asarray(y).astype(t.dtype).reshape(t.shape)
            for y, t in zip(made[:n_visible], types)
        ]
        return ys[0] if n_visible == 1 else ys


def composed(name: str, rule: Callable, traits: Sequence = (), **fields: Any) -> Operator:
    """Registers an operator whose decomposition is its reference too."""

    def ref(xp, *xs, **attrs):
        return tuple(rule(References(xp), *xs, **attrs))

    return operator(name, ref=ref, traits=(Decomposition(rule), *traits), **fields)


# ---- arithmetic of ranges ------------------------------------------------------------------------


def magnitude(F: Any, low: Any, high: Any) -> Any:
    """r of a range, (1,); never 0, so that it may be divided by."""
    return F._maximum_scalar(F.broadcast_maximum(F.abs(low), F.abs(high)), scalar=LEAST)


def constant(F: Any, value: float) -> Any:
    """An array (1,) of a range's number."""
    return F._full(shape=(1,), value=float(value), dtype="float32")


def step_of(F: Any, dtype: Any, low: Any, high: Any) -> Any:
    """What 1 stands for in an array of bytes with this range, (1,)."""
    return magnitude(F, low, high) * (1 / LEVELS[dtype_name(dtype)])


def dequantized(F: Any, x: Any, low: Any, high: Any) -> Any:
    """The numbers that a quantized array stands for."""
    return times(F, F.Cast(x, dtype="float32"), step_of(F, x.dtype, low, high))


def times(F: Any, x: Any, scale: Any) -> Any:
    """x times an array (1,), of x's shape, which may be ()."""
    y = F.broadcast_mul(x, scale)
    return y if x.shape else F.reshape_to(y, shape=())


def as_levels(F: Any, x: Any, per_unit: Any, dtype: str) -> Any:
    """x * per_unit, rounded and cut to what the dtype holds."""
    low, high = LIMITS[dtype]
    y = F.Cast(F._to_levels(x, per_unit, low=low, high=high), dtype=dtype)
    return y if x.shape else F.reshape_to(y, shape=())


def range_found(F: Any, x: Any) -> tuple[Any, Any]:
    """The least and the largest number of an array, each (1,)."""
    both = F.min(x), F.max(x)
    return tuple(F.reshape_to(F.Cast(v, dtype="float32"), shape=(1,)) for v in both)


def calibrated(op: str, low: float | None, high: float | None) -> bool:
    """Are there calibrated ranges? Raises OperatorError where these are no range."""
    if (low is None) != (high is None):
        raise OperatorError(
            op,
            f"min_calib_range and max_calib_range must be given together, got {low} and {high}",
        )
    if low is None or high is None:
        return False
    if not (np.isfinite(low) and np.isfinite(high) and low <= high):
        raise OperatorError(
            op, f"min_calib_range must be finite and at most max_calib_range, got {low} and {high}"
        )
    return True


def out_dtype(op: str, out_type: str, low: float | None, high: float | None) -> str:
    """The dtype that `out_type` means."""
    known = calibrated(op, low, high)
    if out_type == "auto":
        return "uint8" if known and low is not None and low >= 0 else "int8"
    return out_type


def check_ranges(op: str, ins: Types, names: Sequence[str], first: int) -> None:
    """Raises an error where an input from `first` on is no number of a range."""
    for name, t in zip(names[first:], ins[first:]):
        if t.shape != (1,) or t.dtype != "float32":
            raise ShapeError(
                op, f"{name} must be float32 with shape (1,), got {t.dtype} {tuple(t.shape)}"
            )


def fill_ranges(n_data: int) -> Callable:
    """`fill` of operators whose inputs behind the first n_data are ranges."""

    def fill(ins, **_):
        return [*ins[:n_data], *(t or RANGE for t in ins[n_data:])]

    return fill


CALIBRATION = (Param("min_calib_range", "float?", None), Param("max_calib_range", "float?", None))
NAMES = ("output", "min", "max")
_BYTES_SAMPLE = values([[1, -2, 3, 127], [-128, 0, 5, 9]], "int8")
_LOW, _HIGH = values([-2.0]), values([3.0])


def byte_dtype(op: str, name: str, t: Type, allowed: Sequence[str] = BYTES) -> str:
    if t.dtype not in allowed:
        raise DTypeError(op, f"{name} must be {' or '.join(allowed)}, got {t.dtype}")
    return t.dtype


# ---- quantize ------------------------------------------------------------------------------------


def _v2_infer(ins, out_type, min_calib_range, max_calib_range):
    x, name = ins[0], "_contrib_quantize_v2"
    wanted = out_dtype(name, out_type, min_calib_range, max_calib_range)
    byte_dtype(name, "data", x, ("float32", *BYTES))
    if x.dtype in BYTES and out_type not in ("auto", x.dtype):
        raise DTypeError(name, f"data is {x.dtype} already, got out_type={out_type!r}")
    dtype = x.dtype if x.dtype in BYTES else wanted
    return [Type(x.shape, dtype), RANGE, RANGE]


def _v2_rule(F, x, out_type, min_calib_range, max_calib_range):
    known = min_calib_range is not None
    if dtype_name(x.dtype) in BYTES:
        default = (-127.0, 127.0) if dtype_name(x.dtype) == "int8" else (0.0, 255.0)
        given = (min_calib_range, max_calib_range) if known else default
        return [x, *(constant(F, v) for v in given)]
    low, high = (
        (constant(F, min_calib_range), constant(F, max_calib_range)) if known else range_found(F, x)
    )
    dtype = out_dtype("_contrib_quantize_v2", out_type, min_calib_range, max_calib_range)
    r = magnitude(F, low, high)
    y = as_levels(F, x, LEVELS[dtype] / r, dtype)
    return [y, low, high] if dtype == "uint8" else [y, F.negative(r), r]


composed(
    "_contrib_quantize_v2",
    _v2_rule,
    params=(Param("out_type", ("auto", "int8", "uint8"), "int8"), *CALIBRATION),
    n_outputs=3,
    output_names=NAMES,
    infer=_v2_infer,
    samples=(
        sample(uniform((3, 4), -2, 2)),
        sample(uniform((3, 4), -1, 4), out_type="uint8"),
        sample(uniform((3, 4), -3, 3), min_calib_range=-1.0, max_calib_range=2.0),
        sample(uniform((4,), 0, 3), out_type="auto", min_calib_range=0.0, max_calib_range=2.0),
        sample(_BYTES_SAMPLE),
    ),
    doc=(
        "Floats as bytes: int8: data * 127.5 / r, uint8: data * 255.5 / r, with negative numbers as"
        " 0; r is the largest magnitude, of the calibrated range or of data. auto: uint8 where the"
        " calibrated range has no negative number. Returns (bytes, min, max)."
    ),
)


def _quantize_infer(ins, out_type):
    byte_dtype("_contrib_quantize", "data", ins[0], ("float32",))
    check_ranges("_contrib_quantize", ins, ("data", "min_range", "max_range"), 1)
    return [Type(ins[0].shape, out_type), RANGE, RANGE]


def _quantize_rule(F, x, low, high, out_type):
    low, high = (F.reshape_to(v, shape=(1,)) for v in (low, high))
    r = magnitude(F, low, high)
    per_unit = WHOLE[out_type] / (r if out_type == "int8" else magnitude(F, high, high))
    y = as_levels(F, x, per_unit, out_type)
    return [y, low, high] if out_type == "uint8" else [y, F.negative(r), r]


composed(
    "_contrib_quantize",
    _quantize_rule,
    inputs=("data", "min_range", "max_range"),
    params=(Param("out_type", BYTES, "uint8"),),
    n_outputs=3,
    output_names=NAMES,
    infer=_quantize_infer,
    fill=fill_ranges(1),
    samples=(
        sample(uniform((3, 4), -3, 4), values([-3.0]), values([4.0])),
        sample(uniform((3, 4), -3, 4), values([-3.0]), values([4.0]), out_type="int8"),
    ),
    doc="Floats as bytes by a given range: data * 127 / r, or data * 255 / max. See quantize_v2.",
)


def _asym_infer(ins, min_calib_range, max_calib_range):
    calibrated("_contrib_quantize_asym", min_calib_range, max_calib_range)
    byte_dtype("_contrib_quantize_asym", "data", ins[0], ("float32",))
    return [Type(ins[0].shape, "uint8"), RANGE, RANGE]


def _asym_rule(F, x, min_calib_range, max_calib_range):
    low, high = (
        range_found(F, x)
        if min_calib_range is None
        else (constant(F, min_calib_range), constant(F, max_calib_range))
    )
    scale = 255.0 / F._maximum_scalar(high - low, scalar=LEAST)
    shift = 255.0 - high * scale
    wide = F.broadcast_add(F.broadcast_mul(x, scale), shift)
    y = as_levels(F, wide, constant(F, 1), "uint8")
    return [y if x.shape else F.reshape_to(y, shape=()), scale, shift]


composed(
    "_contrib_quantize_asym",
    _asym_rule,
    params=CALIBRATION,
    n_outputs=3,
    output_names=("output", "scale", "shift"),
    infer=_asym_infer,
    samples=(
        sample(uniform((3, 4), -2, 3)),
        sample(uniform((3, 4), -2, 3), min_calib_range=-1.0, max_calib_range=2.0),
    ),
    doc=(
        "Floats as uint8: data * scale + shift, scale = 255 / (max - min), shift = 255 - max *"
        " scale, of the calibrated range or of data. Returns (bytes, scale, shift)."
    ),
)


# ---- dequantize, requantize ----------------------------------------------------------------------


def _dequantize_infer(ins, out_type):
    byte_dtype("_contrib_dequantize", "data", ins[0], (*BYTES, "int32"))
    check_ranges("_contrib_dequantize", ins, ("data", "min_range", "max_range"), 1)
    return [Type(ins[0].shape, "float32")]


composed(
    "_contrib_dequantize",
    lambda F, x, low, high, out_type: [dequantized(F, x, low, high)],
    inputs=("data", "min_range", "max_range"),
    params=(Param("out_type", ("float32",), "float32"),),
    infer=_dequantize_infer,
    fill=fill_ranges(1),
    samples=(
        sample(_BYTES_SAMPLE, _LOW, _HIGH),
        sample(values([[0, 7, 255]], "uint8"), values([0.0]), _HIGH),
        sample(values([[0, 70000, -5]], "int32"), _LOW, _HIGH),
    ),
    doc="Bytes or int32 as the floats that they stand for: int8: data * r / 127.5, uint8: / 255.5.",
)


def _requantize_infer(ins, out_type, min_calib_range, max_calib_range):
    name = "_contrib_requantize"
    byte_dtype(name, "data", ins[0], ("int32",))
    check_ranges(name, ins, ("data", "min_range", "max_range"), 1)
    dtype = out_dtype(name, out_type, min_calib_range, max_calib_range)
    return [Type(ins[0].shape, dtype), RANGE, RANGE]


def _requantize_rule(F, x, low, high, out_type, min_calib_range, max_calib_range):
    dtype = out_dtype("_contrib_requantize", out_type, min_calib_range, max_calib_range)
    wide = dequantized(F, x, low, high)
    if min_calib_range is None:
        r = magnitude(F, *range_found(F, wide))
        low, high = F.negative(r) if dtype == "int8" else r * 0.0, r
    else:
        low, high = constant(F, min_calib_range), constant(F, max_calib_range)
        r = magnitude(F, low, high)
        low, high = (F.negative(r), r) if dtype == "int8" else (low, high)
    return [as_levels(F, wide, WHOLE[dtype] / r, dtype), low, high]


composed(
    "_contrib_requantize",
    _requantize_rule,
    inputs=("data", "min_range", "max_range"),
    params=(Param("out_type", ("auto", "int8", "uint8"), "int8"), *CALIBRATION),
    n_outputs=3,
    output_names=NAMES,
    infer=_requantize_infer,
    fill=fill_ranges(1),
    samples=(
        sample(values([[5, -(2**30), 2**29]], "int32"), _LOW, _HIGH),
        sample(
            values([[5, -(2**30), 2**29]], "int32"),
            *(_LOW, _HIGH),
            out_type="auto",
            min_calib_range=0.0,
            max_calib_range=2.0,
        ),
    ),
    doc=(
        "int32 as bytes: the number that it stands for * 127 / r, or 255 / r, of the calibrated"
        " range or of data. Returns (bytes, min, max)."
    ),
)


# ---- thresholds ----------------------------------------------------------------------------------


def _entropy_infer(ins, num_quantized_bins):
    hist, edges = ins
    n = hist.shape[0] if len(hist.shape) == 1 else 0
    name = "_contrib_calibrate_entropy"
    if n % 2 == 0 or edges.shape != (n + 1,):
        raise ShapeError(
            name,
            "hist must have an odd number of bins and hist_edges one number more, got"
            f" {tuple(hist.shape)} and {tuple(edges.shape)}",
        )
    if not 1 < num_quantized_bins <= n or num_quantized_bins % 2 == 0:
        raise OperatorError(
            name,
            f"num_quantized_bins must be odd and at most the {n} bins, got {num_quantized_bins}",
        )
    return [RANGE, RANGE]


def _smoothed(p: np.ndarray) -> np.ndarray | None:
    """A distribution with 0.0001 in place of zeros, taken off the others; None: all are zeros."""
    n_zeros = int((p == 0).sum())
    if n_zeros == p.size:
        return None
    eps = 0.0001 * n_zeros / (p.size - n_zeros)
    return None if eps >= 1 else np.where(p == 0, np.float32(0.0001), p - np.float32(eps))


def _divergence(p: np.ndarray, q: np.ndarray) -> float:
    """Kullback-Leibler divergence of two histograms."""
    p, q = p / p.sum(dtype="float64"), q / q.sum(dtype="float64")
    return float((p * np.log(p / q)).sum())


def best_threshold(hist: np.ndarray, edges: np.ndarray, n_levels: int) -> tuple[float, float]:
    """(threshold, divergence): the part of a symmetric histogram's middle that n_levels levels
    represent best, as Migacz 2017 (8-bit Inference with TensorRT) says."""
    n, middle = len(hist), len(hist) // 2
    total = np.concatenate([[0], np.cumsum(hist, dtype="float64")])
    best = (float(edges[-1]), float("inf"))
    for half in range(n_levels // 2, middle + 1):
        start, stop = middle - half, middle + half + 1
        inside = hist[start:stop].astype("float32")
        p = inside.copy()
        inside[0] = 0  # as MXNet: the first bin only stands for what is cut off
        p[0] += total[start]
        p[-1] += total[n] - total[stop]
        width = len(inside) // n_levels
        at = np.minimum(np.arange(len(inside)) // width, n_levels - 1)
        sums = np.bincount(at, inside, n_levels)
        counts = np.bincount(at, inside != 0, n_levels)
        means = np.divide(sums, counts, out=np.zeros(n_levels), where=counts > 0)
        q = np.where(p != 0, means[at], 0).astype("float32")
        smooth = _smoothed(p), _smoothed(q)
        if smooth[0] is None or smooth[1] is None:
            continue
        found = _divergence(smooth[0], smooth[1])
        if found < best[1]:
            best = (float(edges[stop]), found)
    return best


def _entropy_ref(xp, hist, edges, num_quantized_bins):
    made = best_threshold(np.asarray(hist), np.asarray(edges), num_quantized_bins)
    return tuple(xp.asarray([v], dtype="float32") for v in made)


operator(
    "_contrib_calibrate_entropy",
    inputs=("hist", "hist_edges"),
    params=(Param("num_quantized_bins", "int", 255),),
    n_outputs=2,
    output_names=("threshold", "divergence"),
    infer=_entropy_infer,
    ref=_entropy_ref,
    samples=(
        sample(
            values([0.0, 1, 3, 9, 20, 9, 3, 1, 0]),
            values([-4.5, -3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 4.5]),
            num_quantized_bins=5,
        ),
    ),
    doc=(
        "The threshold of a symmetric histogram of which num_quantized_bins levels represent the"
        " part within best: the least Kullback-Leibler divergence. Source: Migacz 2017, 8-bit"
        " Inference with TensorRT."
    ),
)


# ---- training ------------------------------------------------------------------------------------


def _fake_infer(ins):
    op = "_contrib_fake_quantize"
    float_dtype(op, ins, ("data", "low", "high"))
    same_dtype(op, ins, ("data", "low", "high"))
    if broadcast_shapes(op, ins, ("data", "low", "high")) != ins[0].shape:
        raise ShapeError(op, f"low and high must fit data {ins[0].shape}, got {ins[1].shape}")
    return [ins[0]]


def _fake_parts(F, x, low, high):
    """(data in units of levels, least level, largest level, unit): uint8 where low is not
    negative."""
    r = F._maximum_scalar(F.broadcast_maximum(F.abs(low), F.abs(high)), scalar=LEAST)
    unsigned = F._greater_equal_scalar(low, scalar=0.0)
    unit = r / (unsigned * 128.0 + 127.5)
    least, most = unsigned * 128.0 - 128.0, unsigned * 128.0 + 127.0
    return F.broadcast_div(x, unit), least, most, unit


def _fake_rule(F, x, low, high):
    t, least, most, unit = _fake_parts(F, x, low, high)
    q = F.broadcast_minimum(F.broadcast_maximum(F._round_even(t), least), most)
    return [F.broadcast_mul(q, unit)]


def _fake_grad(F, dys, xs, ys):
    x, low, high = xs
    t, least, most, unit = _fake_parts(F, x, low, high)
    inside = F.broadcast_greater_equal(t, least - 0.5) * F.broadcast_lesser_equal(t, most + 0.5)
    level = F.broadcast_div(ys[0], unit)
    unsigned = F._greater_equal_scalar(low, scalar=0.0)
    of_range = F.broadcast_div(level - t * inside, unsigned * 128.0 + 127.5) * dys[0]
    summed = sum_to(F, of_range, tuple(low.shape))
    is_high = F.broadcast_greater_equal(F.abs(high), F.abs(low))
    signs = (F.sign(low) * (1.0 - is_high), F.sign(high) * is_high)
    return [dys[0] * inside, *(summed * sign for sign in signs)]


composed(
    "_contrib_fake_quantize",
    _fake_rule,
    inputs=("data", "low", "high"),
    infer=_fake_infer,
    grad=_fake_grad,
    doc=(
        "data as quantize_v2 and dequantize of the range (low, high) would leave it, as floats:"
        " int8 levels, uint8 ones where low is not negative. Gradients pass as if nothing had been"
        " rounded, and stop outside the range (straight through); the range's own gradient is that"
        " of Esser et al. 2020, arXiv:1902.08153."
    ),
    samples=(  # given values, which are not differentiated: the gradient is not the slope
        sample(values([-3.0, -0.9, -0.01, 0.3, 2.0]), values([-1.0]), values([0.9])),
        sample(values([[-3.0, 0.3], [0.9, 2.0]]), values([[0.0], [-1.0]]), values([[1.0], [2.0]])),
    ),
)
