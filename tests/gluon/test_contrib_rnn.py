"""contrib.rnn: cells against what MXNet 1.9.1 computed (fixtures/contrib_rnn.npz), layouts,
variational dropout."""

import inspect
from pathlib import Path

import numpy as np
import plait as mx
import pytest
from plait.gluon import rnn
from plait.gluon.contrib import rnn as contrib

nd = mx.nd
FIXTURE = np.load(Path(__file__).parent.parent / "fixtures" / "contrib_rnn.npz")
KINDS = [(kind, n) for kind in ("RNN", "LSTM", "GRU") for n in (1, 2, 3)]


def fill(cell):
    cell.initialize()
    for i, (_, p) in enumerate(sorted(cell.collect_params().items())):
        p.set_data(nd.array(np.random.RandomState(i).uniform(-0.5, 0.5, p.shape)))


def conv_cell(kind, n, last=False):
    shape = (5, 4, 3)[:n]
    layout = ("NWC", "NHWC", "NDHWC")[n - 1] if last else ("NCW", "NCHW", "NCDHW")[n - 1]
    return getattr(contrib, f"Conv{n}D{kind}Cell")(
        (*shape, 2) if last else (2, *shape),
        3,
        3 if n < 3 else (3, 3, 1),
        3,
        i2h_pad=(1,) * n,
        h2h_dilate=2 if n < 3 else 1,
        activation="relu" if n == 2 else "tanh",
        conv_layout=layout,
        prefix="a_",
    )


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind, n", KINDS)
def test_convolutional_cells(kind, n):
    cell = conv_cell(kind, n)
    fill(cell)
    x = nd.array(np.random.RandomState(9).randn(2, 3, 2, *(5, 4, 3)[:n]))
    x.attach_grad()
    with mx.autograd.record():
        out, states = cell.unroll(3, x, merge_outputs=True)
        total = (out * out).sum()
    total.backward()
    key = f"{kind}{n}"
    close(out.asnumpy()[:, -1], FIXTURE[key])
    close(states[-1].asnumpy()[0], FIXTURE[f"{key}_state"])
    close(x.grad.asnumpy()[0, 0], FIXTURE[f"{key}_dx"])
    close(cell.h2h_weight.grad().asnumpy()[0], FIXTURE[f"{key}_dw"])


@pytest.mark.parametrize("kind, n", [("RNN", 1), ("LSTM", 2), ("GRU", 3)])
def test_channels_last_computes_the_same(kind, n):
    first, last = conv_cell(kind, n), conv_cell(kind, n, last=True)
    fill(first)
    last.initialize()
    for name, p in first.collect_params().items():
        value = p.data().asnumpy()
        last.collect_params()[name].set_data(
            nd.array(np.moveaxis(value, 1, -1) if value.ndim > 1 else value)
        )
    x = np.random.RandomState(9).randn(2, 3, 2, *(5, 4, 3)[:n]).astype("float32")
    a, _ = first.unroll(3, nd.array(x), merge_outputs=True)
    b, _ = last.unroll(3, nd.array(np.moveaxis(x, 2, -1)), merge_outputs=True)
    close(np.moveaxis(a.asnumpy(), 2, -1), b.asnumpy())


def test_convolutional_cells_as_symbols_and_in_files():
    """Begin states of unknown batch size, and MXNet's node names."""
    cell = conv_cell("LSTM", 2)
    fill(cell)
    out, _ = cell.unroll(2, mx.sym.var("data"), merge_outputs=True)
    assert {"a_t0_i2h_output", "a_t0_slice_output0", "a_t1_out_output"} <= set(
        out.get_internals().list_outputs()
    )
    x = nd.array(np.random.RandomState(9).randn(3, 2, 2, 5, 4))
    arguments = {name: p.data() for name, p in cell.collect_params().items()}
    (graph,) = out.bind(mx.cpu(), {"data": x, **arguments}).forward()
    close(graph.asnumpy(), cell.unroll(2, x, merge_outputs=True)[0].asnumpy())


def test_hybridized_steps():
    cell = conv_cell("GRU", 2)
    fill(cell)
    x, states = nd.array(np.random.RandomState(9).randn(2, 2, 5, 4)), cell.begin_state(2)
    eager, _ = cell(x, states)
    cell.hybridize()
    close(cell(x, states)[0].asnumpy(), eager.asnumpy())


def test_text_and_states():
    cell = conv_cell("LSTM", 2)
    assert repr(cell) == "Conv2DLSTMCell(2 -> 12, relu, NCHW)"
    assert cell.state_info(4) == [{"shape": (4, 3, 5, 4), "__layout__": "NCHW"}] * 2
    assert contrib.Conv1DRNNCell((1, 4), 2, 3, 3).name.startswith("conv_rnn")
    signature = inspect.signature(contrib.Conv3DGRUCell)
    assert signature.parameters["i2h_pad"].default == (0, 0, 0)
    assert signature.parameters["conv_layout"].default == "NCDHW"


def test_settings_that_do_not_fit():
    with pytest.raises(AssertionError, match="Only support odd number"):
        contrib.Conv2DRNNCell((2, 4, 4), 2, 3, 2)
    with pytest.raises(AssertionError, match="For 2D convolution"):
        contrib.Conv2DRNNCell((2, 4, 4), 2, (3,), 3)


