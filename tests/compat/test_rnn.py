"""mx.rnn: names are MXNet's; values are compared with those of other cells."""

import random

import numpy as np
import plait as mx
import pytest
from plait import MXNetError, nd, rnn, sym


def flat(x):
    return [x] if isinstance(x, mx.Symbol) else [s for y in x for s in flat(y)]


def unrolled(cell, merge=True, **kwargs):
    outs, states = cell.unroll(3, sym.Variable("data"), merge_outputs=merge, **kwargs)
    return sym.Group(flat(outs) + flat(states))


def drawn(group, shape, seed=1):
    rng = np.random.default_rng(seed)
    shapes = group.infer_shape(data=shape)[0]
    return {n: nd.array(rng.normal(size=s) * 0.5) for n, s in zip(group.list_arguments(), shapes)}


def run(group, args):
    return [a.asnumpy() for a in group.bind(mx.cpu(), args).forward()]


def parameters(args):
    return {n: a for n, a in args.items() if n != "data"}


@pytest.mark.filterwarnings("ignore:NTC layout")
@pytest.mark.parametrize(
    "make, arguments, outputs, shapes",
    [
        (
            lambda: rnn.RNNCell(4, prefix="a_"),
            ["data", "a_i2h_weight", "a_i2h_bias", "a_h2h_weight", "a_h2h_bias"],
            ["a_t2_out_output"],
            [(2, 3, 5), (4, 5), (4,), (4, 4), (4,)],
        ),
        (
            lambda: rnn.LSTMCell(4, prefix="a_"),
            ["data", "a_i2h_weight", "a_i2h_bias", "a_h2h_weight", "a_h2h_bias"],
            ["a_t2_out_output", "a_t2_state_output"],
            [(2, 3, 5), (16, 5), (16,), (16, 4), (16,)],
        ),
        (
            lambda: rnn.GRUCell(4, prefix="a_"),
            ["data", "a_i2h_weight", "a_i2h_bias", "a_h2h_weight", "a_h2h_bias"],
            ["a_t2_out_output"],
            [(2, 3, 5), (12, 5), (12,), (12, 4), (12,)],
        ),
        (
            lambda: rnn.FusedRNNCell(4, 2, "lstm", bidirectional=True, get_next_state=True),
            ["data", "lstm_parameters"],
            ["lstm_rnn_state_output", "lstm_rnn_statecell_output"],
            [(2, 3, 5), (800,)],
        ),
    ],
)
def test_names_and_shapes(make, arguments, outputs, shapes):
    group = unrolled(make())
    assert group.list_arguments() == arguments
    assert group.list_outputs()[1:] == outputs
    assert group.infer_shape(data=(2, 3, 5))[0] == shapes


