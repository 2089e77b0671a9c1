"""Optimizers, schedules and Trainer; trajectories as MXNet 1.9.1 computes them (optimizers.npz)."""

import pathlib
import pickle

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd
from plait.gluon import nn
from plait.training import lr_scheduler
from plait.training import optimizer as opt

EXPECTED = np.load(pathlib.Path(__file__).parents[1] / "fixtures" / "optimizers.npz")
CASES = [
    ("sgd", {}),
    ("sgd", {"momentum": 0.9, "wd": 0.01}),
    ("sgd", {"momentum": 0.9, "clip_gradient": 0.01, "learning_rate": 0.5}),
    ("nag", {"momentum": 0.9}),
    ("nag", {}),
    ("adam", {}),
    ("adam", {"wd": 0.1, "clip_gradient": 0.02}),
    ("adagrad", {"wd": 0.01}),
    ("adadelta", {"wd": 0.01}),
    ("rmsprop", {"wd": 0.01}),
    ("rmsprop", {"centered": True, "clip_weights": 0.5}),
    ("adamax", {"wd": 0.01}),
    ("nadam", {"wd": 0.01}),
    ("ftrl", {"wd": 0.01}),
    ("ftml", {"wd": 0.01}),
    ("signum", {"wd": 0.01, "wd_lh": 0.02}),
    ("signum", {"momentum": 0.0}),
    ("lbsgd", {"momentum": 0.9}),
    ("lbsgd", {"warmup_strategy": "lars"}),
    ("lbsgd", {"batch_scale": 2, "warmup_epochs": 1, "updates_per_epoch": 4}),
    ("lamb", {"wd": 0.01}),
    ("lamb", {"bias_correction": False, "lower_bound": 0.1, "upper_bound": 1.0}),
    ("lars", {"momentum": 0.9, "wd": 0.01}),
    ("lars", {}),
    ("ccsgd", {}),
]


def network(values):
    net = nn.HybridSequential(prefix="n_")
    with net.name_scope():
        net.add(nn.Dense(8, activation="tanh", in_units=6), nn.Dense(3, in_units=8))
    net.initialize()
    for p, v in zip(net.collect_params().values(), values):
        p.set_data(nd.array(v))
    net[1].bias.lr_mult, net[0].bias.wd_mult = 2.0, 0.0
    return net


def data():
    return ([EXPECTED[f"w{i}"] for i in range(4)], nd.array(EXPECTED["x"]), nd.array(EXPECTED["y"]))


def steps(net, trainer, x, y, n):
    losses, loss_fn = [], gluon.loss.L2Loss()
    for _ in range(n):
        with autograd.record():
            loss = loss_fn(net(x), y)
        loss.backward()
        trainer.step(5)
        losses.append(loss.mean().asscalar())
    return losses


@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda i: f"{CASES[i][0]}{i}")
@pytest.mark.parametrize("hybrid", [False, True])
def test_ten_steps_equal_those_of_mxnet(index, hybrid):
    name, params = CASES[index]
    values, x, y = data()
    net = network(values)
    net.hybridize(hybrid)
    trainer = gluon.Trainer(net.collect_params(), name, {"learning_rate": 0.05, **params})
    np.testing.assert_allclose(
        steps(net, trainer, x, y, 10), EXPECTED[f"losses{index}"], rtol=2e-4, atol=1e-5
    )


def test_schedules_equal_those_of_mxnet():
    made = [
        lr_scheduler.FactorScheduler(
            3, 0.5, stop_factor_lr=0.02, base_lr=0.1, warmup_steps=4, warmup_begin_lr=0.01
        ),
        lr_scheduler.MultiFactorScheduler(
            [3, 7], 0.3, base_lr=0.2, warmup_steps=2, warmup_mode="constant"
        ),
        lr_scheduler.PolyScheduler(12, 0.3, 2, 0.01, warmup_steps=3),
        lr_scheduler.CosineScheduler(12, 0.3, 0.01, warmup_steps=3, warmup_begin_lr=0.02),
    ]
    for i, s in enumerate(made):
        np.testing.assert_allclose([s(k) for k in range(1, 18)], EXPECTED[f"lr{i}"], rtol=1e-6)
    for wrong in (
        lambda: lr_scheduler.FactorScheduler(0),
        lambda: lr_scheduler.MultiFactorScheduler([3, 2]),
        lambda: lr_scheduler.PolyScheduler(0),
        lambda: lr_scheduler.LRScheduler(warmup_begin_lr=1),
    ):
        with pytest.raises(ValueError):
            wrong()


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_saved_states_continue_the_trajectory(tmp_path, name):
    values, x, y = data()
    params = {"learning_rate": 0.05, **({"momentum": 0.9} if name == "sgd" else {})}
    net = network(values)
    trainer = gluon.Trainer(net.collect_params(), name, params)
    steps(net, trainer, x, y, 4)
    trainer.save_states(str(tmp_path / "states"))
    net.save_parameters(str(tmp_path / "w"))
    went_on = steps(net, trainer, x, y, 3)
    again = network(values)
    again.load_parameters(str(tmp_path / "w"))
    trainer = gluon.Trainer(again.collect_params(), name, params)
    trainer.load_states(str(tmp_path / "states"))
    assert steps(again, trainer, x, y, 3) == went_on
    assert trainer.optimizer.num_update == 7


