"""Layers on bytes as QuantizeLinear and DequantizeLinear around float operators (QDQ), the form in
which runtimes find them and put their own kernels on bytes in place.

A product's int32 sums are not written: what reads them gets the float operator's result instead
(`Edge.stands_for`), so that a layer is DequantizeLinear -> Conv -> QuantizeLinear. Zero points are
0. Ranges that are not calibrated are computed when the model runs. Each operator divides by the
constant that plait's own divides by (kernels/ops/quantize.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .....graph.fused_layers import CONV, DENSE, Layer
from .....graph.graph import Value
from .....kernels.ops.quantize import (
    BYTES,
    LEVELS,
    WHOLE,
    References,
    as_levels,
    magnitude,
    out_dtype,
    range_found,
    step_of,
)
from .....kernels.ops.quantized import whole_bias, whole_range
from .....kernels.record import Operator, dtype_name, lookup
from .....kernels.traits import Subgraphs
from ..graph import Graph, Unmapped
from ..rule import RULES, rule
from ..tensors import Namespace, Tensor

INT32 = np.iinfo(np.int32)


def computed(g: Graph, formula: Callable, *xs: Tensor) -> Any:
    """formula(F, *xs), of a decomposition: as arrays where all xs are constants, else as nodes."""
    if all(x.value is not None for x in xs):
        made = formula(References(np), *(x.value for x in xs))
        if isinstance(made, (list, tuple)):
            return [g.tensor(v) for v in made]
        return g.tensor(made)
    return formula(References(Namespace(g)), *xs)


def as_floats(
    g: Graph, x: Tensor, step: Tensor, axis: int | None = None, shape: Any = None
) -> Tensor:
    """DequantizeLinear. step: what 1 stands for, (1,), or one for each element of an axis."""
    step = g.reshape(step, ()) if axis is None else step
    zero = None if x.dtype == np.int32 else np.zeros([int(n) for n in step.shape], x.dtype)
    return g.DequantizeLinear(x, step, zero, axis=axis, shape=shape or x.shape, dtype="float32")


def rounded(g: Graph, x: Tensor, step: Tensor, dtype: str) -> Tensor:
    """QuantizeLinear: x / step, rounded to even, cut to what the dtype holds."""
    return g.QuantizeLinear(x, g.reshape(step, ()), np.zeros((), dtype), dtype=dtype)


def as_bytes(g: Graph, x: Tensor, r: Tensor, levels: float, dtype: str) -> Tensor:
    """x as bytes, r as the last of `levels`. A range that is found while the model runs has its
    largest number at a half, and the next range depends on how that is rounded: then plait's own
    arithmetic is written."""
    if r.value is not None:
        return rounded(g, x, r * np.float32(1 / levels), dtype)
    return as_levels(References(Namespace(g)), x, levels / r, dtype).again(x.shape)


def numbers(g: Graph, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The floats that a quantized array stands for."""
    if x.edge.stands_for is not None:
        return x.edge.stands_for
    return as_floats(g, x, computed(g, lambda F, a, b: step_of(F, x.dtype, a, b), low, high))


def as_sums(g: Graph, y: Tensor, low: Tensor, high: Tensor) -> list[Tensor]:
    """(y as int32 of a range, the range); readers that want floats get y itself."""
    per_unit = WHOLE["int32"] / computed(g, magnitude, low, high)
    made = as_levels(References(Namespace(g)), y, per_unit, "int32").again(y.shape)
    made.edge.stands_for = y
    return [made, low, high]


def constants(g: Graph, *values: float) -> list[Tensor]:
    return [g.tensor(np.array([v], np.float32)) for v in values]


def calibrated(
    g: Graph, y: Tensor, dtype: str, low: float, high: float
) -> tuple[Tensor, list[Tensor]]:
    """(y as bytes of a calibrated range, the range)."""
    ranges = constants(g, low, high)
    return as_bytes(g, y, computed(g, magnitude, *ranges), LEVELS[dtype], dtype), ranges


