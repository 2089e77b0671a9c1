"""The estimator and its event handlers: logs as MXNet 1.9.1 wrote them, checkpoints, early ends."""

import errno
import io
import logging
import os
import re
import types

import numpy as np
import plait as mx
import pytest
from plait.engine import files
from plait.gluon import Trainer, loss, nn
from plait.gluon.contrib import estimator as est
from plait.gluon.data import ArrayDataset, DataLoader
from plait.training import metric as metrics

nd = mx.nd
X = np.random.RandomState(0).randn(32, 6).astype("float32")
Y = (X.sum(1) > 0).astype("float32")
W = np.random.RandomState(1).randn(2, 6).astype("float32") * 0.1


class Lines(logging.Handler):
    """Messages with seconds replaced by T."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(re.sub(r"[\d.]+s\b", "T", record.getMessage()))


def loader(batch_size=8):
    return DataLoader(ArrayDataset(X, Y), batch_size)


def make(rate=0.1, context=None, hybridize=True, optimizer="adam", **arguments):
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(2, in_units=6))
    net.initialize(ctx=context or mx.cpu())
    net[0].weight.set_data(nd.array(W))
    net.hybridize(hybridize)
    trainer = Trainer(net.collect_params(), optimizer, {"learning_rate": rate})
    made = est.Estimator(
        net, loss.SoftmaxCrossEntropyLoss(), trainer=trainer, context=context, **arguments
    )
    made.log = Lines()
    made.logger.handlers[:] = [made.log]
    return made


def weights(estimator):
    return estimator.net[0].weight.data(estimator.context[0]).asnumpy()


def test_logs_and_weights_are_mxnets():
    e = make()
    e.fit(loader(), loader(16), epochs=2)
    assert e.log.lines == [
        "Training begin: using optimizer Adam with current learning rate 0.1000 ",
        "Train for 2 epochs.",
        "[Epoch 0] Begin, current learning rate: 0.1000",
        "Validation Begin",
        "[Epoch 0] Finished in T, validation accuracy: 0.9688, validation softmaxcrossentropyloss:"
        " 0.2412",
        "[Epoch 0] Finished in T, training accuracy: 0.8750, training softmaxcrossentropyloss:"
        " 0.4902",
        "[Epoch 1] Begin, current learning rate: 0.1000",
        "Validation Begin",
        # MXNet says Epoch 0 of every validation
        "[Epoch 1] Finished in T, validation accuracy: 1.0000, validation softmaxcrossentropyloss:"
        " 0.1251",
        "[Epoch 1] Finished in T, training accuracy: 1.0000, training softmaxcrossentropyloss:"
        " 0.1842",
        "Train finished using total T with 2 epochs. training accuracy: 1.0000, training"
        " softmaxcrossentropyloss: 0.1842",
    ]
    np.testing.assert_allclose(
        weights(e)[0], [-0.44762, -0.26939, -0.75879, -0.68029, -0.3783, -0.69513], atol=1e-4
    )


def test_logs_every_few_batches():
    e = make()
    e.fit(loader(), epochs=1, event_handlers=est.LoggingHandler(2, e.train_metrics))
    assert [line for line in e.log.lines if "Batch" in line] == [
        "[Epoch 0][Batch 0][Samples 8] time/interval: T training accuracy: 1.0000, training"
        " softmaxcrossentropyloss: 0.6053",
        "[Epoch 0][Batch 2][Samples 24] time/interval: T training accuracy: 0.8750, training"
        " softmaxcrossentropyloss: 0.5470",
    ]


def test_batches_and_validation_between_them():
    e = make()
    validation = est.ValidationHandler(loader(), e.evaluate, epoch_period=None, batch_period=3)
    e.fit(loader(), batches=6, event_handlers=[validation])
    said = [line for line in e.log.lines if "validation" in line]
    assert said == [
        "[Epoch 0] Finished in T, validation accuracy: 0.9062, validation softmaxcrossentropyloss:"
        " 0.2979",
        "[Epoch 1] Finished in T, validation accuracy: 1.0000, validation softmaxcrossentropyloss:"
        " 0.1708",
    ]
    assert "with 2 epochs" in e.log.lines[-1]


def test_two_devices_train_like_one():
    one, two = make(), make(context=[mx.cpu(0), mx.cpu(1)])
    for e in (one, two):
        e.fit(loader(), epochs=2)
    np.testing.assert_allclose(weights(one), weights(two), rtol=1e-4, atol=1e-5)
    assert [m.get() for m in one.train_metrics][0] == [m.get() for m in two.train_metrics][0]


def test_gradients_are_means_over_the_batch():
    e = make(optimizer="sgd")
    e.fit(loader(), batches=1)
    z = X[:8] @ W.T
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    gradient = (p - np.eye(2)[Y[:8].astype(int)]).T @ X[:8] / 8
    np.testing.assert_allclose(weights(e), W - 0.1 * gradient, rtol=1e-4, atol=1e-6)


class Recorder(est.TrainBegin, est.EpochBegin, est.BatchBegin, est.BatchEnd, est.EpochEnd):
    def __init__(self, name, calls, priority=0):
        self.name, self.calls, self.priority = name, calls, priority

    def train_begin(self, estimator):
        self.calls.append(f"{self.name} train")

    def epoch_begin(self, estimator):
        self.calls.append(f"{self.name} epoch")

    def batch_begin(self, estimator, batch):
        self.calls.append(f"{self.name} batch {batch[0].shape}")

    def batch_end(self, estimator, batch, pred, label, loss):
        self.calls.append(f"{self.name} end {pred[0].shape} {label[0].shape} {loss[0].shape}")

    def epoch_end(self, estimator):
        self.calls.append(f"{self.name} epoch end")


def test_priorities_and_what_handlers_get():
    calls = []
    handlers = [Recorder("b", calls, 7), Recorder("a", calls, -5000)]
    make().fit(loader(), batches=1, event_handlers=handlers)
    events = [
        "train",
        "epoch",
        "batch (8, 6)",
        "end (8, 2) (8,) (8,)",
        "epoch end",
    ]
    assert calls == [f"{name} {event}" for event in events for name in "ab"]


# ---- checkpoints ---------------------------------------------------------------------------------


def test_checkpoint_files(tmp_path):
    e = make()
    handler = est.CheckpointHandler(
        str(tmp_path), monitor=e.train_metrics[0], save_best=True, max_checkpoints=2, verbose=1
    )
    e.fit(loader(), epochs=3, event_handlers=handler)
    assert sorted(os.listdir(tmp_path)) == [
        "model-best.params",
        "model-best.states",
        "model-epoch1batch8.params",
        "model-epoch1batch8.states",
        "model-epoch2batch12.params",
        "model-epoch2batch12.states",
        "model-symbol.json",
    ]
    said = [line for line in e.log.lines if "improve" in line]
    assert [re.sub("updating.*|skipping.*", "", line) for line in said] == [
        "[Epoch 0] CheckpointHandler: training accuracy improved from -inf to 0.87500, ",
        "[Epoch 1] CheckpointHandler: training accuracy improved from 0.87500 to 1.00000, ",
        "[Epoch 2] CheckpointHandler: training accuracy did not improve from 1.00000, ",
    ]
    symbol = mx.sym.load(str(tmp_path / "model-symbol.json"))
    assert symbol.list_arguments() == ["data", "net_dense0_weight", "net_dense0_bias"]


@pytest.mark.parametrize("devices", [1, 2])
def test_resumed_training_is_the_whole_training(tmp_path, devices):
    whole, first, second = (make(context=[mx.cpu(i) for i in range(devices)]) for _ in range(3))
    whole.fit(loader(), epochs=5)
    first.fit(loader(), epochs=3, event_handlers=est.CheckpointHandler(str(tmp_path)))
    handler = est.CheckpointHandler(str(tmp_path), resume_from_checkpoint=True, max_checkpoints=3)
    second.fit(loader(), epochs=5, event_handlers=handler)
    assert second.max_epoch == 2
    # the compiled program may take over at another step
    np.testing.assert_allclose(weights(second), weights(whole), rtol=1e-5)
    assert {f for f in os.listdir(tmp_path) if f.endswith(".params")} == {
        f"model-epoch{n}batch{4 * n + 4}.params" for n in (2, 3, 4)
    }
    assert (
        "CheckpointHandler: Checkpoint resumed from epoch 2 batch 12, continue to train for 2"
        " epochs " in second.log.lines
    )
    with pytest.raises(ValueError, match="maximum number of epoch 5 reached"):
        make().fit(loader(), epochs=5, event_handlers=handler)


def test_resume_by_batches(tmp_path):
    def handler(resume):
        return est.CheckpointHandler(
            str(tmp_path), epoch_period=None, batch_period=2, resume_from_checkpoint=resume
        )

    first, second = make(), make()
    first.fit(loader(), batches=6, event_handlers=handler(True))
    assert any("No checkpoint found" in line for line in first.log.lines)
    second.fit(loader(), batches=9, event_handlers=handler(True))
    assert second.max_batch == 3
    numbers = [re.findall(r"\d+", f) for f in os.listdir(tmp_path) if f.endswith(".params")]
    assert sorted(int(batch) for _, batch in numbers) == [1, 3, 5, 7]
    with pytest.raises(AssertionError, match="batch_period must be set"):
        make().fit(
            loader(),
            batches=9,
            event_handlers=est.CheckpointHandler(str(tmp_path), resume_from_checkpoint=True),
        )


def test_only_old_checkpoints_are_removed(tmp_path):
    """epoch1 is the beginning of the name epoch10."""
    e = make()
    e.fit(loader(32), epochs=12, event_handlers=est.CheckpointHandler(str(tmp_path)))
    kept = {int(re.findall(r"\d+", f)[0]) for f in os.listdir(tmp_path) if "epoch" in f}
    assert kept == {7, 8, 9, 10, 11}


def test_a_crash_while_writing_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    e = make()
    e.fit(loader(), epochs=1, event_handlers=est.CheckpointHandler(str(tmp_path)))
    before = (tmp_path / "model-epoch0batch4.params").read_bytes()

    def broken(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "sync", broken)
    with pytest.raises(OSError, match="cannot write '.*': No space left"):
        e.fit(loader(), epochs=1, event_handlers=est.CheckpointHandler(str(tmp_path)))
    assert (tmp_path / "model-epoch0batch4.params").read_bytes() == before
    assert not [f for f in os.listdir(tmp_path) if f.endswith(".part")]


def test_strange_files_among_checkpoints(tmp_path):
    (tmp_path / "model-epochXbatch4.params").write_bytes(b"")
    handler = est.CheckpointHandler(str(tmp_path), resume_from_checkpoint=True)
    with pytest.raises(ValueError, match="Error parsing checkpoint file model-epochXbatch4"):
        make().fit(loader(), epochs=1, event_handlers=handler)


def test_checkpoint_of_a_block_without_graph_has_no_symbol(tmp_path):
    e = make(hybridize=False)
    e.fit(loader(), batches=1, event_handlers=est.CheckpointHandler(str(tmp_path)))
    assert any("is not saved, please use HybridBlock" in line for line in e.log.lines)
    assert "model-symbol.json" not in os.listdir(tmp_path)


# ---- early stopping ------------------------------------------------------------------------------


def test_early_stopping():
    e = make(rate=0.0)
    handler = est.EarlyStoppingHandler(e.train_metrics[0], patience=2, mode="max")
    e.fit(loader(), epochs=9, event_handlers=handler)
    assert handler.current_epoch == 3 and handler.stopped_epoch == 2
    assert (
        "[Epoch 2] EarlyStoppingHanlder: early stopping due to training accuracy not improving"
        in e.log.lines
    )


def test_auto_mode_follows_the_metric():
    """A loss is better when less."""
    e = make()
    accuracy, mean_loss = e.train_metrics
    assert est.EarlyStoppingHandler(accuracy).monitor_op is np.greater
    handler = est.EarlyStoppingHandler(mean_loss, min_delta=0.1)
    assert handler.monitor_op is np.less and handler.min_delta == -0.1
    e.fit(loader(), epochs=9, event_handlers=handler)
    assert handler.stopped_epoch == 2  # 0.49, 0.18, 0.10
    with pytest.warns(RuntimeWarning, match="mode nosuch is unknown"):
        est.EarlyStoppingHandler(accuracy, mode="nosuch")


def test_metric_without_updates_warns():
    e = make()
    with pytest.warns(RuntimeWarning, match="loss is not updated"):
        e.fit(loader(), epochs=1, event_handlers=est.EarlyStoppingHandler(metrics.Loss()))


# ---- what plait adds -----------------------------------------------------------------------------


def test_progress_lines(monkeypatch):
    text = io.StringIO()
    e = make()
    reads = []
    get = type(e.train_metrics[0]).get
    monkeypatch.setattr(
        type(e.train_metrics[0]), "get", lambda self: (reads.append(1), get(self))[1]
    )
    quiet = est.LoggingHandler(metrics=e.train_metrics)
    quiet.epoch_end = quiet.train_end = lambda *args, **kwargs: None
    e.fit(loader(), epochs=2, event_handlers=[est.ProgressBarHandler(file=text), quiet])
    first, second = text.getvalue().splitlines()
    assert first.startswith("epoch 1/2  training accuracy 0.8750  training softmaxcrossen")
    assert "nan" not in first and first.endswith("samples/s") and second.startswith("epoch 2/2")
    assert len(reads) == 4  # accuracies of training and validation, once an epoch each


class Writer:
    def __init__(self):
        self.rows, self.closed = [], False

    def add_scalar(self, tag, value, global_step):
        self.rows.append((tag, round(float(value), 4), global_step))

    def close(self):
        self.closed = True


def test_tensorboard(monkeypatch):
    writer, e = Writer(), make()
    handler = est.TensorBoardHandler(writer=writer, batch_period=3)
    e.fit(loader(), epochs=1, event_handlers=handler)
    assert writer.rows == [
        ("batch/training/accuracy", 0.875, 3),
        ("batch/training/softmaxcrossentropyloss", 0.547, 3),
        ("batch/learning_rate", 0.1, 3),
        ("training/accuracy", 0.875, 1),
        ("training/softmaxcrossentropyloss", 0.4902, 1),
        ("learning_rate", 0.1, 1),
    ]
    assert not writer.closed
    folders = []
    module = types.ModuleType("tensorboardX")
    module.SummaryWriter = lambda folder: (folders.append(folder), writer)[1]
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", module)
    make().fit(loader(), batches=1, event_handlers=est.TensorBoardHandler("logs"))
    assert folders == ["logs"] and writer.closed


def test_tensorboard_without_a_writer(monkeypatch):
    for name in ("tensorboardX", "mxboard", "torch.utils.tensorboard"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(ImportError, match="pip install tensorboardX"):
        est.TensorBoardHandler("logs")


# ---- arguments -----------------------------------------------------------------------------------


def test_default_metrics():
    e = make()
    assert [m.name for m in e.train_metrics] == [
        "training accuracy",
        "training softmaxcrossentropyloss",
    ]
    assert [m.name for m in e.val_metrics] == [
        "validation accuracy",
        "validation softmaxcrossentropyloss",
    ]
    given = make(train_metrics=metrics.CompositeEvalMetric([metrics.MAE(), "acc"]))
    assert [m.name for m in given.train_metrics][:2] == ["training mae", "training accuracy"]
    named = make(train_metrics=[metrics.MSE()], val_metrics=metrics.MAE())
    assert [m.name for m in named.val_metrics] == ["validation mae"]


def test_default_trainer_and_initializer():
    net = nn.Dense(2, in_units=6)
    with pytest.warns(UserWarning, match="default SGD optimizer with learning rate 0.001"):
        e = est.Estimator(net, loss.SoftmaxCrossEntropyLoss(), initializer=mx.init.One())
    assert e.trainer.learning_rate == 0.001 and net.weight.data().asnumpy().min() == 1
    with pytest.warns(UserWarning, match="already fully initialized"):
        est.Estimator(net, loss.L2Loss(), initializer=mx.init.Zero(), trainer=e.trainer)
    assert net.weight.data().asnumpy().min() == 1


def test_another_net_and_loss_for_validation():
    val_net = nn.Dense(2, in_units=6)
    val_net.initialize(mx.init.Zero())
    e = make(val_net=val_net, val_loss=loss.SoftmaxCrossEntropyLoss(weight=2.0))
    e.evaluate(loader())
    assert e.val_metrics[1].get()[1] == pytest.approx(2 * np.log(2), rel=1e-5)


def test_custom_batch_processor():
    class Halves(est.BatchProcessor):
        def fit_batch(self, estimator, batch, batch_axis=0):
            return super().fit_batch(estimator, (batch[0][:4], batch[1][:4]), batch_axis)

    e = make(batch_processor=Halves())
    e.fit(loader(), epochs=1)
    assert e.train_metrics[0].num_inst == 16
    with pytest.raises(ValueError, match="must contain fit_batch"):
        make(batch_processor=object())


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda e: e.fit([X, Y], epochs=1), "only support input as Gluon DataLoader"),
        (lambda e: e.evaluate([X]), "only support input as Gluon DataLoader"),
        (lambda e: e.fit(loader()), "exactly one of epochs and batches"),
        (lambda e: e.fit(loader(), epochs=1, batches=1), "exactly one of epochs and batches"),
        (lambda e: e.fit(loader(), epochs=1, event_handlers=[1]), "must be an EventHandler"),
        (
            lambda e: e.fit(
                loader(), epochs=1, event_handlers=est.LoggingHandler(metrics=[metrics.MAE()])
            ),
            "LoggingHandler refers to a metric instance",
        ),
        (lambda e: est.Estimator(e.net, "L2Loss"), "loss must be a Loss"),
        (lambda e: est.Estimator(e.net, e.loss, [1]), "metrics must be a Metric"),
        (lambda e: est.Estimator(e.net, e.loss, trainer="sgd"), "must be a Gluon Trainer"),
        (lambda e: est.Estimator(e.net, e.loss, context="cpu"), "context must be a Context"),
        (lambda e: est.LoggingHandler("batch"), "either an integer or string 'epoch'"),
        (lambda e: est.CheckpointHandler("x", save_best=True), "save_best needs as monitor"),
        (lambda e: est.EarlyStoppingHandler("acc"), "monitor must be one of the metric objects"),
        (
            lambda e: est.EarlyStoppingHandler(metrics.CompositeEvalMetric()),
            "CompositeEvalMetric is not supported",
        ),
    ],
)
def test_wrong_arguments(call, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=text):
        call(make())
