"""The prepack program: run once, and again when one of its inputs was written."""

import numpy as np
from plait import autograd, cpu, gluon, nd, wait_compiled
from plait.graph.graph import Builder, Value, typed_node, variable
from plait.graph.program import lower
from plait.kernels.record import Type

F = Builder()
X, W = variable("x", Type((2, 3))), variable("w", Type((2, 3)))


def _program():
    weight = F.exp(F._mul_scalar(W, scalar=2.0))
    return lower([F.broadcast_add(X, weight), weight], [X, W], cpu(), tier=1, stable=[W])


def _expect(program, x, w):
    made, weight = program.run([x, w])
    assert np.allclose(weight.asnumpy(), np.exp(2 * w.asnumpy()), rtol=1e-6)
    assert np.allclose(made.asnumpy(), x.asnumpy() + np.exp(2 * w.asnumpy()), rtol=1e-6)


def _prepared(program):
    return program.prepack._state[2][0]


def test_stable_inputs_are_read_once():
    program, x, w = _program(), nd.ones((2, 3)), nd.ones((2, 3))
    assert [op.name for op in program.prepack.program.ops] == ["_fused"]
    _expect(program, x, w)
    first = _prepared(program)
    x[:] = 7
    _expect(program, x, w)
    assert _prepared(program) is first


def test_a_write_is_seen():
    program, x, w = _program(), nd.ones((2, 3)), nd.ones((2, 3))
    _expect(program, x, w)
    w[:] = 0.5
    _expect(program, x, w)
    w[0, 1] = 0.25
    _expect(program, x, w)
    nd.elemwise_mul(w, w, out=w)
    _expect(program, x, w)


def test_another_array_is_seen_even_at_the_same_address():
    program, x = _program(), nd.ones((2, 3))
    for value in range(5):
        w = nd.full((2, 3), value / 4)
        _expect(program, x, w)
        del w


def test_memory_shared_with_numpy_is_reread():
    program, x, w = _program(), nd.ones((2, 3)), nd.ones((2, 3))
    _expect(program, x, w)
    shown = np.from_dlpack(w)
    _expect(program, x, w)
    shown[:] = 0.125
    _expect(program, x, w)


def test_without_stable_inputs_there_is_none():
    weight = F.exp(W)
    assert lower([F.broadcast_add(X, weight)], [X, W], cpu(), tier=1).prepack is None
    assert lower([F.broadcast_add(X, W)], [X, W], cpu(), tier=1, stable=[W]).prepack is None
    view = F.reshape_to(W, shape=(2, 3))
    assert lower([F.broadcast_add(X, view)], [X, W], cpu(), tier=1, stable=[W]).prepack is None


def test_changes_of_parameters_are_seen_by_predictions():
    """Of a hybridized block, which does not look at parameters that nobody wrote."""
    net = gluon.nn.Conv2D(16, 1, in_channels=16, use_bias=False)
    net.initialize()
    net.hybridize()
    x = nd.random.uniform(shape=(1, 16, 4, 4))

    def expect():
        w = net.weight.data().asnumpy()[:, :, 0, 0].astype(np.float64)
        want = np.einsum("nchw,fc->nfhw", x.asnumpy().astype(np.float64), w)
        for _ in range(2):
            np.testing.assert_allclose(net(x).asnumpy(), want, rtol=1e-4, atol=1e-4)

    for _ in range(40):
        net(x)
    wait_compiled()
    (trace,) = net._traces.values()
    (entry,) = trace.graph.entries.values()
    assert entry.serving.program.prepack is not None
    expect()
    weight = net.weight.data()
    weight[:] = 0.5
    expect()
    weight[3, 2] = 7
    expect()
    nd.elemwise_mul(weight, weight, out=weight)
    expect()
    net.weight.set_data(nd.random.uniform(shape=weight.shape))
    expect()
    with autograd.record():
        loss = net(x).sum()
    loss.backward()
    gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}).step(1)
    expect()
    shown = np.from_dlpack(net.weight.data())
    expect()
    shown[:] = 0.125
    expect()
    shown[:] = 0.25
    expect()
    net.weight.initialize(force_reinit=True)
    expect()
    net.cast("float64")
    x = x.astype("float64")
    expect()


