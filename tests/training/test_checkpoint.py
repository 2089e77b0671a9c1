"""Checkpoints: a resumed run equals the uninterrupted one; killed.py kills runs at random."""

import json
import os
import random
import subprocess
import sys
from collections import deque
from pathlib import Path

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd
from plait.gluon import nn
from plait.gluon.data import ArrayDataset, DataLoader
from plait.ndarray import saved_state
from plait.tools import train as training
from plait.tools.train import models

HARNESS = Path(__file__).with_name("killed.py")


def harness(*arguments):
    done = subprocess.run(
        [sys.executable, HARNESS, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_killed_and_resumed_runs_equal_uninterrupted_ones():
    ways = ["by_hand", "with_estimator", "with_module"]
    told = harness("--kills", "10", "--seed", "5", "--ways", *ways)
    assert [t["way"] for t in told] == ways and sum(t["kills"] for t in told) == 10
    assert not any(t["others"] for t in told)


# ---- what a checkpoint holds ---------------------------------------------------------------------


def small(optimizer="adam", **options):
    net = nn.Dense(2, in_units=3, prefix="net_")
    net.initialize(mx.init.Xavier())
    return net, gluon.Trainer(net.collect_params(), optimizer, options)


def step(net, trainer, seed):
    x = nd.array(np.random.RandomState(seed).rand(4, 3))
    with autograd.record():
        loss = (nd.Dropout(net(x), p=0.5) ** 2).mean()
    loss.backward()
    trainer.step(1)


@pytest.mark.parametrize(
    "optimizer", ["sgd", "nag", "adam", "nadam", "lbsgd", "sgld", "ftrl", "lars", "dcasgd"]
)
def test_every_optimizer_resumes_exactly(tmp_path, optimizer):
    """Compares with the weights of the run that did not stop."""
    options = {"lr_scheduler": mx.lr_scheduler.MultiFactorScheduler([2, 4, 6], 0.5)}
    mx.seed_all(1)
    net, trainer = small(optimizer, learning_rate=0.1, **options)
    checkpoint = mx.checkpoint.Checkpoint(tmp_path / "c", net=net, trainer=trainer)
    for i in range(8):
        step(net, trainer, i)
        if i == 3:
            checkpoint.save()
    expected = net.weight.data().asnumpy()
    options = {"lr_scheduler": mx.lr_scheduler.MultiFactorScheduler([2, 4, 6], 0.5)}
    net, trainer = small(optimizer, learning_rate=0.1, **options)
    assert mx.checkpoint.Checkpoint(tmp_path / "c", net=net, trainer=trainer).restore()
    for i in range(4, 8):
        step(net, trainer, i)
    np.testing.assert_array_equal(net.weight.data().asnumpy(), expected)


def test_accumulated_gradients_and_per_device_state_resume(tmp_path):
    def made():
        net = nn.BatchNorm(in_channels=2, prefix="norm_")
        net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
        net.collect_params().setattr("grad_req", "add")
        return net

    net = made()
    for i in range(2):
        with autograd.record():
            y = net(nd.array([[1.0, 2.0], [4.0, 3.0 + i]], ctx=mx.cpu(i)))
        y.backward()
    mx.checkpoint.Checkpoint(tmp_path / "c", net=net).save()
    again = made()
    mx.checkpoint.Checkpoint(tmp_path / "c", net=again).restore()
    means = [a.asnumpy().tolist() for a in again.running_mean.list_data()]
    assert means == [a.asnumpy().tolist() for a in net.running_mean.list_data()]
    assert means[0] != means[1]  # each device has its own
    for a, b in zip(again.beta.list_grad(), net.beta.list_grad()):
        assert a.asnumpy().tolist() == b.asnumpy().tolist() == [2.0, 2.0]


def test_per_device_running_means_resume(tmp_path):
    """A new Trainer's store gave all devices the values of the first one."""

    def run(n_steps, stop=None):
        mx.seed_all(1)
        devices = [mx.cpu(0), mx.cpu(1)]
        net = nn.HybridSequential(prefix="net_")
        net.add(nn.Dense(2), nn.BatchNorm())
        net.initialize(mx.init.Xavier(), ctx=devices)
        trainer = gluon.Trainer(net.collect_params(), "adam")
        checkpoint = mx.checkpoint.Checkpoint(tmp_path / "c", net=net, trainer=trainer, step=0)
        if stop is None:
            checkpoint.restore()
        while checkpoint.step < n_steps:
            x = nd.array(np.random.RandomState(checkpoint.step).rand(8, 3))
            with autograd.record():
                losses = [(net(part) ** 2).sum() for part in gluon.utils.split_and_load(x, devices)]
            autograd.backward(losses)
            trainer.step(8)
            checkpoint.step += 1
            if checkpoint.step == stop:
                checkpoint.save()
        arrays = net._collect_params_with_prefix()
        return {k: [a.asnumpy().tolist() for a in p.list_data()] for k, p in arrays.items()}

    expected = run(4, stop=2)
    means = expected["1.running_mean"]
    assert means[0] != means[1]
    assert run(4) == expected


def test_random_streams_resume(tmp_path):
    def draws():
        return nd.random.uniform(shape=3).asnumpy().tolist(), np.random.rand(), random.random()

    checkpoint = mx.checkpoint.Checkpoint(tmp_path / "c")
    np.random.randn()  # leaves its second normal number for the next call
    checkpoint.save()
    expected = draws(), np.random.randn()
    mx.seed_all(7)
    assert checkpoint.restore()
    assert (draws(), np.random.randn()) == expected


def test_loss_scale_of_mixed_precision_resumes(tmp_path):
    from plait.gluon.amp.loss_scaler import LossScaler

    net, trainer = small()
    trainer._amp_loss_scaler = LossScaler()
    trainer._amp_loss_scaler._loss_scale, trainer._amp_loss_scaler._unskipped = 8.0, 41
    mx.checkpoint.Checkpoint(tmp_path / "c", net=net, trainer=trainer).save()
    net, trainer = small()
    with pytest.raises(
        saved_state.StateError, match="the saved state has a scaler, the trainer here"
    ):
        mx.checkpoint.Checkpoint(tmp_path / "c", net=net, trainer=trainer).restore()
    trainer._amp_loss_scaler = LossScaler()
    mx.checkpoint.Checkpoint(tmp_path / "c", net=net, trainer=trainer).restore()
    assert vars(trainer._amp_loss_scaler) == {
        "_loss_scale": 8.0,
        "_next_loss_scale": 2.0**16,
        "_unskipped": 41,
    }


class Counter(mx.metric.EvalMetric):
    """A metric of the user's, with states of its own."""

    def reset(self):
        self.seen, self.table, self.last = [], {0: np.zeros(2)}, deque(maxlen=2)
        self.rng = np.random.default_rng(1)

    def update(self, labels, preds):
        self.seen.append((len(self.seen), self.rng.integers(100)))
        self.table[0] += 1.5
        self.last.append(None)


@pytest.mark.parametrize(
    "make",
    [
        lambda: mx.metric.Accuracy(),
        lambda: mx.metric.F1(average="micro"),
        lambda: mx.metric.PCC(),
        lambda: mx.metric.PearsonCorrelation(average="micro"),
        lambda: mx.metric.CompositeEvalMetric(["acc", "mcc", "ce"]),
        lambda: Counter("counter"),
    ],
)
def test_metrics_resume(tmp_path, make):
    def update(metric, seed):
        rng = np.random.RandomState(seed)
        scores = rng.rand(6, 2).astype("float32")
        labels, scores = rng.randint(0, 2, 6), scores / scores.sum(1, keepdims=True)
        if isinstance(metric, mx.metric.PearsonCorrelation):
            labels, scores = rng.rand(6), scores[:, 0]
        metric.update([nd.array(labels)], [nd.array(scores)])

    whole, resumed = make(), make()
    for i in range(4):
        update(whole, i)
        if i == 1:
            mx.checkpoint.Checkpoint(tmp_path / "c", metric=whole).save()
            mx.checkpoint.Checkpoint(tmp_path / "c", metric=resumed).restore()
    for i in range(2, 4):
        update(resumed, i)
    if isinstance(whole, Counter):
        assert resumed.seen == whole.seen and resumed.last == whole.last
        assert resumed.table[0].tolist() == [6.0, 6.0] and resumed.last.maxlen == 2
    else:
        assert resumed.get() == whole.get() and resumed.get_global() == whole.get_global()


def test_values_are_attributes_and_files_hold_only_arrays(tmp_path):
    path = tmp_path / "run.ckpt"
    kept = {"best": -np.inf, "history": [(1, 0.1 + 0.2)], "names": {2: "two", "a": None}}
    first = mx.checkpoint.Checkpoint(path, **kept, mask=nd.ones(2), table=np.eye(2, dtype="u4"))
    first.best = np.float32(0.1)
    first.save()
    again = mx.checkpoint.Checkpoint(path, best=0.0, history=[], names={}, mask=None, table=0)
    assert again.restore()
    assert again.best == np.float32(0.1) and again.best.dtype == np.float32
    assert again.history == [(1, 0.1 + 0.2)] and again.names == kept["names"]
    assert again.mask.asnumpy().tolist() == [1, 1] and again.table.dtype == np.uint32
    loaded = nd.load(str(path))
    assert json.loads(loaded["__meta__"].asnumpy().tobytes())["format"] == "plait-checkpoint-1"
    assert b"pickle" not in path.read_bytes()


def test_mismatched_checkpoints_raise_and_change_nothing(tmp_path):
    net, trainer = small()
    path = tmp_path / "c"
    assert not mx.checkpoint.Checkpoint(path, net=net).restore()
    mx.checkpoint.Checkpoint(path, net=net, trainer=trainer).save()
    with pytest.raises(saved_state.StateError, match="has net, trainer; this run has net"):
        mx.checkpoint.Checkpoint(path, net=net).restore()
    wide = nn.Dense(5, in_units=3)
    wide.initialize()
    before = wide.weight.data().asnumpy()
    other = gluon.Trainer(wide.collect_params(), "adam")
    with pytest.raises(mx.MXNetError, match=r"shape incompatible expected \(5, 3\)"):
        mx.checkpoint.Checkpoint(path, net=wide, trainer=other).restore()
    np.testing.assert_array_equal(wide.weight.data().asnumpy(), before)
    sgd = gluon.Trainer(net.collect_params(), "sgd")
    with pytest.raises(saved_state.StateError, match="state is one of Adam, not of SGD"):
        mx.checkpoint.Checkpoint(path, net=net, trainer=sgd).restore()
    with pytest.raises(TypeError, match="Checkpoint: f must be a Block, .* got function"):
        mx.checkpoint.Checkpoint(path, f=lambda: 0)
    with pytest.raises(ValueError, match="a value cannot be called 'save'"):
        mx.checkpoint.Checkpoint(path, save=3)
    content = path.read_bytes()
    for broken in (
        content[:50],
        content[: len(content) // 2],
        content.replace(b'{"dict', b'{"dics'),
    ):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"no whole MXNet array file|is damaged|unknown tag"):
            mx.checkpoint.Checkpoint(path, net=net, trainer=trainer).restore()
    nd.save(str(path), nd.ones(1))
    with pytest.raises(
        saved_state.StateError, match="the format must be plait-checkpoint-1, got None"
    ):
        mx.checkpoint.Checkpoint(path, net=net, trainer=trainer).restore()


def test_a_flipped_bit_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    weights = nd.array(np.arange(1000.0))
    checkpoint = mx.checkpoint.Checkpoint(path, weights=weights, step=7)
    checkpoint.save()
    whole = path.read_bytes()
    weight = np.arange(500, 510, dtype="float32").tobytes()
    for at in (whole.index(weight), whole.index(b"sha256") + 20, len(whole) - 1):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"damaged|no whole MXNet array file"):
            checkpoint.restore()
    path.write_bytes(whole)
    assert checkpoint.restore() and checkpoint.step == 7


def test_another_order_of_the_parameters_is_refused(tmp_path):
    """A trainer sorts by names: dense10 comes before dense9."""

    def made(first):
        net = nn.Sequential(prefix="")
        net.add(nn.Dense(2, in_units=2, prefix=f"d{first}_"))
        net.add(nn.Dense(2, in_units=2, prefix=f"d{first + 1}_"))
        net.initialize()
        trainer = gluon.Trainer(net.collect_params(), "sgd")
        return mx.checkpoint.Checkpoint(tmp_path / "c", net=net, trainer=trainer)

    made(1).save()
    assert made(3).restore()
    with pytest.raises(saved_state.StateError, match="parameters in the order .*net.1.weight"):
        made(9).restore()


# ---- the Estimator -------------------------------------------------------------------------------


def test_a_resumed_estimator_remembers_the_best(tmp_path):
    """A worse model overwrote the best one."""
    from plait.gluon.contrib import estimator as est

    def fit(epochs, rate):
        net = nn.Dense(2, in_units=3, prefix="net_")
        net.initialize(mx.init.Constant(0.1))
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": rate})
        made = est.Estimator(net, gluon.loss.SoftmaxCrossEntropyLoss(), trainer=trainer)
        made.logger.handlers.clear()
        x = np.random.RandomState(0).rand(8, 3).astype("float32")
        handler = est.CheckpointHandler(
            str(tmp_path),
            monitor=made.train_metrics[1],
            save_best=True,
            resume_from_checkpoint=True,
        )
        if epochs > 1:  # from here on it gets worse
            handler.train_begin = lambda *a, begin=handler.train_begin: (
                begin(*a),
                net.bias.set_data(nd.array([99.0, -99.0])),
            )
        made.fit(DataLoader(ArrayDataset(x, np.arange(8.0) % 2), 4), None, epochs, [handler])
        return handler.best

    best = fit(1, 0.1)
    content = (tmp_path / "model-best.params").read_bytes()
    assert fit(2, 0.1) == best
    assert (tmp_path / "model-best.params").read_bytes() == content
    net, trainer = small("sgd")
    trainer.load_states(str(tmp_path / "model-best.states"))  # the trainer's part


def test_fit_resumes_inside_an_epoch_on_two_devices(tmp_path):
    def fit(stop=None):
        mx.seed_all(2)
        hidden = mx.sym.BatchNorm(mx.sym.var("data"), name="norm")
        out = mx.sym.FullyConnected(hidden, num_hidden=2, name="a")
        module = mx.mod.Module(
            mx.sym.SoftmaxOutput(mx.sym.Dropout(out), name="softmax"),
            context=[mx.cpu(0), mx.cpu(1)],
        )
        data = mx.io.NDArrayIter(np.arange(60.0).reshape(20, 3), np.arange(20.0) % 2, 4, True)
        seen = []

        def after(param):
            seen.append((param.epoch, param.nbatch))
            if len(seen) == stop:
                raise KeyboardInterrupt

        path = None if stop is None else str(tmp_path / "c")
        options = {"batch_end_callback": after, "checkpoint": path, "checkpoint_period": 2}
        module.fit(data, num_epoch=2, optimizer="adam", **options)
        return module.get_params()[0]["a_weight"].asnumpy().tobytes(), seen

    expected, _ = fit()
    with pytest.raises(KeyboardInterrupt):
        fit(stop=4)
    found, seen = fit(stop=-1)
    assert found == expected and seen[0] == (0, 2)


def test_fit_resumes_in_shuffled_validation_data(tmp_path):
    def fit(stop=None):
        mx.seed_all(2)
        out = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="a")
        module = mx.mod.Module(mx.sym.SoftmaxOutput(out, name="softmax"))
        x, y = np.arange(18.0).reshape(6, 3), np.arange(6.0) % 2
        train, valid = mx.io.NDArrayIter(x, y, 2), mx.io.NDArrayIter(x, y, 2, True)
        order: list = []

        def first(param):
            return param.locals["eval_batch"].data[0].asnumpy().tolist()

        def after(param):
            if param.epoch == stop:
                raise KeyboardInterrupt

        module.fit(
            train,
            valid,
            num_epoch=3,
            batch_end_callback=after,
            eval_batch_end_callback=lambda param: order.append(first(param)),
            checkpoint=str(tmp_path / f"c{stop is None}"),
        )
        return order

    expected = fit()
    with pytest.raises(KeyboardInterrupt):
        fit(stop=1)
    assert fit(stop=-1) == expected[3:]


