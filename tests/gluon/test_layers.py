"""Layers: outputs and gradients, eager and hybridized, as MXNet 1.9.1 computes them (layers.npz);
names and repr."""

import pathlib

import numpy as np
import pytest
from plait import autograd, nd
from plait.gluon import nn

EXPECTED = np.load(pathlib.Path(__file__).parents[1] / "fixtures" / "layers.npz")
CASES = {
    "dense": (lambda nn: nn.Dense(4, activation="tanh"), (3, 5)),
    "dense_axes": (lambda nn: nn.Dense(4, flatten=False, use_bias=False), (2, 3, 5)),
    "conv2": (lambda nn: nn.Conv2D(6, 3, padding=1, activation="relu"), (2, 4, 6, 6)),
    "conv2_groups": (
        lambda nn: nn.Conv2D(6, (3, 2), strides=2, groups=2, use_bias=False),
        (2, 4, 7, 7),
    ),
    "conv2_dilation": (lambda nn: nn.Conv2D(6, 3, dilation=2), (2, 4, 7, 7)),
    "conv1": (lambda nn: nn.Conv1D(6, 3, padding=1), (2, 4, 7)),
    "conv3": (lambda nn: nn.Conv3D(5, 2), (2, 3, 4, 4, 4)),
    "transpose2": (
        lambda nn: nn.Conv2DTranspose(6, 3, strides=2, padding=1, output_padding=1),
        (2, 4, 5, 5),
    ),
    "transpose1": (lambda nn: nn.Conv1DTranspose(6, 3, strides=2), (2, 4, 5)),
    "transpose3": (lambda nn: nn.Conv3DTranspose(3, 2), (2, 4, 3, 3, 3)),
    "batchnorm": (lambda nn: nn.BatchNorm(), (4, 3, 5, 5)),
    "batchnorm_last": (lambda nn: nn.BatchNorm(axis=-1), (4, 3, 5)),
    "batchnorm_global": (lambda nn: nn.BatchNorm(use_global_stats=True), (4, 3)),
    "batchnorm_relu": (lambda nn: nn.BatchNormReLU(), (4, 3, 5, 5)),
    "layernorm": (lambda nn: nn.LayerNorm(), (4, 3, 5)),
    "layernorm1": (lambda nn: nn.LayerNorm(axis=1), (4, 3, 5)),
    "groupnorm": (lambda nn: nn.GroupNorm(2), (4, 6, 5)),
    "instancenorm": (lambda nn: nn.InstanceNorm(), (4, 3, 5, 5)),
    "instancenorm2": (lambda nn: nn.InstanceNorm(axis=2, scale=True), (4, 3, 5, 5)),
    "maxpool2": (lambda nn: nn.MaxPool2D(3, 2, 1, ceil_mode=True), (2, 3, 8, 8)),
    "avgpool2": (
        lambda nn: nn.AvgPool2D(3, 2, 1, count_include_pad=False, ceil_mode=True),
        (2, 3, 8, 8),
    ),
    "maxpool1": (lambda nn: nn.MaxPool1D(3), (2, 3, 7)),
    "avgpool1": (lambda nn: nn.AvgPool1D(), (2, 3, 7)),
    "maxpool3": (lambda nn: nn.MaxPool3D(), (2, 3, 4, 4, 4)),
    "avgpool3": (lambda nn: nn.AvgPool3D(), (2, 3, 4, 4, 4)),
    "globalmax2": (lambda nn: nn.GlobalMaxPool2D(), (2, 3, 4, 5)),
    "globalavg2": (lambda nn: nn.GlobalAvgPool2D(), (2, 3, 4, 5)),
    "globalmax1": (lambda nn: nn.GlobalMaxPool1D(), (2, 3, 4)),
    "globalavg1": (lambda nn: nn.GlobalAvgPool1D(), (2, 3, 4)),
    "globalmax3": (lambda nn: nn.GlobalMaxPool3D(), (2, 3, 4, 2, 2)),
    "reflection": (lambda nn: nn.ReflectionPad2D(2), (2, 3, 4, 5)),
    "leaky": (lambda nn: nn.LeakyReLU(0.3), (2, 3)),
    "prelu": (lambda nn: nn.PReLU(in_channels=3), (2, 3, 4)),
    "elu": (lambda nn: nn.ELU(0.7), (2, 3)),
    "swish": (lambda nn: nn.Swish(2.0), (2, 3)),
    "gelu": (lambda nn: nn.GELU(), (2, 3)),
    "softrelu": (lambda nn: nn.Activation("softrelu"), (2, 3)),
    "flatten": (lambda nn: nn.Flatten(), (2, 3, 4)),
    "lambda": (lambda nn: nn.HybridLambda(lambda F, x: F.LeakyReLU(x, slope=0.1) + 1), (2, 3)),
}


