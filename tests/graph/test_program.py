"""Programs: lowering with memory planning equals evaluation node by node; outputs, views, aliasing,
depth, time, errors."""

import gc
import threading
import time
import weakref

import dags
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plait import MXNetError, cpu, nd
from plait.graph.graph import Builder, Value, topological, typed_node, variable
from plait.graph.passes.dead_code import live
from plait.graph.passes.gradient import gradient
from plait.graph.program import lower
from plait.kernels.record import REGISTRY, Operator, Type, same_type

F = Builder(train=True)
FLOAT = F._zeros(shape=(2, 3)).type


# ---- results -------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(dags.graphs(max_nodes=40), st.integers(0, 99))
def test_a_program_equals_evaluation_node_by_node(graph, seed):
    outputs, variables = graph
    arrays = dags.draw_arrays(variables, seed)
    before = [a.asnumpy() for a in arrays]
    want = dags.evaluate(outputs, variables, arrays)
    program = lower(outputs, variables, cpu())
    assert program.arena_bytes <= program.naive_bytes
    for _ in range(2):
        made = program.run(arrays)
        assert len({o._handle for o in made}) == len(made) == len(outputs)
        for a, b in zip(made, want):
            assert dags.bits(a) == dags.bits(b)
    for a, b in zip(arrays, before):
        np.testing.assert_array_equal(a.asnumpy(), b)


@settings(max_examples=100)
@given(dags.graphs(max_nodes=15), st.integers(0, 99), st.data())
def test_outputs_may_lie_in_the_memory_of_inputs(graph, seed, data):
    """Writing results over the arrays that are read gives what fresh memory gives."""
    outputs, variables = graph
    arrays = dags.draw_arrays(variables, seed)
    program = lower(outputs, variables, cpu())
    want = [dags.bits(a) for a in program.run(arrays)]
    targets, left = [], list(arrays)
    for v in outputs:
        fitting = [a for a in left if a.shape == v.shape and v.dtype == "float32"]
        if fitting and data.draw(st.booleans()):
            targets.append(fitting[0])
            left = [a for a in left if a is not fitting[0]]
        else:
            targets.append(nd.zeros(v.shape, dtype=v.dtype))
    made = program.run(arrays, targets)
    assert [a is b for a, b in zip(made, targets)] == [True] * len(targets)
    assert [dags.bits(a) for a in targets] == want


def test_an_output_in_an_inputs_memory_is_written_late():
    x = variable("x", FLOAT)
    program = lower([F.exp(x), F.negative(x)], [x], cpu())
    a = nd.ones((2, 3))
    out = program.run([a], [a, nd.zeros((2, 3))])
    np.testing.assert_allclose(out[0].asnumpy(), np.full((2, 3), np.e), rtol=1e-6)
    assert (out[1].asnumpy() == -1).all()


def test_outputs_that_are_inputs_repeated_or_views_own_their_memory():
    x = variable("x", FLOAT)
    y = F.tanh(x)
    outputs = [x, x, y, y, F.Reshape(y, shape=(6,)), F.Reshape(x, shape=(3, 2)), F._copy(x)]
    a = nd.ones((2, 3))
    made = lower(outputs, [x], cpu()).run([a])
    want = [o.asnumpy() for o in made]
    assert [w.shape for w in want] == [(2, 3)] * 4 + [(6,), (3, 2), (2, 3)]
    for i, o in enumerate(made):
        o[:] = 100 + i  # no other output changes
    for i, o in enumerate(made):
        assert (o.asnumpy() == 100 + i).all()
    assert (a.asnumpy() == 1).all()


def test_an_input_given_twice_and_one_not_used():
    x, y = variable("x", FLOAT), variable("y", FLOAT)
    (out,) = lower([F.broadcast_add(x, x)], [x, y], cpu()).run([nd.ones((2, 3)), nd.zeros((2, 3))])
    assert (out.asnumpy() == 2).all()


def test_memory_of_a_chain_is_reused_in_place():
    x = y = variable("x", FLOAT)
    for _ in range(10):
        y = F.tanh(y)
    assert lower([y], [x], cpu()).arena_bytes == 64
    z = x
    for _ in range(10):
        # nothing in place: two in turn
        z = F.sum(F.broadcast_to(F.expand_dims(z, axis=0), shape=(2, 2, 3)), axis=0)
    assert lower([z], [x], cpu()).arena_bytes == 128


