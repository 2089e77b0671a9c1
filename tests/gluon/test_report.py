"""Reports on hybridized blocks, and the lines that PLAIT_LOG=hybridize asks for."""

import plait as mx
import pytest
from plait import autograd, engine, gluon, nd
from plait.engine import log
from plait.gluon import nn


def net_of(*layers):
    net = nn.HybridSequential(prefix="net_")
    net.add(*layers)
    net.initialize()
    net.hybridize()
    return net


def step(net, x):
    with autograd.record():
        loss = net(x).sum()
    loss.backward()


def test_a_report_lists_every_program():
    net = net_of(nn.Dense(8, activation="relu", in_units=4), nn.Dense(2, in_units=8))
    assert "no programs" in str(net.hybrid_report())
    x = nd.ones((3, 4))
    for _ in range(3):
        net(x)
        step(net, x)
        mx.wait_compiled()
    net(nd.ones((5, 4)))
    rows = net.hybrid_report().rows
    assert [(r.kind, r.hits, r.tier) for r in rows[:3]] == [
        ("predict", 3, 1),
        ("predict", 1, 0),
        ("record", 3, 1),
    ]
    assert {(r.kind, r.tier) for r in rows[3:]} == {("backward", 1)}
    assert rows[0].operators == 3 and rows[0].instructions and rows[0].compile_s > 0
    assert rows[0].planned_bytes <= rows[0].naive_bytes
    text = str(net.hybrid_report()).splitlines()
    assert text[0] == "net" and text[1].split()[:4] == ["kind", "inputs", "hits", "tier"]
    assert len(text) == 2 + len(rows)


def test_memory_by_use():
    net = net_of(nn.Dense(8, activation="relu", in_units=4), nn.Dense(2, in_units=8))
    report = net.memory_report(nd.ones((3, 4)))
    parameters = 4 * (8 * 4 + 8 + 2 * 8 + 2)
    for used in (report.inference, report.training):
        assert used["parameters"] == parameters
        assert used["inputs"] == 4 * 12 and used["outputs"] == 4 * 6
        assert used["total"] == sum(used.values()) - used["total"] - used["arena_unshared"]
    assert report.training["gradients"] == parameters
    assert report.training["residuals"] == 4 * 3 * 8  # the result of relu
    assert "residuals" not in report.inference
    assert str(report).splitlines()[1].split() == ["parameters", "232", "B", "232", "B"]


def test_report_of_a_block_without_gradients():
    report = net_of(nn.Flatten()).memory_report(nd.ones((3, 4)))
    assert report.training == {} and report.inference["parameters"] == 0


def test_a_report_runs_nothing():
    net = net_of(nn.BatchNorm(in_channels=4))
    net.memory_report(nd.ones((3, 4)))
    assert net[0].running_mean.data().asnumpy().tolist() == [0] * 4
    assert engine.stats()["pending"] >= 0 and not net.hybrid_report().rows


def test_log_lines_say_why_a_program_was_compiled(monkeypatch, capsys):
    monkeypatch.setenv("PLAIT_LOG", "hybridize")
    net = net_of(nn.Dense(2, in_units=4))
    net(nd.ones((3, 4)))
    net(nd.ones((3, 4)))
    mx.wait_compiled()
    net(nd.ones((5, 4)))
    with autograd.train_mode():
        net(nd.ones((5, 4)))
        step(net, nd.ones((5, 4)))
    lines = capsys.readouterr().err.splitlines()
    assert [line.removeprefix("plait hybridize: net") for line in lines if "tier" not in line] == [
        ": traced for float32[3, 4]@cpu(0) to predict: first call",
        ": compiled for float32[5, 4]@cpu(0), predicting: the shape of data was (3, 4)",
        ": traced for float32[5, 4]@cpu(0) while training: the training mode changed",
        ": compiled for float32[5, 4]@cpu(0), recording: recording was off",
    ]
    (swap,) = [line for line in lines if "tier" in line]
    assert swap.startswith("plait hybridize: net on float32[3, 4]@cpu(0): tier 1 from call 3 on,")
    assert "instructions" in swap and "planned" in swap


