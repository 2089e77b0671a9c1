"""Recurrent layers and cells against what MXNet 1.9.1 computed (fixtures/rnn.npz), each other, and
wrong use."""

from pathlib import Path

import numpy as np
import plait as mx
import pytest
from plait.gluon import nn, rnn

nd = mx.nd
FIXTURE = np.load(Path(__file__).parent.parent / "fixtures" / "rnn.npz")
X = np.random.RandomState(0).randn(4, 2, 5).astype("float32")  # (T, N, C)
LAYERS = {
    "lstm": lambda: rnn.LSTM(3, 2, bidirectional=True, prefix="a_"),
    "gru": lambda: rnn.GRU(3, 2, layout="NTC", prefix="a_"),
    "rnn_tanh": lambda: rnn.RNN(3, activation="tanh", prefix="a_"),
    "rnn_relu": lambda: rnn.RNN(3, 3, prefix="a_"),
}


def sequential():
    net = rnn.SequentialRNNCell(prefix="s_")
    with net.name_scope():
        net.add(rnn.LSTMCell(4))
        net.add(rnn.DropoutCell(0.5))
        net.add(rnn.ResidualCell(rnn.GRUCell(4)))
        net.add(rnn.RNNCell(3))
    return net


CELLS = {
    "lstm_cell": lambda: rnn.LSTMCell(3, prefix="a_"),
    "gru_cell": lambda: rnn.GRUCell(3, prefix="a_"),
    "rnn_cell": lambda: rnn.RNNCell(3, activation="softrelu", prefix="a_"),
    "bidirectional": lambda: rnn.BidirectionalCell(
        rnn.LSTMCell(2, prefix="l_"), rnn.GRUCell(3, prefix="r_")
    ),
    "residual": lambda: rnn.ResidualCell(rnn.GRUCell(5, prefix="a_")),
    "sequential": sequential,
}


def fill(net):
    draw = np.random.RandomState(1)
    params = net.collect_params()
    for name in sorted(params):
        params[name].set_data(nd.array(draw.randn(*params[name].shape) * 0.3))
    return net


def close(array, want):
    np.testing.assert_allclose(array.asnumpy(), want, rtol=1e-4, atol=2e-5)


# ---- layers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_compute_what_mxnet_computes(name, hybridize):
    net = LAYERS[name]()
    net.initialize()
    x = nd.array(X if name != "gru" else X.transpose(1, 0, 2))
    net(x)
    fill(net)
    if hybridize:
        net.hybridize()
    x.attach_grad()
    with mx.autograd.record():
        y = net(x)
        loss = (y * y).sum()
    loss.backward()
    close(y, FIXTURE[f"{name}_y"])
    close(x.grad, FIXTURE[f"{name}_dx"])
    assert list(net.collect_params()) == FIXTURE[f"{name}_names"].tolist()
    draw = np.random.RandomState(2)
    y, states = net(x, [nd.array(draw.randn(*info["shape"])) for info in net.state_info(2)])
    close(y, FIXTURE[f"{name}_y2"])
    for i, state in enumerate(states):
        close(state, FIXTURE[f"{name}_s{i}"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: rnn.LSTM(3, 2, bidirectional=True, dropout=0.5, prefix="f_"),
        lambda: rnn.GRU(3, prefix="f_"),
        lambda: rnn.RNN(3, prefix="f_"),
    ],
)
def test_unfused_cells_share_the_layers_parameters(make):
    layer = make()
    layer.initialize()
    layer(nd.array(X))
    fill(layer)
    cells = layer.unfuse()
    assert set(cells.collect_params()) == set(layer.collect_params())
    outputs, _ = cells.unroll(4, nd.array(X), layout="TNC", merge_outputs=True)
    close(outputs, layer(nd.array(X)).asnumpy())


def test_projection():
    layer = rnn.LSTM(4, 2, projection_size=2, prefix="p_")
    layer.initialize()
    y, (h, c) = layer(nd.array(X), layer.begin_state(2))
    assert y.shape == (4, 2, 2) and h.shape == (2, 2, 2) and c.shape == (2, 2, 4)
    assert layer.collect_params()["p_l1_h2r_weight"].shape == (2, 4)
    assert [p.shape[1] for n, p in layer.collect_params().items() if n.endswith("i2h_weight")] == [
        5,
        2,
    ]
    with pytest.raises(mx.MXNetError, match="no cell with projection"):
        layer.unfuse()


