"""Networks in stages: what test_partition.py runs in this process, and on several ranks."""

from __future__ import annotations

import sys

import numpy as np
import plait as mx
from plait import autograd, dist, gluon, nd
from plait.gluon import nn, rnn

LINK = (0.0, 1e12)
BATCH, MICRO = 12, 4


class Skips(gluon.HybridBlock):
    """A small ResNet whose first result is read at the end, too."""

    def __init__(self):
        super().__init__(prefix="skips_")
        with self.name_scope():
            conv = lambda: nn.Conv2D(4, 3, padding=1, in_channels=4, use_bias=False)
            self.first = nn.Conv2D(4, 3, padding=1, in_channels=2)
            self.a, self.norm_a, self.b, self.norm_b = conv(), norm(), conv(), norm()
            self.c, self.norm_c, self.d = conv(), norm(), conv()
            self.out = nn.Dense(5, in_units=8)

    def hybrid_forward(self, F, x):
        first = self.first(x)
        x = F.relu(first + self.b(F.relu(self.norm_a(self.a(first)))))
        x = F.relu(x + self.d(F.relu(self.norm_c(self.c(self.norm_b(x))))))
        mean = lambda a: F.mean(a, axis=(2, 3))
        return self.out(F.concat(mean(x), mean(first), dim=1))


def norm():
    return nn.BatchNorm(in_channels=4)


class Words(gluon.HybridBlock):
    """A language model with two LSTMs. The last layer has the weight of the first."""

    def __init__(self):
        super().__init__(prefix="words_")
        with self.name_scope():
            self.words = nn.Embedding(7, 6)
            self.first = rnn.LSTM(5, layout="NTC", input_size=6)
            self.second = rnn.LSTM(6, layout="NTC", input_size=5)
            self.last = nn.Dense(7, flatten=False, in_units=6, params=self.words.params)

    def hybrid_forward(self, F, x):
        return self.last(self.second(self.first(self.words(x))))


class Steps(gluon.HybridBlock):
    """Two LSTM cells, unrolled together, as one reads a sentence: word after word."""

    def __init__(self):
        super().__init__(prefix="steps_")
        with self.name_scope():
            self.low, self.high = rnn.LSTMCell(4, input_size=2), rnn.LSTMCell(5, input_size=4)
            self.out = nn.Dense(5, in_units=5)

    def hybrid_forward(self, F, x):
        zero = F.zeros_like(F.slice_axis(F.flatten(x), axis=1, begin=0, end=5))
        states = [[F.slice_axis(zero, axis=1, begin=0, end=4)] * 2, [zero] * 2]
        for t in range(5):
            word = F.squeeze(F.slice_axis(x, axis=1, begin=t, end=t + 1), axis=1)
            y, states[0] = self.low(word, states[0])
            y, states[1] = self.high(y, states[1])
        return self.out(y)


def frozen():
    """Skips, of which the first stage learns nothing."""
    net = Skips()
    net.first.collect_params().setattr("grad_req", "null")
    return net


NETS = {
    "skips": (Skips, (2, 6, 6), {"Convolution": 1.0, "FullyConnected": 1.0}),
    "frozen": (frozen, (2, 6, 6), {"skips_conv0_fwd": 3.0, "Convolution": 1.0}),
    "words": (Words, (5,), {"RNN": 1.0, "Embedding": 0.9, "FullyConnected": 0.9}),
    "steps": (Steps, (5, 2), {"FullyConnected": 1.0}),
}


def batches(kind: str, n: int = 3):
    """(inputs, labels) of n batches."""
    generator = np.random.default_rng(3)
    shape = NETS[kind][1]
    for _ in range(n):
        if kind == "words":
            x, y = (generator.integers(0, 7, (BATCH, *shape)) for _ in range(2))
        else:
            x = generator.standard_normal((BATCH, *shape))
            y = generator.integers(0, 5, BATCH)
        yield nd.array(x), nd.array(y)


def made(kind: str):
    """A network with values that depend on names only."""
    net = NETS[kind][0]()
    net.initialize(mx.init.Constant(0.3))
    fill(net.collect_params())
    return net