@pytest.mark.filterwarnings("ignore:NTC layout")
@pytest.mark.parametrize("mode", ["rnn_relu", "rnn_tanh", "lstm", "gru"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_fused_equals_unfused_and_weights_are_packed_back(mode, bidirectional):
    cell = rnn.FusedRNNCell(4, 2, mode, bidirectional=bidirectional, prefix="f_")
    fused = unrolled(cell)
    args = drawn(fused, (2, 3, 5))
    unpacked = cell.unpack_weights(parameters(args))
    packed = cell.pack_weights(unpacked)
    assert (packed["f_parameters"].asnumpy() == args["f_parameters"].asnumpy()).all()
    stack = cell.unfuse()
    weights = stack.pack_weights(unpacked)
    assert set(stack.unpack_weights(weights)) == set(unpacked)
    a = run(fused, args)[0]
    b = run(unrolled(stack), {"data": args["data"], **weights})[0]
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell"])
def test_values_are_those_of_the_gluon_cell(name):
    group = unrolled(getattr(rnn, name)(4, prefix="a_"), merge=False)
    args = drawn(group, (2, 3, 5))
    cell = getattr(mx.gluon.rnn, name)(4, input_size=5, prefix="a_")
    cell.initialize()
    for n, p in cell.collect_params().items():
        p.set_data(args[n])
    outs, _ = cell.unroll(3, args["data"], merge_outputs=False)
    for a, b in zip(run(group, args), outs):
        np.testing.assert_allclose(a, b.asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("merge", [True, False])
def test_sequential_residual_dropout_bidirectional(merge):
    stack = rnn.SequentialRNNCell()
    stack.add(rnn.BidirectionalCell(rnn.RNNCell(2, prefix="l_"), rnn.GRUCell(3, prefix="r_")))
    stack.add(rnn.ResidualCell(rnn.LSTMCell(5, prefix="top_")))
    stack.add(rnn.DropoutCell(0.5))
    group = unrolled(stack, merge)
    args = drawn(group, (2, 3, 5))
    outs = run(group, args)
    top = unrolled(rnn.LSTMCell(5, prefix="top_"), merge)
    inner = rnn.BidirectionalCell(rnn.RNNCell(2, prefix="l_"), rnn.GRUCell(3, prefix="r_"))
    below = run(unrolled(inner, True), {n: args[n] for n in args if not n.startswith("top")})[0]
    above = {n: args[n] for n in args if n.startswith("top")}
    want = run(top, {"data": nd.array(below), **above})
    if merge:
        np.testing.assert_allclose(outs[0], want[0] + below, rtol=1e-5, atol=1e-6)
    else:
        for t in range(3):
            np.testing.assert_allclose(outs[t], want[t] + below[:, t], rtol=1e-5, atol=1e-6)


def test_zoneout_keeps_elements_of_the_step_before():
    cell = rnn.ZoneoutCell(rnn.RNNCell(50, prefix="z_"), 0.5, 0.0)
    group = unrolled(cell, False)
    args = drawn(group, (2, 3, 5))
    exe = group.simple_bind(mx.cpu(), data=(2, 3, 5), grad_req="null")
    exe.copy_params_from(args)
    first, second, *_ = (a.asnumpy() for a in exe.forward(is_train=True))
    assert 0.2 < (first == 0).mean() < 0.8
    assert 0.2 < (second == first).mean() < 0.8
    assert (exe.forward(is_train=False)[0].asnumpy() != 0).all()


@pytest.mark.parametrize("name, states", [("RNN", 1), ("LSTM", 2), ("GRU", 1)])
def test_convolutional_cells(name, states):
    cell = getattr(rnn, f"Conv{name}Cell")((1, 2, 6, 6), 3, i2h_stride=(2, 2))
    group = unrolled(cell)
    gates = {"RNN": 1, "LSTM": 4, "GRU": 3}[name]
    assert cell.state_shape == [(0, 3, 3, 3)] * states
    args, outs, _ = group.infer_shape(data=(2, 3, 2, 6, 6))
    assert args[1:] == [(3 * gates, 2, 3, 3), (3 * gates,), (3 * gates, 3, 3, 3), (3 * gates,)]
    assert outs == [(2, 3, 3, 3, 3)] + [(2, 3, 3, 3)] * states
    values = run(group, drawn(group, (2, 3, 2, 6, 6)))
    assert np.abs(values[0]).max() > 0.1
    assert (values[0][:, 2] == values[1]).all()


def test_shared_parameters_and_misuse():
    params = rnn.RNNParams("s_")
    a, b = rnn.RNNCell(3, params=params), rnn.RNNCell(3, prefix="other_", params=params)
    assert a.params.get("i2h_weight") is b.params.get("i2h_weight")
    assert unrolled(b).list_arguments()[1] == "s_i2h_weight"
    base = rnn.LSTMCell(3)
    rnn.ResidualCell(base)
    with pytest.raises(MXNetError, match="Call the modifier cell instead"):
        base.begin_state()
    with pytest.raises(MXNetError, match="cannot be stepped"):
        rnn.FusedRNNCell(3)(sym.var("x"), [])
    with pytest.raises(MXNetError, match="Please unfuse first"):
        rnn.ZoneoutCell(rnn.FusedRNNCell(3))
    with pytest.raises(MXNetError, match="has been deprecated"):
        rnn.RNNCell(3).unroll(2, None)
    with pytest.raises(MXNetError, match="Only support odd number"):
        rnn.ConvRNNCell((1, 2, 6, 6), 3, h2h_kernel=(2, 2))
    with pytest.warns(UserWarning, match="rnn_unroll is deprecated"):
        outs, _ = rnn.rnn_unroll(rnn.RNNCell(3), 2, sym.var("x"))
    assert len(outs) == 2


def test_checkpoints_hold_an_array_for_each_gate(tmp_path):
    cell = rnn.LSTMCell(4, prefix="a_")
    group = unrolled(cell)
    args = parameters(drawn(group, (2, 3, 5)))
    prefix = str(tmp_path / "net")
    rnn.do_rnn_checkpoint(cell, prefix, period=2)(0, group, args, {})
    assert not list(tmp_path.iterdir())
    rnn.do_rnn_checkpoint([cell], prefix, period=2)(1, group, args, {})
    assert "arg:a_h2h_f_bias" in nd.load(prefix + "-0002.params")
    symbol, loaded, auxiliary = rnn.load_rnn_checkpoint(cell, prefix, 2)
    assert symbol.list_arguments() == group.list_arguments()
    assert auxiliary == {}
    assert {n: a.asnumpy().tolist() for n, a in loaded.items()} == {
        n: a.asnumpy().tolist() for n, a in args.items()
    }


def test_sentences():
    coded, vocab = rnn.encode_sentences([["a", "b"], ["c", "a"]], start_label=1, invalid_label=0)
    assert coded == [[1, 2], [3, 1]]
    assert vocab == {"\n": 0, "a": 1, "b": 2, "c": 3}
    with pytest.raises(MXNetError, match="Unknown token zz"):
        rnn.encode_sentences([["zz"]], {"a": 5})
    assert rnn.encode_sentences([["zz"]], {"u": 5}, unknown_token="u")[1] == {"u": 0}


def test_bucket_sentence_iter():
    random.seed(0)
    sentences = [[1, 2, 3], [4, 5, 6], [1, 2], [3, 4], [1, 2, 3, 4, 5, 6], [7]]
    batches = rnn.BucketSentenceIter(sentences, 2, buckets=[2, 3], layout="TN", invalid_label=0)
    assert batches.default_bucket_key == 3
    assert batches.provide_data[0].shape == (3, 2)
    for _ in range(2):
        seen = {b.bucket_key: b for b in batches}
        assert set(seen) == {2, 3}
        data, label = (a.asnumpy() for a in (seen[3].data[0], seen[3].label[0]))
        assert sorted(map(tuple, data.T)) == [(1, 2, 3), (4, 5, 6)]
        assert (label[:-1] == data[1:]).all()
        assert (label[-1] == 0).all()
        assert seen[2].provide_data[0].shape == (2, 2)
        batches.reset()
