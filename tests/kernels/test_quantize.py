"""Operators on bytes beside numbers from MXNet 1.9.1 (fixtures/quantization/quant_ops.npz)."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from plait import MXNetError, nd

FIXTURE = Path(__file__).parents[1] / "fixtures" / "quantization" / "quant_ops.npz"
RANGES = {"calib": (-2.0, 2.0), "neg": (-2.0, 2.0), "pos": (0.0, 2.0), "calib0": (0.0, 2.0)}


def recorded():
    """{case: ([inputs], [outputs])} of MXNet."""
    found = defaultdict(dict)
    with np.load(FIXTURE) as arrays:
        for key in arrays.files:
            case, end = key.rsplit(".", 1)
            found[case][end] = arrays[key]
    of = lambda a, kind: [a[f"{kind}{i}"] for i in range(9) if f"{kind}{i}" in a]
    return {case: (of(a, "in"), of(a, "out")) for case, a in found.items()}


CASES = recorded()


def attributes(case, ins, outs):
    op, _, kind = case.partition(".")
    words = kind.split(".")
    if op in ("quantize", "quantize_v2", "requantize"):
        attrs = {"out_type": words[0]}
        for word in words[1:]:
            if word in RANGES and not (word == "neg" and words[0] == "uint8"):
                low, high = RANGES["pos" if words == ["uint8", "calib"] else word]
                attrs |= {"min_calib_range": low, "max_calib_range": high}
        return attrs
    if op == "quantized_fully_connected":
        return {"num_hidden": 5, "no_bias": "bias" not in words}
    if op == "quantized_conv":
        return {"num_filter": len(ins[1]), "kernel": (3, 3), "no_bias": True}
    if op == "quantized_pooling":
        return {"kernel": (2, 2), "stride": (2, 2), "pool_type": words[0]}
    calibration = {}
    if len(outs) == 3:
        low, high = float(outs[1][0]), float(outs[2][0])
        calibration = {"min_calib_range": low, "max_calib_range": high}
    if op == "quantized_elemwise_add":
        return calibration if "calib" in words else {}
    return {
        "quantized_act": {"act_type": "relu"},
        "quantized_concat": {"dim": 1, "num_args": 2},
        "quantized_batch_norm": {"fix_gamma": False, "eps": 1e-5, **calibration},
        "quantized_embedding": {"input_dim": 5, "output_dim": 8},
    }.get(op, {})


@pytest.mark.parametrize("case", CASES)
def test_as_mxnet_has_it(case):
    ins, outs = CASES[case]
    arrays = [nd.array(a, dtype=a.dtype) for a in ins]
    made = getattr(nd.contrib, case.partition(".")[0])(*arrays, **attributes(case, ins, outs))
    got = [a.asnumpy() for a in (made if isinstance(made, list) else [made])]
    if case == "quantized_act.relu.u8":  # MXNet calls these bytes int8: 200 reads -56
        outs = [outs[0].view("uint8"), *outs[1:]]
    if case.startswith("quantized_conv"):  # it takes uint8 data for int8 here
        outs = [outs[0], *(np.float32(r * 127 / 255) for r in outs[1:])]
    if case == "calibrate_entropy":
        np.testing.assert_allclose(got[0], outs[0], rtol=1e-6)
        np.testing.assert_allclose(got[1], outs[1], rtol=1e-3)
        return
    for g, want in zip(got, outs, strict=True):
        if g.dtype.kind == "f":
            np.testing.assert_allclose(g, want, rtol=1e-5, atol=1e-6)
        elif g.dtype == np.int32 and "elemwise" in case:  # of two billions, summed as floats
            np.testing.assert_allclose(g, want, atol=256)
        else:
            assert g.dtype == want.dtype
            step = 1 if case.startswith("quantized_batch_norm") else 0
            assert np.abs(g.astype(int) - want.astype(int)).max() <= step


def test_products_without_a_calibrated_range_or_with_float_results():
    a = nd.array([[-100, 50, 3]], dtype="int8")
    b = nd.array([[7, -128, 90]], dtype="int8")
    ranges = [nd.array([v]) for v in (-2.0, 2.0, -3.0, 3.0)]
    real = a.asnumpy() * (2 / 127.5) * b.asnumpy() * (3 / 127.5)
    y = nd.contrib.quantized_elemwise_mul(a, b, *ranges, enable_float_output=True)
    np.testing.assert_allclose(y.asnumpy(), real, rtol=1e-5)
    sums = nd.contrib.quantized_elemwise_mul(a, b, *ranges)
    np.testing.assert_allclose(nd.contrib.dequantize(*sums).asnumpy(), real, rtol=1e-5)


def test_zeros_and_nan():
    data, low, high = nd.contrib.quantize_v2(nd.zeros((3,)))
    assert data.asnumpy().tolist() == [0, 0, 0]
    assert nd.contrib.dequantize(data, low, high).asnumpy().tolist() == [0, 0, 0]
    x = nd.array([np.nan, np.inf, -np.inf, 1])
    data = nd.contrib.quantize_v2(x, min_calib_range=-2, max_calib_range=2)[0]
    assert data.asnumpy().tolist() == [-128, 127, -128, 64]


def test_an_lstm_on_bytes_is_near_the_one_on_floats():
    rng = np.random.default_rng(3)
    x = nd.array(rng.uniform(-1, 1, (4, 2, 3)))
    more = [nd.array(rng.normal(0, 0.3, s)) for s in ((4 * 5 * (3 + 5 + 2),), (1, 2, 5), (1, 2, 5))]
    attrs = {"state_size": 5, "num_layers": 1, "mode": "lstm"}
    data, scale, shift = nd.contrib.quantize_asym(x)
    y = nd.contrib.quantized_rnn(data, *more, scale, shift, **attrs).asnumpy()
    np.testing.assert_allclose(y, nd.RNN(x, *more, **attrs).asnumpy(), atol=0.02)


@pytest.mark.parametrize(
    "call, rule",
    [
        (lambda x: nd.contrib.quantize_v2(x, min_calib_range=1), "must be given together"),
        (
            lambda x: nd.contrib.quantize_v2(x, min_calib_range=2, max_calib_range=1),
            "at most max_calib_range, got 2",
        ),
        (lambda x: nd.contrib.quantize_v2(x, out_type="int4"), "int4"),
        (lambda x: nd.contrib.quantize(x, nd.zeros((2,)), nd.zeros((1,))), r"shape \(1,\)"),
        (lambda x: nd.contrib.dequantize(x, nd.zeros((1,)), nd.zeros((1,))), "must be int8"),
        (
            lambda x: nd.contrib.calibrate_entropy(nd.zeros((4,)), nd.zeros((5,))),
            "an odd number of bins",
        ),
    ],
)
def test_what_is_refused(call, rule):
    with pytest.raises(MXNetError, match=rule):
        call(nd.ones((2, 3)))