def test_states_are_no_pickle_and_foreign_ones_are_refused(tmp_path):
    net = network(data()[0])
    trainer = gluon.Trainer(net.collect_params(), "adam")
    (tmp_path / "pickle").write_bytes(pickle.dumps({0: None}))
    with pytest.raises(mx.MXNetError, match="does not read pickles"):
        trainer.load_states(str(tmp_path / "pickle"))
    (tmp_path / "text").write_bytes(b"hello, these are no states at all")
    with pytest.raises(mx.MXNetError):
        trainer.load_states(str(tmp_path / "text"))
    with pytest.raises(mx.MXNetError, match="the states belong to SGD, the optimizer is Adam"):
        other = gluon.Trainer(network(data()[0]).collect_params(), "sgd")
        other.save_states(str(tmp_path / "sgd"))
        trainer.load_states(str(tmp_path / "sgd"))


def test_stale_gradients_raise():
    net = network(data()[0])
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    with pytest.raises(UserWarning, match="has not been updated by backward since last `step`"):
        trainer.step(1)
    before = net[0].weight.data().asnumpy()
    trainer.step(1, ignore_stale_grad=True)
    np.testing.assert_array_equal(net[0].weight.data().asnumpy(), before)


def test_two_devices_equal_one():
    values, x, y = data()
    one = network(values)
    steps(one, gluon.Trainer(one.collect_params(), "sgd", {"learning_rate": 0.1}), x[:4], y[:4], 1)
    two = network(values)
    contexts = [mx.cpu(0), mx.cpu(1)]
    two.collect_params().reset_ctx(contexts)
    trainer = gluon.Trainer(two.collect_params(), "sgd", {"learning_rate": 0.1})
    loss_fn = gluon.loss.L2Loss()
    with autograd.record():
        losses = [
            loss_fn(two(a), b)
            for a, b in zip(
                gluon.utils.split_and_load(x[:4], contexts),
                gluon.utils.split_and_load(y[:4], contexts),
            )
        ]
    for loss in losses:
        loss.backward()
    trainer.step(5)
    for a, b in zip(one.collect_params().values(), two.collect_params().values()):
        for array in b.list_data():
            np.testing.assert_allclose(a.data().asnumpy(), array.asnumpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "update_on_kvstore, kept", [(None, [1, 2]), (True, [1, 2]), (False, [3, 3])]
)
def test_step_leaves_each_device_its_gradient(update_on_kvstore, kept):
    contexts = [mx.cpu(0), mx.cpu(1)]
    p = gluon.Parameter("w", shape=(2,), init="ones")
    p.initialize(ctx=contexts)
    trainer = gluon.Trainer([p], "sgd", {"learning_rate": 0.1}, update_on_kvstore=update_on_kvstore)
    with autograd.record():
        losses = [(p.data(c) * (k + 1)).sum() for k, c in enumerate(contexts)]
    autograd.backward(losses)
    trainer.step(1)
    assert [g.asnumpy().tolist() for g in p.list_grad()] == [[k, k] for k in kept]
    for array in p.list_data():
        np.testing.assert_allclose(array.asnumpy(), 0.7, rtol=1e-6)


def test_multi_precision_keeps_a_float32_copy():
    w = nd.ones((4,), dtype="float16")
    o = opt.create("sgd", learning_rate=1e-4, momentum=0.9, multi_precision=True)
    updater = opt.get_updater(o)
    for _ in range(3):
        updater(0, nd.ones((4,), dtype="float16"), w)
    mom, copy = updater.states[0]
    assert mom.dtype == copy.dtype == np.float32 and w.dtype == np.float16
    np.testing.assert_allclose(copy.asnumpy(), 1 - 1e-4 * (1 + 1.9 + 2.71), rtol=1e-6)
    np.testing.assert_array_equal(w.asnumpy(), copy.asnumpy().astype(np.float16))


