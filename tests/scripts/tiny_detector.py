"""A single-shot detector: anchors of two scales, targets, two losses, then detections after
suppression. Prints both errors of every epoch, and the best box."""

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd
from mxnet.contrib.ndarray import MultiBoxDetection, MultiBoxPrior, MultiBoxTarget
from mxnet.gluon import nn

rs = np.random.RandomState(0)
SIZES, RATIOS, NUM_ANCHORS, NUM_CLASSES = [[0.3, 0.4], [0.5, 0.7]], [1, 2, 0.5], 4, 1


@mx.init.register
class Same(mx.init.Initializer):
    def _init_weight(self, name, arr):
        rs = np.random.RandomState(arr.size)
        arr[:] = nd.array(rs.uniform(-0.15, 0.15, arr.shape))


def down_sample_blk(num_filters):
    blk = nn.HybridSequential()
    blk.add(
        nn.Conv2D(num_filters, kernel_size=3, padding=1),
        nn.BatchNorm(in_channels=num_filters),
        nn.Activation("relu"),
        nn.MaxPool2D(2),
    )
    return blk


class TinySSD(nn.Block):
    def __init__(self, **kwargs):
        super(TinySSD, self).__init__(**kwargs)
        for i in range(2):
            setattr(self, "blk_%d" % i, down_sample_blk(8))
            setattr(self, "cls_%d" % i, nn.Conv2D(NUM_ANCHORS * (NUM_CLASSES + 1), 3, padding=1))
            setattr(self, "bbox_%d" % i, nn.Conv2D(NUM_ANCHORS * 4, 3, padding=1))

    def forward(self, X):
        anchors, cls_preds, bbox_preds = [], [], []
        for i in range(2):
            X = getattr(self, "blk_%d" % i)(X)
            anchors.append(MultiBoxPrior(X, sizes=SIZES[i], ratios=RATIOS))
            cls_preds.append(getattr(self, "cls_%d" % i)(X))
            bbox_preds.append(getattr(self, "bbox_%d" % i)(X))
        flat = [[p.transpose((0, 2, 3, 1)).flatten() for p in ps] for ps in (cls_preds, bbox_preds)]
        cls_preds = nd.concat(*flat[0], dim=1).reshape((0, -1, NUM_CLASSES + 1))
        return nd.concat(*anchors, dim=1), cls_preds, nd.concat(*flat[1], dim=1)


images, labels = rs.rand(8, 3, 16, 16) * 0.3, np.zeros((8, 1, 5))
for image, label in zip(images, labels):
    (x, y), (w, h) = rs.randint(0, 8, 2), rs.randint(4, 8, 2)
    image[:, y : y + h, x : x + w] = np.array([1, 0.2, 0.1])[:, None, None]
    label[0, 1:] = np.array([x, y, x + w, y + h]) / 16
images, labels = nd.array(images), nd.array(labels)

net = TinySSD()
net.initialize(Same())
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.3, "wd": 5e-4})
cls_loss, bbox_loss = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.loss.L1Loss()
for epoch in range(5):
    with autograd.record():
        anchors, cls_preds, bbox_preds = net(images)
        bbox_labels, bbox_masks, cls_labels = MultiBoxTarget(
            anchors, labels, cls_preds.transpose((0, 2, 1))
        )
        l = cls_loss(cls_preds, cls_labels) + bbox_loss(
            bbox_preds * bbox_masks, bbox_labels * bbox_masks
        )
    l.backward()
    trainer.step(8)
    print(l.mean().asscalar(), ((bbox_labels - bbox_preds) * bbox_masks).abs().mean().asscalar())

anchors, cls_preds, bbox_preds = net(images[:1])
found = MultiBoxDetection(cls_preds.softmax().transpose((0, 2, 1)), bbox_preds, anchors)
print(*found[0, 0].asnumpy())