def join_of(*values, axis=0):
    return F.Concat(*values, dim=axis, num_args=len(values))


@settings(max_examples=200)
@given(st.randoms(use_true_random=False))
def test_joined_arrays_are_made_in_place(random):
    """Joins of joins, of views, of one value twice, of what others read or would overwrite."""
    x = variable("x", Type((2, 16)))
    values = [F.tanh(x)]
    for _ in range(random.randint(2, 25)):
        pick = lambda: random.choice(values[-6:])
        a = pick()
        same = [v for v in values if v.shape == a.shape]
        made = random.choice(
            [
                lambda: F.sigmoid(a),
                lambda: F.elemwise_add(a, random.choice(same)),
                lambda: F.Reshape(F.Reshape(a, shape=(-1,)), shape=(-1, 16)),
                lambda: F.slice_axis(a, axis=0, begin=0, end=2),
                lambda: join_of(a, pick()),
                lambda: join_of(x, pick(), F.negative(pick())),
            ]
        )()
        values.append(made if made.shape[0] <= 64 else F.tanh(x))
    outputs = [values[-1], *random.sample(values, random.randint(0, 2))]
    arrays = [nd.random.uniform(-1, 1, shape=x.shape)]
    want = dags.evaluate(outputs, [x], arrays)
    program = lower(outputs, [x], cpu())
    for _ in range(2):
        for a, b in zip(program.run(arrays), want, strict=True):
            assert dags.bits(a) == dags.bits(b)


def test_joined_arrays_need_no_own_memory():
    """naive_bytes counts every array that has its own; a row is 64 bytes."""
    x = variable("x", Type((2, 16)))
    bytes_of = lambda *outputs: lower(outputs, [x], cpu()).naive_bytes
    row = 64
    y = F.tanh(x)
    for _ in range(3):
        y = join_of(y, F.sigmoid(F.sum(y, axis=0, keepdims=True)))
    assert bytes_of(F.exp(y)) == (5 + 3) * row  # the joined rows, and three sums
    z = F.tanh(x)
    assert bytes_of(F.exp(join_of(z, F.exp(z)))) == 4 * row
    # a result too; its parts cost nothing
    assert bytes_of(join_of(z, F.exp(z))) == 0
    assert bytes_of(F.Reshape(join_of(z, F.exp(z)), shape=(-1,))) == 0
    # not along another axis, nor what is given or given out by itself, nor a second time
    assert bytes_of(F.exp(join_of(z, F.exp(z), axis=1))) == (2 + 2 + 4) * row
    assert bytes_of(F.exp(join_of(x, z))) == 4 * row
    assert bytes_of(F.exp(join_of(z, F.exp(z))), z) == 4 * row
    assert bytes_of(F.exp(join_of(z, z))) == 4 * row


def test_parts_of_an_output_are_written_after_the_last_read_of_its_memory():
    """The caller gives an input's memory for the result, of which parts are made early."""
    x = variable("x", Type((2, 16)))
    first, rest = F.slice_axis(x, axis=0, begin=0, end=1), F.slice_axis(x, axis=0, begin=1, end=2)
    program = lower([join_of(F.exp(rest), F.exp(F.tanh(first)))], [x], cpu())
    a = nd.array(np.linspace(-1, 1, 32).reshape(2, 16))
    given = a.asnumpy()
    (out,) = program.run([a], [a])
    want = np.stack([np.exp(given[1]), np.exp(np.tanh(given[0]))])
    np.testing.assert_allclose(out.asnumpy(), want, rtol=1e-6)


def test_random_operators_draw_in_the_order_of_the_graph():
    x = variable("x", F._zeros(shape=(50,)).type)
    a, b = F.Dropout(x, p=0.5), F.Dropout(x, p=0.5)
    program = lower([a, b], [x], cpu())
    ones = nd.ones((50,))
    first, second = (o.asnumpy() for o in program.run([ones]))
    assert (first != second).any()
    assert (first != program.run([ones])[0].asnumpy()).any()


def test_only_calls_that_draw_are_random():
    def draws(name, train, **attrs):
        op = REGISTRY[name]
        return op.is_random(op.parse(attrs) | {"train": train})

    assert draws("Dropout", True) and draws("Dropout", False, mode="always")
    assert not draws("Dropout", False) and not draws("Dropout", True, p=0)
    assert draws("LeakyReLU", True, act_type="rrelu")
    assert not draws("LeakyReLU", False, act_type="rrelu") and not draws("LeakyReLU", True)
    assert draws("RNN", True, mode="lstm", state_size=2, num_layers=2, p=0.5)
    assert not draws("RNN", False, mode="lstm", state_size=2, num_layers=2, p=0.5)
    assert not draws("RNN", True, mode="lstm", state_size=2, num_layers=2)
    assert REGISTRY["_random_uniform"].is_random({})


