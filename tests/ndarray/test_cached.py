"""CachedGraph: eager = hybridized = Symbol.bind, gradients of every order and request too; threads;
what is kept."""

import threading

import dags
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plait import MXNetError, autograd, cpu, nd, random
from plait.gluon import HybridBlock
from plait.graph.graph import Builder, Value, topological, variable
from plait.graph.residuals import residuals
from plait.ndarray.cached import CachedGraph
from plait.symbol.symbol import Symbol

F = Builder(train=True)
REQUESTS = ("write", "add", "null")


def x_(shape, name="x"):
    return variable(name, F._zeros(shape=shape).type)


def marked(arrays, requests):
    """Copies with gradients of 10 to add to."""
    made = [a.copy() for a in arrays]
    for a, req in zip(made, requests):
        a.attach_grad(req)
        if a.grad is not None:
            a.grad[:] = 10
    return made


def weighed(outs):
    """One number that depends on every element of every output in its own way."""
    total = None
    for k, o in enumerate(outs):
        w = nd.arange(1, o.size + 1).reshape(o.shape) * (k + 1) / 10
        term = (o * w).sum()
        total = term if total is None else total + term
    return total


def gradients(call, arrays, requests):
    inputs = marked(arrays, requests)
    with autograd.record():
        outs = call(inputs)
        if all(o._tape is None for o in outs):
            return outs, None
        loss = weighed(outs)
    loss.backward()
    return outs, [None if a.grad is None else a.grad.asnumpy() for a in inputs]


def close(got, want):
    for g, w in zip(got, want, strict=True):
        if w is None:
            assert g is None
        else:
            np.testing.assert_allclose(
                g,
                w,
                rtol=2e-4,
                atol=1e-4 * max(1.0, np.nanmax(np.abs(np.where(np.isfinite(w), w, 0)))),
            )


smooth = settings(max_examples=60)


@smooth
@given(
    dags.graphs(max_nodes=12),
    st.integers(0, 99),
    st.lists(st.sampled_from(REQUESTS), min_size=3, max_size=3),
)
def test_eager_hybridized_and_bound_agree(graph, seed, requests):
    outputs, variables = graph
    used = set(topological(outputs))
    variables = [v for v in variables if v.node in used]
    arrays = dags.draw_arrays(variables, seed)
    requests = requests[: len(variables)]
    outs, grads = gradients(lambda xs: dags.evaluate(outputs, variables, xs), arrays, requests)
    cached = CachedGraph(outputs, variables)
    for _ in range(2):
        again, hybrid_grads = gradients(cached, arrays, requests)
        assert [dags.bits(a) for a in again] == [dags.bits(a) for a in outs]
        if grads is None:
            assert hybrid_grads is None
        else:
            close(hybrid_grads, grads)
    if grads is not None:
        compare_bound(outputs, variables, arrays, requests, outs, grads)


def compare_bound(outputs, variables, arrays, requests, outs, grads):
    symbol = Symbol(outputs)
    wanted = symbol.list_arguments()
    given = {v.node.name: a.copy() for v, a in zip(variables, arrays) if v.node.name in wanted}
    into = {n: nd.full(a.shape, 10) for n, a in given.items()}
    ask = {v.node.name: r for v, r in zip(variables, requests) if v.node.name in wanted}
    executor = symbol.bind(cpu(), given, into, ask)
    bound = executor.forward(is_train=True)
    assert [dags.bits(a) for a in bound] == [dags.bits(a) for a in outs]
    executor.backward(
        [nd.arange(1, o.size + 1).reshape(o.shape) * (k + 1) / 10 for k, o in enumerate(outs)]
    )
    for v, r, g in zip(variables, requests, grads):
        if v.node.name in wanted and r != "null":
            close([into[v.node.name].asnumpy()], [g])


SMOOTH_UNARY = ("tanh", "sigmoid", "square", "negative", "exp", "transpose", "Flatten", "_copy")


@st.composite
def smooth_graphs(draw):
    variables = [x_((2, 2), "x0"), x_((2, 2), "x1")]
    values = list(variables)
    for _ in range(draw(st.integers(1, 6))):
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        name = draw(st.sampled_from((*SMOOTH_UNARY, "broadcast_mul", "broadcast_add", "dot")))
        made = (
            getattr(F, name)(a, b)
            if name in ("broadcast_mul", "broadcast_add", "dot")
            else getattr(F, name)(F.tanh(a))
        )
        values.append(made)
    return [values[-1]], variables