@pytest.mark.parametrize("bidirectional", [False, True])
def test_sequence_length_equals_running_each_sequence_alone(bidirectional):
    layer = rnn.LSTM(3, bidirectional=bidirectional, use_sequence_length=True, prefix="a_")
    layer.initialize()
    lengths = [2, 4]
    y, states = layer(
        nd.array(X), layer.begin_state(2), sequence_length=nd.array(lengths, dtype="int32")
    )
    fill(layer)
    y, states = layer(nd.array(X), layer.begin_state(2), nd.array(lengths, dtype="int32"))
    plain = rnn.LSTM(3, bidirectional=bidirectional, prefix="a_", params=layer.collect_params())
    for i, n in enumerate(lengths):
        want, want_states = plain(nd.array(X[:n, i : i + 1]), plain.begin_state(1))
        close(y[:n, i : i + 1], want.asnumpy())
        assert not y.asnumpy()[n:, i].any()
        for state, want_state in zip(states, want_states):
            close(state[:, i : i + 1], want_state.asnumpy())
    with pytest.raises(mx.MXNetError, match="sequence_length is needed"):
        layer(nd.array(X))


def test_dropout_acts_between_layers_only_while_training():
    layer = rnn.GRU(3, 2, dropout=0.5)
    layer.initialize()
    x = nd.array(X)
    layer(x)
    fill(layer)
    close(layer(x), layer(x).asnumpy())
    with mx.autograd.record():
        assert not np.allclose(layer(x).asnumpy(), layer(x).asnumpy())


@pytest.mark.parametrize("hybridize", [False, True])
def test_a_layer_inside_a_network(hybridize):
    class Tagger(nn.HybridBlock if hybridize else nn.Block):
        def __init__(self):
            super().__init__(prefix="net_")
            with self.name_scope():
                self.layer, self.out = (
                    rnn.LSTM(3, layout="NTC", bidirectional=True),
                    nn.Dense(2, flatten=False),
                )

        def forward(self, x):
            return self.out(self.layer(x))

    net = Tagger()
    net.initialize()
    if hybridize:
        net.hybridize()
    x = nd.array(X.transpose(1, 0, 2))
    net(x)
    fill(net)
    y = net(x)
    assert y.shape == (2, 4, 2)
    assert net(x[:1]).shape == (1, 4, 2)
    close(net(x[:1]), y.asnumpy()[:1])
    close(y, net.out(net.layer(x)).asnumpy())


def test_repr_and_state_info():
    assert (
        repr(rnn.LSTM(5, 2, bidirectional=True, input_size=3))
        == "LSTM(3 -> 5, TNC, num_layers=2, bidirectional)"
    )
    assert repr(rnn.GRU(5, layout="NTC", dropout=0.5)) == "GRU(None -> 5, NTC, dropout=0.5)"
    assert [i["shape"] for i in rnn.LSTM(5, 2).state_info(7)] == [(2, 7, 5), (2, 7, 5)]
    assert repr(rnn.RNNCell(3)) == "RNNCell(None -> 3, tanh)"
    assert repr(sequential()).splitlines()[2] == "(1): DropoutCell(rate=0.5, axes=())"


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: rnn.LSTM(3, layout="NCT"), "layout must be 'TNC' or 'NTC', got 'NCT'"),
        (lambda: rnn.RNN(3, activation="elu"), "activation must be 'relu' or 'tanh', got 'elu'"),
        (
            lambda: ready(rnn.GRU(3))(nd.ones((2, 5))),
            r"GRU: data must be T, N, C \(3 axes\), got \(2, 5\)",
        ),
        (
            lambda: ready(rnn.GRU(3))(nd.ones((4, 2, 5)), nd.ones((1, 9, 3))),
            r"Invalid recurrent state shape. Expecting \(1, 2, 3\), got \(1, 9, 3\)",
        ),
        (lambda: ready(rnn.GRU(3, input_size=4))(nd.ones((4, 2, 5))), "parameters must have shape"),
        (
            lambda: ready(rnn.LSTMCell(3)).unroll(5, nd.ones((2, 4, 5))),
            r"inputs must have length = 5 steps on axis 1 \(layout NTC\), got shape \(2, 4, 5\)",
        ),
        (lambda: rnn.LSTMCell(3).unroll(2, [nd.ones((2, 5))]), "length = 2 steps, got 1"),
        (lambda: rnn.ZoneoutCell(CELLS["bidirectional"]()), "doesn't support zoneout"),
        (
            lambda: CELLS["bidirectional"]()(nd.ones((2, 5)), []),
            "Bidirectional cannot be stepped. Please use unroll",
        ),
        (
            lambda: CELLS["residual"]().base_cell.begin_state(2),
            "the base cell cannot be called directly",
        ),
        (lambda: rnn.ResidualCell(CELLS["residual"]().base_cell), "already modified"),
        (lambda: rnn.DropoutCell(1.5), r"rate must be a number in \[0, 1\], got 1.5"),
    ],
)
def test_wrong_use(wrong, message):
    with pytest.raises((mx.MXNetError, ValueError, NotImplementedError), match=message):
        wrong()