def fill(parameters) -> None:
    for p in parameters.values():
        if p.grad_req != "null":
            generator = np.random.default_rng(sum(map(ord, p.name)))
            p.set_data(nd.array(generator.standard_normal(p.shape) / 2))


def trainer(parameters, kvstore=None):
    options = {"learning_rate": 0.1, "momentum": 0.9}
    return gluon.Trainer(parameters, "sgd", options, kvstore=kvstore)


loss = gluon.loss.SoftmaxCrossEntropyLoss()


def alone(kind: str):
    """(losses, weights) of the whole network: micro-batch after micro-batch, as BatchNorm sees
    them."""
    net = made(kind)
    parameters = net.collect_params()
    for p in parameters.values():
        if p.grad_req == "write":
            p.grad_req = "add"
    update, losses = trainer(parameters), []
    for x, y in batches(kind):
        for p in parameters.values():
            p.zero_grad()
        for i in range(MICRO):
            part = slice(i * BATCH // MICRO, (i + 1) * BATCH // MICRO)
            with autograd.record():
                value = loss(net(x[part]), y[part])
            value.backward()
            losses.append(value.asnumpy())
        update.step(BATCH)
    return np.concatenate(losses), weights(net)


def weights(net) -> dict[str, np.ndarray]:
    return {name: p.data().asnumpy() for name, p in net.collect_params().items()}


def near(got, wanted, what="") -> None:
    scale = max(np.abs(wanted).max(), 1e-3)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-6 * scale, err_msg=what)


def trained(kind: str, parts: int, schedule: str, devices=None):
    """(losses or None, net, partition, pipeline) after the same training in stages."""
    net = made(kind)
    found = dist.partition(net, parts, costs=NETS[kind][2], link=LINK)
    pipe = dist.pipeline(found, loss, MICRO, schedule, devices=devices)
    update, losses = None, []
    for x, y in batches(kind):
        given = x if pipe.is_first else nd.zeros_like(x)
        got = pipe.step(given, y)
        update = update or trainer(pipe.collect_params())  # the first step decides
        update.step(BATCH)
        assert (got is None) == (not pipe.is_last)
        if got is not None:
            losses.append(got.asnumpy())
    return losses and np.concatenate(losses), net, found, pipe


def ranks(kind: str, schedule: str) -> None:
    """A partition over all ranks equals one process."""
    n = dist.size()
    losses, net, found, pipe = trained(kind, n, schedule)
    wanted, whole = alone(kind)
    if pipe.is_last:
        near(losses, wanted)
    mine = pipe.collect_params()
    for name, p in mine.items():
        near(p.data().asnumpy(), whole[name], name)
    assert dist.collect(str(found)) == [str(found)] * n
    assert sorted(sum(dist.collect(list(mine)), [])) == sorted(whole)
    pipe.gather()
    for name, value in weights(net).items():
        near(value, whole[name], name)
    kept = MICRO if schedule == "gpipe" else min(MICRO, n - dist.rank())
    assert pipe.most_kept == kept


def own() -> None:
    """Each rank has the weights of its stage only, until they are gathered."""
    net, n = Words(), dist.size()
    found = dist.partition(net, n, nd.zeros((3, 5)), costs=NETS["words"][2], link=LINK)
    pipe = dist.pipeline(found, loss, MICRO)
    for p in pipe.collect_params().values():
        p.initialize()
    fill(pipe.collect_params())
    update = trainer(pipe.collect_params())
    for x, y in batches("words"):
        pipe.step(x, y)
        update.step(BATCH)
    names = {name for name, p in net.collect_params().items() if p._data is not None}
    assert names == set(pipe.collect_params()) < set(net.collect_params())
    pipe.gather()
    for name, value in alone("words")[1].items():
        near(net.collect_params()[name].data().asnumpy(), value, name)


