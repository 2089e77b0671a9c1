"""Layers on bytes, as MXNet's graphs of 8-bit integers name them: each takes and gives a range with
every array (quantize.py). Products give int32, which `_contrib_requantize` makes bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...engine.error import OperatorError, ShapeError
from ..record import COUNT, Param, Type, Types, dtype_name, lookup, sample, uniform, values
from ..traits import Auxiliary
from . import activation as _activation  # noqa: F401  (these fill the registry)
from . import dense, index, norm, pool, recurrent  # noqa: F401
from . import shape as _shape  # noqa: F401
from .conv import conv_inputs
from .conv_int8 import product_of_rows
from .quantize import (
    CALIBRATION,
    LEVELS,
    NAMES,
    RANGE,
    WHOLE,
    as_levels,
    byte_dtype,
    calibrated,
    check_ranges,
    composed,
    constant,
    dequantized,
    fill_ranges,
    magnitude,
    step_of,
)

_X = values(
    [[[[1, -2, 3], [127, -128, 0], [5, 9, -7]], [[4, 4, 4], [-9, 8, 7], [1, 0, 0]]]], "int8"
)
_LOW, _HIGH = values([-2.0]), values([3.0])


def _with_ranges(names: tuple[str, ...]) -> tuple[str, ...]:
    """The inputs of a layer: its arrays, then the range of each."""
    return (*names, *(f"{end}_{n}" for n in names for end in ("min", "max")))


def whole_range(F: Any, of_x: Sequence, of_w: Sequence, dtype: str) -> tuple[Any, Any]:
    """(-R, R): what the largest int32 stands for, as MXNet has it."""
    per_x = magnitude(F, *of_x) * (1 / WHOLE[dtype])
    per_w = magnitude(F, *of_w) * (1 / WHOLE["int8"])
    r = per_x * per_w * WHOLE["int32"]
    return F.negative(r), r


def whole_bias(F: Any, bias: Any, x: Any, ranges: Sequence) -> Any:
    """An int8 bias in the units of the sums, int32."""
    (x_low, x_high), (w_low, w_high), (b_low, b_high) = ranges
    per_bias = step_of(F, "int8", b_low, b_high)
    unit = step_of(F, x.dtype, x_low, x_high) * step_of(F, "int8", w_low, w_high)
    wide = F.broadcast_mul(F.Cast(bias, dtype="float32"), per_bias / unit)
    return as_levels(F, F.trunc(wide), constant(F, 1), "int32")


def _products(F, xs, no_bias):
    """(data, weight, bias or None, pairs of ranges)."""
    n = 2 if no_bias else 3
    ranges = [(xs[i], xs[i + 1]) for i in range(n, 3 * n, 2)]
    return xs[0], xs[1], None if no_bias else xs[2], ranges


def _bias_of(F, x, bias, ranges, n):
    if bias is None:
        return F._zeros(shape=(n,), dtype="int32")
    return whole_bias(F, bias, x, ranges)


def _product_infer(op: str, float_op: str):
    def infer(ins, **attrs):
        no_bias = attrs["no_bias"]
        n = 2 if no_bias else 3
        names = _with_ranges(conv_inputs(no_bias))
        byte_dtype(op, "data", ins[0])
        for name, t in zip(names[1:n], ins[1:n]):
            byte_dtype(op, name, t, ("int8",))
        check_ranges(op, ins, names, n)
        floats = [Type(t.shape, "float32") for t in ins[:n]]
        (y,) = lookup(float_op).infer(floats, **attrs)
        return [Type(y.shape, "int32"), RANGE, RANGE]

    return infer


def _product_fill(float_op: str):
    def fill(ins, **attrs):
        n = 2 if attrs["no_bias"] else 3
        rule = lookup(float_op).fill
        assert rule is not None
        found = rule([t and Type(t.shape, "float32") for t in ins[:n]], **attrs)
        arrays = [t or (f and Type(f.shape, "int8")) for t, f in zip(ins[:n], found)]
        return [*arrays, *(t or RANGE for t in ins[n:])]

    return fill


def _conv_rule(F, *xs, no_bias, num_filter, num_group, layout, **attrs):
    x, w, bias, ranges = _products(F, xs, no_bias)
    if (layout or "").endswith("C"):
        raise OperatorError(
            "_contrib_quantized_conv", f"layout must have channels first, got {layout}"
        )
    taps = {k: attrs[k] for k in ("kernel", "stride", "dilate", "pad")}
    y = F._conv_int8(
        *(x, w, _bias_of(F, x, bias, ranges, num_filter)),
        **taps,
        num_filter=num_filter,
        num_group=num_group,
        out_type="int32",
    )
    return [y, *whole_range(F, ranges[0], ranges[1], dtype_name(x.dtype))]


_conv = lookup("Convolution")
composed(
    "_contrib_quantized_conv",
    _conv_rule,
    inputs=_with_ranges(("data", "weight", "bias")),
    input_names=lambda no_bias, **_: _with_ranges(conv_inputs(no_bias)),
    params=_conv.params,
    n_outputs=3,
    output_names=NAMES,
    infer=_product_infer("_contrib_quantized_conv", "Convolution"),
    fill=_product_fill("Convolution"),
    samples=(
        sample(
            *(_X, values([[[[1, -2], [3, 4]], [[5, 127], [-6, 0]]]], "int8")),
            *(_LOW, _HIGH, _LOW, _HIGH),
            kernel=(2, 2),
            num_filter=1,
            no_bias=True,
        ),
        sample(
            *(_X, values([[[[1]], [[-3]]], [[[7]], [[100]]]], "int8"), values([3, -9], "int8")),
            *(_LOW, _HIGH, _LOW, _HIGH, _LOW, _HIGH),
            kernel=(1, 1),
            pad=(1, 0),
            num_filter=2,
        ),
    ),
    doc=(
        "Convolution of bytes, summed in int32; the bias counts in the units of its range (MXNet"
        " adds it as it is, and takes uint8 data for int8 where it says what the sums stand for)."
    ),
)


def _dense_rule(F, *xs, no_bias, num_hidden, flatten):
    x, w, bias, ranges = _products(F, xs, no_bias)
    b = _bias_of(F, x, bias, ranges, num_hidden)
    y = product_of_rows(F, x, w, [b], num_hidden, flatten, out_type="int32")
    return [y, *whole_range(F, ranges[0], ranges[1], dtype_name(x.dtype))]


_dense = lookup("FullyConnected")
_W = values([[1, -2, 3, 127], [-127, 0, 5, 9], [7, 7, -100, 64]], "int8")
_ROWS = values([[1, 2, 3, 255], [128, 0, 5, 9]], "uint8")
composed(
    "_contrib_quantized_fully_connected",
    _dense_rule,
    inputs=_with_ranges(("data", "weight", "bias")),
    input_names=lambda no_bias, **_: _with_ranges(conv_inputs(no_bias)),
    params=_dense.params,
    n_outputs=3,
    output_names=NAMES,
    infer=_product_infer("_contrib_quantized_fully_connected", "FullyConnected"),
    fill=_product_fill("FullyConnected"),
    samples=(
        sample(_ROWS, _W, _LOW, _HIGH, _LOW, _HIGH, num_hidden=3, no_bias=True),
        sample(
            *(_ROWS, _W, values([3, -9, 100], "int8"), _LOW, _HIGH, _LOW, _HIGH, _LOW, _HIGH),
            num_hidden=3,
        ),
    ),
    doc="FullyConnected of bytes, summed in int32; the bias counts in the units of its range.",
)


# ---- layers that keep the range ------------------------------------------------------------------


def _kept_infer(op: str, float_op: str):
    def infer(ins, **attrs):
        byte_dtype(op, "data", ins[0])
        check_ranges(op, ins, ("data", "min_data", "max_data"), 1)
        (y,) = lookup(float_op).infer([Type(ins[0].shape, "float32")], **attrs)
        return [Type(y.shape, ins[0].dtype), RANGE, RANGE]

    return infer


def _pooling_rule(F, x, low, high, pool_type, **attrs):
    dtype = dtype_name(x.dtype)
    if pool_type not in ("max", "avg"):
        raise OperatorError(
            "_contrib_quantized_pooling", f"pool_type must be max or avg, got {pool_type!r}"
        )
    if pool_type == "max":
        return [F.Pooling(x, pool_type=pool_type, **attrs), low, high]
    y = F.Pooling(F.Cast(x, dtype="float32"), pool_type=pool_type, **attrs)
    return [as_levels(F, y, constant(F, 1), dtype), low, high]


def _act_infer(ins, act_type):
    if act_type != "relu":
        raise OperatorError("_contrib_quantized_act", f"act_type must be 'relu', got {act_type!r}")
    return _kept_infer("_contrib_quantized_act", "Activation")(ins, act_type=act_type)


def _act_rule(F, x, low, high, act_type):
    return [x if dtype_name(x.dtype) == "uint8" else F._maximum_scalar(x, scalar=0), low, high]


_KEPT = ("data", "min_data", "max_data")
for _name, _of, _rule, _more, _samples in (
    (
        "_contrib_quantized_pooling",
        "Pooling",
        _pooling_rule,
        {},
        (
            sample(_X, _LOW, _HIGH, kernel=(2, 2)),
            sample(_X, _LOW, _HIGH, kernel=(2, 2), pool_type="avg", pad=(1, 1)),
        ),
    ),
    (
        "_contrib_quantized_act",
        "Activation",
        _act_rule,
        {"infer": _act_infer},
        (sample(_X, _LOW, _HIGH, act_type="relu"), sample(_ROWS, _LOW, _HIGH, act_type="relu")),
    ),
    (
        "_contrib_quantized_flatten",
        "Flatten",
        lambda F, x, low, high: [F.Flatten(x), low, high],
        {},
        (sample(_X, _LOW, _HIGH),),
    ),
):
    composed(
        _name,
        _rule,
        **{
            "inputs": _KEPT,
            "params": lookup(_of).params,
            "n_outputs": 3,
            "output_names": NAMES,
            "infer": _kept_infer(_name, _of),
            "fill": fill_ranges(1),
            "samples": _samples,
            "doc": f"{_of} of bytes; the range stays.",
            **_more,
        },
    )


def _rescaled(F, x, low, high, r_out, dtype):
    """Bytes of another range."""
    per = step_of(F, x.dtype, low, high) * (LEVELS[dtype] / r_out)
    return as_levels(F, F.Cast(x, dtype="float32"), per, dtype)


def _concat_infer(ins, num_args, dim):
    op, n = "_contrib_quantized_concat", num_args
    for i, t in enumerate(ins[:n]):
        byte_dtype(op, f"arg{i}", t)
    check_ranges(op, ins, _concat_names(num_args), n)
    floats = [Type(t.shape, "float32") for t in ins[:n]]
    (y,) = lookup("Concat").infer(floats, num_args=n, dim=dim)
    dtype = "int8" if any(t.dtype == "int8" for t in ins[:n]) else "uint8"
    return [Type(y.shape, dtype), RANGE, RANGE]


def _concat_names(num_args: int, **_: Any) -> tuple[str, ...]:
    return _with_ranges(tuple(f"arg{i}" for i in range(num_args)))


def _concat_rule(F, *xs, num_args, dim):
    n = num_args
    arrays, lows, highs = xs[:n], xs[n::2], xs[n + 1 :: 2]
    dtype = "int8" if any(dtype_name(x.dtype) == "int8" for x in arrays) else "uint8"
    low, high = lows[0], highs[0]
    for a, b in zip(lows[1:], highs[1:]):
        low, high = F.broadcast_minimum(low, a), F.broadcast_maximum(high, b)
    r = magnitude(F, low, high)
    made = [_rescaled(F, x, a, b, r, dtype) for x, a, b in zip(arrays, lows, highs)]
    return [F.Concat(*made, dim=dim), low, high]


composed(
    "_contrib_quantized_concat",
    _concat_rule,
    inputs=("*data",),
    input_names=_concat_names,
    params=(Param("num_args", "int", limits=COUNT), Param("dim", "int", 1)),
    n_outputs=3,
    output_names=NAMES,
    infer=_concat_infer,
    fill=lambda ins, num_args, dim: [*ins[:num_args], *(t or RANGE for t in ins[num_args:])],
    samples=(
        sample(_X, _X, _LOW, _HIGH, _LOW, values([6.0]), num_args=2),
        sample(_ROWS, _ROWS, _LOW, _HIGH, _LOW, _HIGH, num_args=2, dim=0),
    ),
    doc="Concat of bytes, all with the largest of their ranges; int8 where one of them is.",
)


# ---- sums and products ---------------------------------------------------------------------------

_PAIR = ("lhs", "rhs", "lhs_min", "lhs_max", "rhs_min", "rhs_max")


def _pair_infer(op: str, ins: Types, attrs: dict) -> list[Type]:
    for name, t in zip(("lhs", "rhs"), ins):
        byte_dtype(op, name, t)
    if ins[0].shape != ins[1].shape:
        raise ShapeError(
            op, f"lhs and rhs must have equal shapes, got {ins[0].shape} and {ins[1].shape}"
        )
    check_ranges(op, ins, _PAIR, 2)
    known = calibrated(op, attrs["min_calib_range"], attrs["max_calib_range"])
    if not known:
        return [Type(ins[0].shape, "int32"), RANGE, RANGE]
    both = all(t.dtype == "uint8" for t in ins[:2])
    return [Type(ins[0].shape, "uint8" if both else "int8"), RANGE, RANGE]


def _of_pair(F, y, xs, r, min_calib_range, max_calib_range):
    """Floats as MXNet returns sums: bytes of the calibrated range, else int32 of (-r, r)."""
    if min_calib_range is None:
        return [as_levels(F, y, WHOLE["int32"] / r, "int32"), F.negative(r), r]
    dtype = "uint8" if all(dtype_name(x.dtype) == "uint8" for x in xs) else "int8"
    low, high = constant(F, min_calib_range), constant(F, max_calib_range)
    return [as_levels(F, y, LEVELS[dtype] / magnitude(F, low, high), dtype), low, high]


def _add_rule(F, a, b, a_low, a_high, b_low, b_high, min_calib_range, max_calib_range):
    y = dequantized(F, a, a_low, a_high) + dequantized(F, b, b_low, b_high)
    r = magnitude(F, a_low, a_high) + magnitude(F, b_low, b_high)
    return _of_pair(F, y, (a, b), r, min_calib_range, max_calib_range)


def _mul_infer(ins, enable_float_output, **attrs):
    found = _pair_infer("_contrib_quantized_elemwise_mul", ins, attrs)
    return [Type(found[0].shape, "float32")] if enable_float_output else found


def _mul_rule(F, a, b, a_low, a_high, b_low, b_high, enable_float_output, **ranges):
    y = dequantized(F, a, a_low, a_high) * dequantized(F, b, b_low, b_high)
    if enable_float_output:
        return [y]
    r = magnitude(F, a_low, a_high) * magnitude(F, b_low, b_high)
    return _of_pair(F, y, (a, b), r, **ranges)


_PAIR_SAMPLE = (_X, _X, _LOW, _HIGH, _LOW, values([6.0]))
composed(
    "_contrib_quantized_elemwise_add",
    _add_rule,
    inputs=_PAIR,
    params=CALIBRATION,
    n_outputs=3,
    output_names=NAMES,
    infer=lambda ins, **attrs: _pair_infer("_contrib_quantized_elemwise_add", ins, attrs),
    fill=fill_ranges(2),
    samples=(
        sample(*_PAIR_SAMPLE),
        sample(*_PAIR_SAMPLE, min_calib_range=-3.0, max_calib_range=4.0),
    ),
    doc="The sum of bytes: bytes of the calibrated range, else int32.",
)
composed(
    "_contrib_quantized_elemwise_mul",
    _mul_rule,
    inputs=_PAIR,
    params=(*CALIBRATION, Param("enable_float_output", "bool", False)),
    n_outputs=lambda enable_float_output, **_: 1 if enable_float_output else 3,
    output_names=NAMES,
    infer=_mul_infer,
    fill=fill_ranges(2),
    samples=(
        sample(*_PAIR_SAMPLE),
        sample(*_PAIR_SAMPLE, min_calib_range=-3.0, max_calib_range=4.0),
        sample(*_PAIR_SAMPLE, enable_float_output=True),
    ),
    doc="The product of bytes: bytes of the calibrated range, else int32; or floats.",
)


# ---- batch normalisation, embedding, LSTM --------------------------------------------------------

_BN = ("data", "gamma", "beta", "moving_mean", "moving_var", "min_data", "max_data")


def _bn_infer(ins, min_calib_range, max_calib_range, **attrs):
    op = "_contrib_quantized_batch_norm"
    byte_dtype(op, "data", ins[0])
    check_ranges(op, ins, _BN, 5)
    if not calibrated(op, min_calib_range, max_calib_range):
        raise OperatorError(
            op,
            "needs min_calib_range and max_calib_range",
            fix="calib_mode='naive' or 'entropy', or exclude BatchNorm",
        )
    lookup("BatchNorm").infer([Type(ins[0].shape), *ins[1:5]], train=False, **_bn_attrs(attrs))
    return [Type(ins[0].shape, "int8"), RANGE, RANGE]


def _bn_attrs(attrs: dict) -> dict:
    return attrs | {"min_calib_range": None, "max_calib_range": None}


def _bn_rule(
    F, x, gamma, beta, mean, var, low, high, min_calib_range, max_calib_range, eps, fix_gamma, axis,
    **_,
):  # fmt: skip
    shape = tuple(n if a == axis % len(x.shape) else 1 for a, n in enumerate(x.shape))
    scale = F.rsqrt(var + eps)
    scale = scale if fix_gamma else gamma * scale
    shift = beta - mean * scale
    y = F.broadcast_mul(dequantized(F, x, low, high), F.reshape_to(scale, shape=shape))
    y = F.broadcast_add(y, F.reshape_to(shift, shape=shape))
    low, high = constant(F, min_calib_range), constant(F, max_calib_range)
    return [as_levels(F, y, LEVELS["int8"] / magnitude(F, low, high), "int8"), low, high]


def _bn_fill(ins, axis, **attrs):
    if ins[0] is None:
        return ins
    n = Type((ins[0].shape[axis],), "float32")
    return [ins[0], *(t or n for t in ins[1:5]), *(t or RANGE for t in ins[5:])]


composed(
    "_contrib_quantized_batch_norm",
    _bn_rule,
    traits=(Auxiliary((3, 4)),),
    inputs=_BN,
    params=lookup("BatchNorm").params,
    n_outputs=3,
    output_names=NAMES,
    infer=_bn_infer,
    fill=_bn_fill,
    samples=(
        sample(
            *(_X, values([1.0, 2.0]), values([0.5, -1.0]), values([0.1, 0.2])),
            *(values([1.0, 0.5]), _LOW, _HIGH),
            fix_gamma=False,
            min_calib_range=-4.0,
            max_calib_range=4.0,
        ),
    ),
    doc="Batch normalisation of inference of bytes; int8 of the calibrated range.",
)


def _embedding_infer(ins, **attrs):
    op = "_contrib_quantized_embedding"
    byte_dtype(op, "weight", ins[1], ("int8",))
    check_ranges(op, ins, ("data", "weight", "min_weight", "max_weight"), 2)
    given = [ins[0], Type(ins[1].shape, "float32")]
    (y,) = lookup("Embedding").infer(given, **attrs)
    return [Type(y.shape, "int8"), RANGE, RANGE]


composed(
    "_contrib_quantized_embedding",
    lambda F, x, w, low, high, **attrs: [F.Embedding(x, w, **attrs), low, high],
    inputs=("data", "weight", "min_weight", "max_weight"),
    params=lookup("Embedding").params,
    n_outputs=3,
    output_names=NAMES,
    infer=_embedding_infer,
    fill=lambda ins, input_dim, output_dim, **_: [
        ins[0],
        ins[1] or Type((input_dim, output_dim), "int8"),
        *(t or RANGE for t in ins[2:]),
    ],
    samples=(sample(values([0.0, 2, 1]), _W, _LOW, _HIGH, input_dim=3, output_dim=4),),
    doc="Rows of a weight of bytes; the range stays.",
)

_RNN = ("data", "parameters", "state", "state_cell", "data_scale", "data_shift")


def _rnn_given(ins):
    return [Type(ins[0].shape, "float32"), *ins[1:4]]


def _rnn_infer(ins, **attrs):
    op = "_contrib_quantized_rnn"
    byte_dtype(op, "data", ins[0], ("uint8",))
    if attrs["mode"] != "lstm" or attrs["projection_size"]:
        raise OperatorError(op, f"takes an LSTM without projection, got mode={attrs['mode']!r}")
    check_ranges(op, ins, _RNN, 4)
    found = lookup("RNN").infer(_rnn_given(ins), train=False, **attrs)
    return found[: 3 if attrs["state_outputs"] else 1]


def _rnn_rule(F, x, parameters, state, cell, scale, shift, **attrs):
    wide = F.broadcast_div(F.broadcast_sub(F.Cast(x, dtype="float32"), shift), scale)
    y = F.RNN(wide, parameters, state, cell, **attrs)
    return list(y) if isinstance(y, (list, tuple)) else [y]


def _rnn_fill(ins, **attrs):
    rule = lookup("RNN").fill
    assert rule is not None
    given = [ins[0] and Type(ins[0].shape, "float32"), *ins[1:4]]
    found = rule(given, **attrs)
    return [ins[0], *found[1:4], *(t or RANGE for t in ins[4:])]


composed(
    "_contrib_quantized_rnn",
    _rnn_rule,
    inputs=_RNN,
    params=lookup("RNN").params,
    n_outputs=lambda state_outputs, **_: 3 if state_outputs else 1,
    output_names=("output", "state_output", "statecell_output"),
    infer=_rnn_infer,
    fill=_rnn_fill,
    samples=(
        sample(
            *(values([[[3, 200]], [[0, 255]]], "uint8"), uniform((48,), -1, 1)),
            *((1, 1, 2), (1, 1, 2), values([60.0]), values([128.0])),
            state_size=2,
            num_layers=1,
            mode="lstm",
        ),
    ),
    doc="An LSTM on uint8 data, (data - shift) / scale, with float parameters and states.",
)
