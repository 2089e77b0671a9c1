"""Convolution and pooling on gpu(0) against NumPy: both ways, groups, dilation, sizes that are no
multiples of tiles, both layouts."""

import numpy as np
import pytest
from calls import back, call, close, on_gpu, reference
from plait.kernels.cuda import conv_plan, matmul_plan
from plait.kernels.cuda.backend import CUDA
from plait.kernels.record import REGISTRY, Type

CASES = {
    "1d": ((2, 3, 70), (4, 3, 5), dict(kernel=(5,), stride=(2,), pad=(2,))),
    "2d": ((2, 5, 11, 9), (67, 5, 3, 3), dict(kernel=(3, 3), pad=(1, 1))),
    "dilated": ((1, 3, 12, 10), (4, 3, 3, 2), dict(kernel=(3, 2), dilate=(2, 3), stride=(2, 1))),
    "groups": ((2, 6, 7, 8), (8, 3, 3, 3), dict(kernel=(3, 3), num_group=2, pad=(1, 0))),
    "depthwise": ((2, 5, 8, 7), (10, 1, 3, 3), dict(kernel=(3, 3), num_group=5, stride=(2, 2))),
    "point": ((1, 33, 5, 5), (7, 33, 1, 1), dict(kernel=(1, 1))),
    "3d": ((1, 2, 5, 6, 7), (3, 2, 2, 3, 2), dict(kernel=(2, 3, 2), pad=(1, 1, 0))),
    "last": ((2, 9, 8, 3), (5, 3, 2, 3), dict(kernel=(3, 2), layout="NHWC", pad=(1, 1))),
}


@pytest.fixture(autouse=True, params=["cuDNN", "own"])
def library(request, monkeypatch):
    if request.param == "cuDNN" and not conv_plan.has_cudnn():
        pytest.skip("there is no cuDNN")
    if request.param == "cuDNN" and "pooling" in request.function.__name__:
        pytest.skip("pooling is always ours")
    monkeypatch.setattr(matmul_plan, "FORCE_OWN", request.param == "own")
    return request.param


def case_of(name, dtype):
    x_shape, w_shape, attrs = CASES[name]
    if attrs.get("layout"):
        w_shape = (w_shape[0], *attrs["kernel"], w_shape[1])
    rng = np.random.default_rng(len(name))
    x, w = (on_gpu(rng.standard_normal(s), dtype) for s in (x_shape, w_shape))
    bias = on_gpu(rng.standard_normal(w_shape[0]), dtype)
    return x, w, bias, attrs, rng


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@pytest.mark.parametrize("name", CASES)
def test_convolution_both_ways(name, dtype):
    x, w, bias, attrs, rng = case_of(name, dtype)
    full = {**attrs, "num_filter": w.shape[0]}
    y = call("Convolution", x, w, bias, **full)
    close(y, reference("Convolution", x, w, bias, **full), dtype)
    dy = on_gpu(rng.standard_normal(y.shape), dtype)
    for grad, inputs, shape in (
        ("_conv_grad_data", (dy, w), {"data_shape": x.shape}),
        ("_conv_grad_weight", (dy, x), {"weight_shape": w.shape}),
    ):
        got = call(grad, *inputs, **attrs, **shape)
        close(got, reference(grad, *inputs, **attrs, **shape), dtype)


def test_slices_of_a_weight_gradient():
    """Few results and many windows: the sum over the windows is cut."""
    dy, x = map(on_gpu, np.random.default_rng(0).standard_normal((2, 3, 2, 20, 20)))
    attrs = dict(kernel=(3, 3), pad=(1, 1), weight_shape=(2, 2, 3, 3))
    close(call("_conv_grad_weight", dy, x, **attrs), reference("_conv_grad_weight", dy, x, **attrs))


@pytest.mark.parametrize("dtype", ("float32", "float16"))
def test_large_tiles(dtype, monkeypatch):
    monkeypatch.setattr(matmul_plan, "FILLING", 1)
    rng = np.random.default_rng(1)
    x = on_gpu(rng.standard_normal((1, 3, 13, 11)), dtype)
    w = on_gpu(rng.standard_normal((70, 3, 2, 2)), dtype)
    attrs = dict(kernel=(2, 2), num_filter=70, no_bias=True)
    close(call("Convolution", x, w, **attrs), reference("Convolution", x, w, **attrs), dtype)


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
def test_deconvolution_with_bias(dtype):
    rng = np.random.default_rng(4)
    x, w, bias = (on_gpu(rng.standard_normal(s), dtype) for s in ((2, 4, 5, 6), (4, 3, 3, 2), (6,)))
    attrs = dict(kernel=(3, 2), num_filter=6, num_group=2, stride=(2, 3), pad=(1, 0), adj=(1, 2))
    got = call("Deconvolution", x, w, bias, no_bias=False, **attrs)
    close(got, reference("Deconvolution", x, w, bias, no_bias=False, **attrs), dtype)


