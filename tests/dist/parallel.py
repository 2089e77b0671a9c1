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


# ---- split weights -------------------------------------------------------------------------------

SPLITS = {
    "(query|key|value|up)_weight": ("model", None),
    "(query|key|value|up)_bias": ("model",),
    "(out|down)_weight": (None, "model"),
}
WORDS = {"rows": ("model", None), "columns": (None, "model")}


class Layer(gluon.HybridBlock):
    """A transformer's layer over words, with a head."""

    def __init__(self, words=12, width=16, heads=4, classes=5):
        super().__init__(prefix="net_")
        self._heads, self._width = heads, width
        with self.name_scope():
            self.words = nn.Embedding(words, width, prefix="words_")
            dense = {"flatten": False, "in_units": width}
            self.query = nn.Dense(width, prefix="query_", **dense)
            self.key = nn.Dense(width, prefix="key_", **dense)
            self.value = nn.Dense(width, prefix="value_", **dense)
            self.out = nn.Dense(width, prefix="out_", **dense)
            self.norm = nn.LayerNorm(in_channels=width, prefix="norm_")
            self.up = nn.Dense(4 * width, flatten=False, in_units=width, prefix="up_")
            self.down = nn.Dense(width, flatten=False, in_units=4 * width, prefix="down_")
            self.classes = nn.Dense(classes, prefix="classes_")

    def hybrid_forward(self, F, x):
        x = self.words(x)

        def heads(a):
            a = F.reshape(a, shape=(0, 0, self._heads, -1))
            return F.reshape(F.transpose(a, axes=(0, 2, 1, 3)), shape=(-3, 0, 0))

        scores = F.batch_dot(heads(self.query(x)), heads(self.key(x)), transpose_b=True)
        mixed = F.batch_dot(F.softmax(scores / 2.0, axis=-1), heads(self.value(x)))
        mixed = F.reshape(mixed, shape=(-4, -1, self._heads, 0, 0))
        mixed = F.reshape(F.transpose(mixed, axes=(0, 2, 1, 3)), shape=(0, 0, -3))
        x = self.norm(x + self.out(mixed))
        x = x + self.down(F.LeakyReLU(self.up(x), act_type="gelu"))
        return self.classes(x)


def split_weights(sizes: str, words: str, file: str) -> None:
    """Five steps of training over a mesh; rank 0 saves outputs, first gradients and weights, all
    whole. One process has the mesh 1 x 1."""
    n_data, n_model = map(int, sizes.split("x"))
    mesh = dist.mesh(data=n_data, model=n_model)
    mx.random.seed(5)
    net = Layer()
    dist.shard(net, {**SPLITS, "words_weight": WORDS[words]})
    net.initialize(mx.init.Xavier())
    net.hybridize()
    if n_model > 1:
        assert net.query.weight.shape == (16, 16)
        assert net.query.weight.data().shape == (16 // n_model, 16)
        assert net.down.weight.data().shape == (16, 64 // n_model)
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.2, "momentum": 0.9}, kvstore=None
    )
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    generator, saved = np.random.default_rng(7), {}
    n = 8 // n_data
    share = slice(mesh.coordinate("data") * n, (mesh.coordinate("data") + 1) * n)
    for step in range(5):
        x = nd.array(generator.integers(0, 12, (8, 6))[share])
        y = nd.array(generator.integers(0, 5, 8)[share])
        with autograd.record():
            out = net(x)
            value = loss(out, y)
        value.backward()
        dist.sum_gradients(net, mesh.group("data"))
        if step == 0:
            saved["out"] = dist.all_gather(out, group=mesh.group("data")).asnumpy()
            for name, p in net.collect_params().items():
                g = p.grad() if p._part is None else p._part.whole(p.grad())
                saved["grad " + name] = g.asnumpy()
        gradients = [p.grad() for p in net.collect_params().values()]
        norm = gluon.utils.clip_global_norm(gradients, 2.0, check_isfinite=step % 2 == 0)
        saved[f"norm {step}"] = np.float32(norm if step % 2 == 0 else norm.asscalar())
        trainer.step(8)
    for name, p in net.collect_params().items():
        rows = dist.all_gather(p.data().reshape((1, -1)), group=mesh.group("data")).asnumpy()
        assert (rows == rows[0]).all(), f"{name}: ranks of a data group have different bits"
        if p._part is None:
            rows = dist.all_gather(p.data().reshape((1, -1))).asnumpy()
            assert (rows == rows[0]).all(), f"{name}: ranks have different bits"
        saved["weight " + name] = p._reduce().asnumpy()
    net.save_parameters(f"{file}.params")
    other = Layer()
    other.load_parameters(f"{file}.params")  # whole, in one process
    for name, p in other.collect_params().items():
        assert (p.data().asnumpy() == saved["weight " + name]).all(), name
    net.load_parameters(f"{file}.params")
    if dist.rank() == 0:
        np.savez(file, **saved)


