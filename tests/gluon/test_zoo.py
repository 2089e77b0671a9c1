"""Model zoo: every network has MXNet 1.9.1's parameters (fixtures/zoo.json), runs, loads files."""

import hashlib
import json
from pathlib import Path

import numpy as np
import plait as mx
import pytest
from plait.gluon import nn
from plait.gluon.contrib import nn as contrib
from plait.gluon.model_zoo import model_store, vision

nd = mx.nd
FIXTURES = Path(__file__).parent.parent / "fixtures"
ZOO = json.loads((FIXTURES / "zoo.json").read_text())


def test_the_zoo_is_complete():
    assert set(vision.MODELS) == set(ZOO)


@pytest.mark.parametrize("name", ZOO)
def test_parameters_are_mxnets(name):
    """Names, order and shapes, full and structural; the fixture has a digest of MXNet's."""
    net = vision.get_model(name, classes=7, prefix="m_")
    size = 299 if name == "inceptionv3" else 224
    net.infer_shape(nd.zeros((1, 3, size, size)))
    params = net.collect_params()
    lines = [
        f"{k} {list(p.shape)}"
        for params in (params, net._collect_params_with_prefix())
        for k, p in params.items()
    ]
    n, digest = ZOO[name]
    assert len(params) == n
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] == digest


def test_mobilenet_fixture_loads_and_gives_mxnets_outputs():
    net = vision.get_model("mobilenet0.25", classes=10, prefix="mobilenet0_")
    net.load_parameters(FIXTURES / "mobilenet0.25-0000.params")
    expected = np.load(FIXTURES / "expected.npz")
    net.hybridize()
    y = net(nd.array(expected["mobilenet_x"]))
    np.testing.assert_allclose(y.asnumpy(), expected["mobilenet_y"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "name, size",
    [("resnet18_v1", 32), ("resnet18_v2", 32), ("mobilenetv2_0.25", 32), ("mobilenet0.25", 32)],
)
def test_hybridized_is_eager(name, size):
    net = vision.get_model(name, classes=5)
    net.initialize(mx.init.Xavier())
    x = nd.array(np.random.default_rng(0).random((2, 3, size, size), np.float32))
    eager = net(x).asnumpy()
    net.hybridize()
    assert eager.shape == (2, 5)
    np.testing.assert_allclose(net(x).asnumpy(), eager, rtol=1e-3, atol=1e-4)


def test_thumbnail_resnet_trains():
    net = vision.get_model("resnet18_v2", classes=3, thumbnail=True)
    net.initialize(mx.init.Xavier())
    x = nd.array(np.random.default_rng(0).random((2, 3, 8, 8), np.float32))
    with mx.autograd.record():
        loss = (net(x) ** 2).sum()
    loss.backward()
    trained = [p for p in net.collect_params().values() if p.grad_req != "null"]
    assert sum(float(p.grad().abs().sum().asscalar()) > 0 for p in trained) > len(trained) * 0.9


def test_pretrained_reads_a_local_file(tmp_path):
    net = vision.get_model("mobilenet0.25", classes=4)
    net.initialize()
    x = nd.ones((1, 3, 32, 32))
    y = net(x).asnumpy()
    for name in ("mobilenet0.25.params", "mobilenet0.25-33ba0f93.params"):
        root = tmp_path / name[:14]
        root.mkdir(exist_ok=True)
        net.save_parameters(str(root / name))
        again = vision.get_model("mobilenet0.25", classes=4, pretrained=True, root=str(root))
        np.testing.assert_array_equal(again(x).asnumpy(), y)
        model_store.purge(root)
        assert not list(root.iterdir())


def test_missing_file_and_wrong_names(tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match="no file resnet18_v1-a0666292.params or resnet18_v1.params in .*\n  fix:",
    ):
        vision.get_model("resnet18_v1", pretrained=True, root=str(tmp_path))
    with pytest.raises(
        ValueError, match="(?s)Model resnet17_v1 is not supported.*did you mean 'resnet1"
    ) as caught:
        vision.get_model("resnet17_v1")
    assert isinstance(caught.value, mx.MXNetError)
    for call in (lambda: vision.get_resnet(1, 17), lambda: vision.get_vgg(12)):
        with pytest.raises(ValueError, match="Invalid number of layers"):
            call()
    with pytest.raises(ValueError, match="Invalid resnet version: 3"):
        vision.get_resnet(3, 18)
    with pytest.raises(ValueError, match="Unsupported SqueezeNet version 2"):
        vision.SqueezeNet("2")


def test_functions_make_the_same_networks():
    assert type(vision.mobilenet_v2_0_5()).__name__ == "MobileNetV2"
    assert isinstance(vision.resnet50_v2(classes=3), vision.ResNetV2)
    assert vision.vgg11_bn(classes=3).features[1].__class__ is nn.BatchNorm


@pytest.mark.parametrize("hybridize", [False, True])
def test_concurrent(hybridize):
    net = (contrib.HybridConcurrent if hybridize else contrib.Concurrent)(axis=1)
    net.add(nn.Dense(2), contrib.Identity(), nn.Dense(3))
    net.initialize()
    if hybridize:
        net.hybridize()
    x = nd.array([[1.0, 2.0]])
    y = net(x).asnumpy()
    assert y.shape == (1, 7)
    np.testing.assert_array_equal(y[:, 2:4], x.asnumpy())


@pytest.mark.parametrize(
    "cls, factor, shape",
    [
        ("PixelShuffle1D", 2, (1, 4, 3)),
        ("PixelShuffle2D", (2, 3), (2, 12, 3, 5)),
        ("PixelShuffle3D", (2, 1, 3), (1, 6, 2, 3, 2)),
    ],
)
def test_pixel_shuffle(cls, factor, shape):
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    factors = (factor,) if isinstance(factor, int) else factor
    n, c, *space = shape
    k = len(factors)
    split = x.reshape(n, c // int(np.prod(factors)), *factors, *space)
    order = [0, 1] + [a for i in range(k) for a in (2 + k + i, 2 + i)]
    want = split.transpose(order).reshape(n, -1, *[s * f for s, f in zip(space, factors)])
    np.testing.assert_array_equal(getattr(contrib, cls)(factor)(nd.array(x)).asnumpy(), want)
