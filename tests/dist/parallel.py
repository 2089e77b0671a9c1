"""What test_parallel.py runs on several ranks: gradients of collectives, split weights and
pipelines."""

from __future__ import annotations

import sys

import numpy as np
import plait as mx
from plait import autograd, dist, gluon, nd
from plait.gluon import nn


def data(rank: int, seed: int, shape=(4, 3)) -> np.ndarray:
    """What a rank has: all ranks can compute it."""
    return np.random.default_rng([rank, seed]).standard_normal(shape).astype("float32")


def near(got, wanted, rtol=1e-5) -> None:
    got = got.asnumpy() if isinstance(got, nd.NDArray) else got
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())


# ---- gradients -----------------------------------------------------------------------------------


def gradients() -> None:
    """Of eager collectives: against the sum of all ranks' losses, in NumPy."""
    world = dist.init()
    n, me = world.size, world.rank
    x, h = nd.array(data(me, 0)), nd.array(data(me, 1))
    x.attach_grad()

    def gradient(function):
        with autograd.record():
            loss = function().sum()
        loss.backward()
        return x.grad

    every = sum(data(r, 1) for r in range(n))
    near(gradient(lambda: dist.all_reduce(x * x) * h), 2 * data(me, 0) * every)
    near(gradient(lambda: dist.all_reduce(x * x, "mean") * h), 2 * data(me, 0) * every / n)
    near(gradient(lambda: dist.all_reduce(x * x, alike=True) * h), 2 * data(me, 0) * data(me, 1))
    wide = [np.concatenate([data(r, 9 + i) for i in range(n)]) for r in range(n)]
    own = slice(4 * me, 4 * me + 4)
    near(gradient(lambda: dist.all_gather(x) * nd.array(wide[me])), sum(w[own] for w in wide))
    near(gradient(lambda: dist.all_gather(x, alike=True) * nd.array(wide[me])), wide[me][own])
    tall = nd.concat(*[x] * n, dim=0)
    near(
        gradient(lambda: dist.reduce_scatter(nd.concat(*[x] * n, dim=0)) * h),
        sum(data(r, 1) for r in range(n)),
    )
    near(dist.reduce_scatter(tall), sum(data(r, 0) for r in range(n)))
    blocks = [w[own] for w in wide]  # rank r's gradient of the part that came from here
    near(
        gradient(lambda: dist.all_to_all(nd.concat(*[x] * n, dim=0)) * nd.array(wide[me])),
        sum(blocks),
    )
    twice = nd.array(data(me, 0))
    twice.attach_grad()
    with autograd.record():
        y = dist.all_reduce(twice * twice)
        first = autograd.grad(y.sum(), [twice], create_graph=True, retain_graph=True)[0]
        loss = (first * first).sum()
    loss.backward()
    near(twice.grad, 8 * n * n * data(me, 0))
    for lost in (
        lambda y: dist.all_reduce(y, out=y),
        lambda y: dist.broadcast(y),
        lambda y: dist.send(y, (me + 1) % n),
    ):
        with autograd.record():
            y = x * 2
            try:
                lost(y)
            except mx.MXNetError as error:
                assert "has no gradient" in str(error) and "fix:" in str(error)
            else:
                raise AssertionError("a gradient was lost without an error")


class WithCollectives(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.a, self.b = nn.Dense(5, in_units=3), nn.Dense(2, in_units=5)

    def hybrid_forward(self, F, x):
        mean = dist.all_reduce(x, "mean")
        return self.b(F.tanh(dist.all_reduce(self.a(x)))) + mean.sum() + dist.all_gather(x).sum()


def graphs() -> None:
    """A hybridized block and a symbol with collectives equal eager calls, at both tiers."""
    mx.random.seed(3)
    net = WithCollectives()
    net.initialize(mx.init.Xavier())
    x = nd.array(data(dist.rank(), 0))
    x.attach_grad()

    def step():
        with autograd.record():
            y = net(x)
            loss = (y * y).sum()
        loss.backward()
        arrays = [loss, x.grad, *[p.grad() for p in net.collect_params().values()]]
        return [a.asnumpy() for a in arrays]

    eager = step()
    net.hybridize()
    for _ in range(12):
        for got, wanted in zip(step(), eager):
            near(got, wanted)
    symbol = net(mx.sym.var("data"))
    values = {name: p.data() for name, p in net.collect_params().items()}
    executor = symbol.bind(mx.cpu(), {"data": x, **values})
    near(executor.forward()[0], net(x).asnumpy())
    assert mx.sym.load_json(symbol.tojson()).tojson() == symbol.tojson()


if __name__ == "__main__":
    dist.init()
    globals()[sys.argv[1]](*sys.argv[2:])
    nd.waitall()
    if dist.rank() == 0:
        print("done", flush=True)