def run(nn, nd, autograd, make, shape, hybrid):
    """Output, gradients and parameters after one recorded step, by name; written for plait and for
    MXNet."""
    rs = np.random.RandomState(3)
    block, x = make(nn), nd.array(rs.randn(*shape))
    block.initialize()
    block(x)
    params = block._collect_params_with_prefix()
    for _, p in sorted(params.items()):
        p.set_data(nd.array(np.abs(rs.randn(*p.shape)) * 0.5))
    if hybrid:
        block.hybridize()
    x.attach_grad()
    with autograd.record():
        y = block(x)
        loss = (y * y).sum()
    loss.backward()
    found = {"y": y.asnumpy(), "dx": x.grad.asnumpy(), "repr": np.array(repr(block))}
    for name, p in params.items():
        found[f"d{name}" if p.grad_req != "null" else name] = (
            p.grad() if p.grad_req != "null" else p.data()
        ).asnumpy()
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("hybrid", [False, True])
def test_layer_equals_that_of_mxnet(name, hybrid):
    found = run(nn, nd, autograd, *CASES[name], hybrid)
    assert {k.split("|")[1] for k in EXPECTED.files if k.startswith(f"{name}|")} == set(found)
    for key, value in found.items():
        expected = EXPECTED[f"{name}|{key}"]
        if key == "repr":
            assert str(value) == str(expected)
        else:
            np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-4, err_msg=key)


def test_selu_gradient():
    x = nd.array([-1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        nn.SELU()(x).sum().backward()
    np.testing.assert_allclose(
        x.grad.asnumpy(), [1.0507009 * 1.6732632 * np.exp(-1), 1.0507009], rtol=1e-5
    )


def test_embedding_adds_up_gradients_of_repeated_rows():
    layer = nn.Embedding(4, 2)
    layer.initialize()
    with autograd.record():
        layer(nd.array([1, 1, 3])).sum().backward()
    assert layer.weight.grad().asnumpy().tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]


def test_dropout_acts_in_training_alone():
    layer, x = nn.Dropout(0.5), nd.ones((1000,))
    assert (layer(x).asnumpy() == 1).all()
    with autograd.record():
        y = layer(x).asnumpy()
    assert set(np.unique(y)) == {0.0, 2.0} and 400 < (y == 0).sum() < 600


def test_sequential_slices_and_iterates():
    net = nn.Sequential()
    with net.name_scope():
        net.add(nn.Dense(3), nn.Dense(4), nn.Identity())
    assert len(net) == 3 and [type(b).__name__ for b in net[1:]] == ["Dense", "Identity"]
    with pytest.warns(UserWarning, match="Consider using HybridSequential"):
        net.hybridize()


def test_wrong_arguments():
    for make in (
        lambda: nn.Conv2D(3, (1, 2, 3)),
        lambda: nn.Conv2D(4, 3, groups=3),
        lambda: nn.MaxPool2D(layout="CHW"),
        lambda: nn.LeakyReLU(-1),
        lambda: nn.ReflectionPad2D((1, 2)),
        lambda: nn.Lambda("no_such_function"),
    ):
        with pytest.raises(ValueError):
            make()
