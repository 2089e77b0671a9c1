"""Passes: each keeps the results bit for bit, does its work, and leaves alone what it must."""

import dags
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plait import cpu, nd
from plait.engine.recent import Recent
from plait.graph._graph import walk
from plait.graph.effects import Effects
from plait.graph.graph import (
    Builder,
    Node,
    Value,
    rewrite,
    topological,
    typed_node,
    variable,
    verify,
)
from plait.graph.passes import optimize
from plait.graph.passes.algebra import algebra
from plait.graph.passes.cse import cse
from plait.graph.passes.dead_code import extract, live
from plait.graph.passes.fold import LIMIT_BYTES, evaluate, fold
from plait.graph.passes.gradient import gradient
from plait.graph.program import lower
from plait.kernels.record import Type, lookup

F = Builder(train=True)
FLOAT = F._zeros(shape=(2, 3)).type
check = settings(max_examples=150)


def names(outputs):
    return [n.op.name for n in topological(outputs) if n.op is not None]


def x_(name="x", shape=(2, 3), dtype="float32"):
    return variable(name, F._zeros(shape=shape, dtype=dtype).type)


# ---- every pass keeps the results ----------------------------------------------------------------


@pytest.mark.parametrize("each", [algebra, cse])
@check
@given(dags.graphs(), st.integers(0, 99), st.booleans())
def test_a_pass_keeps_every_bit(each, graph, seed, special):
    outputs, variables = graph
    arrays = dags.draw_arrays(variables, seed, special)
    want = dags.evaluate(outputs, variables, arrays)
    made = each(outputs)
    verify(made)
    assert [v.type for v in made] == [v.type for v in outputs]
    assert len(topological(made)) <= len(topological(outputs)) + len(outputs)
    for a, b in zip(dags.evaluate(made, variables, arrays), want):
        assert dags.bits(a) == dags.bits(b)


@check
@given(dags.graphs(), st.integers(0, 99), st.booleans())
def test_folding_and_all_passes_keep_every_bit(graph, seed, special):
    outputs, variables = graph
    arrays = dags.draw_arrays(variables, seed, special)
    want = dags.evaluate(outputs, variables, arrays)
    for each in (fold, optimize):
        made, constants = each(outputs)
        verify(made)
        computed = evaluate(list(constants.values()), cpu())
        got = dags.evaluate(made, [*variables, *constants], [*arrays, *computed])
        for a, b in zip(got, want):
            assert dags.bits(a) == dags.bits(b)


@check
@given(dags.graphs(), st.data())
def test_cutting_at_known_values_keeps_every_bit(graph, data):
    outputs, variables = graph
    arrays = dags.draw_arrays(variables, 5)
    inner = [
        Value(n, i) for n in topological(outputs) if n.op is not None for i in range(len(n.types))
    ]
    known = data.draw(st.lists(st.sampled_from(inner), unique=True, max_size=4)) if inner else []
    made, given_now = extract(outputs, [*variables, *known])
    verify(made)
    assert all(v.node.op is None for v in given_now)
    got = dags.evaluate(made, given_now, [*arrays, *dags.evaluate(known, variables, arrays)])
    for a, b in zip(got, dags.evaluate(outputs, variables, arrays)):
        assert dags.bits(a) == dags.bits(b)


# ---- dead code -----------------------------------------------------------------------------------


def test_live_nodes_stop_at_given_values():
    x = x_()
    y = F.tanh(x)
    z = F.exp(y)
    assert live([z], [x]) == [y.node, z.node]
    assert live([z], [y]) == [z.node]
    assert live([y], [y]) == []
    with pytest.raises(ValueError, match="'x' is not among the program's inputs"):
        live([z], [])


def test_one_known_output_of_a_node_is_not_computed_into():
    """A node of which one output is given and another needed runs again, into memory of its own."""
    x = x_()
    a, b = F.split(x, num_outputs=2, axis=0)
    program = lower([F.broadcast_add(a, b)], [x, a], cpu())
    given_a = nd.array([[100.0, 100.0, 100.0]])
    (out,) = program.run([nd.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), given_a])
    assert out.asnumpy().tolist() == [[104.0, 105.0, 106.0]]
    assert given_a.asnumpy().tolist() == [[100.0, 100.0, 100.0]]


# ---- common subexpressions -----------------------------------------------------------------------