def both() -> None:
    """Two pipelines of two stages: each trains with half of each batch."""
    mesh = dist.mesh(data=2, pipe=2)
    net = made("words")
    found = dist.partition(net, 2, costs=NETS["words"][2], link=LINK)
    pipe = dist.pipeline(found, loss, 2, group=mesh.group("pipe"))
    n, update = BATCH // 2, None
    half = slice(mesh.coordinate("data") * n, (mesh.coordinate("data") + 1) * n)
    for x, y in batches("words"):
        pipe.step(x[half], y[half])
        update = update or trainer(pipe.collect_params(), "dist_sync")  # over the axis "data"
        update.step(BATCH)
    wanted = alone("words")[1]
    for name, p in pipe.collect_params().items():
        near(p.data().asnumpy(), wanted[name], name)


def grouped():
    """A Symbol with a group for each of three layers. The first result is read by the second and
    the third."""
    s = mx.sym
    with mx.AttrScope(ctx_group="one"):
        first = s.tanh(s.FullyConnected(s.var("data"), num_hidden=6, name="fc1"))
    with mx.AttrScope(ctx_group="two"):
        second = s.tanh(s.FullyConnected(first, num_hidden=6, name="fc2"))
    with mx.AttrScope(ctx_group="three"):
        third = s.FullyConnected(s.concat(first, second, dim=1), num_hidden=5, name="fc3")
        return s.SoftmaxOutput(third, name="softmax")


SHAPES = {"data": (BATCH // MICRO, 4), "softmax_label": (BATCH // MICRO,)}


def groups(schedule: str) -> None:
    """The groups of a Symbol on ranks, against NumPy."""
    n, me = dist.size(), dist.rank()
    places = {"one": 0, "two": 1, "three": min(n - 1, 2)}
    found = dist.partition(grouped(), groups=places, data=SHAPES)
    found.net.initialize()
    fill(found.net.collect_params())
    values = {k: v.astype("float64") for k, v in weights(found.net).items()}
    pipe = dist.pipeline(found, None, MICRO, schedule)
    assert sorted(pipe.collect_params()) == sorted(
        f"fc{i + 1}_{w}"
        for i, g in enumerate(places.values())
        if g == me
        for w in ("weight", "bias")
    )
    update = gluon.Trainer(pipe.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=None)
    generator = np.random.default_rng(5)
    for _ in range(3):
        x = generator.standard_normal((BATCH, 4)).astype("float32")
        y = generator.integers(0, 5, BATCH)
        got = pipe.step(nd.array(x if me == 0 else x * 0), nd.array(y))
        update.step(BATCH)
        wanted = softmax_step(values, x, y)
        if pipe.is_last:
            near(got.asnumpy(), wanted)
    for name, p in pipe.collect_params().items():
        near(p.data().asnumpy(), values[name], name)


def softmax_step(w: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """One step of `grouped` in NumPy: updates w, returns the probabilities."""
    first = np.tanh(x @ w["fc1_weight"].T + w["fc1_bias"])
    second = np.tanh(first @ w["fc2_weight"].T + w["fc2_bias"])
    both = np.concatenate([first, second], axis=1)
    scores = both @ w["fc3_weight"].T + w["fc3_bias"]
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    d3 = p - np.eye(5)[y]
    d_both = d3 @ w["fc3_weight"]
    d2 = d_both[:, 6:] * (1 - second**2)
    d1 = (d_both[:, :6] + d2 @ w["fc2_weight"]) * (1 - first**2)
    for i, (d, a) in enumerate([(d1, x), (d2, first), (d3, both)], 1):
        w[f"fc{i}_weight"] -= 0.1 / len(x) * d.T @ a
        w[f"fc{i}_bias"] -= 0.1 / len(x) * d.sum(0)
    return p


def measured() -> None:
    """Without costs each rank measures, and all have rank 0's choice."""
    found = dist.partition(made("skips"), dist.size(), nd.ones((3, 2, 6, 6)))
    assert dist.collect(str(found)) == [str(found)] * dist.size()
    assert found.link[0] > 0 and found.link[1] > 0


if __name__ == "__main__":
    dist.init()
    for case in sys.argv[1:]:  # a function and its arguments: "ranks,skips,1f1b"
        name, *arguments = case.split(",")
        globals()[name](*arguments)
        nd.waitall()
        if dist.is_main():
            print("done", flush=True)
