"""Small symbolic models and data for the tests of Module and its kin; test_module.py says what
MXNet 1.9.1 computes with them."""

import numpy as np
import plait as mx


def draw(seed, *shape):
    return mx.nd.array(np.random.RandomState(seed).randn(*shape) * 0.3)


IMAGES = np.random.RandomState(0).randn(50, 1, 12, 12).astype(np.float32)
LABELS = (np.abs(IMAGES).mean((1, 2, 3)) > 0.8) * 1 + (IMAGES[:, 0, 3, 3] > 1) * 1
FLAT = IMAGES.reshape(50, -1)


def batches(x=IMAGES, y=LABELS, size=10, **kwargs):
    return mx.io.NDArrayIter(x, y, size, **kwargs)


def lenet():
    h = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=4, name="c1")
    h = mx.sym.Activation(h, act_type="tanh")
    h = mx.sym.Pooling(h, pool_type="max", kernel=(2, 2), stride=(2, 2))
    h = mx.sym.FullyConnected(mx.sym.Flatten(h), num_hidden=10, name="f1")
    h = mx.sym.Activation(h, act_type="tanh")
    h = mx.sym.FullyConnected(h, num_hidden=3, name="f2")
    return mx.sym.SoftmaxOutput(h, name="softmax")


def lenet_params():
    return {
        "c1_weight": draw(1, 4, 1, 3, 3),
        "c1_bias": draw(2, 4),
        "f1_weight": draw(3, 10, 100),
        "f1_bias": draw(4, 10),
        "f2_weight": draw(5, 3, 10),
        "f2_bias": draw(6, 3),
    }


def dense(n=3, name="b", data="data"):
    return mx.sym.FullyConnected(mx.sym.var(data), num_hidden=n, name=name)


def lstm(n):
    """A language model over n steps: what BucketingModule calls for each bucket."""
    embedded = mx.sym.Embedding(mx.sym.var("data"), input_dim=8, output_dim=4, name="embed")
    steps = mx.sym.SliceChannel(embedded, num_outputs=n, axis=1, squeeze_axis=1)
    names = ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias", "cls_weight")
    w, u, b, v, c = [mx.sym.var(k) for k in names]
    h, cell, outs = mx.sym.zeros((4, 5)), mx.sym.zeros((4, 5)), []
    for t in range(n):
        gates = mx.sym.FullyConnected(steps[t], w, b, num_hidden=20, name=f"i{t}")
        gates = gates + mx.sym.FullyConnected(h, u, v, num_hidden=20, name=f"h{t}")
        i, f, a, o = mx.sym.SliceChannel(gates, num_outputs=4, name=f"s{t}")
        i, f, o = (mx.sym.Activation(x, act_type="sigmoid") for x in (i, f, o))
        cell = f * cell + i * mx.sym.Activation(a, act_type="tanh")
        h = o * mx.sym.Activation(cell, act_type="tanh")
        outs.append(mx.sym.expand_dims(h, axis=1))
    h = mx.sym.Reshape(mx.sym.Concat(*outs, dim=1), shape=(-1, 5))
    scores = mx.sym.FullyConnected(h, c, num_hidden=8, name="cls", no_bias=True)
    label = mx.sym.Reshape(mx.sym.var("softmax_label"), shape=(-1,))
    return mx.sym.SoftmaxOutput(scores, label, name="softmax"), ("data",), ("softmax_label",)


def lstm_params():
    return {
        "embed_weight": draw(1, 8, 4),
        "i2h_weight": draw(2, 20, 4),
        "h2h_weight": draw(3, 20, 5),
        "i2h_bias": draw(4, 20),
        "h2h_bias": draw(5, 20),
        "cls_weight": draw(6, 8, 5),
    }


def logged(caplog, what):
    """The last number that was logged as what=number."""
    lines = [r.getMessage() for r in caplog.records]
    return float([x for x in lines if x.startswith(what + "=")][-1].partition("=")[2])


class Sentences(mx.io.DataIter):
    """Batches of three lengths: each token is followed by the next number."""

    def __init__(self):
        super().__init__(4)
        self.default_bucket_key, self.i = 7, 0
        self.provide_data = [mx.io.DataDesc("data", (4, 7))]
        self.provide_label = [mx.io.DataDesc("softmax_label", (4, 7))]

    def reset(self):
        self.i = 0

    def next(self):
        if self.i == 9:
            raise StopIteration
        n = [7, 3, 5][self.i % 3]
        tokens = np.random.RandomState(self.i).randint(0, 8, (4, n))
        self.i += 1
        return mx.io.DataBatch(
            [mx.nd.array(tokens)],
            [mx.nd.array((tokens + 1) % 8)],
            pad=0,
            bucket_key=n,
            provide_data=[("data", (4, n))],
            provide_label=[("softmax_label", (4, n))],
        )
