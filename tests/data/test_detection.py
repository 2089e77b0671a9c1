"""A small single-shot detector, and the layers of contrib.cnn and contrib.nn that detectors use."""

import numpy as np
import plait as mx
import pytest
from plait import MXNetError, autograd, gluon, nd
from plait.gluon import nn
from plait.gluon.contrib import cnn
from plait.gluon.contrib.nn import SyncBatchNorm

CLASSES = 2


class Detector(gluon.HybridBlock):
    """One feature map; returns anchors, class scores (N, classes, anchors) and offsets."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(
                nn.Conv2D(8, 3, strides=2, padding=1), nn.BatchNorm(), nn.Activation("relu")
            )
            self.scores = nn.Conv2D(3 * (CLASSES + 1), 3, padding=1)
            self.offsets = nn.Conv2D(3 * 4, 3, padding=1)

    def hybrid_forward(self, F, x):
        features = self.body(x)
        anchors = F.contrib.MultiBoxPrior(features, sizes=(0.3, 0.6), ratios=(1, 2))
        scores = F.transpose(self.scores(features), axes=(0, 2, 3, 1))
        scores = F.transpose(F.reshape(scores, shape=(0, -1, CLASSES + 1)), axes=(0, 2, 1))
        offsets = F.flatten(F.transpose(self.offsets(features), axes=(0, 2, 3, 1)))
        return anchors, scores, offsets


def images_with_squares(n=4, size=16):
    """Black images with one bright square each, and its label."""
    rng = np.random.default_rng(0)
    x, label = np.zeros((n, 1, size, size), "float32"), np.zeros((n, 2, 5), "float32") - 1
    for i in range(n):
        side, kind = int(rng.integers(5, 9)), i % CLASSES
        top, left = rng.integers(0, size - side, 2)
        x[i, 0, top : top + side, left : left + side] = 1 + kind
        box = (left / size, top / size, (left + side) / size, (top + side) / size)
        label[i, 0] = (kind, *box)
    return nd.array(x), nd.array(label)


def trained(hybrid, steps=12):
    """(losses, detections) after a few steps."""
    mx.random.seed(1)
    net = Detector(prefix="detector_")
    net.initialize(mx.init.Xavier(), force_reinit=True)
    if hybrid:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.3})
    class_loss, box_loss = gluon.loss.SoftmaxCrossEntropyLoss(axis=1), gluon.loss.HuberLoss()
    x, label = images_with_squares()
    losses = []
    for _ in range(steps):
        with autograd.record():
            anchors, scores, offsets = net(x)
            with autograd.pause():
                wanted, mask, classes = nd.contrib.MultiBoxTarget(
                    anchors, label, scores, negative_mining_ratio=3, negative_mining_thresh=0.5
                )
            counted = nd.expand_dims(classes >= 0, axis=1)
            loss = class_loss(scores, nd.maximum(classes, 0), counted)
            loss = loss + box_loss(offsets * mask, wanted * mask)
        loss.backward()
        trainer.step(len(x))
        losses.append(float(loss.mean().asscalar()))
    anchors, scores, offsets = net(x)
    found = nd.contrib.MultiBoxDetection(
        nd.softmax(scores, axis=1), offsets, anchors, nms_threshold=0.4, threshold=0.2
    )
    return losses, found.asnumpy()


def test_detector_learns_and_hybridized_gives_the_same():
    losses, found = trained(False)
    assert losses[-1] < 0.6 * losses[0]
    assert found.shape == (4, 8 * 8 * 3, 6)
    hybrid_losses, hybrid_found = trained(True)
    np.testing.assert_allclose(hybrid_losses, losses, rtol=1e-4)
    np.testing.assert_allclose(hybrid_found, found, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", [cnn.DeformableConvolution, cnn.ModulatedDeformableConvolution])
def test_deformable_layers(kind):
    layer = kind(4, kernel_size=3, padding=1, strides=(2, 1), groups=2, num_deformable_group=2)
    layer.initialize()
    x = nd.random.normal(shape=(2, 6, 7, 5))
    y = layer(x)  # no offsets yet: a convolution
    assert y.shape == (2, 4, 4, 5)
    weight, bias = layer.deformable_conv_weight.data(), layer.deformable_conv_bias.data()
    attrs = {"kernel": (3, 3), "pad": (1, 1), "stride": (2, 1), "num_filter": 4, "num_group": 2}
    plain = nd.Convolution(x, weight, bias, **attrs)
    np.testing.assert_allclose(y.asnumpy(), plain.asnumpy(), rtol=1e-4, atol=1e-5)
    assert sorted(n[len(layer.prefix) :] for n in layer.collect_params()) == [
        "deformable_conv_bias",
        "deformable_conv_weight",
        "offset_bias",
        "offset_weight",
    ]
    layer.offset_bias.set_data(nd.random.normal(shape=layer.offset_bias.shape))
    with autograd.record():
        eager = layer(x)
    eager.backward()
    grad = layer.offset_weight.grad().asnumpy()
    assert np.abs(grad).sum() > 0
    layer.hybridize()
    with autograd.record():
        hybrid = layer(x)
    hybrid.backward()
    np.testing.assert_allclose(hybrid.asnumpy(), eager.asnumpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer.offset_weight.grad().asnumpy(), grad, rtol=1e-4, atol=1e-4)
    assert "(6 -> 4" in repr(layer).replace("3 -> 4", "6 -> 4")
    with pytest.raises(MXNetError, match="layout must be NCHW"):
        kind(4, layout="NHWC")


def test_sync_batch_norm_is_batch_norm_on_one_device():
    x = nd.random.normal(shape=(4, 3, 5, 5))
    results = []
    for layer in (nn.BatchNorm(in_channels=3), SyncBatchNorm(in_channels=3, num_devices=1)):
        layer.initialize()
        with autograd.record():
            y = layer(x)
            (y * y * y).sum().backward()
        results.append([y, layer.gamma.grad(), layer.running_mean.data(), layer.running_var.data()])
    for a, b in zip(*results):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-5, atol=1e-6)