class Single(gluon.HybridBlock):
    """A split Dense layer between operators of all kinds."""

    def __init__(self, function):
        super().__init__(prefix="net_")
        self._function = function
        with self.name_scope():
            self.first = nn.Dense(8, flatten=False, in_units=6, prefix="first_")
            self.last = nn.Dense(4, in_units=0, prefix="last_")

    def hybrid_forward(self, F, x):
        return self.last(self._function(F, self.first(x)))


FUNCTIONS = [
    lambda F, x: F.relu(x) * F.sum(x, axis=-1, keepdims=True),  # a sum needs the whole
    lambda F, x: F.broadcast_add(x, F.sigmoid(F.mean(x, axis=0, keepdims=True))),
    lambda F, x: F.log_softmax(x, axis=1),
    lambda F, x: F.softmax(x, axis=-1),
    lambda F, x: F.reshape(x, shape=(-1, 2, 2)),  # heads that a rank has two of
    lambda F, x: F.reshape(x, shape=(0, -1)),
    lambda F, x: F.swapaxes(F.expand_dims(x, axis=0), 0, 3),
    lambda F, x: F.batch_dot(x, x, transpose_b=True),
    lambda F, x: F.concat(x, F.ones_like(x), dim=2),
    lambda F, x: F.clip(F.slice_axis(x, axis=2, begin=1, end=7), -1, 1),
    lambda F, x: F.stack(x, F.tanh(x), axis=0),
    lambda F, x: F.transpose(F.reshape(F.transpose(x, axes=(0, 2, 1)), shape=(-3, 0))),
    lambda F, x: F.npx.relu(x) + F.np.mean(x, axis=-1, keepdims=True),  # of mx.np
]


def layouts() -> None:
    """Split layers around each function equal whole ones: outputs and gradients."""
    n = dist.mesh(model=-1).group("model").size
    assert n == dist.size()
    x = nd.array(np.random.default_rng(3).standard_normal((2, 3, 6)))
    x.attach_grad()
    for i, function in enumerate(FUNCTIONS):
        found = []
        for rules in ({}, {"first_weight": ("model", None), "first_bias": ("model",)}) * 2:
            mx.random.seed(i)
            net = Single(function)
            net.initialize(mx.init.Xavier())
            net.hybridize()
            net(x)
            if found[1:]:  # the last layer too: by inputs, or by outputs
                columns = rules and net.last.weight.shape[1] % n == 0
                rules = {**rules, "last_weight": (None, "model") if columns else ("model", None)}
            dist.shard(net, rules)
            for _ in range(7):  # at both tiers
                with autograd.record():
                    loss = (net(x) * net(x)).sum()
                loss.backward()
            made = {"loss": loss.asnumpy(), "x": x.grad.asnumpy()}
            for name, p in net.collect_params().items():
                g = p.grad() if p._part is None else p._part.whole(p.grad())
                made[name] = g.asnumpy()
            found.append(made)
        largest = max(np.abs(g).max() for g in found[0].values())
        for other in found[1:]:
            for name, wanted in found[0].items():
                where = f"{i} {name}"
                np.testing.assert_allclose(other[name], wanted, atol=1e-5 * largest, err_msg=where)