def test_the_setting_takes_known_topics_only(monkeypatch):
    assert not log.wants("hybridize")
    monkeypatch.setenv("PLAIT_LOG", "hybridise")
    with pytest.raises(ValueError, match="PLAIT_LOG=hybridise"):
        log.wants("hybridize")


def test_sizes_are_printed_in_units():
    assert [log.size(n) for n in (0, 999, 1500, 2.5e6, 3e9)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.5 MB",
        "3.00 GB",
    ]


class Nested(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(3)

    def hybrid_forward(self, F, x, pair, mask=None):
        y = self.dense(x)
        y = y if mask is None else y * mask
        return y, [pair[0] * 2, (pair[1],)]


def symbol_block():
    data, other = mx.sym.var("data"), mx.sym.var("other")
    dense = mx.sym.FullyConnected(data, num_hidden=3, name="fc")
    return gluon.SymbolBlock(mx.sym.Group([dense, other * 2]), [data, other])


x, steps, pair = nd.ones((4, 5)), nd.ones((4, 5, 3)), [nd.ones((2,)), nd.ones((3,))]
BLOCKS = {
    "nested": (Nested, (x, pair)),
    "nested, None": (Nested, (x, pair, None)),
    "nested, mask": (Nested, (x, pair, nd.ones((4, 3)))),
    "symbol block": (symbol_block, (x, nd.ones((2,)))),
    "lambda": (lambda: nn.HybridLambda("tanh"), (x,)),
    "LSTM": (lambda: gluon.rnn.LSTM(6), (steps,)),
    "LSTM with states": (
        lambda: gluon.rnn.LSTM(6),
        (steps, [nd.zeros((1, 5, 6)), nd.zeros((1, 5, 6))]),
    ),
    "RNN with its state": (lambda: gluon.rnn.RNN(6), (steps, nd.zeros((1, 5, 6)))),
    "GRU both ways": (lambda: gluon.rnn.GRU(6, 2, bidirectional=True, layout="NTC"), (steps,)),
    "LSTM cell": (
        lambda: gluon.rnn.LSTMCell(6),
        (nd.ones((5, 3)), [nd.zeros((5, 6)), nd.zeros((5, 6))]),
    ),
}


@pytest.mark.parametrize("state", ["initialized", "hybridized", "run", "recorded"])
@pytest.mark.parametrize("make, args", BLOCKS.values(), ids=BLOCKS)
def test_reports_on_every_kind_of_block(make, args, state, tmp_path, capsys):
    def made():
        net = make()
        net.initialize()
        if state != "initialized":
            net.hybridize()
        if state == "run":
            net(*args)
        if state == "recorded":
            with autograd.record():
                net(*args)
        return net

    n_bytes = sum(p.data().size * 4 for p in ran(made(), args).collect_params().values())
    assert made().memory_report(*args).inference["parameters"] == n_bytes
    assert len(made().hybrid_report().rows) == (state in ("run", "recorded"))
    made().summary(*args)
    assert f"Total params: {n_bytes // 4}\n" in capsys.readouterr().out
    made().optimize_for(*args)
    net = made()
    net.optimize_for(*args)
    net.export(str(tmp_path / "net"))
    assert (tmp_path / "net-0000.params").exists()


def ran(net, args):
    net(*args)
    return net


def test_shapes_of_recurrent_layers_follow_from_a_call():
    layer = gluon.rnn.LSTM(6)
    layer.initialize()
    layer.infer_shape(steps)
    assert layer.l0_i2h_weight.shape == (24, 3)


def test_export_needs_initialized_parameters(tmp_path):
    net = symbol_block()
    net.initialize()
    with pytest.raises(mx.MXNetError, match="has not been initialized"):
        net.export(str(tmp_path / "net"))