def test_projected_lstm():
    cell = contrib.LSTMPCell(6, 4, prefix="a_")
    assert repr(cell) == "LSTMPCell(None -> 24 -> 4)"
    x = nd.array(np.random.RandomState(9).randn(2, 5, 3))
    cell.initialize()
    cell.unroll(5, x)  # finds the input's size
    assert repr(cell) == "LSTMPCell(3 -> 24 -> 4)"
    for i, (_, p) in enumerate(sorted(cell.collect_params().items())):
        p.set_data(nd.array(np.random.RandomState(i).uniform(-0.5, 0.5, p.shape)))
    out, states = cell.unroll(5, x, merge_outputs=True, valid_length=nd.array([3, 5]))
    close(out.asnumpy(), FIXTURE["LSTMP"])
    close(states[1].asnumpy(), FIXTURE["LSTMP_state"])
    assert [s.shape for s in cell.begin_state(2)] == [(2, 4), (2, 6)]


def test_variational_dropout_keeps_its_masks_over_a_sequence():
    cell = contrib.VariationalDropoutCell(rnn.RNNCell(50, prefix="b_"), 0.3, 0.5, 0.4)
    cell.initialize()
    with mx.autograd.record():
        steps, _ = cell.unroll(4, nd.ones((2, 4, 3)), merge_outputs=False)
    zeros = [step.asnumpy() == 0 for step in steps]
    assert zeros[0].any() and not zeros[0].all()
    for other in zeros[1:]:
        np.testing.assert_array_equal(other, zeros[0])
    masks = [cell.drop_inputs_mask, cell.drop_states_mask, cell.drop_outputs_mask]
    assert [m.shape for m in masks] == [(2, 3), (2, 50), (2, 50)]
    cell.reset()
    assert cell.drop_states_mask is None
    with mx.autograd.record():
        again, _ = cell.unroll(4, nd.ones((2, 4, 3)), merge_outputs=False)
    assert ((again[0].asnumpy() == 0) != zeros[0]).any()


def test_cells_keep_a_mask_on_each_device():
    cell = contrib.VariationalDropoutCell(rnn.RNNCell(50, prefix="b_"), 0.3, 0.5, 0.4)
    devices = [mx.cpu(0), mx.cpu(1)]
    cell.initialize(ctx=devices)
    states = {d: cell.begin_state(2, ctx=d) for d in devices}
    zeros = {d: [] for d in devices}
    with mx.autograd.record():
        for _ in range(2):
            for d in devices:
                out, states[d] = cell(nd.ones((2, 3), ctx=d), states[d])
                assert out.context == states[d][0].context == d
                zeros[d].append(out.asnumpy() == 0)
    for first, second in zeros.values():
        np.testing.assert_array_equal(first, second)
    assert (zeros[devices[0]][0] != zeros[devices[1]][0]).any()
    assert cell.drop_inputs_mask.context == devices[0]


def test_variational_dropout_without_states():
    base = rnn.LSTMCell(50, prefix="b_")
    cell = contrib.VariationalDropoutCell(base, 0.0, 0.0, 0.4)
    assert repr(cell) == "VariationalDropoutCell(p_out = 0.4, p_state = 0.0)"
    assert cell.prefix == "b_vardrop" and list(cell.params) == list(base.params)
    cell.initialize()
    x = nd.ones((2, 4, 3))
    with mx.autograd.record():
        out, _ = cell.unroll(4, x, merge_outputs=True, valid_length=nd.array([4, 2]))
    zero = out.asnumpy() == 0
    np.testing.assert_array_equal(zero[0, 0], zero[0, 3])
    assert zero[1, 2:].all() and not zero[1, 1].all()
    quiet, _ = cell.unroll(4, x, merge_outputs=True)
    base._modified = False
    close(quiet.asnumpy(), base.unroll(4, x, merge_outputs=True)[0].asnumpy())


def test_variational_dropout_of_inputs():
    """Steps of ones give equal states of a cell without memory, when they lose the same inputs."""
    base = rnn.RNNCell(5, prefix="b_")
    cell = contrib.VariationalDropoutCell(base, drop_inputs=0.5)
    cell.initialize()
    base.h2h_weight.set_data(nd.zeros((5, 5)))
    with mx.autograd.record():
        out, _ = cell.unroll(4, nd.ones((2, 4, 40)), merge_outputs=True)
    out = out.asnumpy()
    close(out, out[:, :1].repeat(4, axis=1))
    assert abs(out[0] - out[1]).max() > 1e-3


def test_variational_dropout_of_a_bidirectional_cell():
    both = rnn.BidirectionalCell(rnn.RNNCell(2), rnn.RNNCell(2))
    stack = rnn.SequentialRNNCell()
    stack.add(rnn.BidirectionalCell(rnn.RNNCell(2), rnn.RNNCell(2)))
    for cell in (both, stack):
        with pytest.raises(AssertionError, match="doesn't support variational state dropout"):
            contrib.VariationalDropoutCell(cell, 0.0, 0.5)