# ---- quantize, dequantize, requantize ------------------------------------------------------------


@rule("_contrib_quantize_v2")
def quantize_v2(
    g: Graph, x: Tensor, *, out_type: str, min_calib_range: Any, max_calib_range: Any
) -> list[Tensor]:
    low, high = min_calib_range, max_calib_range
    if dtype_name(x.dtype) in BYTES:
        whole = (-127.0, 127.0) if x.dtype == np.int8 else (0.0, 255.0)
        return [x, *constants(g, *(whole if low is None else (low, high)))]
    dtype = out_dtype("_contrib_quantize_v2", out_type, low, high)
    ranges = computed(g, range_found, x) if low is None else constants(g, low, high)
    r = computed(g, magnitude, *ranges)
    y = as_bytes(g, x, r, LEVELS[dtype], dtype)
    return [y, *ranges] if dtype == "uint8" else [y, -r, r]


@rule("_contrib_quantize")
def quantize(g: Graph, x: Tensor, low: Tensor, high: Tensor, *, out_type: str) -> list[Tensor]:
    low, high = (g.reshape(v, (1,)) for v in (low, high))
    r = computed(g, magnitude, low, high)
    of = r if out_type == "int8" else computed(g, magnitude, high, high)
    y = as_bytes(g, x, of, WHOLE[out_type], out_type)
    return [y, low, high] if out_type == "uint8" else [y, -r, r]


@rule("_contrib_dequantize")
def dequantize(g: Graph, x: Tensor, low: Tensor, high: Tensor, **_: Any) -> Tensor:
    return numbers(g, x, low, high)


@rule("_contrib_requantize")
def requantize(
    g: Graph, x: Tensor, low: Tensor, high: Tensor,
    *, out_type: str, min_calib_range: Any, max_calib_range: Any,
) -> list[Tensor]:  # fmt: skip
    dtype = out_dtype("_contrib_requantize", out_type, min_calib_range, max_calib_range)
    y = numbers(g, x, low, high)
    known = min_calib_range is not None
    ranges = (
        constants(g, min_calib_range, max_calib_range) if known else computed(g, range_found, y)
    )
    r = computed(g, magnitude, *ranges)
    made = as_bytes(g, y, r, WHOLE[dtype], dtype)
    if dtype == "int8":
        return [made, -r, r]
    return [made, *ranges] if known else [made, r * np.float32(0), r]


# ---- products ------------------------------------------------------------------------------------


def biased(g: Graph, bias: Tensor, unit: Tensor, n: int) -> Tensor:
    """A bias in units of the sums: int32 where that is known before the model runs."""
    fits = bias.value is not None and np.all(np.abs(bias.value) < INT32.max)
    if not fits or unit.value is None:
        return bias * unit
    whole = g.constant(np.rint(bias.value).astype(np.int32))
    each = np.broadcast_to(unit.value, (n,)) if unit.size > 1 else unit.value
    return as_floats(g, whole, g.constant(each), 0 if unit.size > 1 else None)


def product(
    g: Graph, kind: str, x: Tensor, per_x: Tensor, w: Tensor, per_w: Tensor, bias: Any,
    **attrs: Any,
) -> Tensor:  # fmt: skip
    """The float operator on bytes: nothing stands between DequantizeLinear and it. per_w: (1,), or
    one for each row of w; bias: floats."""
    axis = 0 if per_w.size > 1 else None
    if kind == "FullyConnected" and x.ndim > 2:
        if not attrs["flatten"]:
            wide = as_floats(g, g.transpose(w, [1, 0]), per_w, axis if axis is None else 1)
            y = g.MatMul(as_floats(g, x, per_x), wide, shape=g.outs[0].shape)
            return y if bias is None else y + bias
        x = g.Flatten(x, axis=1, shape=(x.shape[0], w.shape[1]))
    return RULES[kind](g, as_floats(g, x, per_x), as_floats(g, w, per_w, axis), bias, **attrs)


