"""gluon.training: the scripted loop, its progress and its measurements."""

import io

import numpy as np
import plait as mx
import pytest
from plait import gluon, nd
from plait.gluon.data import ArrayDataset, DataLoader
from plait.tools import train as training


def small_loader(n=128, batch_size=32):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(n, 1, 8, 8)).astype(np.float32)
    return DataLoader(
        ArrayDataset(images, (images.mean(axis=(1, 2, 3)) > 0).astype(np.float32)), batch_size
    )


def network():
    mx.seed_all(1)
    net = training.mlp(2)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net, gluon.loss.SoftmaxCrossEntropyLoss()


def test_digits_are_images_and_labels():
    train, valid = training.load_images("digits", True), training.load_images("digits", False)
    image, label = train[0]
    assert image.shape == (1, 8, 8) and image.dtype == np.float32 and image.max() <= 1
    assert (len(train), len(valid)) == (1437, 360) and label.dtype == np.float32


@pytest.mark.parametrize(
    "name, size, parameters", [("mlp", 8, 6), ("lenet", 8, 8), ("lenet", 28, 8)]
)
def test_models_by_name(name, size, parameters):
    net = training.build(name, size)
    net.initialize()
    assert net(nd.ones((2, 1, size, size))).shape == (2, 10)
    assert len(net.collect_params()) == parameters


def test_an_epoch_lowers_the_loss_and_evaluate_sees_it():
    net, loss_of = network()
    loader = small_loader()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    losses = [training.train_epoch(net, loader, trainer, loss_of) for _ in range(8)]
    assert losses[-1] < 0.5 * losses[0]
    assert training.evaluate(net, loader) > 0.9
    assert 0 <= training.evaluate(net, loader, batches=1) <= 1


def test_measuring_leaves_the_weights():
    net, loss_of = network()
    loader = small_loader()
    net(next(iter(loader))[0])
    before = {k: p.data().asnumpy() for k, p in net.collect_params().items()}
    times = training.seconds_per_epoch(net, loader, loss_of, batches=2)
    assert set(times) == {"eager", "hybridized"} and min(times.values()) > 0
    for k, p in net.collect_params().items():
        assert np.array_equal(p.data().asnumpy(), before[k])


class Loss:
    """An array that notes when somebody waits for it."""

    def __init__(self, number, waits):
        self.number, self.waits = number, waits

    def asnumpy(self):
        self.waits.append(self.number)
        return np.array([float(self.number)])


def test_progress_waits_only_for_what_is_long_past():
    waits = []
    progress = training.Progress(100, "epoch")
    for step in range(1, 101):
        progress.step(Loss(step, waits))
        assert not waits or waits[-1] <= step - progress.EVERY
    progress.close()
    assert waits == [20, 40, 60, 80]


def test_a_bar_on_terminals_and_nothing_elsewhere(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        for name in ("CI", "NO_COLOR"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr("sys.stderr", stream)
        progress = training.Progress(40, "epoch 1/2")
        for step in range(40):
            progress.step(Loss(step, []))
        progress.close()
        assert ("epoch 1/2" in stream.getvalue()) == shown


@pytest.mark.parametrize("suffix, head", [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_curves(tmp_path, suffix, head):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"curve.{suffix}"
    history = [{"epoch": i, "loss": 1 / i, "valid": 1 - 1 / i} for i in (1, 2, 3)]
    assert training.save_curve(history, path)
    assert path.read_bytes().startswith(head)


def test_without_matplotlib_there_is_no_curve(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    assert not training.save_curve([], tmp_path / "curve.png")


BAD_TRAINERS = {
    "an optimizer that is not there": ("adan", {}, "device"),
    "a parameter that it has not": ("sgd", {"speed": 1}, "device"),
    "a store that is not there": ("sgd", {}, "p3"),
    "parameters beside an optimizer": (mx.optimizer.SGD(), {"momentum": 0.9}, "device"),
    "a store of another type": (mx.optimizer.SGD(), {}, 3),
}


@pytest.mark.parametrize("optimizer, params, store", BAD_TRAINERS.values(), ids=BAD_TRAINERS)
def test_a_trainer_that_cannot_be_made_leaves_nothing_behind(optimizer, params, store):
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize()
    before = getattr(optimizer, "param_dict", None)
    with pytest.raises((mx.MXNetError, TypeError)):
        gluon.Trainer(net.collect_params(), optimizer, params, kvstore=store)
    assert all(p._trainer is None for p in net.collect_params().values())
    assert getattr(optimizer, "param_dict", None) is before
