"""Quantized operators: exact in floats where the sums fit, rounded to even at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..products import PRODUCT, Product
from ..run import Call, dtype_of, rule
from .layers import conv
from .shape import padded
from .windows import spatial, windows

RANGES = {d: (np.iinfo(d).min, np.iinfo(d).max) for d in ("int8", "uint8", "int16", "uint16")}


def _along(c: Call, x: Any, v: Any, axis: int, dtype: str) -> Any:
    """A scale or zero point: a number, or one for each element of an axis."""
    v = c.cast(v, dtype)
    if v.shape in ((), (1,)):
        return c.np.reshape(v, ())
    if len(v.shape) > 1:  # of blocks
        axis += len(x.shape) if axis < 0 else 0
        times = x.shape[axis] // v.shape[axis]
        return c.np.repeat(v, times, axis=axis)
    return c.np.reshape(v, [-1 if i == axis % len(x.shape) else 1 for i in range(len(x.shape))])


def quantized(c: Call, x: Any, scale: Any, zero: Any, axis: int, dtype: str) -> Any:
    low, high = RANGES[dtype]
    made = c.np.rint(x / _along(c, x, scale, axis, dtype_of(x)))
    if zero is not None:
        made = made + _along(c, x, zero, axis, dtype_of(x))
    return c.np.clip(made, low, high).astype(dtype)


def dequantized(c: Call, x: Any, scale: Any, zero: Any, axis: int) -> Any:
    dtype = dtype_of(scale)
    made = c.cast(x, dtype)
    if zero is not None:
        made = made - _along(c, x, zero, axis, dtype)
    return made * _along(c, x, scale, axis, dtype)


@rule("QuantizeLinear")
def quantize_linear(c: Call, x: Any, scale: Any, zero: Any = None) -> Any:
    dtype = dtype_of(zero) if zero is not None else "uint8"
    if dtype not in RANGES:
        raise c.fail(f"the zero point must be one of {', '.join(RANGES)}, got {dtype}")
    if dtype_of(x) == "int32":
        x = x.astype(dtype_of(scale))
    return quantized(c, x, scale, zero, c("axis", 1), dtype)


@rule("DequantizeLinear")
def dequantize_linear(c: Call, x: Any, scale: Any, zero: Any = None) -> Any:
    return dequantized(c, x, scale, zero, c("axis", 1))


@rule("DynamicQuantizeLinear")
def dynamic_quantize_linear(c: Call, x: Any) -> Any:
    low = c.np.minimum(c.np.min(x), 0.0)
    high = c.np.maximum(c.np.max(x), 0.0)
    scale = (high - low) / 255.0
    zero = c.np.clip(c.np.rint(-low / scale), 0, 255)
    made = c.np.clip(c.np.rint(x / scale) + zero, 0, 255)
    return made.astype("uint8"), scale, zero.astype("uint8")


def _whole(c: Call, x: Any, zero: Any, terms: int, axis: int | None = None) -> Any:
    """x - zero in a float dtype in which sums of so many products are exact."""
    dtype = "float32" if terms * 255 * 255 < 1 << 24 else "float64"
    x = c.cast(x, dtype)
    if zero is None:
        return x
    zero = c.cast(zero, dtype)
    if axis is not None and len(zero.shape) == 1 and zero.shape[0] > 1:
        zero = c.np.reshape(zero, [-1 if i == axis else 1 for i in range(len(x.shape))])
    elif len(zero.shape) == 1 and zero.shape[0] == 1:
        zero = c.np.reshape(zero, ())
    return x - zero


@rule("MatMulInteger")
def mat_mul_integer(c: Call, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    terms = a.shape[-1]
    left = _whole(c, a, a_zero, terms, len(a.shape) - 2)
    return c.np.matmul(left, _whole(c, b, b_zero, terms, len(b.shape) - 1)).astype("int32")


@rule("ConvInteger")
def conv_integer(c: Call, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
    terms = int(np.prod(w.shape[1:]))
    made = conv(c, _whole(c, x, x_zero, terms), _whole(c, w, w_zero, terms, 0))
    return made.astype("int32")


@rule("QLinearMatMul")
def q_linear_mat_mul(
    c: Call, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, s: Any, z: Any
) -> Any:
    terms = a.shape[-1]
    left = _whole(c, a, a_zero, terms, len(a.shape) - 2)
    made = c.np.matmul(left, _whole(c, b, b_zero, terms, len(b.shape) - 1))
    rows = _along(c, a, a_scale, len(a.shape) - 2, "float64")
    columns = _along(c, b, b_scale, len(b.shape) - 1, "float64")
    return quantized(c, made.astype("float64") * rows * columns, s, z, -1, dtype_of(z))


@rule("QLinearConv")
def q_linear_conv(
    c: Call,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    s: Any,
    z: Any,
    bias: Any = None,
) -> Any:
    terms = int(np.prod(w.shape[1:]))
    made = conv(c, _whole(c, x, x_zero, terms), _whole(c, w, w_zero, terms, 0)).astype("float64")
    shape = (1, -1, *[1] * (len(x.shape) - 2))
    if bias is not None:
        made = made + c.np.reshape(bias.astype("float64"), shape)
    scale = c.np.reshape(w_scale.astype("float64"), (-1,))
    scale = scale if scale.shape == (1,) else c.np.reshape(scale, shape)
    made = made * (scale * c.np.reshape(x_scale.astype("float64"), (1,)))
    return quantized(c, made, s, z, 1, dtype_of(z))


@rule("QLinearAdd", "QLinearMul")
def q_linear_pair(
    c: Call, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, s: Any, z: Any
) -> Any:
    left = dequantized(c, a, a_scale, a_zero, -1)
    right = dequantized(c, b, b_scale, b_zero, -1)
    made = left + right if c.node.op == "QLinearAdd" else left * right
    return quantized(c, made, s, z, -1, dtype_of(z))


@rule(PRODUCT)
def product_of_bytes(c: Call, x: Any) -> Any:
    p: Product = c("product")
    more = [c.array(v) for v in (p.weight, p.scale, p.shift)]
    options = {"num_filter": len(p.weight), "relu": p.relu, "out_type": p.out}
    multiply = c.nn._internal._conv_int8
    if p.kind == "MatMul":
        n, k = p.weight.shape
        image = c.np.reshape(x, (-1, k, 1))
        weight = c.np.reshape(more[0], (n, k, 1))
        made = multiply(image, weight, *more[1:], kernel=(1,), **options)
        return c.np.reshape(made, (*x.shape[:-1], n))
    w = windows(c, x.shape, p.weight.shape[2:])
    before = w.before
    if not w.symmetric or p.pad:
        needed = [(b, max(0, a)) for b, a in zip(w.before, w.after)]
        x, before = padded(c, x, spatial(needed), value=p.pad), (0,) * len(w.kernel)
    return multiply(
        x,
        *more,
        kernel=w.kernel,
        stride=w.stride,
        dilate=w.dilate,
        pad=before,
        num_group=c("group", 1),
        **options,
    )