def _integer_product(kind: str) -> Callable:
    def write(g: Graph, *xs: Tensor, no_bias: bool, **attrs: Any) -> list[Tensor]:
        n = 2 if no_bias else 3
        x, w = xs[:2]
        ranges = [(xs[i], xs[i + 1]) for i in range(n, 3 * n, 2)]
        # data and weights stand for whole parts of their ranges here, as the sums' range says
        per_x, per_w = (
            computed(g, magnitude, *r) * np.float32(1 / WHOLE[dtype_name(t.dtype)])
            for r, t in zip(ranges, (x, w))
        )
        bias = None
        if not no_bias:
            flat = [v for r in ranges for v in r]
            levels = computed(
                g,
                lambda F, b, *r: F.Cast(
                    whole_bias(F, b, x, list(zip(r[::2], r[1::2]))), dtype="float32"
                ),
                *(xs[2], *flat),
            )
            bias = biased(g, levels, per_x * per_w, int(w.shape[0]))
        y = product(g, kind, x, per_x, w, per_w, bias, no_bias=no_bias, **attrs)
        whole = computed(
            g,
            lambda F, a, b, c, d: whole_range(F, (a, b), (c, d), dtype_name(x.dtype)),
            *(v for r in ranges[:2] for v in r),
        )
        return as_sums(g, y, *whole)

    return write


rule("_contrib_quantized_conv")(_integer_product("Convolution"))
rule("_contrib_quantized_fully_connected")(_integer_product("FullyConnected"))


class Rules:
    """`F` for the float graph of a fused layer, all of whose values have the shape of its result:
    writes them as nodes."""

    def __init__(self, g: Graph):
        self.g = g

    def apply(self, op: Operator, xs: Sequence[Tensor], attrs: dict[str, Any]) -> Any:
        return self.g.converter.write(self.g, op, xs, attrs)


@rule(CONV, DENSE)
def fused(g: Graph, *xs: Tensor, **attrs: Any) -> Any:
    op = g.call.operation
    found = op.trait(Subgraphs)
    layer = Layer(op.name, found.graphs[0])
    given = layer.by_name(xs, attrs)
    if not attrs["quantized"]:
        return layer.rule(Rules(g), *xs, **attrs)
    weights = {k: v for k, v in given.items() if k not in ("data", "sum", "min_data", "max_data",
                                                           "min_sum", "max_sum")}  # fmt: skip
    if any(v.value is None for v in weights.values()):
        raise Unmapped("its weights are no constants")
    w, per_w, b = layer.parameters(References(np), {k: v.value for k, v in weights.items()})
    weight = Tensor(g, w.shape, w.dtype, g.names.new(f"{given['weight'].name}_bytes"), w)
    unit = g.constant(per_w[:1] if np.all(per_w == per_w[0]) else per_w)
    x = given["data"]
    per_x = computed(
        g, lambda F, a, c: step_of(F, x.dtype, a, c), given["min_data"], given["max_data"]
    )
    bias = None
    if np.any(b):
        units = per_x * unit
        if units.value is None:
            bias = g.constant(b)
        else:
            bias = biased(g, g.constant(b / units.value), units, len(b))
    node = layer.product
    y = product(g, node.operation.name, x, per_x, weight, unit, bias, **node.attrs)
    env = {Value(layer.start): y}
    if layer.addend is not None:
        more = given["sum"]
        if dtype_name(more.dtype) in BYTES:
            more = numbers(g, more, given["min_sum"], given["max_sum"])
        env[Value(layer.addend)] = more
    y = layer.run(Rules(g), env)
    dtype = layer.out_dtype(attrs)
    if dtype == "float32":
        return y
    if dtype in BYTES:
        made, ranges = calibrated(g, y, dtype, attrs["min_calib_range"], attrs["max_calib_range"])
        return [made, *ranges]
    r = computed(g, magnitude, *computed(g, range_found, y))
    return as_sums(g, y, -r, r)


# ---- layers that keep the range ------------------------------------------------------------------