def mistakes() -> None:
    """What wrong meshes, layouts and uses are told."""

    def told(text: str, function) -> None:
        try:
            function()
        except mx.MXNetError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"no error: {text}")

    x = nd.ones((2, 6))
    told("there is no mesh", lambda: gluon.Parameter("w", shape=(4, 6), shard=("model", None)))
    told("the sizes must multiply to the number of ranks, got data=3", lambda: dist.mesh(data=3))
    mesh = dist.mesh(data=1, model=2)
    told("no axis 'width', the axes are data, model", lambda: mesh.group("width"))
    assert mesh.coordinate("model") == dist.rank() and mesh.coordinate("data") == 0
    assert mesh.group("model").ranks == (0, 1) and mesh.group("data").ranks == (dist.rank(),)
    net = nn.Dense(5, in_units=6)
    told("matches no parameter", lambda: dist.shard(net, {"other": ("model", None)}))
    told("must name one axis", lambda: dist.shard(net, {"weight": ("model", "model")}))
    net.weight.shard = ("model", None)
    told("axis 0 must be divisible by the 2 ranks", net.initialize)
    net = nn.Dense(4, in_units=6)
    dist.shard(net, {"weight": ("model", None)})
    net.initialize()
    told("run only as part of a graph\n  fix: net.hybridize()", lambda: net(x))
    for optimizer in ("lamb", "lars"):
        told(
            "needs whole weights",
            lambda: gluon.Trainer(net.collect_params(), optimizer, kvstore=None),
        )
    first = ("model", None, None, None)
    for net, axes, channels in (
        (nn.Conv2D(4, 4, in_channels=2), (None, None, "model", None), 2),  # along the kernel
        (nn.Conv2D(6, 3, in_channels=3, groups=3), first, 3),  # 3 groups, 2 ranks
        (nn.Conv2DTranspose(4, 3, in_channels=2), first, 2),
        (gluon.rnn.LSTM(4, input_size=3), first[:2], 3),
    ):
        net.initialize()
        net.hybridize()
        dist.shard(net, {"weight": axes})
        x = nd.ones((1, channels, 5, 5) if len(axes) == 4 else (2, 1, channels))
        told("cannot compute with", lambda: net(x))


class Pictures(gluon.HybridBlock):
    """Convolutions of all kinds."""

    def __init__(self, last: bool):
        super().__init__(prefix="net_")
        more = {"layout": "NHWC"} if last else {}
        self._axes = (1, 2) if last else (2, 3)
        with self.name_scope():
            conv = lambda n, m, prefix, **kw: nn.Conv2D(
                n, 3, padding=1, in_channels=m, prefix=prefix, **more, **kw
            )
            self.up, self.down = conv(8, 3, "up_"), conv(6, 8, "down_")
            self.norm = nn.BatchNorm(axis=3 if last else 1, in_channels=8, prefix="norm_")
            self.pool = nn.MaxPool2D(**more)
            self.each = conv(6, 6, "each_", groups=6 if not last else 1)
            self.out = nn.Dense(4, in_units=6, prefix="out_")

    def hybrid_forward(self, F, x):
        x = self.pool(F.relu(self.norm(self.up(x))))
        return self.out(F.mean(self.each(F.relu(self.down(x))), axis=self._axes))


def pictures(last: str) -> None:
    """Split channels equal whole ones, after four steps: outputs, weights, running means."""
    channels_last = last == "True"
    dist.mesh(data=1, model=dist.size())
    generator = np.random.default_rng(2)
    shape = (4, 6, 6, 3) if channels_last else (4, 3, 6, 6)
    x, y = nd.array(generator.standard_normal(shape)), nd.array(generator.integers(0, 4, 4))
    loss, found = gluon.loss.SoftmaxCrossEntropyLoss(), []
    inputs = (None, None, None, "model") if channels_last else (None, "model", None, None)
    outputs = ("model", None, None, None)
    up = {"up_weight": outputs, "up_bias": ("model",)}
    norm = {"norm_(gamma|beta|running_mean|running_var)": ("model",)}
    for rules in (
        {},
        {**up, "down_weight": inputs},
        {**up, **norm, "down_weight": inputs, "each_weight": outputs},
        {"down_weight": outputs, "down_bias": ("model",), "each_weight": outputs},
    ):
        mx.random.seed(4)
        net = Pictures(channels_last)
        net.initialize(mx.init.Xavier())
        net.hybridize()
        dist.shard(net, rules)
        options = {"learning_rate": 0.05, "momentum": 0.9}
        trainer = gluon.Trainer(net.collect_params(), "sgd", options, kvstore=None)
        for _ in range(8):  # at both tiers
            with autograd.record():
                value = loss(net(x), y)
            value.backward()
            trainer.step(4)
        made = {name: p._reduce().asnumpy() for name, p in net.collect_params().items()}
        found.append({"trained": net(x).asnumpy(), **made})
    for other in found[1:]:
        for name, wanted in found[0].items():
            np.testing.assert_allclose(other[name], wanted, atol=2e-5, err_msg=name)