# ---- many nodes ----------------------------------------------------------------------------------


def chain(n):
    x = y = variable("x", FLOAT)
    for i in range(n):
        y = (
            F.negative(F.tanh(y))
            if i % 2
            else F.Reshape(y, shape=(3, 2) if y.shape == (2, 3) else (2, 3))
        )
    return x, y


def test_a_graph_20000_deep():
    x, y = chain(13_400)
    assert len(topological([y])) > 20_000
    (out,) = lower([y], [x], cpu()).run([nd.ones((2, 3))])
    assert np.isfinite(out.asnumpy()).all()
    del x, y  # freed without recursion
    x, y = chain(2_000)
    (dx,) = gradient([y], [None], [x])
    (out,) = lower([dx], [x], cpu()).run([nd.ones((2, 3))])
    assert (out.asnumpy() > 0).all() and (out.asnumpy() < 1e-3).all()


def lowering_time(n):
    x, y = chain(n)
    start = time.thread_time()
    lower([y], [x], cpu())
    return time.thread_time() - start


def test_lowering_takes_linear_time():
    lowering_time(200)
    short = min(lowering_time(1_000) for _ in range(3))
    # 8 times the nodes; 64 if quadratic
    assert min(lowering_time(8_000) for _ in range(3)) < 25 * max(short, 1e-3)


def test_a_wide_graph_lowers_in_linear_time():
    x = variable("x", FLOAT)
    program = lower(
        [F.add_n(*[F._mul_scalar(x, scalar=float(i)) for i in range(3000)])], [x], cpu()
    )
    (out,) = program.run([nd.ones((2, 3))])
    np.testing.assert_allclose(out.asnumpy(), sum(range(3000)))


# ---- life and errors -----------------------------------------------------------------------------


def test_a_program_may_be_freed_while_it_runs():
    x = variable("x", F._zeros(shape=(300, 300)).type)
    y = x
    for _ in range(6):
        y = F.tanh(F.dot(y, x))
    a = nd.full((300, 300), 0.01)
    want = lower([y], [x], cpu()).run([a])[0].asnumpy()
    outs = []
    for _ in range(5):
        program = lower([F.broadcast_add(y, F.exp(F._zeros(shape=(1, 1))))], [x], cpu())
        outs += program.run([a])
        del program
    for out in outs:
        np.testing.assert_array_equal(out.asnumpy(), want + 1)


def test_one_program_from_several_threads():
    x = variable("x", F._zeros(shape=(64, 64)).type)
    program = lower([F.tanh(F.dot(x, x)), F.sum(x)], [x], cpu())
    wrong = []

    def work(k):
        a = nd.full((64, 64), 0.01 * k)
        want = np.tanh(a.asnumpy() @ a.asnumpy())
        for _ in range(30):
            y, total = program.run([a])
            if not np.allclose(y.asnumpy(), want, atol=1e-5) or not np.allclose(
                total.asnumpy(), 40.96 * k, rtol=1e-3
            ):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_an_error_names_the_operator_that_failed():
    def broken(xp, x):
        raise ArithmeticError("no luck today")

    op = Operator(name="broken", infer=same_type, ref=broken)
    x = variable("x", FLOAT)
    program = lower([F.tanh(Value(typed_node(op, {}, [F.exp(x)])))], [x], cpu(), "my_program")
    (out,) = program.run([nd.ones((2, 3))])
    with pytest.raises(MXNetError, match=r"(?s)broken.*no luck today|no luck today.*broken"):
        out.asnumpy()


def test_lowering_needs_every_variable():
    x, y = variable("x", FLOAT), variable("y", FLOAT)
    with pytest.raises(ValueError, match="'y' is not among the program's inputs"):
        lower([F.broadcast_add(x, y)], [x], cpu())


def test_graphs_are_freed():
    x, y = chain(10)
    nodes = [weakref.ref(n) for n in live([y], [x])]
    lower([y], [x], cpu())
    gc.disable()
    try:
        del x, y
        assert not any(n() for n in nodes)
    finally:
        gc.enable()