def _in_levels(g: Graph, x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """compute on the levels, whose step is 1: halves are rounded as plait rounds them."""
    one = g.tensor(np.ones((1,), np.float32))
    return rounded(g, compute(as_floats(g, x, one)), one, dtype_name(x.dtype))


@rule("_contrib_quantized_pooling")
def pooling(g: Graph, x: Tensor, low: Tensor, high: Tensor, **attrs: Any) -> list[Tensor]:
    return [_in_levels(g, x, lambda x: RULES["Pooling"](g, x, **attrs)), low, high]


@rule("_contrib_quantized_act")
def relu(g: Graph, x: Tensor, low: Tensor, high: Tensor, **_: Any) -> list[Tensor]:
    return [x if x.dtype == np.uint8 else _in_levels(g, x, g.Relu), low, high]


@rule("_contrib_quantized_flatten")
def flatten(g: Graph, x: Tensor, low: Tensor, high: Tensor) -> list[Tensor]:
    return [g.Flatten(x, axis=1, shape=g.outs[0].shape), low, high]


@rule("_contrib_quantized_embedding")
def embedding(
    g: Graph, x: Tensor, w: Tensor, low: Tensor, high: Tensor, **attrs: Any
) -> list[Tensor]:
    return [RULES["Embedding"](g, x, w, **attrs), low, high]


# ---- layers with other ranges --------------------------------------------------------------------


@rule("_contrib_quantized_concat")
def concat(g: Graph, *xs: Tensor, num_args: int, dim: int) -> list[Tensor]:
    arrays, lows, highs = xs[:num_args], xs[num_args::2], xs[num_args + 1 :: 2]
    dtype = "int8" if any(x.dtype == np.int8 for x in arrays) else "uint8"

    def widest(F: Any, *ends: Any) -> tuple[Any, Any]:
        low, high = ends[0], ends[1]
        for a, b in zip(ends[2::2], ends[3::2]):
            low, high = F.broadcast_minimum(low, a), F.broadcast_maximum(high, b)
        return low, high

    low, high = computed(g, widest, *(v for pair in zip(lows, highs) for v in pair))
    wide = [numbers(g, *v) for v in zip(arrays, lows, highs)]
    y = g.Concat(*wide, axis=dim, shape=g.outs[0].shape)
    return [as_bytes(g, y, computed(g, magnitude, low, high), LEVELS[dtype], dtype), low, high]


def _pair(kind: str) -> Callable:
    def write(
        g: Graph, a: Tensor, b: Tensor, *ends: Tensor, min_calib_range: Any, max_calib_range: Any,
        enable_float_output: bool = False,
    ) -> Any:  # fmt: skip
        y = g.op(kind, numbers(g, a, *ends[:2]), numbers(g, b, *ends[2:]))
        if enable_float_output:
            return y
        if min_calib_range is not None:
            dtype = "uint8" if a.dtype == b.dtype == np.uint8 else "int8"
            made, ranges = calibrated(g, y, dtype, min_calib_range, max_calib_range)
            return [made, *ranges]
        one, two = (computed(g, magnitude, *ends[i : i + 2]) for i in (0, 2))
        r = one + two if kind == "Add" else one * two
        return as_sums(g, y, -r, r)

    return write


rule("_contrib_quantized_elemwise_add")(_pair("Add"))
rule("_contrib_quantized_elemwise_mul")(_pair("Mul"))


@rule("_contrib_quantized_batch_norm")
def batch_norm(
    g: Graph, x: Tensor, *xs: Tensor, min_calib_range: float, max_calib_range: float, **attrs: Any
) -> list[Tensor]:
    more = {k: v for k, v in attrs.items() if k in lookup("BatchNorm").param_index}
    made = RULES["BatchNorm"](g, numbers(g, x, *xs[4:]), *xs[:4], **more)
    y = made[0] if isinstance(made, (list, tuple)) else made
    y, ranges = calibrated(g, y, "int8", min_calib_range, max_calib_range)
    return [y, *ranges]