def scaled() -> None:
    """An overflow in one rank's part of a weight makes all ranks skip the step."""
    from plait.gluon.amp.loss_scaler import LossScaler

    mesh = dist.mesh(model=-1)
    net = nn.Dense(4, in_units=2)
    dist.shard(net, {"weight": ("model", None)})
    net.initialize()
    scaler, parameters = LossScaler(), list(net.collect_params().values())
    assert not scaler.has_overflow(parameters)
    net.weight.grad()[:] = np.inf if mesh.coordinate("model") else 0.0
    assert scaler.has_overflow(parameters)
    assert not scaler.has_overflow([net.bias]) and scaler.loss_scale == 2.0**15


# ---- pipelines -----------------------------------------------------------------------------------


def stages(n: int) -> list:
    """n stages of a network; the shape between them changes, some are completed at first use."""
    mx.random.seed(9)
    made = []
    for i in range(n):
        stage = nn.HybridSequential(prefix=f"stage{i}_")
        with stage.name_scope():
            stage.add(nn.Dense(6 + i, activation="tanh"), nn.Dense(5 if i == n - 1 else 7 + i))
        stage.initialize(mx.init.Constant(0.1))
        made.append(stage)
    return made


def fill(stage) -> None:
    """Values that do not depend on the order of initialisation."""
    for p in stage.collect_params().values():
        generator = np.random.default_rng(sum(map(ord, p.name)))
        p.set_data(nd.array(generator.standard_normal(p.shape) / 2))


def pipelines(schedule: str) -> None:
    """Four steps of a pipeline, against the whole network in this process."""
    n, me, batch, n_micro = dist.size(), dist.rank(), 12, 6
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    whole, own = stages(n), stages(n)
    generator = np.random.default_rng(1)
    batches = [
        (nd.array(generator.standard_normal((batch, 4))), nd.array(generator.integers(0, 5, batch)))
        for _ in range(4)
    ]

    def through(x):
        for stage in whole:
            x = stage(x)
        return x

    through(batches[0][0])
    pipe = dist.pipeline(own, loss, n_micro, schedule)
    assert pipe.stage is own[me]
    pipe.step(*batches[0])  # completes the parameters
    for stage in (*whole, pipe.stage):
        fill(stage)
        stage.hybridize()
    options = {"learning_rate": 0.1, "momentum": 0.9}
    parameters = {p.name: p for s in whole for p in s.collect_params().values()}
    one = gluon.Trainer(parameters, "sgd", options, kvstore=None)
    trainer = gluon.Trainer(pipe.stage.collect_params(), "sgd", options, kvstore=None)
    for x, y in batches:
        with autograd.record():
            wanted = loss(through(x), y)
        wanted.backward()
        other = nd.zeros_like(x) if me else x  # only the first rank reads it
        got = pipe.step(other, y)
        assert (got is None) == (me < n - 1)
        if got is not None:
            near(got, wanted.asnumpy())
        for name, p in pipe.stage.collect_params().items():
            near(p.grad(), parameters[name].grad().asnumpy())
        one.step(batch)
        trainer.step(batch)
    for name, p in pipe.stage.collect_params().items():
        near(p.data(), parameters[name].data().asnumpy())
    assert pipe.most_kept == (n_micro if schedule == "gpipe" else min(n_micro, n - me))
    for wrong in (
        lambda: dist.pipeline(own[1:], loss),
        lambda: dist.pipeline(own, loss, schedule="fast"),
        lambda: pipe.step(batches[0][0][:7], batches[0][1]),
        lambda: pipe.step(batches[0][0], batches[0][1][:7]),
    ):
        try:
            wrong()
        except mx.MXNetError as error:
            assert "pipeline" in str(error)
        else:
            raise AssertionError("no error")


if __name__ == "__main__":
    dist.init()
    for case in sys.argv[1:]:
        name, *arguments = case.split(",")
        globals()[name](*arguments)
        nd.waitall()
        if dist.rank() == 0:
            print("done", case, flush=True)
