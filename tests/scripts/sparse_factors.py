"""Factorization machine with the symbolic interface: csr data, row_sparse weights. Prints the
errors of every epoch."""

import mxnet as mx
import numpy as np

rs = np.random.RandomState(0)
FEATURES, FACTORS = 20, 3
x = (rs.rand(80, FEATURES) < 0.15) * rs.rand(80, FEATURES)
truth = rs.randn(FEATURES, 3)
y = (x.dot(truth) ** 2).sum(1) > (x**2).dot(truth**2).sum(1)


@mx.init.register
class Same(mx.init.Initializer):
    def _init_weight(self, name, arr):
        rs = np.random.RandomState(np.prod(arr.shape))
        arr[:] = mx.nd.array(rs.uniform(-0.3, 0.3, arr.shape))


def factorization_machine():
    data = mx.symbol.Variable("data", stype="csr")
    v = mx.symbol.Variable("v", shape=(FEATURES, FACTORS), init=Same(), stype="row_sparse")
    w = mx.symbol.Variable("w", shape=(FEATURES, 1), init=Same(), stype="row_sparse")
    bias = mx.symbol.Variable("bias", shape=(1,), init=mx.init.Zero())
    linear = mx.symbol.broadcast_add(mx.symbol.dot(data, w), bias)
    v_s = mx.symbol._internal._square_sum(data=v, axis=1, keepdims=True)
    squares = 0.5 * mx.symbol.dot(mx.symbol.square(data), v_s)
    pairs = mx.symbol.sum(mx.symbol.square(mx.symbol.dot(data, v)), axis=1, keepdims=True)
    label = mx.symbol.Variable("softmax_label")
    return mx.symbol.LogisticRegressionOutput(linear + 0.5 * pairs - squares, label, name="model")


train = mx.io.NDArrayIter(
    mx.nd.array(x).tostype("csr"),
    y.astype("float32"),
    20,
    label_name="softmax_label",
    last_batch_handle="discard",
)
module = mx.mod.Module(factorization_machine(), label_names=["softmax_label"])
module.bind(data_shapes=train.provide_data, label_shapes=train.provide_label)
module.init_params()
module.init_optimizer(
    optimizer="adam", optimizer_params={"learning_rate": 0.05, "rescale_grad": 1 / 20}
)
metric = mx.metric.create(["mse", "mae"])
for epoch in range(4):
    train.reset()
    metric.reset()
    for batch in train:
        rows = mx.nd.arange(FEATURES, dtype="int64")
        module.prepare(batch, sparse_row_id_fn=lambda batch: {"w": rows, "v": rows})
        module.forward_backward(batch)
        module.update()
        module.update_metric(metric, batch.label)
    print(*metric.get()[1])