def test_train_command_resumes_only_with_equal_arguments(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "build", lambda *_: nn.Dense(10, prefix="one_layer_"))
    options = "--data digits --model mlp --epochs 2 --checkpoint-every 5 --no-report --out".split()
    whole = training.run([*options, str(tmp_path / "whole")])
    save, n_saved = mx.checkpoint.Checkpoint.save, 0

    def interrupted(checkpoint):
        nonlocal n_saved
        save(checkpoint)
        n_saved += 1
        if n_saved == 7:  # in the second epoch
            raise KeyboardInterrupt

    monkeypatch.setattr(mx.checkpoint.Checkpoint, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        training.run([*options, str(tmp_path / "parts")])
    monkeypatch.setattr(mx.checkpoint.Checkpoint, "save", save)
    with pytest.raises(
        ValueError, match="--seed 1\n  fix: use the arguments and pictures of that run"
    ):
        training.run([*options, str(tmp_path / "parts"), "--resume", "--seed", "2"])
    parts = training.run([*options, str(tmp_path / "parts"), "--resume"])
    assert [{**h, "seconds": 0} for h in parts] == [{**h, "seconds": 0} for h in whole]
    name = "mlp-digits/model-0000.params"
    found = [nd.load(str(tmp_path / folder / name)).values() for folder in ("parts", "whole")]
    values = [sorted(a.asnumpy().tobytes() for a in arrays) for arrays in found]
    assert values[0] == values[1]
