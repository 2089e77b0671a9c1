"""What test_summed.py runs on two ranks, and which collectives sums of gradients make."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import plait as mx
from plait import autograd, dist, gluon, nd
from plait.gluon.contrib.nn import SyncBatchNorm

EPS, MOMENTUM = 1e-3, 0.8


def expected(x, dy, gamma, beta):
    """BatchNorm of the whole batch in float64: y, dx, dgamma, dbeta, running mean and variance."""
    axes = (0, *range(2, x.ndim))
    view = lambda a: a.reshape(1, -1, *[1] * (x.ndim - 2))
    mean, var = x.mean(axes), x.var(axes)
    rstd = 1 / np.sqrt(var + EPS)
    xhat = (x - view(mean)) * view(rstd)
    dgamma, dbeta = (dy * xhat).sum(axes), dy.sum(axes)
    n = x.size / x.shape[1]
    dx = view(gamma * rstd) * (dy - view(dbeta / n) - xhat * view(dgamma / n))
    running = MOMENTUM * 0.5 + (1 - MOMENTUM) * mean, MOMENTUM * 2.0 + (1 - MOMENTUM) * var
    return xhat * view(gamma) + view(beta), dx, dgamma, dbeta, *running


def near(got, wanted, what, rtol):
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(got.asnumpy(), wanted, atol=rtol * scale, rtol=0, err_msg=what)


def layer(c, scale, dtype):
    net = SyncBatchNorm(
        momentum=MOMENTUM,
        epsilon=EPS,
        scale=scale,
        running_mean_initializer=mx.init.Constant(0.5),
        running_variance_initializer=mx.init.Constant(2.0),
    )
    net.initialize()
    net.cast(dtype)
    return net


def normalisation():
    """Ranks with 3 and 5 samples: values, gradients, running statistics of 8 samples at once. The
    mean is large beside the deviation."""
    generator = np.random.default_rng(4)
    own = [slice(0, 3), slice(3, 8)][dist.rank()]
    for shape, scale, dtype, hybrid in [
        ((8, 3, 4, 5), True, "float32", False),
        ((8, 3, 4, 5), True, "float32", True),
        ((8, 6), False, "float32", True),
        ((8, 2, 7), True, "float64", False),
        ((8, 3, 4, 5), True, "float16", True),
    ]:
        case = f"{shape} {dtype} hybrid={hybrid}"
        x = (generator.standard_normal(shape) * 2 + 10).astype(dtype)
        dy = generator.standard_normal(shape).astype(dtype)
        net = layer(shape[1], scale, dtype)
        if hybrid:
            net.hybridize()
        mine = nd.array(x[own], dtype=dtype)
        mine.attach_grad()
        for step in range(4):  # the same again, at both tiers of a graph
            if step:
                net.running_mean.set_data(nd.full((shape[1],), 0.5))
                net.running_var.set_data(nd.full((shape[1],), 2.0))
            with autograd.record():
                y = net(mine)
            y.backward(nd.array(dy[own], dtype=dtype))
            if not step:  # the shapes are known now
                values = generator.standard_normal((2, shape[1])).astype("float32")
                net.gamma.set_data(nd.array(values[0]))
                net.beta.set_data(nd.array(values[1]))
                continue
            gamma = values[0].astype("float64") if scale else np.ones(shape[1])
            found = expected(x.astype("float64"), dy.astype("float64"), gamma, values[1])
            wanted_y, wanted_dx, dgamma, dbeta, mean, var = found
            rtol = {"float16": 4e-3, "float32": 1e-5, "float64": 1e-6}[dtype]
            assert y.dtype == np.dtype(dtype)
            near(y, wanted_y[own], f"y {case}", rtol)
            near(mine.grad, wanted_dx[own], f"dx {case}", rtol)
            near(net.running_mean.data(), mean, f"mean {case}", 1e-5)
            near(net.running_var.data(), var, f"var {case}", 1e-5)
            dist.sum_gradients(net)
            if scale:
                near(net.gamma.grad(), dgamma, f"dgamma {case}", rtol)
            near(net.beta.grad(), dbeta, f"dbeta {case}", rtol)


def alone():
    """What needs no other rank: predicting, running statistics, exporting, a group of one."""
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(4), SyncBatchNorm())
    net.initialize()
    net.hybridize()
    x = nd.array(np.random.default_rng(3).standard_normal((6, 5)))
    with autograd.record():
        net(x)
    first = dist.new_group([0])
    if dist.rank() == 0:
        own = SyncBatchNorm(in_channels=5, group=first)
        own.initialize()
        with autograd.record():
            y = own(x)
        values = x.asnumpy().astype("float64")
        wanted = (values - values.mean(0)) / np.sqrt(values.var(0) + 1e-5)
        near(y, wanted, "a group of one", 1e-5)
        predicted = net(x).asnumpy()
        path = Path(sys.argv[2])
        net.export(path / "net")
        graph = path / "net-symbol.json"
        again = gluon.SymbolBlock.imports(graph, ["data"], path / "net-0000.params")
        np.testing.assert_allclose(again(x).asnumpy(), predicted, rtol=1e-6)
        assert "gather" not in graph.read_text()


def collectives():
    """30 small gradients share one collective in every path."""
    made = []
    run = dist.Group.run

    def counted(self, kind, arrays, *args, **kwargs):
        made.append(len(arrays))
        return run(self, kind, arrays, *args, **kwargs)

    import plait.compat

    plait.compat.install()
    import byteps.mxnet as bps
    import horovod.mxnet as hvd

    hvd.init()
    bps.init()

    def network():
        net = gluon.nn.HybridSequential()
        for _ in range(15):
            net.add(gluon.nn.Dense(3, in_units=3))
        net.initialize()
        with autograd.record():
            loss = net(nd.ones((2, 3))).sum()
        loss.backward()
        return net

    def of_trainer(make):
        net = network()
        trainer = make(net.collect_params())
        trainer._init_kvstore()
        return lambda: trainer.step(2)

    def of_updater(module):
        params = list(network().collect_params().values())
        updater = mx.optimizer.get_updater(
            module.DistributedOptimizer(mx.optimizer.create("rmsprop"))  # takes one weight a call
        )
        grads, weights = [p.grad() for p in params], [p.data() for p in params]
        return lambda: updater(list(range(len(params))), grads, weights)

    def of_module():
        out = mx.sym.var("data")
        for i in range(15):
            out = mx.sym.FullyConnected(out, num_hidden=3, name=f"a{i}")
        module = mx.mod.Module(mx.sym.SoftmaxOutput(out, name="softmax"))
        module.bind([("data", (2, 3))], [("softmax_label", (2,))])
        module.init_params()
        module.init_optimizer("dist_sync", "adam")
        module.forward_backward(mx.io.DataBatch([nd.ones((2, 3))], [nd.zeros((2,))]))
        return module.update

    def of_function():
        net = network()
        return lambda: dist.sum_gradients(net)

    def by(name, **options):
        return of_trainer(lambda ps: gluon.Trainer(ps, "adam", kvstore=name, **options))

    paths = {
        "sum_gradients": of_function(),
        "dist_sync": by("dist_sync"),
        "dist_sync outside": by("dist_sync", update_on_kvstore=False),
        "sharded": by("dist_sync", shard="states"),
        "horovod": by("horovod"),
        "Module": of_module(),
        "horovod Trainer": of_trainer(lambda ps: hvd.DistributedTrainer(ps, "adam")),
        "byteps Trainer": of_trainer(lambda ps: bps.DistributedTrainer(ps, "adam")),
        "horovod Optimizer": of_updater(hvd),
        "byteps Optimizer": of_updater(bps),
    }
    nd.waitall()
    dist.Group.run = counted
    for name, step in paths.items():
        made.clear()
        step()
        assert made in ([30], [60]), (name, made)  # in place, or into as many new arrays
    dist.Group.run = run


if __name__ == "__main__":
    dist.init()
    globals()[sys.argv[1]]()
    nd.waitall()
    if dist.rank() == 0:
        print("done", flush=True)