@settings(max_examples=40)
@given(smooth_graphs(), st.integers(0, 99))
def test_second_order_agrees(graph, seed):
    outputs, variables = graph
    arrays = dags.draw_arrays(variables, seed)
    found = []
    for call in (lambda xs: dags.evaluate(outputs, variables, xs), CachedGraph(outputs, variables)):
        inputs = marked(arrays, ("write", "write"))
        with autograd.record():
            y = weighed(call(inputs)) + (inputs[0] * inputs[1] * inputs[1]).sum()
            first = autograd.grad(y, inputs, create_graph=True)
            penalty = sum(((g * g).sum() for g in first), nd.zeros((1,)))
        penalty.backward()
        found.append([a.grad.asnumpy() for a in inputs])
    close(found[1], found[0])


# ---- the tape and several calls ------------------------------------------------------------------


def small():
    x, w = x_((4, 3)), x_((5, 3), "w")
    y = F.FullyConnected(x, w, no_bias=True, num_hidden=5)
    return (
        CachedGraph([F.tanh(y), F.relu(y)], [x, w]),
        nd.array(np.arange(12).reshape(4, 3) / 10),
        nd.ones((5, 3)) / 3,
    )


def test_two_forwards_then_two_backwards():
    graph, x, w = small()
    w.attach_grad()
    want = []
    for k in (1.0, 2.0):
        with autograd.record():
            loss = weighed(graph([x * k, w]))
        loss.backward()
        want.append(w.grad.asnumpy())
    with autograd.record():
        first, second = weighed(graph([x * 1.0, w])), weighed(graph([x * 2.0, w]))
    second.backward()
    np.testing.assert_array_equal(w.grad.asnumpy(), want[1])
    first.backward()
    np.testing.assert_array_equal(w.grad.asnumpy(), want[0])


def test_a_graph_applied_to_its_own_output():
    x, w = x_((3, 3)), x_((3, 3), "w")
    graph = CachedGraph([F.tanh(F.dot(x, w))], [x, w])
    grads = []
    for call in (graph, lambda ab: [nd.tanh(nd.dot(*ab))]):
        a, w_ = marked([nd.eye(3) / 2, nd.ones((3, 3)) / 5], ("write", "write"))
        with autograd.record():
            y = a
            for _ in range(4):
                (y,) = call([y, w_])
            loss = weighed([y])
        loss.backward()
        grads.append([a.grad.asnumpy(), w_.grad.asnumpy()])
    close(*grads)


def test_outputs_that_are_inputs_or_repeated_have_gradients():
    x = x_((2, 3))
    y = F.exp(x)
    graph = CachedGraph([x, y, y, F.Reshape(x, shape=(3, 2)), F.BlockGrad(y)], [x])
    want = gradients(
        lambda xs: dags.evaluate(graph.outputs, graph.inputs, xs), [nd.ones((2, 3)) / 2], ["write"]
    )
    got = gradients(graph, [nd.ones((2, 3)) / 2], ["write"])
    assert [dags.bits(a) for a in got[0]] == [dags.bits(a) for a in want[0]]
    close(got[1], want[1])


def test_dropout_uses_one_mask_for_forward_and_every_backward():
    x = x_((200,))
    graph = CachedGraph([F.broadcast_mul(F.Dropout(x, p=0.5), x)], [x])
    (a,) = marked([nd.full((200,), 3)], ["write"])
    with autograd.record():
        (y,) = graph([a])
        (dx,) = autograd.grad(y, [a], create_graph=True, retain_graph=True)
        twice = dx.sum()
    kept = y.asnumpy() != 0
    assert 50 < kept.sum() < 150
    # y = 2 x^2 where it is kept
    np.testing.assert_array_equal(dx.asnumpy(), np.where(kept, 12, 0))
    twice.backward()
    np.testing.assert_array_equal(a.grad.asnumpy(), np.where(kept, 4, 0))