ACTS = {
    "relu": ({}, lambda x: np.maximum(x, 0)),
    "sigmoid": ({}, lambda x: 1 / (1 + np.exp(-x))),
    "clip": ({"a_min": 0.0, "a_max": 0.5}, lambda x: np.clip(x, 0, 0.5)),
    "LeakyReLU": ({"act_type": "leaky", "slope": 0.1}, lambda x: np.where(x > 0, x, 0.1 * x)),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("groups", (1, 4))
def test_what_follows_a_convolution(act, groups):
    given, function = ACTS[act]
    rng = np.random.default_rng(2)
    shapes = ((1, 4, 5, 6), (8, 4 // groups, 3, 3), (8,), (1, 8, 5, 6))
    arrays = [on_gpu(rng.standard_normal(s)) for s in shapes]
    attrs = dict(kernel=(3, 3), pad=(1, 1), num_filter=8, num_group=groups, add=True)
    want = function(reference("_conv", *arrays, **attrs))
    act_attrs = repr(tuple(REGISTRY[act].parse(given).items()))
    close(call("_conv", *arrays, **attrs, act=act, act_attrs=act_attrs), want)


def test_who_computes(library):
    """cuDNN where it is there; on the emulated GPU it refuses 16-bit types."""
    op, attrs = REGISTRY["Convolution"], dict(kernel=(3, 3), num_filter=4, no_bias=True)
    x, w = Type((1, 2, 5, 5), "float32"), Type((4, 2, 3, 3), "float32")
    found = CUDA.choose(op, [x, w], [Type((1, 4, 3, 3), "float32")], op.parse(attrs))
    assert (found.function == "plk_cudnn_run") == (library == "cuDNN")


POOLS = {
    "max": dict(kernel=(3, 2), stride=(2, 1), pad=(1, 0)),
    "max apart": dict(kernel=(2, 2), stride=(2, 2)),
    "full": dict(kernel=(3, 3), stride=(2, 2), pooling_convention="full"),
    "same": dict(kernel=(3, 3), stride=(2, 2), pooling_convention="same"),
    "global": dict(global_pool=True),
    "avg": dict(kernel=(3, 3), pad=(1, 1), pool_type="avg"),
    "avg without pad": dict(kernel=(3, 3), pad=(1, 1), pool_type="avg", count_include_pad=False),
    "global avg": dict(global_pool=True, pool_type="avg"),
    "lp": dict(kernel=(2, 2), pool_type="lp", p_value=2),
    "last": dict(kernel=(2, 3), layout="NHWC"),
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
def test_pooling_both_ways(name, dtype):
    rng = np.random.default_rng(3)
    values = rng.permutation(2 * 3 * 9 * 10).reshape(2, 3, 9, 10) / 128.0 + 0.5
    x, attrs = on_gpu(values, dtype), POOLS[name]
    y = call("Pooling", x, **attrs)
    close(y, reference("Pooling", x, **attrs), dtype)
    kind = attrs.get("pool_type", "max")
    if kind == "lp":
        return
    dy = on_gpu(rng.standard_normal(y.shape), dtype)
    inputs = (dy, x) if kind == "max" else (dy,)
    given = {**attrs, "data_shape": x.shape}
    close(call("_pool_grad", *inputs, **given), reference("_pool_grad", *inputs, **given), dtype)
    if kind == "max":
        close(call("_pool_pick", x, x, **attrs), reference("_pool_pick", x, x, **attrs), dtype)


def test_pooling_of_nan_and_infinity():
    x = np.array([[[1.0, np.nan, 3.0, -np.inf, -np.inf, 2.0]]])
    y = back(call("Pooling", on_gpu(x), kernel=(2,), stride=(2,)))
    np.testing.assert_array_equal(y, [[[np.nan, 3.0, 2.0]]])


@pytest.mark.parametrize("size", [(1,), (2, 4), (7, 3)])
def test_adaptive_pooling_both_ways(size):
    rng = np.random.default_rng(5)
    x, name = on_gpu(rng.standard_normal((2, 3, 5, 6))), "_contrib_AdaptiveAvgPooling2D"
    y = call(name, x, output_size=size)
    close(y, reference(name, x, output_size=size))
    dy, attrs = on_gpu(rng.standard_normal(y.shape)), {"data_shape": x.shape}
    name = "_adaptive_avg_pool_grad"
    close(call(name, dy, **attrs), reference(name, dy, **attrs))