def test_cse_merges_equal_nodes_only():
    x = x_()
    made = cse(
        [
            F.tanh(F._mul_scalar(x, scalar=2)),
            F.tanh(F._mul_scalar(x, scalar=2)),
            F.tanh(F._mul_scalar(x, scalar=3)),
        ]
    )
    assert made[0] == made[1] != made[2]
    assert names(made).count("tanh") == 2


def test_cse_distinguishes_signed_zeros():
    x = x_()
    made = cse([F._plus_scalar(x, scalar=0.0), F._plus_scalar(x, scalar=-0.0)])
    assert made[0] != made[1]


def test_cse_never_merges_random_draws():
    x = x_()
    made = cse([F.Dropout(x, p=0.5), F.Dropout(x, p=0.5), F.Dropout(x, p=0.0), F.Dropout(x, p=0.0)])
    assert made[0] != made[1]
    assert made[2] == made[3]
    made = cse([F._random_uniform(shape=(2,)), F._random_uniform(shape=(2,))])
    assert made[0] != made[1]


# ---- constant folding ----------------------------------------------------------------------------


def test_constants_are_computed_once():
    x = x_()
    ramp = F._mul_scalar(F._plus_scalar(F._arange(start=3), scalar=1), scalar=2)
    outputs, constants = fold([F.broadcast_add(x, ramp)])
    assert names(outputs) == ["broadcast_add"]
    assert [a.asnumpy().tolist() for a in evaluate([*constants.values()], cpu())] == [[2, 4, 6]]


