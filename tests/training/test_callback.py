"""Callbacks: what they log, save and print."""

import logging

import numpy as np
import plait as mx
from plait.training import callback, metric


def param(nbatch, m=None):
    return callback.BatchEndParam(epoch=2, nbatch=nbatch, eval_metric=m, locals=None)


def filled():
    m = metric.Accuracy()
    m.update([mx.nd.array([0, 1])], [mx.nd.array([[1, 0.0], [1, 0]])])
    return m


def test_speedometer_logs_every_few_batches(caplog):
    caplog.set_level(logging.INFO)
    m, meter = filled(), callback.Speedometer(batch_size=4, frequent=2)
    for n in range(5):
        meter(param(n, m))
    lines = [r.getMessage() for r in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith("Epoch[2] Batch [0-2]\tSpeed: ") and lines[0].endswith(
        "samples/sec\taccuracy=0.500000"
    )
    assert np.isnan(m.get()[1]) and m.get_global()[1] == 0.5  # auto_reset
    caplog.clear()
    quiet = callback.Speedometer(4, 2, auto_reset=False)
    quiet(param(1))
    quiet(param(2))
    assert caplog.records[0].getMessage().startswith("Iter[2] Batch [2]\tSpeed: ")


def test_log_callbacks(caplog):
    caplog.set_level(logging.INFO)
    callback.LogValidationMetricsCallback()(param(0, filled()))
    callback.log_train_metric(2)(param(4, filled()))
    callback.log_train_metric(2)(param(5, filled()))
    assert [r.getMessage() for r in caplog.records] == [
        "Epoch[2] Validation-accuracy=0.500000",
        "Iter[2] Batch[4] Train-accuracy=0.500000",
    ]


def test_progress_bar(capsys):
    callback.ProgressBar(total=4, length=8)(param(2))
    assert capsys.readouterr().out == "[====----] 50%\r"


def test_do_checkpoint_saves_every_period(tmp_path):
    save = callback.do_checkpoint(str(tmp_path / "net"), period=2)
    symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
    for epoch in range(3):
        save(epoch, symbol, {"fc_weight": mx.nd.ones((2, 3))}, {"m": mx.nd.zeros((1,))})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net-0002.params", "net-symbol.json"]
    loaded = mx.nd.load(str(tmp_path / "net-0002.params"))
    assert set(loaded) == {"arg:fc_weight", "aux:m"}
    assert mx.sym.load(str(tmp_path / "net-symbol.json")).list_arguments()[0] == "data"