def test_names_decide_weight_decay():
    o = opt.create("sgd", param_idx2name={0: "a_weight", 1: "a_bias", 2: "b_gamma"}, wd=0.1)
    assert o._get_wds([0, 1, 2]) == [0.1, 0.0, 0.1]
    with pytest.raises(ValueError, match="did you mean 'sgd'"):
        opt.create("sgdd")


def test_more_weights_than_one_call_takes():
    weights = [nd.full((2,), i) for i in range(150)]
    updater = opt.get_updater(opt.create("sgd", learning_rate=1.0))
    updater(list(range(150)), [nd.full((2,), 2.0) for _ in weights], weights)
    assert [w.asnumpy()[0] for w in weights] == [i - 2.0 for i in range(150)]


RATES = [0.1, 0.4, 0.4, 0.05, 0.2]  # of the steps


def lars_steps(weights, grads):
    """The weights after each step by the formula of You et al., in float64."""
    weights, before = [w.astype("float64") for w in weights], None
    moments = [np.zeros_like(w) for w in weights]
    for lr, found in zip(RATES, grads):
        for w, m, g in zip(weights, moments, found):
            g = g.astype("float64")
            wide, steep = np.linalg.norm(w), np.linalg.norm(g)
            rate = lr * 0.001 * wide / (steep + 0.01 * wide)
            m *= 0.9 * (lr / before if before else 1)
            m -= rate * (g + 0.01 * w)
            w += m
        before = lr
    return weights


def lars():
    return opt.create("lars", momentum=0.9, wd=0.01, eta=0.001)


def test_lars_corrects_the_momentum_of_all_weights_of_a_step():
    """A store updates some megabytes at a time."""
    generator = np.random.default_rng(3)
    draw = lambda: [
        generator.standard_normal(n).astype("float32") for n in (1_100_000, 50, 1_050_000, 7)
    ]
    first, grads = draw(), [draw() for _ in RATES]
    kv, optimizer, outs = mx.kv.create("local"), lars(), [nd.array(w) for w in first]
    kv.init([0, 1, 2, 3], outs)
    kv.set_optimizer(optimizer)
    for lr, found in zip(RATES, grads):
        optimizer.set_learning_rate(lr)
        kv.pushpull([0, 1, 2, 3], [nd.array(g) for g in found], out=outs)
    for got, start, wanted in zip(outs, first, lars_steps(first, grads)):
        # float32 keeps 7 digits of the weight, of which a step changes the last ones
        scale = np.abs(wanted - start).max()
        np.testing.assert_allclose(got.asnumpy() - start, wanted - start, atol=1e-3 * scale)


def test_lars_corrects_the_momentum_of_all_devices():
    generator = np.random.default_rng(3)
    draw = lambda: [generator.standard_normal(n).astype("float32") for n in (30, 50)]
    first, grads = draw(), [draw() for _ in RATES]
    optimizer, copies = lars(), [[nd.array(w) for w in first] for _ in range(2)]
    updaters = [opt.get_updater(optimizer, replica) for replica in range(2)]
    for lr, found in zip(RATES, grads):
        optimizer.set_learning_rate(lr)
        for updater, weights in zip(updaters, copies):
            updater([0, 1], [nd.array(g) for g in found], weights)
    for weights in copies:
        for got, start, wanted in zip(weights, first, lars_steps(first, grads)):
            scale = np.abs(wanted - start).max()
            np.testing.assert_allclose(got.asnumpy() - start, wanted - start, atol=1e-3 * scale)


def test_clip_global_norm():
    arrays = [nd.array([3.0]), nd.array([4.0])]
    assert gluon.utils.clip_global_norm(arrays, 1.0) == pytest.approx(5.0)
    np.testing.assert_allclose([a.asscalar() for a in arrays], [0.6, 0.8], rtol=1e-6)
    with pytest.warns(UserWarning, match="nan or inf"):
        gluon.utils.clip_global_norm([nd.array([float("nan")])], 1.0)


def test_split_data():
    parts = gluon.utils.split_data(nd.array(np.arange(10)), 3, even_split=False)
    assert [p.shape[0] for p in parts] == [4, 3, 3]
    with pytest.raises(ValueError, match="cannot be evenly split"):
        gluon.utils.split_data(nd.array(np.arange(10)), 3)