def _compiled(net, *inputs):
    for x in inputs:
        for _ in range(40):
            net(x)
    wait_compiled()
    (trace,) = set(net._traces.values())
    return [e.serving.program.prepack for e in trace.graph.entries.values()]


def test_programs_for_many_sizes_share_prepared_weights():
    """Dense weights in panels: one array for all sizes; the head's size differs from the body's."""
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(70, activation="relu", in_units=80), gluon.nn.Dense(90, in_units=70))
    net.initialize()
    net.hybridize()
    rng = np.random.default_rng(0)
    inputs = [nd.array(rng.normal(size=(n, 80))) for n in (1, 4, 9, 50)]
    prepacks = _compiled(net, *inputs)
    assert len({id(p) for p in prepacks}) == 1 and len(prepacks) == 4
    assert [s.layout[:2] for s in prepacks[0].specs] == ["Ab", "Ab"]

    def expect():
        w, b, v, c = (p.data().asnumpy().astype("float64") for p in net.collect_params().values())
        for x in inputs:
            want = np.maximum(x.asnumpy() @ w.T + b, 0) @ v.T + c
            np.testing.assert_allclose(net(x).asnumpy(), want, rtol=1e-5, atol=1e-6)

    expect()
    net[1].weight.set_data(nd.random.uniform(shape=(90, 70)))
    expect()
    net[0].weight.data()[3, 2] = 7
    expect()


def test_programs_share_the_values_that_both_prepare():
    weight, known = F.exp(F._mul_scalar(W, scalar=2.0)), {}
    both, one = [F.broadcast_add(X, weight), F.sin(W)], [F.broadcast_mul(X, weight)]
    first = lower(both, [X, W], cpu(), tier=1, stable=[W], prepacks=known)
    second = lower(one, [X, W], cpu(), tier=1, stable=[W], prepacks=known)
    assert len(known) == 2 and second.prepack.parts == (first.prepack,)
    x, w = nd.full((2, 3), 3), nd.ones((2, 3))
    for _ in range(2):
        summed, sines = first.run([x, w])
        (product,) = second.run([x, w])
        want = np.exp(2 * w.asnumpy())
        np.testing.assert_allclose(summed.asnumpy(), 3 + want, rtol=1e-6)
        np.testing.assert_allclose(sines.asnumpy(), np.sin(w.asnumpy()), rtol=1e-6)
        np.testing.assert_allclose(product.asnumpy(), 3 * want, rtol=1e-6)
        w[:] = 0.5


def test_weights_that_others_read_too_stay_row_major():
    """Panels of an embedding that is the last layer's weight as well would be a second copy."""
    tokens, h = variable("tokens", Type((2, 3))), variable("h", Type((6, 80)))
    table = variable("table", Type((70, 80)))
    looked_up = F.Embedding(tokens, table, input_dim=70, output_dim=80)
    scores = F.FullyConnected(h, table, num_hidden=70, no_bias=True)
    given = [tokens, h, table]
    assert lower([scores], given, cpu(), tier=1, stable=[table]).prepack is not None
    assert lower([scores], given, cpu(), tier=1).prepack is None  # training: it changes each step
    assert lower([looked_up, scores], given, cpu(), tier=1, stable=[table]).prepack is None


def test_values_with_inexact_digests_are_not_shared():
    """A digest counts only the class of a NumPy number: 2 and 3 have the same."""
    known: dict = {}
    x, w = nd.zeros((2, 3)), nd.ones((2, 3))
    for factor in (2, 3):
        made = F._mul_scalar(W, scalar=1.0).node
        attrs = {**made.attrs, "scalar": np.float32(factor)}
        weight = Value(typed_node(made.op, attrs, [W]))
        program = lower(
            [F.broadcast_add(X, weight)], [X, W], cpu(), tier=1, stable=[W], prepacks=known
        )
        assert (program.run([x, w])[0].asnumpy() == factor).all()
