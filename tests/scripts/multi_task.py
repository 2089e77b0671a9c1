"""Two tasks on one network with mx.mod.Module: a Group of outputs, an iterator and a metric of the
script's own. Prints both losses of every batch of the last epoch."""

import mxnet as mx
import numpy as np

rs = np.random.RandomState(0)
labels = rs.randint(0, 4, 64)
pictures = rs.rand(64, 1, 8, 8) * 0.5
for picture, label in zip(pictures, labels):
    picture[0, label // 2 * 4 :, label % 2 * 4 :] += 0.8


class TwoLabels(mx.io.DataIter):
    """The class, and whether it is above 1."""

    def __init__(self, data_iter):
        super(TwoLabels, self).__init__(data_iter.batch_size)
        self.data_iter = data_iter

    @property
    def provide_data(self):
        return self.data_iter.provide_data

    @property
    def provide_label(self):
        shape = self.data_iter.provide_label[0][1]
        return [("kind_label", shape), ("big_label", shape)]

    def reset(self):
        self.data_iter.reset()

    def next(self):
        batch = self.data_iter.next()
        label = batch.label[0]
        return mx.io.DataBatch(
            data=batch.data, label=[label, label > 1], pad=batch.pad, index=batch.index
        )


class TwoLosses(mx.metric.EvalMetric):
    """Cross-entropy of each task."""

    def __init__(self, num=2):
        self.num = num
        super(TwoLosses, self).__init__("two-losses")

    def reset(self):
        self.num_inst = [0] * self.num
        self.sum_metric = [0.0] * self.num

    def update(self, labels, preds):
        mx.metric.check_label_shapes(labels, preds)
        kind, big = [p.asnumpy() for p in preds]
        kind = kind[np.arange(len(kind)), labels[0].asnumpy().astype("int32")]
        big = np.abs(1 - labels[1].asnumpy() - big[:, 0])
        for i, probability in enumerate([kind, big]):
            self.sum_metric[i] += float(-np.log(probability).sum())
            self.num_inst[i] += len(probability)

    def get(self):
        return ["kind", "big"], [s / n for s, n in zip(self.sum_metric, self.num_inst)]


@mx.init.register
class Same(mx.init.Initializer):
    def _init_weight(self, name, arr):
        rs = np.random.RandomState(arr.size)
        arr[:] = mx.nd.array(rs.uniform(-0.2, 0.2, arr.shape))


data = mx.sym.Variable("data")
net = mx.sym.Convolution(data, kernel=(3, 3), num_filter=4, name="conv")
net = mx.sym.Pooling(mx.sym.Activation(net, act_type="relu"), pool_type="max", kernel=(2, 2))
net = mx.sym.Activation(mx.sym.FullyConnected(net, num_hidden=16), act_type="tanh")
kind = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=4), name="kind")
big = mx.sym.LogisticRegressionOutput(mx.sym.FullyConnected(net, num_hidden=1), name="big")

module = mx.mod.Module(mx.sym.Group([kind, big]), label_names=("kind_label", "big_label"))
losses = {}
module.fit(
    TwoLabels(mx.io.NDArrayIter(pictures.astype("float32"), labels.astype("float32"), 16)),
    eval_metric=TwoLosses(),
    num_epoch=3,
    optimizer_params=(("learning_rate", 0.2), ("momentum", 0.9), ("wd", 1e-4)),
    initializer=Same(),
    batch_end_callback=lambda p: losses.setdefault(p.epoch, []).append(p.eval_metric.get()[1]),
)
for both in losses[2]:
    print(*both)