def ready(net):
    net.initialize()
    return net


# ---- cells ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("valid", [None, [2, 3]])
@pytest.mark.parametrize("name", CELLS)
def test_cells_compute_what_mxnet_computes(name, valid, hybridize):
    net = CELLS[name]()
    net.initialize()
    x = nd.array(X.transpose(1, 0, 2))
    net.unroll(4, x)
    fill(net)
    if hybridize:
        net.hybridize()
    length = None if valid is None else nd.array(valid)
    y, states = net.unroll(4, x, merge_outputs=True, valid_length=length)
    key = name + ("" if valid is None else "_valid")
    close(y, FIXTURE[f"{key}_y"])
    for i, state in enumerate(states):
        close(state, FIXTURE[f"{key}_s{i}"])
    assert list(net.collect_params()) == FIXTURE[f"{name}_names"].tolist()
    steps, _ = net.unroll(
        4, [x[:, t] for t in range(4)], layout="NTC", merge_outputs=False, valid_length=length
    )
    assert len(steps) == 4
    for t, step in enumerate(steps):
        close(step, FIXTURE[f"{key}_y"][:, t])


def test_stepping_equals_unrolling():
    cell = ready(CELLS["lstm_cell"]())
    x = nd.array(X)
    want, want_states = cell.unroll(4, x, layout="TNC")
    cell.reset()
    states = cell.begin_state(2)
    for t in range(4):
        y, states = cell(x[t], states)
        close(y, want[t].asnumpy())
    close(states[1], want_states[1].asnumpy())


def test_gradients_flow_through_an_unrolled_stack():
    net = ready(sequential())
    with mx.autograd.record():
        y, _ = net.unroll(4, nd.array(X), layout="TNC", merge_outputs=True)
        loss = (y * y).sum()
    loss.backward()
    assert all(np.abs(p.grad().asnumpy()).sum() > 0 for p in net.collect_params().values())


def test_zoneout_keeps_old_values_at_its_rate():
    mx.random.seed(1)
    cell = rnn.ZoneoutCell(
        rnn.RNNCell(200, input_size=5, prefix="a_"), zoneout_outputs=0.4, zoneout_states=0.0
    )
    cell.initialize()
    x = nd.array(X)
    plain, _ = cell.unroll(1, x[:1], layout="TNC", merge_outputs=True)
    with mx.autograd.record():
        y, _ = cell.unroll(1, x[:1], layout="TNC", merge_outputs=True)
    kept = (y.asnumpy() == 0).mean()
    assert 0.25 < kept < 0.55
    np.testing.assert_allclose(
        y.asnumpy()[y.asnumpy() != 0], plain.asnumpy()[y.asnumpy() != 0], rtol=1e-5
    )


def test_zoneout_keeps_old_values_of_its_own_device():
    cell = rnn.ZoneoutCell(rnn.RNNCell(50, input_size=5, prefix="a_"), 0.5, 0.0)
    devices = [mx.cpu(0), mx.cpu(1)]
    cell.initialize(ctx=devices)
    states = {d: cell.begin_state(2, ctx=d) for d in devices}
    old = {d: np.zeros((2, 50)) for d in devices}
    for step in range(2):
        for d in devices:
            x = nd.ones((2, 5), ctx=d) * (1 + step + 2 * d.device_id)
            new = cell.base_cell(x, states[d])[0].asnumpy()
            with mx.autograd.record():
                out, states[d] = cell(x, states[d])
            is_old, is_new = out.asnumpy() == old[d], out.asnumpy() == new
            assert out.context == d and (is_old | is_new).all() and is_old.any() and is_new.any()
            old[d] = out.asnumpy()


def test_an_unrolled_stack_hybridizes_for_any_batch_size():
    class Net(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.cells = rnn.HybridSequentialRNNCell()
                self.cells.add(rnn.LSTMCell(3))
                self.cells.add(rnn.GRUCell(2))

        def hybrid_forward(self, F, x):
            return self.cells.unroll(4, x, layout="TNC", merge_outputs=True)[0]

    net = ready(Net())
    eager = net(nd.array(X)).asnumpy()
    net.hybridize()
    close(net(nd.array(X)), eager)
    close(net(nd.array(X[:, :1])), eager[:, :1])