def test_batch_norm_updates_its_statistics_once():
    x, gamma, beta, mean, var = x_((4, 3)), *(x_((3,), n) for n in ("gamma", "beta", "mean", "var"))
    graph = CachedGraph(
        [F.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False, momentum=0.5)],
        [x, gamma, beta, mean, var],
    )
    data = nd.array(np.arange(12.0).reshape(4, 3))
    state = [nd.ones((3,)), nd.zeros((3,)), nd.zeros((3,)), nd.ones((3,))]
    for a in state[:2]:
        a.attach_grad()
    with autograd.record():
        loss = weighed(graph([data, *state]))
    loss.backward()
    np.testing.assert_allclose(state[2].asnumpy(), data.asnumpy().mean(0) / 2, rtol=1e-6)
    assert np.abs(state[0].grad.asnumpy()).sum() > 0
    graph([data, *state])  # prediction reads them
    np.testing.assert_allclose(state[2].asnumpy(), data.asnumpy().mean(0) / 2, rtol=1e-6)


def test_residuals_are_what_backward_reads():
    x, w = x_((4, 3)), x_((5, 3), "w")
    y = F.FullyConnected(x, w, no_bias=True, num_hidden=5)
    z = F.tanh(F.Reshape(y, shape=(20,)))
    assert residuals([F._mul_scalar(z, scalar=2)], [w]) == [z]
    assert residuals([F._mul_scalar(F._mul_scalar(z, scalar=2), scalar=3)], []) == []
    drop = F.Dropout(y, p=0.5)
    # the result follows from the mask
    assert residuals([drop], []) == [Value(drop.node, 1)]
    assert residuals([F.Dropout(y, p=0.0)], [w]) == []


def test_several_threads_call_one_graph():
    graph, x, w = small()
    want = {}
    for k in range(4):
        want[k] = gradients(lambda ws, k=k: graph([x * k, *ws]), [w], ["write"])[1][0]
    wrong = []
    graph.entries.clear()

    def work(k):
        for _ in range(15):
            _, (got,) = gradients(lambda ws: graph([x * k, *ws]), [w], ["write"])
            if not np.array_equal(got, want[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---- statistics and errors -----------------------------------------------------------------------


def test_entries_count_signatures_and_calls():
    graph, x, w = small()
    for _ in range(3):
        graph([x, w])
    graph([nd.ones((2, 3)), w])
    w.attach_grad()
    with autograd.record():
        graph([x, w])
    assert [e.hits for e in graph.entries.values()] == [3, 1, 1]


def test_a_wrong_shape_is_told_and_leaves_the_graph_usable():
    graph, x, w = small()
    with pytest.raises(MXNetError, match="FullyConnected"), autograd.record():
        graph([nd.ones((4, 7)), w])
    assert not autograd.is_recording() and not autograd.is_training() and not graph.entries
    assert graph([x, w])[0].shape == (4, 5)


def test_the_seed_repeats_a_graph():
    x = x_((30,))
    graph = CachedGraph([F.Dropout(x, p=0.5, mode="always"), F._random_normal(shape=(3,))], [x])
    runs = []
    for _ in range(2):
        random.seed(5)
        runs.append([o.asnumpy().tolist() for o in graph([nd.ones((30,))])])
    assert runs[0] == runs[1] != [o.asnumpy().tolist() for o in graph([nd.ones((30,))])]


def test_the_graph_of_an_entry_is_typed():
    graph, x, w = small()
    graph([x, w])
    (entry,) = graph.entries.values()
    assert all(n.is_typed for n in topological(entry.source.outputs))


@pytest.mark.parametrize("hybridized", [False, True])
def test_running_out_of_memory_is_a_memory_error_at_the_users_line(hybridized):
    class Pairs(HybridBlock):
        def hybrid_forward(self, F, x):
            return F.sum(F.softmax(F.dot(x, x, transpose_b=True)))

    net = Pairs()
    if hybridized:
        net.hybridize()
    x = nd.ones((10**6, 1))  # whose products take 4 TB
    for _ in range(3):
        with pytest.raises(MemoryError) as caught:
            net(x).wait_to_read()
        assert isinstance(caught.value, MXNetError)
        assert not hybridized or "test_cached.py" in str(caught.value)
    assert net(nd.ones((2, 1))).asnumpy().tolist() == [2]
