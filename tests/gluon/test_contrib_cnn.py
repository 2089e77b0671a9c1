"""contrib.cnn: deformable convolutions as MXNet 1.9.1 computes them."""

import numpy as np
import plait as mx
import pytest
from plait.gluon.contrib import cnn
from plait.kernels.record import REGISTRY

nd = mx.nd
pytestmark = pytest.mark.skipif(
    "_contrib_DeformableConvolution" not in REGISTRY, reason="the operator is not there yet"
)


def filled(name, **arguments):
    block = getattr(cnn, name)(6, prefix="a_", **arguments)
    block.initialize()
    x = nd.array(np.random.RandomState(1).randn(2, 4, 8, 7))
    block(x)  # finds the number of input channels
    for i, (_, p) in enumerate(sorted(block.collect_params().items())):
        p.set_data(nd.array(np.random.RandomState(i).uniform(-0.3, 0.3, p.shape)))
    return block, x


@pytest.mark.parametrize(
    "name, arguments, first, total",
    [
        (
            "DeformableConvolution",
            {"kernel_size": 3, "padding": 1, "num_deformable_group": 2},
            [0.183614, -0.192089, 0.563355, 0.227601],
            316.582,
        ),
        (
            "DeformableConvolution",
            {
                "kernel_size": (3, 2),
                "strides": 2,
                "use_bias": False,
                "offset_use_bias": False,
                "activation": "relu",
                "in_channels": 4,
            },
            [0.0, 0.744452, 0.749837, 0.383498],
            20.193,
        ),
        (
            "ModulatedDeformableConvolution",
            {"kernel_size": 3, "padding": 1},
            [-0.293421, 0.260267, 0.558698, -0.539121],
            350.468,
        ),
    ],
)
def test_outputs_are_mxnets(name, arguments, first, total):
    block, x = filled(name, **arguments)
    out = block(x).asnumpy()
    np.testing.assert_allclose(out.ravel()[:4], first, rtol=1e-4, atol=1e-5)
    assert abs(out).sum() == pytest.approx(total, rel=1e-4)
    block.hybridize()
    np.testing.assert_allclose(block(x).asnumpy(), out, rtol=1e-4, atol=1e-5)


def test_without_offsets_it_is_a_convolution():
    for name in cnn.conv_layers.__all__:
        block, x = filled(name, kernel_size=3, padding=1)
        for p in ("offset_weight", "offset_bias"):
            getattr(block, p).set_data(nd.zeros(getattr(block, p).shape))
        plain = nd.Convolution(
            x,
            block.deformable_conv_weight.data(),
            block.deformable_conv_bias.data(),
            kernel=(3, 3),
            pad=(1, 1),
            num_filter=6,
        )
        np.testing.assert_allclose(block(x).asnumpy(), plain.asnumpy(), rtol=1e-4, atol=1e-5)


def test_gradients_reach_the_offsets():
    block, x = filled("DeformableConvolution", kernel_size=3, padding=1, num_deformable_group=2)
    with mx.autograd.record():
        total = (block(x) ** 2).sum()
    total.backward()
    grad = block.offset_weight.grad().asnumpy()
    np.testing.assert_allclose(
        grad.ravel()[:4], [-2.4442, 7.7788, 4.4004, 3.3145], rtol=1e-3, atol=1e-3
    )


def test_text_and_layout():
    block = cnn.DeformableConvolution(6, 3, padding=1, use_bias=False, activation="relu")
    assert repr(block) == (
        "DeformableConvolution(None -> 6, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1),"
        " bias=False, Activation(relu))"
    )
    assert block.name.startswith("deformable_conv")
    with pytest.raises(AssertionError, match="Only supports 'NCHW' and 'NHWC'"):
        cnn.ModulatedDeformableConvolution(6, layout="NCW")