def test_random_and_large_nodes_are_not_constant():
    big = F._zeros(shape=(LIMIT_BYTES // 4 + 1,))
    outputs = [F.tanh(F._random_uniform(shape=(2,))), F.tanh(big)]
    made, constants = fold(outputs)
    assert made == outputs and not constants


def test_a_source_that_is_an_output_is_filled_not_copied():
    program = lower([F._zeros(shape=(2, 3))], [], cpu())
    assert [op.name for op in program.ops] == ["_zeros"] and not program.constants


def test_programs_with_constants_run_repeatedly():
    x = x_()
    program = lower([F.broadcast_add(x, F.exp(F._arange(start=3)))], [x], cpu())
    for i in range(3):
        (out,) = program.run([nd.full((2, 3), i)])
        np.testing.assert_allclose(out.asnumpy(), i + np.exp([[0, 1, 2]] * 2), rtol=1e-6)


# ---- algebra -------------------------------------------------------------------------------------

x = x_()
IDENTITIES = {
    "x * 1": (F._mul_scalar(x, scalar=1), []),
    "x / 1": (F._div_scalar(x, scalar=1), []),
    "x - 0": (F._minus_scalar(x, scalar=0.0), []),
    "x + -0": (F._plus_scalar(x, scalar=-0.0), []),
    "x + 0": (F._plus_scalar(x, scalar=0.0), ["_plus_scalar"]),
    "x - -0": (F._minus_scalar(x, scalar=-0.0), ["_minus_scalar"]),
    "x * 0": (F._mul_scalar(x, scalar=0.0), ["_mul_scalar"]),
    "x * ones": (F.broadcast_mul(x, F._ones(shape=(1, 3))), []),
    "ones * x": (F.broadcast_mul(F._ones(shape=(3,)), x), []),
    "x * larger ones": (F.broadcast_mul(x, F._ones(shape=(4, 2, 3))), ["_ones", "broadcast_mul"]),
    "x / ones": (F.broadcast_div(x, F._ones(shape=(2, 3))), []),
    "ones / x": (F.broadcast_div(F._ones(shape=(2, 3)), x), ["_ones", "broadcast_div"]),
    "x - zeros": (F.broadcast_sub(x, F._zeros(shape=(2, 3))), []),
    "x + zeros": (F.broadcast_add(x, F._zeros(shape=(2, 3))), ["_zeros", "broadcast_add"]),
    "--x": (F.negative(F.negative(x)), []),
    "add_n(x)": (F.add_n(x), []),
    "copy": (F._copy(F.BlockGrad(x)), []),
    "cast to the same": (F.Cast(x, dtype="float32"), []),
    "cast to another": (F.Cast(x, dtype="float64"), ["Cast"]),
    "reshape of reshape": (F.Reshape(F.Reshape(x, shape=(6,)), shape=(3, -1)), ["reshape_to"]),
    "reshape there and back": (F.Reshape(F.Flatten(F.expand_dims(x, axis=0)), shape=(2, 3)), []),
    "transposes": (F.transpose(F.transpose(x)), []),
    "three transposes": (F.transpose(F.transpose(F.transpose(x))), ["transpose"]),
    "zeros_like": (F.zeros_like(F.exp(x)), ["_zeros"]),
    "idle dropout": (F.Dropout(x, p=0.0), []),
    "dropout": (F.Dropout(x, p=0.5), ["Dropout"]),
    "ones spread": (F.broadcast_to(F._ones(shape=(1, 3)), shape=(2, 3)), ["_ones"]),
    "x * ones seen as rows": (F.broadcast_mul(x, F.Reshape(F._ones(shape=(3,)), shape=(1, 3))), []),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identities(name):
    value, want = IDENTITIES[name]
    made = algebra([value])
    verify(made)
    assert names(made) == want
    for seed in range(5):
        array = dags.draw_arrays([x], seed, special=True)
        if "dropout" not in name:
            assert dags.bits(dags.evaluate(made, [x], array)[0]) == dags.bits(
                dags.evaluate([value], [x], array)[0]
            )


def test_transposes_of_every_order_compose():
    from itertools import permutations

    y = x_("y", (2, 3, 4))
    array = nd.array(np.arange(24).reshape(2, 3, 4))
    for a in permutations(range(3)):
        for b in permutations(range(3)):
            value = F.transpose(F.transpose(y, axes=a), axes=b)
            made = algebra([value])
            assert len(names(made)) <= 1
            assert dags.bits(dags.evaluate(made, [y], [array])[0]) == dags.bits(
                dags.evaluate([value], [y], [array])[0]
            )


def test_whole_numbers_of_64_bits_are_left_alone():
    for dtype, want in (("int64", ["_mul_scalar"]), ("int32", [])):
        y = x_("y", dtype=dtype)
        assert names(algebra([typed_scalar("_mul_scalar", y, 1.0)])) == want


def typed_scalar(name, value, scalar):
    op = lookup(name)
    return Value(typed_node(op, op.parse({"scalar": scalar, "is_int": True}), [value]))


# ---- memory that a graph writes ------------------------------------------------------------------


def norm(value, mean, var):
    gamma, beta = F._ones(shape=(3,)), F._zeros(shape=(3,))
    return F.BatchNorm(value, gamma, beta, mean, var, fix_gamma=False)


def run_with_statistics(outputs, given):
    arrays = [nd.array(np.arange(6.0).reshape(2, 3)), nd.zeros((3,)), nd.ones((3,))]
    program = lower(outputs, given, cpu())
    return [o.asnumpy() for o in program.run(arrays)], [a.asnumpy() for a in arrays], program


def evaluate_with_statistics(outputs, given):
    arrays = [nd.array(np.arange(6.0).reshape(2, 3)), nd.zeros((3,)), nd.ones((3,))]
    return [o.asnumpy() for o in dags.evaluate(outputs, given, arrays)], [
        a.asnumpy() for a in arrays
    ]


MEAN, VAR = x_("mean", (3,)), x_("var", (3,))


def statistics_graphs():
    before = F._mul_scalar(MEAN, scalar=2.0)
    y = norm(x, MEAN, VAR)
    after = F._mul_scalar(F.broadcast_add(MEAN, F.zeros_like(F.sum(y, axis=0))), scalar=2.0)
    yield "read, write, read", [before, y, after]
    yield (
        "two layers share statistics",
        [norm(norm(x, MEAN, VAR), MEAN, VAR), F._mul_scalar(MEAN, scalar=3.0)],
    )
    copy = F._copy(MEAN)
    yield "a copy keeps the old value", [copy, norm(x, MEAN, VAR), F._plus_scalar(copy, scalar=1.0)]
    less = F.negative(MEAN)
    yield "what is computed from a read stays with it", [less, norm(x, MEAN, VAR), F.negative(less)]
    view = F.Reshape(MEAN, shape=(1, 3))
    yield (
        "a view read before keeps the old value",
        [F.tanh(view), norm(x, MEAN, VAR), F._plus_scalar(view, scalar=1.0)],
    )
    yield "zeros of the layer still update", [F.zeros_like(norm(x, MEAN, VAR))]
    yield (
        "a dropped subtree reads first",
        [F.zeros_like(F._mul_scalar(MEAN, scalar=2.0)), norm(x, MEAN, VAR)],
    )
    own = [norm(x, F._zeros(shape=(3,)), F._ones(shape=(3,))) for _ in range(2)]
    yield "statistics made in the graph stay apart", own
    zeros = F._zeros(shape=(3,))
    yield "written zeros are no constant", [norm(x, zeros, VAR), F._plus_scalar(zeros, scalar=1.0)]


@pytest.mark.parametrize("name, outputs", list(statistics_graphs()))
def test_reads_and_writes_of_one_memory_keep_their_order(name, outputs):
    given = [x, MEAN, VAR]
    want, after = evaluate_with_statistics(outputs, given)
    for _ in range(2):  # a constant that a run had changed would show at the second
        got, arrays, _ = run_with_statistics(outputs, given)
        for a, b in zip([*got, *arrays], [*want, *after], strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_program_runs_the_same_twice_when_its_graph_writes_zeros():
    zeros = F._zeros(shape=(3,))
    program = lower([norm(x, zeros, VAR), F._plus_scalar(zeros, scalar=1.0)], [x, VAR], cpu())
    runs = []
    for _ in range(2):
        out = program.run([nd.array(np.arange(6.0).reshape(2, 3)), nd.ones((3,))])
        runs.append(out[1].asnumpy().tolist())
    assert runs[0] == runs[1] != [1.0, 1.0, 1.0]


def test_effects():
    copy = F._copy(MEAN)
    y = norm(F.tanh(x), MEAN, VAR)
    z = F.exp(y)
    effects = Effects(topological([copy, z]))
    assert effects.written == {MEAN, VAR}
    assert effects.pinned == {copy.node, y.node}
    assert [effects.droppable(v) for v in (x, y.node.inputs[0], y, z, copy)] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_gradient_rule_runs_once_for_equal_nodes(monkeypatch):
    asked = []
    op = lookup("tanh")
    original = op.grad
    monkeypatch.setattr(op, "gradients", Recent(16))
    monkeypatch.setattr(op, "grad", lambda F, *args, **attrs: asked.append(1) or original(F, *args))
    x = variable("x", Type((3, 4)))
    y = x
    for _ in range(20):
        y = F.tanh(y)
    y = F.reshape_to(y, shape=(12,))
    z = F.tanh(y)  # of another shape
    (g,) = gradient([z], [None], [x])
    assert len(asked) == 2 and g.shape == (3, 4)
    assert sum(n.op is op for n in topological([g])) == 21  # the forward results are read


def test_rewriting_single_values_and_asked_operators():
    x, y = variable("x", Type((2, 3))), variable("y", Type((2, 3)))
    a, b = F.relu(x), F.tanh(x)
    c = a + b
    (made,) = rewrite([c], values={a: y})
    assert made.node.inputs == (y, b) and made.node.inputs[1].node is b.node
    seen = []
    (kept,) = rewrite([c], lambda node, inputs: seen.append(node.op.name), asked={b.node.op})
    assert kept == c and kept.node is c.node and seen == ["tanh"]
    with pytest.raises(TypeError, match="list or tuple of Values"):
        rewrite([c], lambda node, inputs: 3)


def test_only_values_make_graphs():
    x = variable("x", Type((2,)))
    with pytest.raises(TypeError, match="must be Values"):
        topological([x.node])
    with pytest.raises(TypeError, match="must be Values"):
        topological([Value(Node(None, {}, ("x",), "n", (Type((2,)),)))])
    with pytest.raises(TypeError, match="a set or the keys of a dict"):
        walk([x], [x])
    with pytest.raises(TypeError, match="not typed"):
        variable("x").shape


# ---- what a node is not --------------------------------------------------------------------------


def test_variables_and_untyped_nodes_raise_clear_errors():
    relu = lookup("relu")
    x = variable("x")
    y = Node(relu, {}, (x,), "y")
    assert not x.node.is_typed and x.node.known_types is None and y.operation is relu
    with pytest.raises(TypeError, match="'x' is a variable: it has no operator"):
        _ = x.node.operation
    for read in (lambda: x.node.types, lambda: x.type, lambda: y.types):
        with pytest.raises(TypeError, match="the node '[xy]' is not typed"):
            read()
    y.types = [FLOAT]
    assert y.is_typed and y.types == y.known_types == (FLOAT,)
    with pytest.raises(TypeError):
        y.types = 1
    with pytest.raises(TypeError):
        del y.types
    assert y.types == (FLOAT,)
